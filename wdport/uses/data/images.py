"""Read a folder of images as bytes (n, H, W, C), with a label for each if every class has a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from wdport.base.errors import InputError, UsageError
from wdport.base.limits import MAX_VIDEO_BYTES
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import open_regular
from wdport.files.animation import NEEDS
from wdport.models.interface import Array
from wdport.uses.data.arrays import understood
from wdport.uses.data.table import data_file
from wdport.uses.data.videos import in_order

SUFFIXES: Final = (".png", ".jpg", ".jpeg")

WIDE: Final = 65535 / 255
"""The factor between values of 16 and of 8 bits."""

_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by the number of channels."""


def read_images(folder: Path, shape: tuple[int, int, int]) -> tuple[Array, Array | None]:
    """Return the images (n, H, W, C) of a folder, uint8, and their labels (n,), int32.

    The images are in the folder itself, in the order of their names, and have no labels; or they are in one folder for
    each class, and a label is the number of this folder in the order of the names, in which numbers count as numbers.
    The classes are spread evenly: any part of the result has about as large a share of each as the whole.

    Args:
        folder: has `.png` and `.jpg` images.
        shape: (H, W, C) of every image; colors are converted, sizes are not.

    Raises:
        InputError: an image is damaged or has another size, the folder has no images, or it has both images and folders
            of images.
        UsageError: no images have so many channels, or they take more than 16 GiB.
        MachineError: Pillow is not installed.
    """
    NEEDS[".gif"].require(folder, "reading")
    if shape[-1] not in _MODES:
        raise UsageError(folder, f"is a folder of images, and a state has {shape[-1]} channels", "give an .npy file")
    with located(folder):
        classes = [place for place in in_order(folder, None) if place.is_dir() and not place.name.startswith(".")]
        here = in_order(folder, SUFFIXES)
        by_class = [in_order(place, SUFFIXES) for place in classes]
    empty = [place for place, group in zip(classes, by_class, strict=True) if not group]
    if empty and any(by_class):
        raise InputError(empty[0], "has no .png or .jpg images, and would count as a class", "remove it, or add images")
    spread = sorted((index / len(group), label, file)
                    for label, group in enumerate(by_class) for index, file in enumerate(group))  # fmt: skip
    files = [file for _, _, file in spread] or here
    if here and spread:
        raise InputError(folder, "has images and folders of images", "give images, or one folder for each class")
    if not files:
        raise InputError(folder, "has no .png or .jpg images", "give images, or one folder for each class")
    if len(files) * int(np.prod(shape)) > MAX_VIDEO_BYTES:
        raise UsageError(folder, f"has more than {MAX_VIDEO_BYTES >> 30} GiB of images", "give fewer")
    images = np.empty((len(files), *shape), np.uint8)
    for index, file in enumerate(files):
        images[index] = _image(file, shape)
    return images, np.array([label for _, label, _ in spread], np.int32) if spread else None


def _image(path: Path, shape: tuple[int, int, int]) -> Array:
    from PIL import Image

    with (data_file(path) as file, understood("PNG or JPEG"), open_regular(file) as opened,
          Image.open(opened, formats=("PNG", "JPEG")) as image):  # fmt: skip
        if image.size != (shape[1], shape[0]):  # before it is decoded
            what = f"has {image.size[1]} x {image.size[0]} pixels, and the model {shape[0]} x {shape[1]}"
            raise Fault(what, "resize the images")
        wide = image.mode.startswith("I")  # of 16 bits, which Pillow would clip to 255
        narrow = Image.fromarray(np.rint(np.asarray(image) / WIDE).astype(np.uint8)) if wide else image
        return np.asarray(narrow.convert(_MODES[shape[-1]])).reshape(shape)
