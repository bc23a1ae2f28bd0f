"""`wdport encode` and `wdport decode`: files, options, refusals, documents."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import wdport
from tests.command import Cli
from tests.uses.wan_vae.make import OLD, save
from wdport.base.jax_settings import fast_compile
from wdport.nets import chunked


@pytest.fixture(autouse=True)
def _compile_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "OPTIONS", fast_compile())


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vae")
    return Path(wdport.convert(save(folder / "m", OLD), folder / "vae.keras").output)


def pixels(path: Path, frames: int = 5) -> np.ndarray:
    video = np.random.default_rng(0).integers(0, 256, (frames, 4, 6, 3), np.uint8)
    np.save(path, video)
    return video


def test_there_and_back(vae: Path, tmp_path: Path, cli: Cli) -> None:
    video = pixels(tmp_path / "v.npy")
    told = json.loads(cli("encode", vae, tmp_path / "v.npy", "--json").out)
    assert (told["kind"], told["direction"], told["latents"]) == ("coded", "encode", [1, 3, 2, 3, 2])
    held = np.load(tmp_path / "v.latents.npz")
    model = wdport.load_model(vae)
    right = model.encode((video / 127.5 - 1).astype(np.float32)[None])
    assert np.array_equal(held["latents"], right.mean)
    assert np.array_equal(held["logvar"], right.logvar)
    words = ["decode", str(vae), str(tmp_path / "v.latents.npz"), "-o", str(tmp_path / "w.npy")]
    assert "5 frames of 4 x 6, 3 channels" in cli(*words).out
    again = np.load(tmp_path / "w.npy")
    assert np.array_equal(again, model.decode(right.mean))
    assert again.dtype == np.float32
    assert "exists already" in cli(*words, "--output-dtype", "uint8", code=2).err
    cli(*words, "--output-dtype", "uint8", "--chunk", "2", "--force")
    assert np.max(np.abs(np.load(tmp_path / "w.npy").astype(int) - (again + 1) * 127.5)) <= 0.51


@pytest.mark.full
@pytest.mark.parametrize("ending", ["gif", "mp4"])
def test_videos_that_are_played(ending: str, vae: Path, tmp_path: Path, cli: Cli) -> None:
    av = pytest.importorskip("av")
    np.savez(tmp_path / "z.npz", latents=np.random.default_rng(0).standard_normal((3, 8, 8, 2)))
    out = tmp_path / f"v.{ending}"
    speed = {"gif": 16.667, "mp4": 16}[ending]  # a GIF counts hundredths of a second
    assert json.loads(cli("decode", vae, tmp_path / "z.npz", "-o", out, "--fps", "16", "--json").out)["fps"] == speed
    with av.open(str(out)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        rate = container.streams.video[0].average_rate
    assert (len(frames), frames[0].shape, round(float(rate))) == (5, (16, 16, 3), round(speed))
    right = wdport.load_model(vae).decode(
        np.load(tmp_path / "z.npz")["latents"][None].astype(np.float32), output="uint8"
    )
    assert np.mean(np.abs(np.stack(frames).astype(int) - right[0])) < 25


WRONG = [
    ("decode VAE Z -o x.avi", 2, "end the name in .npy, .gif, .mp4"),
    ("decode VAE Z -o x.npy --fps 3", 2, "--fps"),
    ("decode VAE Z -o x.npy --truncate", 2, "add --output-dtype uint8"),
    ("decode VAE Z -o x.gif --output-dtype float32", 2, "holds bytes"),
    ("decode VAE Z -o x.gif --fps 0", 2, "from 0.1 to 1000"),
    ("decode VAE Z --chunk 0", 2, "--chunk"),
    ("decode VAE V", 2, "has 3 channels, and the model 2"),
    ("decode VAE OTHER", 3, "has no array latents or mean"),
    ("decode VAE none.npz", 3, "none.npz"),
    ("decode Z Z", 3, "Z"),
    ("encode VAE Z", 2, "has 2 channels, and the model 3"),
    ("encode VAE V4", 2, "v4.npy: has 4 frames"),
    ("encode VAE V -o x.npy", 2, "end the name in .npz"),
    ("encode VAE NAN", 3, "has NaN or infinite values"),
    ("encode VAE LARGE", 2, "has values up to 255, and the model takes -1 to 1; scale them, or give bytes (uint8)"),
    ("encode VAE INTEGERS", 2, "holds int64; give floating-point values from -1 to 1, or bytes (uint8)"),
    ("decode VAE INFINITE", 3, "has NaN or infinite values"),
    ("decode VAE WHOLE", 2, "holds int64; give floating-point latents"),
]


def test_what_is_refused(vae: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("z.npz", latents=np.zeros((1, 2, 2, 3, 2)))
    np.savez("other.npz", a=np.zeros(3), b=np.zeros(3))
    pixels(Path("v.npy"))
    pixels(Path("v4.npy"), 4)
    odd = {"NAN": np.full((1, 4, 4, 3), np.nan), "LARGE": np.full((1, 4, 4, 3), 255.0),
           "INTEGERS": np.full((1, 4, 4, 3), 1), "INFINITE": np.full((1, 2, 3, 2), np.inf),
           "WHOLE": np.zeros((1, 2, 3, 2), int)}  # fmt: skip
    (tmp_path / "odd").mkdir()
    for name, array in odd.items():
        np.save(tmp_path / "odd" / f"{name.lower()}.npy", array)
    files = {"VAE": str(vae), "Z": "z.npz", "OTHER": "other.npz", "V4": "v4.npy", "V": "v.npy",
             **{name: f"odd/{name.lower()}.npy" for name in odd}}  # fmt: skip
    for words, code, said in WRONG:
        error = cli(*[files.get(word, word) for word in words.split()], code=code).err
        assert said.replace("Z", "z.npz") in error, words
        assert error.count("\n") == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["odd", "other.npz", "v.npy", "v4.npy", "z.npz"]
    assert len(list((tmp_path / "odd").iterdir())) == len(odd)


def test_without_pyav_it_says_what_to_install(
    vae: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    np.savez(tmp_path / "z.npz", latents=np.zeros((1, 2, 2, 3, 2)))
    own = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "av" else own(name, *rest))
    shown = cli("decode", vae, tmp_path / "z.npz", "-o", tmp_path / "v.mp4", code=5)
    assert "needs PyAV, which is not installed; install wdport[video]" in shown.err
