"""A video autoencoder's decoder: time compared with diffusers in PyTorch, and memory by the number of frames.

`python bench/decode.py [--frames 17] [--size 128] [--chunk 1 2 4] [--rounds 5] [--memory] [--output FILE]`: an
AutoencoderKLWan with the levels of Wan 2.1 and a small width, float32. Every contender decodes the same latents in
turn, round after round, in one process; the table has medians of the times and of the rounds' ratios to PyTorch.
`--memory` instead decodes 21 and 81 frames, each in its own process, and prints the peaks of resident memory: in
chunks whose frames are dropped as they come, and with all chunks in one `lax.scan`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras  # noqa: F401  before our modules that need it
import numpy as np

import wdport
from wdport.nets.chunked import scanned
from wdport.uses.wan_vae.codec import CodecSettings

PAUSE = 0.3
"""Seconds before every run: PyTorch's threads may spin on for a while after their work, to the cost of who is next."""

FIELDS: dict[str, Any] = {"base_dim": 16, "z_dim": 8, "latents_mean": [0.0] * 8, "latents_std": [1.0] * 8}


def main() -> None:
    given = _arguments()
    if given.one:
        _one(given.one, given.size, given.frames)
    elif given.memory:
        _memory(given)
    else:
        _times(given)


def _saved(folder: str) -> tuple[Any, Any]:
    """The library's model and the port."""
    import diffusers
    import torch

    torch.manual_seed(0)
    module = diffusers.AutoencoderKLWan(**FIELDS).eval()
    module.save_pretrained(Path(folder) / "vae")
    return module, wdport.load_model(wdport.convert(Path(folder) / "vae").output)


def _latents(frames: int, size: int) -> np.ndarray:
    shape = (1, (frames - 1) // 4 + 1, size // 8, size // 8, FIELDS["z_dim"])
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _times(given: argparse.Namespace) -> None:
    import diffusers
    import torch

    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        module, model = _saved(folder)
    count = sum(parameter.numel() for parameter in module.parameters())
    print(f"{platform.machine()}, {given.threads} threads; torch {torch.__version__}, jax {jax.__version__}, "
          f"diffusers {diffusers.__version__}; {count / 1e6:.1f} million parameters, {given.frames} frames of "
          f"{given.size} x {given.size}")  # fmt: skip
    latents = _latents(given.frames, given.size)
    z = torch.from_numpy(np.ascontiguousarray(latents.transpose(0, 4, 1, 2, 3)))

    def theirs() -> np.ndarray:
        with torch.no_grad():
            return np.asarray(module.decode(z).sample.numpy().transpose(0, 2, 3, 4, 1))

    runs: dict[str, Callable[[], np.ndarray]] = {"PyTorch eager": theirs}
    for chunk in given.chunk:
        runs[f"wdport, chunks of {chunk}"] = lambda chunk=chunk: model.decode(latents, chunk=chunk)
    right, compiling = theirs(), {}
    for name, run in runs.items():
        started = time.perf_counter()
        error = float(np.linalg.norm(run() - right) / np.linalg.norm(right))
        compiling[name] = time.perf_counter() - started
        assert error < 1e-5, (name, error)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, run in runs.items():
            time.sleep(PAUSE)
            started = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - started)
    programs = model.codecs(CodecSettings("float32", "float32", "float32")).decoder.programs
    print(f"programs compiled: {programs}, for {len(given.chunk)} sizes of chunks")
    found = {}
    for name, seconds in taken.items():
        ratio = statistics.median(a / b for a, b in zip(seconds, taken["PyTorch eager"], strict=True))
        found[name] = {"seconds": statistics.median(seconds), "ratio": ratio, "first": compiling[name]}
        first = f"first call {compiling[name]:.1f} s"
        print(f"{name:24s} {statistics.median(seconds):8.3f} s   {ratio:5.2f} of PyTorch   {first}")
    if given.output:
        Path(given.output).write_text(json.dumps(found, indent=1) + "\n")


def _memory(given: argparse.Namespace) -> None:
    for way in ("chunks", "scan"):
        peaks = {}
        for frames in (21, 81):
            words = [sys.executable, __file__, "--one", way, "--size", str(given.size), "--frames", str(frames)]
            peaks[frames] = float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        print(
            f"{way:8s} 21 frames {peaks[21]:7.1f} MB, 81 frames {peaks[81]:7.1f} MB, ratio {peaks[81] / peaks[21]:.3f}"
        )


def _one(way: str, size: int, frames: int) -> None:
    """Print the peak of resident memory in MB of decoding so many frames, with the weights of a model without any."""
    from wdport.uses.wan_vae.config import Config
    from wdport.uses.wan_vae.family import FAMILY

    model, latents = FAMILY.build(Config.from_dict(FIELDS)), _latents(frames, size)
    if way == "chunks":
        for _ in model.decode_in_parts(latents):
            pass
    else:
        codec = model.codecs(CodecSettings("float32", "float32", "float32"))
        chunks = np.moveaxis(latents, 1, 0)[:, :, None]
        program = jax.jit(lambda weights, chunks: scanned(codec.decode_step, weights, chunks, np.int32(0)))
        np.asarray(program(codec.weights(model), chunks))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=17)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--chunk", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--output")
    parser.add_argument("--one", choices=["chunks", "scan"], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
