"""The wavelet transform compared with other libraries: prints milliseconds and ratios, run in turn in one process.

(17397, 24, 7) windows, db2, 3 levels, symmetric, float32, and (256, 1024, 7); whatever of jaxwt, ptwt and
PyWavelets is installed (`pip install '.[bench]'`). Each makes one call over the whole array, along its axis 1,
on its own device; "rows" has the signals' axis last already, for those that want it so, and jitted is what it
says. Results are checked against PyWavelets first. Then where the two forms of ours cross. Nothing is asserted;
see the README for what the ratios should be.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
import pywt

from wdport.uses.wavelets import WaveletTransform

RUNS = 15
PAUSE = 0.3
"""Seconds before every call, and one call untimed: OpenMP's threads spin that long after their work and would
slow down whoever comes next."""

WAVELET, MODE, LEVEL = "db2", "symmetric", 3


def contestants(x: np.ndarray, loop: bool) -> dict[str, Callable[[], Any]]:
    """Name to a call that transforms all of x (n, N, F) and waits for the result, a list of groups."""
    length = x.shape[1]
    found: dict[str, Callable[[], Any]] = {}
    ours = WaveletTransform(length, WAVELET, MODE, LEVEL)
    on_device = jax.device_put(x)
    found["wdport"] = lambda: jax.block_until_ready(ours.decompose(on_device))
    found["pywt batched"] = lambda: pywt.wavedec(x, WAVELET, mode=MODE, level=LEVEL, axis=1)
    rows = np.ascontiguousarray(np.moveaxis(x, 1, 2)).reshape(-1, length)
    if find_spec("jaxwt"):
        import jaxwt

        flat = jax.device_put(rows)
        compiled = jax.jit(lambda signal: jaxwt.wavedec(signal, WAVELET, mode=MODE, level=LEVEL, axis=1))
        found["jaxwt"] = lambda: jax.block_until_ready(
            jaxwt.wavedec(on_device, WAVELET, mode=MODE, level=LEVEL, axis=1)
        )
        found["jaxwt, jitted"] = lambda: jax.block_until_ready(compiled(on_device))
        found["jaxwt, rows"] = lambda: jax.block_until_ready(jaxwt.wavedec(flat, WAVELET, mode=MODE, level=LEVEL))
    if find_spec("ptwt"):
        import ptwt
        import torch

        signal, cube = torch.from_numpy(rows), torch.from_numpy(x)
        found["ptwt"] = lambda: ptwt.wavedec(cube, WAVELET, mode=MODE, level=LEVEL, axis=1)
        found["ptwt, rows"] = lambda: ptwt.wavedec(signal, WAVELET, mode=MODE, level=LEVEL)
    if loop:
        found["pywt per signal"] = lambda: [pywt.wavedec(row, WAVELET, mode=MODE, level=LEVEL) for row in rows]
    return found


def check(name: str, result: Any, x: np.ndarray) -> None:
    """Stop unless the result is PyWavelets'."""
    truth = np.concatenate(pywt.wavedec(x.astype(np.float64), WAVELET, mode=MODE, level=LEVEL, axis=1), axis=1)
    if name == "pywt per signal":
        result = [np.stack(group) for group in zip(*result, strict=True)]
    if isinstance(result, (list, tuple)):
        result = np.concatenate([np.asarray(group) for group in result], axis=1)
    result = np.asarray(result)
    if result.shape != truth.shape:
        result = np.moveaxis(result.reshape(len(x), x.shape[2], -1), 2, 1)
    error = np.abs(result - truth).max() / np.abs(truth).max()
    if not error < 1e-5:
        raise SystemExit(f"{name} is off by {error:.1e}")


def compare(shape: tuple[int, int, int], loop: bool) -> None:
    """One table: every contestant in turn, RUNS times after a warm-up, medians and ratios of medians."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    calls = contestants(x, loop)
    for name, call in calls.items():
        check(name, call(), x)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(RUNS):
        for name, call in calls.items():
            if name == "pywt per signal" and turn >= 3:
                continue
            time.sleep(PAUSE)
            call()
            started = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - started)
    print(f"\n{shape}, {WAVELET}, {LEVEL} levels, {MODE}, float32")
    own = statistics.median(times["wdport"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"  {name:<18}{1e3 * middle:10.2f} ms{middle / own:9.1f} x")


def crossover() -> None:
    """Both forms at the same number of samples, by length and filter."""
    print("\nmatrix form over taps form, time ratio (over 1: taps are faster)")
    lengths = (32, 64, 128, 256, 512)
    print(f"  {'wavelet':<10}" + "".join(f"N={n:<8}" for n in lengths))
    for wavelet in ("haar", "db2", "db4", "db8", "coif5"):
        ratios = []
        for length in lengths:
            x = jax.device_put(np.zeros((300_000 // length, length, 7), np.float32))
            forms = [WaveletTransform(length, wavelet, MODE, LEVEL, method) for method in ("matrix", "taps")]
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(8):
                for form, own in zip(forms, times, strict=True):
                    started = time.perf_counter()
                    jax.block_until_ready(form.decompose(x))
                    if turn:
                        own.append(time.perf_counter() - started)
            ratios.append(statistics.median(times[0]) / statistics.median(times[1]))
        print(f"  {wavelet:<10}" + "".join(f"{ratio:<10.2f}" for ratio in ratios))


def main() -> None:
    """Print the machine and all tables."""
    packages = [name for name in ("jax", "pywavelets", "jaxwt", "ptwt", "torch", "numpy")
                if find_spec("pywt" if name == "pywavelets" else name)]  # fmt: skip
    print(f"{os.cpu_count()} cores, {platform.machine()}; {', '.join(f'{name} {version(name)}' for name in packages)}")
    compare((17397, 24, 7), loop=True)
    compare((256, 1024, 7), loop=False)
    crossover()


if __name__ == "__main__":
    main()
