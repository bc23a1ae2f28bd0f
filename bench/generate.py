"""Text by confidence: tokens per second compared with transformers and diffusers in PyTorch.

`python bench/generate.py [--width 128 256 512] [--prompts 32] [--length 64] [--steps 16] [--block 32] [--rounds 5]
[--output FILE]`: EuroBertForMaskedLM of six layers and 8,192 tokens, random weights, float32, prompts of 8 to 32.
PyTorch runs the library's model (sdpa attention) and diffusers' `BlockRefinementScheduler` in the loop of its pipeline,
all prompts in one batch, padded on the left. Every contender completes the same prompts in turn, round after round, in
one process; the table has medians of the times and of the rounds' ratios. The tokens must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
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
from wdport.uses.generation.api import generator_of

PAUSE = 0.3
"""Seconds before every run: PyTorch's threads may spin on for a while after their work, to the cost of who is next."""

WORDS, MASK, LAYERS, HEAD = 8192, 1, 6, 64


def main() -> None:
    given = _arguments()
    found = {str(width): _width(given, width) for width in given.width}
    if given.output:
        Path(given.output).write_text(json.dumps(found, indent=1) + "\n")


def _saved(folder: str, width: int) -> tuple[Any, Any]:
    """The library's model and the port."""
    import torch
    from transformers import EuroBertConfig, EuroBertForMaskedLM

    torch.manual_seed(0)
    config = EuroBertConfig(
        vocab_size=WORDS, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=LAYERS,
        num_attention_heads=width // HEAD, num_key_value_heads=width // HEAD, mask_token_id=MASK, pad_token_id=0,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    module = EuroBertForMaskedLM(config).eval()
    with torch.no_grad():  # logits as far apart as those of a trained model
        module.lm_head.weight.mul_(20.0)
    module.save_pretrained(Path(folder) / "m")
    return module, wdport.load_model(wdport.convert(Path(folder) / "m").output)


def library(module: Any, prompts: list[np.ndarray], length: int, block: int, steps: int) -> np.ndarray:
    """The new tokens (B, length) of the library's model, driven by its scheduler as its pipeline drives it."""
    import torch
    from diffusers import BlockRefinementScheduler

    start = max(map(len, prompts))
    x = torch.full((len(prompts), start + length), MASK)
    mask = torch.ones_like(x)
    for row, prompt in enumerate(prompts):
        x[row, start - len(prompt) : start] = torch.from_numpy(prompt)
        mask[row, : start - len(prompt)] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)
    scheduler = BlockRefinementScheduler()
    scheduler.set_timesteps(steps, block_length=block)
    with torch.inference_mode():
        for end in range(start + block, start + length + 1, block):
            for step in range(steps):
                now = x[:, end - block : end]
                if not (now == MASK).any():
                    break
                logits = module(x[:, :end], attention_mask=mask[:, :end], position_ids=places[:, :end]).logits
                logits = logits[:, -block:]
                logits[..., MASK] = torch.finfo(logits.dtype).min
                made = scheduler.step(logits, step, now, mask_token_id=MASK, threshold=1.0)
                x[:, end - block : end] = made.prev_sample
    return x[:, start:].numpy()


def _width(given: argparse.Namespace, width: int) -> dict[str, Any]:
    import diffusers
    import torch
    import transformers

    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        module, model = _saved(folder, width)
    count = sum(parameter.numel() for parameter in module.parameters())
    print(f"{platform.machine()}, {given.threads} threads; torch {torch.__version__}, jax {jax.__version__}, "
          f"transformers {transformers.__version__}, diffusers {diffusers.__version__}; width {width}, "
          f"{count / 1e6:.1f} million parameters; {given.prompts} prompts, {given.length} tokens in {given.steps} "
          f"steps, blocks of {given.block}")  # fmt: skip
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, WORDS, size) for size in rng.integers(8, 33, given.prompts)]
    steps = given.steps * given.block // given.length

    def ours(steps: int = steps) -> np.ndarray:
        done = wdport.generate(
            model, prompts, length=given.length, block_length=given.block, steps=steps, threshold=1.0,
            batch=given.prompts,
        )  # fmt: skip
        return np.stack([text[-given.length :] for text in done.tokens])

    runs: dict[str, Callable[[], np.ndarray]] = {
        "PyTorch": lambda: library(module, prompts, given.length, given.block, steps), "wdport": ours,
    }  # fmt: skip
    right, first = runs["PyTorch"](), {}
    for name, run in runs.items():
        started = time.perf_counter()
        same = float(np.mean(run() == right))
        first[name] = time.perf_counter() - started
        print(f"{name}: {same:.2%} of the tokens are PyTorch's")
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, run in runs.items():
            time.sleep(PAUSE)
            started = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - started)
    for other in (1, 2 * steps):
        ours(other)
    print(f"programs compiled: {generator_of(model).programs}, for 3 numbers of steps")
    found: dict[str, Any] = {}
    tokens = given.prompts * given.length
    for name, seconds in taken.items():
        median = statistics.median(seconds)
        ratio = statistics.median(a / b for a, b in zip(taken["PyTorch"], seconds, strict=True))
        found[name] = {"seconds": seconds, "tokens_per_second": tokens / median, "ratio": ratio, "first": first[name]}
        print(f"{name:8s} {median:7.3f} s  {tokens / median:8.0f} tokens/s  {ratio:5.2f} times PyTorch   "
              f"first call {first[name]:.1f} s")  # fmt: skip
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
