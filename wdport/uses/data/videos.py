"""Read a video as bytes (T, H, W, 3): an `.mp4` or `.gif` file, or a folder of `.png` images, one for each frame."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from wdport.base.errors import InputError
from wdport.base.limits import MAX_VIDEO_BYTES
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import open_regular
from wdport.files.animation import BYTES, NEEDS
from wdport.models.interface import Array
from wdport.uses.data.arrays import understood
from wdport.uses.data.table import data_file

_IMAGES: Final = ".png"


def is_video(path: Path) -> bool:
    """Whether :func:`read_video` reads what is there."""
    return path.suffix in BYTES or path.is_dir()


def read_video(path: Path) -> Array:
    """The frames (T, H, W, 3) of a video, uint8.

    The frames of a folder are its ``.png`` images in the order of their names, in which numbers count as numbers.

    Raises:
        InputError: the file is damaged or of another format, a folder has no such images or images of several sizes, or
            the frames have more than 16 GiB.
        MachineError: the package that the format needs is not installed.
    """
    folder = path.is_dir()
    suffix = _IMAGES if folder else path.suffix
    {**NEEDS, _IMAGES: NEEDS[".gif"]}[suffix].require(path, "reading")
    frames, size = list[Array](), 0
    read = {".mp4": _mp4, ".gif": _images, _IMAGES: _images}[suffix]
    for file in in_order(path, (_IMAGES,)) if folder else [path]:
        with data_file(file) as opened, understood(suffix):
            for frame in read(opened):
                size += frame.nbytes
                if frame.shape != (first := frames[0] if frames else frame).shape:
                    pixels = " x ".join(map(str, frame.shape[:2]))
                    raise Fault(f"has {pixels} pixels, and the frames before {first.shape[0]} x {first.shape[1]}",
                                "give frames of one size")  # fmt: skip
                if size > MAX_VIDEO_BYTES:
                    raise Fault(f"has more than {MAX_VIDEO_BYTES >> 30} GiB of frames", "encode it in parts")
                frames.append(frame)
    if not frames:
        raise InputError(path, "has no frames", "give a video, or a folder of .png images")
    return np.stack(frames)


def in_order(folder: Path, suffixes: Collection[str] | None) -> list[Path]:
    """What is in a folder, with one of these suffixes, in the order of names, in which numbers count as numbers."""
    files = (file for file in folder.iterdir() if suffixes is None or file.suffix.lower() in suffixes)
    # frame_10.png after frame_9.png.
    return sorted(files, key=lambda file: [(part.zfill(20), part) for part in re.split(r"([0-9]+)", file.name)])


def _images(file: Path) -> Iterator[Array]:
    """The images of one file, as RGB."""
    from PIL import Image, ImageSequence

    with open_regular(file) as opened, Image.open(opened, formats=("GIF", "PNG")) as image:
        for frame in ImageSequence.Iterator(image):
            yield np.asarray(frame.convert("RGB"))


def _mp4(file: Path) -> Iterator[Array]:
    import av

    # A file object and a stated format, so that FFmpeg opens nothing else that the file may name.
    with open_regular(file) as opened:
        try:
            with av.open(opened, "r", format="mp4") as container:
                for frame in container.decode(video=0):
                    yield frame.to_ndarray(format="rgb24")
        except av.FFmpegError as error:  # also an OSError, but not of the system
            raise ValueError(str(error).partition(":")[0]) from error
