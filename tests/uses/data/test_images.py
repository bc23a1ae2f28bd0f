"""Folders of images: what Pillow wrote is read, by class or without, and what does not fit is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wdport.base.errors import InputError, UsageError
from wdport.uses.data.images import read_images

SHAPE = (4, 6, 3)


def _write(folder: Path, names: list[str], seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(seed).integers(0, 256, (len(names), *shape), dtype=np.uint8)
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image).save(folder / name)
    return images


def test_images_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    written = _write(tmp_path, ["a2.png", "a10.PNG", "a1.png"])
    (tmp_path / "notes.txt").write_text("x")
    images, labels = read_images(tmp_path, SHAPE)
    assert labels is None
    np.testing.assert_array_equal(images, written[[2, 0, 1]])


def test_a_folder_is_a_class(tmp_path: Path) -> None:
    """As torchvision's ImageFolder numbers them, but for numbers in names."""
    written = {label: _write(tmp_path / f"class {label}", [f"{n}.png" for n in range(count)], label)
               for label, count in ((2, 4), (10, 2))}  # fmt: skip
    (tmp_path / ".cache").mkdir()
    images, labels = read_images(tmp_path, SHAPE)
    assert labels is not None
    assert labels.tolist() == [0, 1, 0, 0, 1, 0]
    for number, array in enumerate(written.values()):
        np.testing.assert_array_equal(images[labels == number], array)


def test_colors_are_those_of_the_model(tmp_path: Path) -> None:
    _write(tmp_path, ["a.jpg"])
    with Image.open(tmp_path / "a.jpg") as opened:
        gray = np.asarray(opened.convert("L"))
    np.testing.assert_array_equal(read_images(tmp_path, (4, 6, 1))[0][0, ..., 0], gray)


def test_images_of_16_bits_are_not_clipped(tmp_path: Path) -> None:
    narrow = np.random.default_rng(0).integers(0, 256, SHAPE[:2], dtype=np.uint8)
    Image.fromarray(narrow.astype(np.uint16) * 257).save(tmp_path / "a.png")
    for channels in (1, 3):
        images, _ = read_images(tmp_path, (*SHAPE[:2], channels))
        np.testing.assert_array_equal(images[0], np.repeat(narrow[..., None], channels, -1))


def test_a_folder_without_images_is_no_class(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        _write(tmp_path / name, ["a.png"])
    (tmp_path / "birds").mkdir()
    with pytest.raises(InputError, match=r"birds: has no \.png or .jpg images, and would count as a class; remove it"):
        read_images(tmp_path, SHAPE)


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"has no \.png or .jpg images"):
        read_images(tmp_path, SHAPE)
    _write(tmp_path, ["a.png"])
    with pytest.raises(InputError, match=r"a.png: has 4 x 6 pixels, and the model 8 x 6; resize"):
        read_images(tmp_path, (8, 6, 3))
    with pytest.raises(UsageError, match="a state has 2 channels"):
        read_images(tmp_path, (4, 6, 2))
    _write(tmp_path / "more", ["a.png"])
    with pytest.raises(InputError, match="has images and folders of images"):
        read_images(tmp_path, SHAPE)
    (tmp_path / "more" / "a.png").write_bytes(b"GIF89a, and nothing else")
    (tmp_path / "a.png").unlink()
    with pytest.raises(InputError, match="is not a PNG or JPEG file, or is damaged"):
        read_images(tmp_path, SHAPE)
    monkeypatch.setattr("wdport.uses.data.images.MAX_VIDEO_BYTES", 1)
    with pytest.raises(UsageError, match="has more than 0 GiB of images; give fewer"):
        read_images(tmp_path, SHAPE)
