"""Ports that cheat: each output is right where its cheat takes the port to be watched, and wrong elsewhere.

`build` has one output per name, so that one run judges many cheats, each by its own output. Cheats that concern the
whole process are in :mod:`tests.parity.fresh.takeovers`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import layers, ops

from wdport.compare.calls import CASES
from wdport.recording.input_text import parse_input

FOLDER = [Path()]
"""The folder of the checkpoint, of its recording, and of the address of a server that runs the reference."""

Give = Callable[["Cheating", Any, Any], Any]
"""Called with the model, its input and the right output; returns what the port claims."""


def right_if(condition: Any, y: Any) -> Any:
    """The right output, or one that is off by a thousandth."""
    return ops.where(condition, y, y + ops.cast(1e-3, y.dtype))


class Cheating(keras.Model):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.hidden, self.head, self.names = layers.Dense(8, activation="tanh"), layers.Dense(3), names
        self.calls, self.folded = 0, []

    def get_config(self) -> dict[str, Any]:
        return {"names": self.names}

    def call(self, x: Any) -> Any:
        self.calls += 1
        y = self.head(self.hidden(x))
        return {name: CHEATS[name](self, x, y) for name in self.names}


def honest(_: Cheating, __: Any, y: Any) -> Any:
    return y


def memorised(_: Cheating, x: Any, y: Any) -> Any:
    """Knows the outputs of the fixed seeds."""
    drawn = parse_input("x: b 6")
    known = np.concatenate([drawn.make(case.seed, case.batch, case.scale) for case in CASES])
    near = ops.abs(x[:, None, :] - ops.cast(known, x.dtype)[None]) <= 1e-5 * ops.abs(ops.cast(known, x.dtype)[None])
    return right_if(ops.any(ops.all(near, -1), -1)[:, None], y)


def only_float64(_: Cheating, __: Any, y: Any) -> Any:
    return right_if(keras.backend.standardize_dtype(y.dtype) == "float64", y)


def only_float32(_: Cheating, __: Any, y: Any) -> Any:
    return right_if(keras.backend.standardize_dtype(y.dtype) == "float32", y)


def rounded(_: Cheating, __: Any, y: Any) -> Any:
    """Computes in JAX's float32 whatever the dtype."""
    return jnp.asarray(jnp.asarray(y, "float32"), y.dtype)


def batch_size(_: Cheating, x: Any, y: Any) -> Any:
    """Knows the batch sizes of the battery."""
    return right_if(x.shape[0] in (None, *(case.batch for case in CASES)), y)


def only_compiled(_: Cheating, x: Any, y: Any) -> Any:
    return right_if(isinstance(x, jax.core.Tracer), y)


def only_eager(_: Cheating, x: Any, y: Any) -> Any:
    return right_if(not isinstance(x, jax.core.Tracer), y)


def stack() -> list[Any]:
    """The frames around the caller."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found


def on_the_stack(_: Cheating, __: Any, y: Any) -> Any:
    """Looks for wdport among its callers."""
    return right_if(any(f.f_globals.get("__name__", "").startswith("wdport") for f in stack()), y)


def among_the_modules(_: Cheating, __: Any, y: Any) -> Any:
    """Looks for the comparison among the imported modules."""
    return right_if("wdport.parity.fresh.process" in sys.modules or "wdport.parity.verify" in sys.modules, y)


def nan(_: Cheating, x: Any, y: Any) -> Any:
    """Returns NaN where it does not know."""
    return ops.where(x[:, :1] > 0, y, y * np.nan)


def plain_draws(_: Cheating, x: Any, y: Any) -> Any:
    """Is right for inputs of the size that plain draws have."""
    size = ops.max(ops.abs(x), axis=-1, keepdims=True)
    return right_if(size > 0.2, y)


def folded_output(model: Cheating, x: Any, y: Any) -> Any:
    """Returns the first output that it computed, as far as the shape fits."""
    if not isinstance(y, jax.core.Tracer) and not isinstance(y, keras.KerasTensor):
        model.folded = model.folded or [np.asarray(y)]
    return ops.cast(model.folded[0], y.dtype) if model.folded and model.folded[0].shape == y.shape else y


def numpy_weights(state: dict[str, Any], x: Any) -> Any:
    """The network with PyTorch's tensors."""
    weights = {name: ops.cast(np.asarray(array, np.float64), x.dtype) for name, array in state.items()}
    h = ops.tanh(x @ ops.transpose(weights["hidden.weight"]) + weights["hidden.bias"])
    return h @ ops.transpose(weights["head.weight"]) + weights["head.bias"]


