"""What each precision policy costs: milliseconds per step, and how far its samples are from float64's.

`python bench/precision.py MODEL [--batch 64] [--steps 50] [--rounds 9]`; MODEL is a converted file. All policies draw
the same samples (one seed, DDIM, eta 0) and run in turn, round after round, in one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import numpy as np

import wdport
from wdport.base.shared_types import POLICIES
from wdport.uses.sampling import Sampler, plan_of, programs_of


def main() -> None:
    arguments = _arguments()
    models, samplers = {}, {}
    for dtype in POLICIES:
        with jax.enable_x64(dtype == "float64"):
            models[dtype] = wdport.load_model(arguments.model, dtype)
        programs = programs_of(models[dtype])
        samplers[dtype] = Sampler(programs, plan_of(programs.network, "ddim", arguments.steps), seed=0)
    indices = np.arange(arguments.batch)
    drawn = {dtype: sampler.run(indices) for dtype, sampler in samplers.items()}
    times: dict[str, list[float]] = {dtype: [] for dtype in POLICIES}
    for _ in range(arguments.rounds):
        for dtype, sampler in samplers.items():
            start = time.perf_counter()
            sampler.run(indices)
            times[dtype].append((time.perf_counter() - start) / len(sampler.plan.steps))
    print(f"{arguments.model}: batch {arguments.batch}, {len(samplers['float32'].plan.steps)} steps of DDIM, "
          f"{jax.devices()[0].device_kind}, jax {jax.__version__}")  # fmt: skip
    print("network          state, schedule, transform   ms per step   times float32   off from float64")
    median = {dtype: statistics.median(values) for dtype, values in times.items()}
    for dtype, sampler in samplers.items():
        state = sampler.programs.network.dtype
        off = "" if dtype == "float64" else f"{_off(drawn[dtype], drawn['float64']):.1e}"
        ratio = median[dtype] / median["float32"]
        print(f"{dtype:<16} {state:<28} {1e3 * median[dtype]:11.2f} {ratio:15.2f} {off:>18}")


def _off(ours: Any, truth: Any) -> float:
    """Relative error, over all samples' coefficients."""
    return float(np.linalg.norm(ours.coefficients - truth.coefficients) / np.linalg.norm(truth.coefficients))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
