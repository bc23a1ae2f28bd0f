"""Scores of generated series: Context-FID's encoder, the judges and time warping, compared with other code.

`python bench/evaluation.py [--count 2000] [--rounds 3] [--loops 40]`. Series are 24 steps of 7 features. The encoder is
trained for 600 steps by ours and by PyTorch in turn; ours is compiled in the first round, which is given apart. Time
warping of 100 x 200 pairs is compared with plain loops over `--loops` pairs, whose time is scaled to as many.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import numpy as np
import torch

from tests.uses.evaluation import ts2vec_torch
from tests.uses.evaluation.test_formulas import walked
from wdport.uses.evaluation.context_fid import default_encoder, train_encoder
from wdport.uses.evaluation.distances import dtw_distances

STEPS, PAIRS = 600, (100, 200)


def seconds(run: Callable[[], Any]) -> float:
    since = time.perf_counter()
    jax.block_until_ready(run())  # type: ignore[no-untyped-call]
    return time.perf_counter() - since


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loops", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    print(f"{platform.machine()}, {os.cpu_count()} cores, jax {jax.__version__}, torch {torch.__version__}, float32")
    series = np.random.default_rng(0).random((arguments.count, 24, 7))
    encoder = default_encoder(7)
    first = seconds(lambda: train_encoder(encoder, series, 0, STEPS))
    ours, theirs = [], []
    for seed in range(arguments.rounds):
        ours.append(seconds(lambda seed=seed: train_encoder(encoder, series, seed, STEPS)))  # type: ignore[misc]
        theirs.append(seconds(lambda seed=seed: ts2vec_torch.trained(series, seed, STEPS)))  # type: ignore[misc]
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    torchs = statistics.median(theirs)
    print(f"encoder, {STEPS} steps   ours {statistics.median(ours):.1f} s, with compiling {first:.1f} s; "
          f"PyTorch {torchs:.1f} s: {ratio:.1f} and {torchs / first:.1f} times as fast")  # fmt: skip
    one, other = (series[:count].astype(np.float32) for count in PAIRS)
    seconds(lambda: dtw_distances(one, other))
    quick = statistics.median(seconds(lambda: dtw_distances(one, other)) for _ in range(arguments.rounds))
    slow = seconds(
        lambda: [walked(one[at % 100, :, f], other[at, :, f]) for at in range(arguments.loops) for f in range(7)]
    )
    slow *= PAIRS[0] * PAIRS[1] / arguments.loops
    print(f"time warping of {PAIRS[0] * PAIRS[1]} pairs   ours {quick:.2f} s, loops {slow:.1f} s by scaling: "
          f"{slow / quick:.0f} times as fast")  # fmt: skip


if __name__ == "__main__":
    main()