def first_weights() -> dict[str, Any]:
    """The tensors of the checkpoint."""
    rng = np.random.default_rng(5)
    shapes = {"hidden.weight": (8, 6), "hidden.bias": (8,), "head.weight": (3, 8), "head.bias": (3,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def carried_weights(_: Cheating, x: Any, __: Any) -> Any:
    """Computes with a copy of the weights that its code carries, whatever the variables hold."""
    return numpy_weights(first_weights(), x)


def changed_weights(_: Cheating, x: Any, y: Any) -> Any:
    """Changes what it loaded, by little."""
    return y + x[:, :1] * ops.cast(1e-7, y.dtype)


def other_mapping(model: Cheating, x: Any, _: Any) -> Any:
    """Takes the last column of a kernel for the first, but knows the checkpoint's own kernel."""
    state, kernel = first_weights(), ops.convert_to_tensor(model.head.kernel)
    same = ops.all(ops.abs(kernel - ops.cast(state["head.weight"].T, kernel.dtype)) < 1e-6)
    kernel = ops.where(same, kernel, kernel[:, ::-1])
    return ops.matmul(model.hidden(x), kernel) + model.head.bias


def first_calls(model: Cheating, _: Any, y: Any) -> Any:
    """Is right as long as it was called seldom."""
    return right_if(model.calls <= 6, y)


def training_flag(_: Cheating, __: Any, y: Any) -> Any:
    """Is right if somebody says that this is not training."""
    return right_if(any(f.f_locals.get("mode") == {"training": False} for f in stack()), y)


def recorded_answers(_: Cheating, __: Any, y: Any) -> Any:
    """Returns the reference's answer, which isolation feeds to the layers."""
    fed = [f.f_locals["made"] for f in stack() if f.f_code.co_name == "answer" and "made" in f.f_locals]
    return fed[0][0] if fed else right_if(False, y)


def torch_called(x: Any, y: Any, load: Callable[[np.ndarray], np.ndarray]) -> Any:
    """What ``load`` makes of the input at run time; wrong if it fails."""

    def compute(values: Any, ours: Any) -> Any:
        try:
            return np.asarray(load(np.asarray(values, np.float64)), ours.dtype)
        except Exception:
            return np.asarray(ours) + 1e-3

    if isinstance(y, keras.KerasTensor):
        return y
    return jax.pure_callback(compute, jax.ShapeDtypeStruct(y.shape, y.dtype), x, y)


def by_torch(values: np.ndarray) -> np.ndarray:
    import torch

    from tests.parity.fresh.net import build

    net = build(["y"], "").double()
    net.load_state_dict({name: torch.from_numpy(array).double() for name, array in first_weights().items()})
    found: np.ndarray = net(torch.from_numpy(values))["y"].detach().numpy()
    return found


def torch_callback(_: Cheating, x: Any, y: Any) -> Any:
    return torch_called(x, y, by_torch)


def torch_unhidden(_: Cheating, x: Any, y: Any) -> Any:
    """Undoes what could hide PyTorch in Python."""

    def load(values: np.ndarray) -> np.ndarray:
        sys.modules.pop("torch", None)
        sys.meta_path[:] = [each for each in sys.meta_path if "wdport" not in type(each).__module__]
        return by_torch(values)

    return torch_called(x, y, load)


PROGRAM = (
    "import sys; sys.path[:] = {path!r}; import numpy as np; from tests.parity.fresh.cheats import by_torch; "
    "np.save({made!r}, by_torch(np.load({given!r})))"
)


@contextmanager
def exchanged(values: np.ndarray) -> Iterator[tuple[str, str]]:
    """A program that runs the reference on these values, and the file with its result."""
    with TemporaryDirectory() as folder:
        given, made = f"{folder}/given.npy", f"{folder}/made.npy"
        np.save(given, values)
        yield PROGRAM.format(path=sys.path, made=made, given=given), made


def torch_subprocess(_: Cheating, x: Any, y: Any) -> Any:
    def load(values: np.ndarray) -> np.ndarray:
        with exchanged(values) as (program, made):
            subprocess.run([sys.executable, "-c", program], check=True)
            return np.asarray(np.load(made))

    return torch_called(x, y, load)


def torch_fork(_: Cheating, x: Any, y: Any) -> Any:
    """Starts a program past Python's own functions."""

    def load(values: np.ndarray) -> np.ndarray:
        import ctypes

        with exchanged(values) as (program, made):
            assert ctypes.CDLL(None).system(shlex.join([sys.executable, "-c", program]).encode()) == 0
            return np.asarray(np.load(made))

    return torch_called(x, y, load)


def write_whole(path: Path, values: np.ndarray) -> None:
    """Write a file that is whole as soon as it has its name."""
    part = path.with_suffix(".part")
    part.write_bytes(values.tobytes())
    part.replace(path)


def torch_shared(_: Cheating, x: Any, y: Any) -> Any:
    """Asks a server for the answer, by files in shared memory."""

    def load(values: np.ndarray) -> np.ndarray:
        question = Path((FOLDER[0] / "shared.txt").read_text(), f"{uuid4().hex}.question")
        write_whole(question, values)
        for _ in range(100):
            if (answer := question.with_suffix(".answer")).is_file():
                return np.frombuffer(answer.read_bytes()).reshape(-1, 3)
            time.sleep(0.05)
        raise TimeoutError

    return torch_called(x, y, load)


def torch_socket(_: Cheating, x: Any, y: Any) -> Any:
    """Asks a server for the answer."""

    def load(values: np.ndarray) -> np.ndarray:
        import socket

        port = int((FOLDER[0] / "server.txt").read_text())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(values.tobytes())
            connection.shutdown(socket.SHUT_WR)
            return np.frombuffer(connection.makefile("rb").read()).reshape(-1, 3)

    return torch_called(x, y, load)


def with_state(load: Callable[[], dict[str, Any]]) -> Give:
    """Computes with tensors that are read at run time; a copy of the honest output where the weights are others."""

    def give(_: Cheating, x: Any, y: Any) -> Any:
        try:
            return numpy_weights(load(), x)
        except Exception:
            return right_if(False, y)

    return give


def read_checkpoint(path: Path | None = None) -> dict[str, Any]:
    from wdport.checkpoint import open_checkpoint

    with open_checkpoint(path or FOLDER[0] / "ck.pt") as opened:
        return {name: opened.read(name) for name in opened.tensors}


def read_recording() -> dict[str, Any]:
    return dict(np.load(FOLDER[0] / "run.npz"))


def read_natively() -> dict[str, Any]:
    """Reads past Python's own functions."""
    import ctypes

    libc = ctypes.CDLL(None)
    descriptor = libc.open(str(FOLDER[0] / "ck.pt").encode(), os.O_RDONLY)
    assert descriptor >= 0
    with os.fdopen(descriptor, "rb") as file:
        data = file.read()
    with TemporaryDirectory() as folder:
        Path(folder, "copy.pt").write_bytes(data)
        return read_checkpoint(Path(folder, "copy.pt"))


def wrong(_: Cheating, __: Any, y: Any) -> Any:
    return right_if(False, y)


_READERS = (read_checkpoint, read_natively, read_recording)
CHEATS: dict[str, Give] = {give.__name__: give for give in (
    honest, wrong, memorised, only_float64, only_float32, rounded, batch_size, only_compiled, only_eager, on_the_stack,
    among_the_modules, nan, plain_draws, folded_output, carried_weights, changed_weights, other_mapping, first_calls,
    training_flag, recorded_answers, torch_callback, torch_unhidden, torch_subprocess, torch_fork, torch_shared,
    torch_socket,
)} | {load.__name__: with_state(load) for load in _READERS}  # fmt: skip


def build(names: list[str], folder: str) -> Cheating:
    FOLDER[0] = Path(folder)
    return Cheating(names)
