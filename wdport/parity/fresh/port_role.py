"""The port's side: its model in one dtype, with the weights of the converted file or those that it is given.

The port sees what it sees in a user's program: :func:`wdport.load_model` builds it, and when it runs, no function of
wdport is on the stack, and no module that compares models is among the imported ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import IO, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from wdport.compare.probe import tensor_names, tensors
from wdport.conversion.load import load_model
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_inputs import model_arguments, symbolic_inputs
from wdport.models.keras_runtime import exact_float64, set_variable, variables_by_path
from wdport.parity.fresh.process import BrokenMessage, receive, send
from wdport.recording.calls import cast

Result = TypeVar("Result")


class PortModel:
    """The model of one converted file in one dtype; ``arguments`` are those of :func:`wdport.load_model`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._dtype: str = arguments["dtype"]
        self._model: KerasModel = _aside(load_model, **arguments)
        self._compiled: Callable[..., object] | None = None

    @property
    def input_shapes(self) -> list[list[int | None]]:
        """The shapes of the model's inputs, with None for what they leave open; empty if it states none."""
        return [list(tensor.shape) for tensor in symbolic_inputs(self._model)]

    def use(self, names: Sequence[str], arrays: Sequence[Array]) -> None:
        variables = variables_by_path(self._model)
        for name, array in zip(names, arrays, strict=True):
            set_variable(variables[name], array)
        # jax.jit holds variables that it closed over as constants of the program.
        self._compiled = None

    def run(self, mode: str, inputs: Sequence[Array]) -> tuple[list[Array], tuple[str, ...]]:
        """The outputs and their names, of ``model(x)`` or compiled: by Keras's `predict` if it takes one argument, or
        else by `jax.jit`."""
        model, dtype = self._model, np.dtype(self._dtype)
        arguments = model_arguments(model, [jnp.asarray(array) for array in cast(tuple(inputs), dtype)])
        function: Callable[..., object] = model
        if mode != "plain" and len(arguments) == 1:
            function = model.predict_on_batch
        elif mode != "plain":
            function = self._compiled = self._compiled or jax.jit(partial(model))
        with exact_float64() if dtype == np.float64 else nullcontext():
            output = _aside(function, *arguments)
        return [np.asarray(tensor) for tensor in tensors(output)], tensor_names(output)


def _aside(function: Callable[..., Result], *arguments: object, **named: object) -> Result:
    """Call a function in another thread: this module's functions are not on its stack."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments, **named).result()


def serve_port(job: Mapping[str, Any], enforced: list[str], questions: IO[bytes], answers: IO[bytes]) -> None:
    """Report what the kernel enforces, then answer every question; an exception is also an answer."""
    send(answers, {"enforced": enforced})
    # A port could look in sys.modules for signs that it is being compared.
    for name in [name for name in sys.modules if name.startswith("wdport.parity")]:
        del sys.modules[name]
    model: PortModel | None = None
    while True:
        try:
            asked = receive(questions)
        except BrokenMessage:
            return
        facts: Mapping[str, Any] = asked.facts
        # For all threads of this process, and again for every question: the port's code may have changed them.
        jax.config.update("jax_enable_x64", job["arguments"]["dtype"] == "float64")
        jax.config.update("jax_default_matmul_precision", "highest")
        try:
            model = model or PortModel(job["arguments"])
            if facts["do"] == "open":
                send(answers, {"inputs": model.input_shapes})
            elif facts["do"] == "use":
                model.use(facts["names"], asked.arrays)
                send(answers, {})
            else:
                outputs, names = model.run(facts["how"], asked.arrays)
                send(answers, {"names": names}, outputs)
        # Also SystemExit: the port must not end its process without an answer.
        except BaseException as error:
            send(answers, {"failure": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]})
