"""Training at the released size: milliseconds per step of ours, of PyTorch's, and of the matrix products alone.

`python bench/training.py [--batch 32] [--rounds 5] [--no-compile] [--no-torch] [--device cpu|cuda]
[--precision float32|tf32]`; `--rounds 0` only compiles. A step is forward pass, loss, backward pass, clipping and AdamW
in float32, with dropout 0. Every contender runs in turn, round after round, in one process; the table has medians of
the times and of the rounds' ratios. The floor are the blocks' products of the forward pass and their two gradients, and
nothing else: no attention, no norms, no optimizer, which has a separate row.
"""

from __future__ import annotations

import argparse
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
import jax.numpy as jnp
import numpy as np
import torch

import wdport
from wdport.optimizers.torch_like import Adam
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.reference import build_reference, random_tensors, training_loss

RELEASED = Config((5, 5, 8, 13), 7, 256, 8, 8, 128, dropout=0.0, wavelet="db2", boundary_mode="symmetric", seq_len=24)
Step = Callable[[], Any]
PAUSE = 0.3
"""Seconds before every run: PyTorch's threads may spin on for a while after their work, to the cost of who is next."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    jax.config.update("jax_default_matmul_precision", {"tf32": "tensorfloat32"}.get(arguments.precision, "highest"))
    print(f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}, jax {jax.__version__}, "
          f"torch {torch.__version__}, {arguments.precision}")  # fmt: skip
    tensors = random_tensors(RELEASED, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "released.pt"
        torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, file)
        settings = {"num_heads": "8", "wavelet": "db2", "seq_len": "24", "dropout": "0.0"}
        converted = wdport.convert(file, values=settings).output
        for batch in arguments.batch:
            _table(converted, tensors, batch, arguments)


def _table(converted: Path, tensors: Any, batch: int, arguments: argparse.Namespace) -> None:
    states = np.random.default_rng(0).standard_normal((batch, RELEASED.coefficients, RELEASED.features))
    runs: dict[str, Step] = {"wdport, its step": _ours(converted, states.astype(np.float32)),
                             "wdport, fit for one step": _fit(converted, states.astype(np.float32))}  # fmt: skip
    if arguments.torch:
        runs["PyTorch eager"] = _torch(tensors, states.astype(np.float32), arguments.device, compiled=False)
        if arguments.compile:
            runs["torch.compile"] = _torch(tensors, states.astype(np.float32), arguments.device, compiled=True)
    runs["AdamW alone, JAX"] = _optimizer_alone(converted)
    runs["matrix products alone, JAX"] = _floor(batch)
    if not arguments.rounds:
        return
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            time.sleep(PAUSE)
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    print(f"\nbatch {batch}: {'ms per step':>40}   times the floor   times ours")
    floor, ours = times["matrix products alone, JAX"], times["wdport, its step"]
    for name, found in times.items():
        over, beside = (statistics.median(a / b for a, b in zip(found, base, strict=True)) for base in (floor, ours))
        print(f"  {name:<32}{statistics.median(found) * 1e3:>16.1f}{over:>18.2f}{beside:>13.2f}")


def _ours(converted: Path, states: Any) -> Step:
    """The compiled step of ``fit``."""
    trained = _trained(converted)
    trained.optimizer.build(trained.trainable_variables)
    trained.make_train_function()
    batch = (jnp.asarray(states),)
    state = [trained._get_jax_state(True, True, True, True)]

    def step() -> None:
        _, state[0] = jax.block_until_ready(trained.train_function(state[0], iter([batch])))

    began = time.perf_counter()
    step()
    print(f"compiled in {time.perf_counter() - began:.0f} s", flush=True)
    step()
    return step


def _fit(converted: Path, states: Any) -> Step:
    """A call of ``fit`` for one step."""
    trained = _trained(converted)

    def step() -> None:
        trained.fit(states, batch_size=len(states), shuffle=False, verbose=0)

    step()
    return step


def _trained(converted: Path) -> Any:
    trained = wdport.training_model(wdport.load_model(converted))
    trained.compile(optimizer=Adam([{"lr": 1e-4, "weight_decay": 1e-5}], clip_norm=1.0))
    return trained


def _optimizer_alone(converted: Path) -> Step:
    """Clipping and AdamW with given gradients, which move ten times the bytes of the weights."""
    optimizer = Adam([{"lr": 1e-4, "weight_decay": 1e-5}], clip_norm=1.0)
    model = wdport.load_model(converted)
    optimizer.build(model.trainable_variables)
    state = [
        [jnp.array(each.value) for each in several] for several in (optimizer.variables, model.trainable_variables)
    ]
    slopes = [0.01 * each for each in state[1]]
    program = jax.jit(lambda state, slopes: list(optimizer.stateless_apply(state[0], slopes, state[1])[::-1]),
                      donate_argnums=0)  # fmt: skip

    def step() -> None:
        state[:] = jax.block_until_ready(program(state, slopes))

    step()
    return step


def _torch(tensors: Any, states: Any, device: str, compiled: bool) -> Step:
    """One step of the public training loop."""
    module = build_reference(RELEASED, tensors, "float32").train().to(device)
    network: Any = torch.compile(module, dynamic=False) if compiled else module
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=1e-5)
    alpha_bar = tensors["alpha_bar_all"] if "alpha_bar_all" in tensors else np.linspace(1.0, 0.01, 1001)
    random = np.random.default_rng(0)

    def step() -> None:
        batch = {"clean": states, "noise": random.standard_normal(states.shape).astype(np.float32),
                 "uniform": random.random(len(states)).astype(np.float32)}  # fmt: skip
        loss, _ = training_loss(network, batch, alpha_bar, RELEASED.level_lengths, RELEASED.prediction_target)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    step()
    step()
    return step


def _floor(batch: int) -> Step:
    """The products of the blocks and their two gradients, of the same sizes and as many, in one compiled program."""
    sizes = [(batch * length, *size) for length, width, depth in
             zip(RELEASED.level_lengths, RELEASED.widths, RELEASED.depths, strict=True) for _ in range(depth)
             for size in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))]  # fmt: skip
    rng = np.random.default_rng(0)
    rights = [jnp.asarray(rng.standard_normal((k, n)), jnp.float32) for _, k, n in sizes]
    rows = {str(size): jnp.asarray(rng.standard_normal(size), jnp.float32)
            for m, k, n in sizes for size in ((m, k), (m, n))}  # fmt: skip

    @jax.jit
    def program(rows: Any, rights: Any) -> Any:
        found = []
        for (m, k, n), right in zip(sizes, rights, strict=True):
            x, slope = rows[str((m, k))], rows[str((m, n))]
            found += [x @ right, slope @ right.T, x.T @ slope]
        return found

    run = lambda: jax.block_until_ready(program(rows, rights))  # noqa: E731
    run()
    return run


if __name__ == "__main__":
    main()
