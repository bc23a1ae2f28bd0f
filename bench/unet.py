"""A U-Net's sampling: milliseconds per step of ours, of diffusers in PyTorch, and of the matrix products alone.

`python bench/unet.py [--batch 1 16 64] [--no-compile] [--steps 4] [--rounds 7] [--device cpu|cuda]
[--precision float32|tf32]`: a UNet2DModel of about 10 million parameters on 32 x 32 pixels, DDIM. Every contender runs
in turn, round after round, in one process; the table has medians of the times and of the rounds' ratios. A step is the
network and the sampler's update. The floor is the matrix products that the convolutions, attention's projections and
dense layers amount to, by JAX, as one program.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import torch

import wdport
from wdport.base.jax_settings import fast_run
from wdport.uses.diffusion.noise import lay_out
from wdport.uses.diffusion.run_plan import first_carry, plan_rows, run_rows
from wdport.uses.sampling.network import keras_network

Run = Callable[[], Any]
SIZE = 32
PAUSE = 0.3
"""Seconds before every run: PyTorch's threads may spin on for a while after their work, to the cost of who is next."""


def build() -> diffusers.UNet2DModel:
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=SIZE,
        in_channels=3,
        out_channels=3,
        block_out_channels=(64, 128, 192),
        layers_per_block=2,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=32,
        attention_head_dim=32,
    ).eval()


def main() -> None:
    given = _arguments()
    torch.set_num_threads(given.threads)
    tf32 = given.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest")
    module = build()
    count = sum(parameter.numel() for parameter in module.parameters())
    print(f"{platform.machine()}, {given.threads} threads, {jax.devices()[0].device_kind}, {given.precision}; "
          f"torch {torch.__version__}, jax {jax.__version__}, "
          f"diffusers {diffusers.__version__}; {count / 1e6:.1f} million parameters, {SIZE} x {SIZE}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(Path(folder) / "unet")
        diffusers.DDIMScheduler(clip_sample=False).save_pretrained(Path(folder) / "unet")
        model = wdport.load_model(wdport.convert(Path(folder) / "unet").output)
    module = module.to(given.device)
    for batch in given.batch:
        _table(model, module, batch, given)


def _table(model: Any, module: Any, batch: int, given: argparse.Namespace) -> None:
    state = np.random.default_rng(0).standard_normal((batch, SIZE, SIZE, 3)).astype(np.float32)
    products = _products(module, batch)
    runs = {
        "wdport": _ours(model, state, given.steps, fast_run()),
        "PyTorch eager": _torch(module, state, given.steps),
    }
    if fast_run():  # options for the CPU alone
        runs["wdport, XLA's default options"] = _ours(model, state, given.steps, {})
    if given.compile:
        mode = "reduce-overhead" if given.device == "cuda" else "default"
        runs["torch.compile"] = _torch(torch.compile(module, mode=mode, dynamic=False), state, given.steps)
    runs["matrix products alone, JAX"] = _floor(products)
    if not given.rounds:
        return
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.rounds):
        for name, (run, steps) in runs.items():
            time.sleep(PAUSE if given.device == "cpu" else 0)
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / steps)
    gflop = sum(2e-9 * rows * width * out for rows, width, out in products)
    print(f"\nbatch {batch}: milliseconds per step (least to most), times ours in the same round")
    for name, values in times.items():
        spread = f"({1e3 * min(values):.1f} to {1e3 * max(values):.1f})"
        ratio = statistics.median(other / ours for other, ours in zip(values, times["wdport"], strict=True))
        rate = f"{gflop / statistics.median(values):6.0f} GFLOP/s"
        print(f"  {name:<30} {1e3 * statistics.median(values):8.2f} {spread:<20} {ratio:6.2f} x {rate}", flush=True)


def _ours(model: Any, state: Any, count: int, options: dict[str, Any]) -> tuple[Run, int]:
    """One scan over a DDIM plan, compiled with these options."""
    network = keras_network(model)
    plan = network.process().plan("ddim", count)
    rows, weights, start = plan_rows(plan, "float32"), network.weights(), jnp.asarray(state)
    tape = jnp.asarray(lay_out(np.zeros((0, *state.shape), np.float32), plan.noisy))

    @partial(jax.jit, compiler_options=options)
    def program(weights: Any, rows: Any, start: Any, tape: Any) -> Any:
        step = lambda x, c: network.apply(weights, x, c)  # noqa: E731
        return run_rows(step, rows, first_carry(start), tape)[0][0]

    run = lambda: program(weights, rows, start, tape).block_until_ready()  # noqa: E731
    run()
    return run, len(plan.steps)


def _torch(module: Any, state: Any, count: int) -> tuple[Run, int]:
    """The library's loop: one call of the network and one of the scheduler per step."""
    scheduler = diffusers.DDIMScheduler(clip_sample=False)
    scheduler.set_timesteps(count)
    device = next(module.parameters()).device
    start = torch.tensor(np.moveaxis(state, -1, 1).copy(), device=device)

    def run() -> None:
        x = start
        with torch.inference_mode():
            for t in scheduler.timesteps:
                x = scheduler.step(module(x, t).sample, t, x).prev_sample
        if device.type == "cuda":
            torch.cuda.synchronize()

    run()
    return run, count


def _products(module: Any, batch: int) -> list[tuple[int, int, int]]:
    """Rows, in and out of the product that each convolution and dense layer amounts to."""
    found: list[tuple[int, int, int]] = []

    def keep(layer: Any, _: Any, made: Any) -> None:
        if isinstance(layer, torch.nn.Conv2d):
            width = layer.in_channels * int(np.prod(layer.kernel_size))
            found.append((made.shape[0] * made.shape[2] * made.shape[3], width, layer.out_channels))
        elif isinstance(layer, torch.nn.Linear):
            found.append((made.numel() // layer.out_features, layer.in_features, layer.out_features))

    hooks = [layer.register_forward_hook(keep) for layer in module.modules()]
    with torch.inference_mode():
        module(torch.zeros(batch, 3, SIZE, SIZE, device=next(module.parameters()).device), 1)
    for hook in hooks:
        hook.remove()
    return found


def _floor(sizes: list[tuple[int, int, int]]) -> tuple[Run, int]:
    rng = np.random.default_rng(0)
    lefts = {size[:2]: jnp.asarray(rng.standard_normal(size[:2]), jnp.float32) for size in sizes}
    rights = [jnp.asarray(rng.standard_normal(size[1:]), jnp.float32) for size in sizes]
    named = {str(size): array for size, array in lefts.items()}
    program = jax.jit(lambda lefts, rights: [lefts[str(s[:2])] @ w for s, w in zip(sizes, rights, strict=True)])
    run = lambda: jax.block_until_ready(program(named, rights))  # noqa: E731
    run()
    return run, 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
