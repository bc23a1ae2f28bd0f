"""Videos as they are read: frame for frame, in order; damaged ones are rejected."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import wdport
from tests.uses.wan_vae.make import OLD, save
from wdport.base.errors import InputError, MachineError
from wdport.cli.main import main
from wdport.files.animation import video_target, write_video
from wdport.uses.data import videos
from wdport.uses.data.videos import read_video

Image = pytest.importorskip("PIL.Image")


def frames(count: int = 13) -> np.ndarray:
    """Smooth colours of few levels, which a GIF holds exactly, with a bar that moves from frame to frame."""
    video = np.zeros((count, 16, 32, 3), np.uint8)
    video[..., 0] = np.arange(32) // 8 * 60
    video[..., 1] = (np.arange(16) // 4 * 60)[:, None]
    for index in range(count):
        video[index, :, 2 * index : 2 * index + 2, 2] = 240
    return video


def written(video: np.ndarray, path: Path) -> Path:
    if path.suffix:
        write_video(video_target(path, {}, False), (1, *video.shape), [video[None]], 8.0)
        return path
    path.mkdir()
    for index, frame in enumerate(video):
        Image.fromarray(frame).save(path / f"frame{index}.png")
    (path / "readme.txt").write_text("not a frame")
    return path


@pytest.mark.parametrize(("name", "error"), [("v.gif", 0.0), ("v.mp4", 8.0), ("folder", 0.0)])
def test_frames_are_those_of_the_video(name: str, error: float, tmp_path: Path) -> None:
    video = frames()
    found = read_video(written(video, tmp_path / name))
    assert (found.shape, found.dtype) == (video.shape, np.uint8)
    assert np.abs(found.astype(int) - video).mean() <= error
    bars = found[..., 2].mean(1).reshape(13, 16, 2).mean(-1)
    assert bars.argmax(-1).tolist() == list(range(13))


def test_encode_reads_images(tmp_path: Path) -> None:
    vae = str(wdport.convert(save(tmp_path / "m", OLD), tmp_path / "vae.keras").output)
    video = frames(5)
    np.save(tmp_path / "v.npy", video)
    written(video, tmp_path / "v")
    assert main(["encode", vae, str(tmp_path / "v.npy"), "-o", str(tmp_path / "a.npz")]) == 0
    assert main(["encode", vae, str(tmp_path / "v")]) == 0
    one, other = (np.load(tmp_path / name) for name in ("a.npz", "v.latents.npz"))
    assert np.array_equal(one["latents"], other["latents"])


def test_what_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(frames(3), tmp_path / "folder")
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(folder / "frame10.png")
    with pytest.raises(InputError, match=r"frame10.png: has 4 x 4 pixels, and the frames before 16 x 32"):
        read_video(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: has no frames"):
        read_video(tmp_path / "empty")
    (tmp_path / "other.mp4").write_bytes((folder / "frame0.png").read_bytes())
    with pytest.raises(InputError, match=r"other.mp4: is not a .mp4 file, or is damaged"):
        read_video(tmp_path / "other.mp4")
    monkeypatch.setattr(videos, "MAX_VIDEO_BYTES", 16 * 32 * 3)
    with pytest.raises(InputError, match="of frames; encode it in parts"):
        read_video(folder)
    own = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "av" else own(name, *rest))
    with pytest.raises(MachineError, match=r"reading it needs PyAV, which is not installed; install wdport\[video\]"):
        read_video(tmp_path / "other.mp4")


@pytest.mark.parametrize("name", ["v.gif", "v.mp4", "folder"])
def test_damage_raises_nothing_else(name: str, tmp_path: Path) -> None:
    path = written(frames(4), tmp_path / name)
    file = path / "frame2.png" if path.is_dir() else path
    whole, random, rejected = file.read_bytes(), np.random.default_rng(0), 0
    for at in range(200):
        changed = bytearray(whole)
        for _ in range(3):
            changed[random.integers(len(whole))] ^= 1 << random.integers(8)
        file.write_bytes(changed[: random.integers(len(whole))] if at % 4 == 0 else changed)
        try:
            read_video(path)
        except InputError:
            rejected += 1
    assert rejected > 40
