"""Sampling at the released size: milliseconds per step of ours, of PyTorch's, and of the matrix products alone.

`python bench/sampling.py [--batch 1 64] [--no-compile] [--no-torch] [--steps 8] [--rounds 15] [--device cpu|cuda]
[--precision float32]`; `make bench-sampling` runs it on the CPU. `--rounds 0` only compiles, for a compile cache. Every
contender runs in turn, round after round, in one process; the table has medians of the times and of the rounds' ratios.
A step is the network and the sampler's update.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
import torch

import wdport
from wdport.base.jax_settings import fast_run
from wdport.uses.diffusion.noise import lay_out
from wdport.uses.diffusion.run_plan import first_carry, plan_rows, run_rows
from wdport.uses.sampling.network import Network, keras_network
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.reference import WaveletDiff, build_reference, random_tensors

RELEASED = Config((5, 5, 8, 13), 7, 256, 8, 8, 128, wavelet="db2", boundary_mode="symmetric", seq_len=24)
Run = Callable[[], Any]
PAUSE = 0.3
"""Seconds before every run: PyTorch's threads may spin on for a while after their work, to the cost of who is next."""


def main() -> None:
    arguments = _arguments()
    if arguments.device == "cpu":
        torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    precision = {"tf32": "tensorfloat32", "float32": "highest"}.get(arguments.precision, "default")
    print(_machine(arguments))
    tensors = random_tensors(RELEASED, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "released.pt"
        torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, file)
        settings = {"num_heads": "8", "wavelet": "db2", "seq_len": "24"}
        converted = wdport.convert(file, values=settings).output
        model = wdport.load_model(converted, dtype="bfloat16" if arguments.precision == "bfloat16" else None)
        module = build_reference(RELEASED, tensors, "float32").to(arguments.device)
        if arguments.precision == "bfloat16":
            module = module.to(torch.bfloat16)
        with jax.default_matmul_precision(precision):
            for batch in arguments.batch:
                _table(model, module, batch, arguments)
        if arguments.device == "cpu":
            _first_samples(converted)


def _table(model: Any, module: WaveletDiff, batch: int, arguments: argparse.Namespace) -> None:
    """Print the table of a batch."""
    state = np.random.default_rng(0).standard_normal((batch, RELEASED.coefficients, RELEASED.features))
    runs = _contenders(model, module, state, arguments)
    if not arguments.rounds:
        print(f"  batch {batch:>3}: compiled")
        return
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, (run, steps) in runs.items():
            time.sleep(PAUSE if arguments.device == "cpu" else 0)
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / steps)
    print(
        f"\nbatch {batch}, {arguments.precision}: milliseconds per step (least to most), times ours in the same round"
    )
    gflop = sum(2e-9 * rows * width * out for rows, width, out in _products(batch))
    for name, values in times.items():
        spread = f"({1e3 * min(values):.1f} to {1e3 * max(values):.1f})"
        ratio = statistics.median(other / ours for other, ours in zip(values, times["wdport"], strict=True))
        products = f"{gflop / statistics.median(values):6.0f} GFLOP/s" if "products" in name else ""
        print(f"  {name:<34} {1e3 * statistics.median(values):8.2f} {spread:<20} {ratio:6.2f} x {products}", flush=True)


def _contenders(
    model: Any, module: WaveletDiff, state: Any, arguments: argparse.Namespace
) -> dict[str, tuple[Run, int]]:
    low, batch, steps = arguments.precision == "bfloat16", len(state), arguments.steps
    network = keras_network(model)
    runs: dict[str, tuple[Run, int]] = {"wdport": _ours(network, state, steps, network.weights())}
    floor = _floor(batch, jnp.bfloat16 if low else jnp.float32)
    if not arguments.torch:
        return {**runs, "matrix products alone, JAX": floor}
    runs["PyTorch eager"] = _torch(module, state, arguments.steps, arguments.device)
    if arguments.compile:
        mode = "reduce-overhead" if arguments.device == "cuda" else "default"
        compiled = torch.compile(module, mode=mode, dynamic=False)
        runs[f"torch.compile ({mode})"] = _torch(compiled, state, arguments.steps, arguments.device)
    runs["matrix products alone, JAX"] = floor
    runs["matrix products alone, PyTorch"] = _torch_floor(batch, next(module.parameters()).dtype, arguments.device)
    return runs


def _ours(network: Network, state: Any, count: int, weights: Any) -> tuple[Run, int]:
    """A compiled scan over a DDIM plan."""
    plan = network.process().plan("ddim", count)
    rows = plan_rows(plan, network.dtype)
    start = jnp.asarray(state, network.dtype)
    tape = jnp.asarray(lay_out(np.zeros((0, *state.shape), network.dtype), plan.noisy))

    @partial(jax.jit, compiler_options=fast_run())
    def program(weights: Any, rows: Any, start: Any, tape: Any) -> Any:
        step = lambda x, c: network.apply(weights, x, c)  # noqa: E731
        return run_rows(step, rows, first_carry(start), tape)[0][0]

    run = lambda: program(weights, rows, start, tape).block_until_ready()  # noqa: E731
    run()
    return run, len(plan.steps)


def _torch(module: Any, state: Any, count: int, device: str) -> tuple[Run, int]:
    """The public sampler's loop: one call of the network and one update per step, on the whole batch."""
    dtype = next(module.parameters()).dtype
    start = torch.tensor(state, dtype=dtype, device=device)
    schedule = getattr(module, "_orig_mod", module).get_buffer("alpha_bar_all").to(torch.float32)

    def run() -> None:
        x = start
        with torch.inference_mode():
            for step in torch.linspace(1000, 1, count).long().tolist():
                noise = module(x, torch.full((len(x),), step / 1000.0, dtype=dtype, device=device))
                kept = float(schedule[step])
                clean = (x - (1 - kept) ** 0.5 * noise) / kept**0.5
                x = kept**0.5 * clean + (1 - kept) ** 0.5 * noise
        if device == "cuda":
            torch.cuda.synchronize()

    run()
    return run, count


def _products(batch: int) -> list[tuple[int, int, int]]:
    """The blocks' matrix products of one step: rows, in and out of each."""
    return [(batch * length, *size) for length, width, depth in
            zip(RELEASED.level_lengths, RELEASED.widths, RELEASED.depths, strict=True) for _ in range(depth)
            for size in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))]  # fmt: skip


def _floor(batch: int, dtype: Any) -> tuple[Run, int]:
    """The products alone, of the same sizes and as many, in one compiled program."""
    sizes, rng = _products(batch), np.random.default_rng(0)
    rights = [jnp.asarray(rng.standard_normal((k, n)), dtype) for _, k, n in sizes]
    lefts = {size[:2]: jnp.asarray(rng.standard_normal(size[:2]), dtype) for size in sizes}
    program = jax.jit(lambda lefts, rights: [lefts[str(s[:2])] @ w for s, w in zip(sizes, rights, strict=True)])
    named = {str(size): array for size, array in lefts.items()}
    run = lambda: jax.block_until_ready(program(named, rights))  # noqa: E731
    run()
    return run, 1


def _torch_floor(batch: int, dtype: Any, device: str) -> tuple[Run, int]:
    """The same products by PyTorch, and so by its own library, MKL or cuBLAS."""
    sizes = _products(batch)
    rights = [torch.randn(n, k, dtype=dtype, device=device) for _, k, n in sizes]
    lefts = {size[:2]: torch.randn(size[:2], dtype=dtype, device=device) for size in sizes}

    def run() -> None:
        with torch.inference_mode():
            for size, right in zip(sizes, rights, strict=True):
                torch.nn.functional.linear(lefts[size[:2]], right)
        if device == "cuda":
            torch.cuda.synchronize()

    run()
    return run, 1


def _first_samples(converted: Path) -> None:
    """Whole processes of `wdport sample`, the file written: without and with programs compiled by an earlier one."""
    print("\nwdport sample -n 1 --sampler ddim --steps 50, from its start to its end")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "first.npz"
        entry = [sys.executable, "-c", "from wdport.cli.main import run; run()"]
        command = [*entry, "sample", str(converted), "-n", "1", "--sampler", "ddim", "--steps", "50"]
        environment = {**os.environ, "WDPORT_COMPILE_CACHE": str(Path(folder) / "cache")}
        for name in ("nothing compiled", "compiled before", "compiled before"):
            start = time.perf_counter()
            subprocess.run([*command, "-o", str(output), "--force"], check=True, env=environment, capture_output=True)
            print(f"  {name:<20} {time.perf_counter() - start:6.2f} s", flush=True)


def _machine(arguments: argparse.Namespace) -> str:
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{arguments.threads} threads"
    return f"{platform.machine()}, {device}; torch {torch.__version__}, jax {jax.__version__}, {jax.devices()[0]}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 1])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="float32")
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
