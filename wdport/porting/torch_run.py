"""Run a PyTorch model with random weights, and record the inputs and outputs of every module and every value between.

Values are the results of modules and of all functions of torch between them, each with the parameters that it depends
on, so that a guess about a parameter is settled when a value that depends on it agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import sqrt
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from wdport.base.errors import MisfitError, UsageError, WdportError
from wdport.compare.reference import translated
from wdport.models.interface import Array, Document
from wdport.porting.fingerprints import Print, Prints
from wdport.porting.graph import Graph, Node, TensorSource, traced_tensors
from wdport.recording.calls import Call, cast
from wdport.recording.errors import MODEL_ERRORS, one_line
from wdport.recording.float64 import lifted
from wdport.recording.inputs import Input
from wdport.recording.nested import to_array
from wdport.recording.runs import record
from wdport.recording.torch_functions import highest_precision
from wdport.recording.user_code import find_function, takes_path
from wdport.recording.user_model import unwrapped

if TYPE_CHECKING:
    import torch

SEED = 5
"""Seed of the random weights."""

BATCH = 3
"""Batch size of a run: more than one, so that features can be distinguished from samples."""


@dataclass
class TorchValue:
    """A tensor of the run: its function, that function's inputs, and the parameters that it depends on, as bits.

    ``by`` is a function of torch, such as ``relu``, and ``node`` the serial of its call in the graph; ``names`` are the
    modules that return it.
    """

    number: int
    by: str
    result: Print
    sources: tuple[int, ...] = ()
    depends: int = 0
    arguments: Mapping[str, object] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    node: int = -1

    @property
    def text(self) -> str:
        """Its name: the module that returned it, or the function."""
        return self.names[0] if self.names else self.by


@dataclass
class TorchRun:
    """A finished run.

    Attributes:
        module: the model, float64, in evaluation mode, with the random weights.
        inputs: its inputs, in PyTorch's layout.
        outputs: its outputs.
        calls: every call of every module, as the recorder names them.
        values: all values, in the order of computation.
        bits: the bit of every parameter and buffer, by name; tied ones share one.
        notes: parts that could not be examined.
        graph: the graph of the run, of functions alone.
    """

    module: torch.nn.Module
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    output_names: tuple[str, ...]
    calls: dict[str, Call]
    values: list[TorchValue]
    bits: dict[str, int]
    notes: list[str]
    graph: Graph
    prints: Prints[TorchValue] = field(default_factory=Prints)

    def depends(self, key: Print) -> int:
        """The parameters that the value with this print depends on."""
        return joined_bits(value.depends for value in self.prints.find(key))


def joined_bits(bits: Iterable[int]) -> int:
    return reduce(or_, bits, 0)


def build_module(target: str, arguments: Document, checkpoint: str | None = None) -> torch.nn.Module:
    """Build the PyTorch model of ``module:function`` entirely in float64, in evaluation mode; raises
    :class:`WdportError`."""
    # Twice in float64: `lifted` for what the function computes, `double` for parameters that it was given.
    with lifted():
        return build_as_stored(target, arguments, checkpoint).double()


def build_as_stored(target: str, arguments: Document, checkpoint: str | None = None) -> torch.nn.Module:
    """Build the PyTorch model of ``module:function`` in evaluation mode; its tensors have the dtypes of its code."""
    from torch import nn

    try:
        with translated():
            function = find_function(target)
            built = function(**arguments) if arguments else _result_of(function, target, checkpoint)
    except WdportError:
        raise
    except (Exception, SystemExit) as error:
        raise MisfitError(target, f"raises {one_line(error)}", "correct the function") from error
    module = built[0] if isinstance(built, tuple) and built else built
    module = unwrapped(module)
    if not isinstance(module, nn.Module):
        raise MisfitError(target, f"gives a {type(module).__name__}, not a torch.nn.Module", "return the model")
    return module.eval()


def _result_of(function: Callable[..., object], target: str, checkpoint: str | None) -> object:
    """Call a function with the checkpoint's path if it requires one, otherwise without arguments."""
    if not takes_path(function, target):
        return function()
    if checkpoint is None:
        raise UsageError(target, "takes the path of a checkpoint", "give it with --checkpoint")
    return function(checkpoint)


def fill(module: torch.nn.Module, seed: int = SEED) -> None:
    """Set every parameter and the running statistics of norms to random float64 values that keep activations near one.

    Other buffers are tables computed by the code, and do not change.
    """
    import torch
    from torch import nn

    random = np.random.default_rng(seed)

    def draw(shape: Sequence[int], middle: float, spread: float) -> torch.Tensor:
        return torch.from_numpy(np.asarray(middle + spread * random.standard_normal(tuple(shape))))

    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point():
                continue
            # Deviation 1 / sqrt(fan-in), so that activations neither vanish nor grow through a deep network.
            fan = parameter[0].numel() if parameter.ndim > 1 else 0
            # A vector that is positive as initialised is a scale and stays near its mean; shifts are drawn around zero.
            scale = parameter.ndim < 2 and bool((parameter > 0).all())
            middle = float(parameter.mean()) if scale else 0.0
            parameter.copy_(draw(parameter.shape, middle, 1 / sqrt(fan) if fan else 0.3))
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.running_mean is not None:
                part.running_mean.copy_(draw(part.running_mean.shape, 0.0, 0.3))
                if part.running_var is not None:
                    # Positive, as a variance must be.
                    part.running_var.copy_(torch.from_numpy(random.uniform(0.5, 2.0, tuple(part.running_var.shape))))


def draw_inputs(inputs: Sequence[Input]) -> tuple[Array, ...]:
    """Inputs as drawn by verify, floating-point ones in float64."""
    return tuple(cast(model_input.make(0, BATCH, 1.0), np.float64) for model_input in inputs)


def run_torch(target: str, module: torch.nn.Module, inputs: tuple[Array, ...]) -> TorchRun:
    """Run the model once; raises :class:`MisfitError` if it does not run on such inputs."""
    from wdport.porting.tracing import other_inputs, traced

    bits, notes, names = _bits(module), list[str](), list[str]()
    values, input_names = _Values(bits), [f"input_{index}" for index in range(len(inputs))]
    try:
        with (
            translated(), highest_precision(), lifted(),
            traced(module, input_names, keep=values.add) as graph,
        ):  # fmt: skip
            outputs, calls = record(module, inputs, note=notes.append, output_names=names)
    except MODEL_ERRORS as error:
        raise MisfitError(target, f"running it raises {one_line(error)}", other_inputs(error)) from error
    run = TorchRun(module, inputs, outputs, tuple(names), calls, values.values, bits, notes, graph())
    for value in run.values:
        run.prints.add(value.result, value)
    _name(run)
    return run


def _name(run: TorchRun) -> None:
    """Name every value after the modules that return it, the innermost first, or after the input that it is."""
    for index, array in enumerate(run.inputs):
        for value in run.prints.find(Print(array)):
            value.names.append(f"input {index + 1}")
    for name, call in run.calls.items():
        for array in call.outputs[:1]:
            # A module that returns its input, such as Identity, must not take the name of the one before it.
            nameless = next((value for value in run.prints.find(Print(array)) if not value.names), None)
            if nameless is not None:
                nameless.names.append(name)


def _bits(module: torch.nn.Module) -> dict[str, int]:
    """A bit for every tensor of the state_dict; tied tensors share one."""
    bits: dict[int, int] = {}
    state = module.state_dict(keep_vars=True)
    return {name: bits.setdefault(id(tensor), 1 << len(bits)) for name, tensor in state.items()}


class _Values:
    """Collects the values of all functions of torch while a graph is traced."""

    def __init__(self, bits: Mapping[str, int]) -> None:
        self.values: list[TorchValue] = []
        self._bits = bits
        self._known: dict[TensorSource, tuple[int, int]] = {}

    def add(self, node: Node, tensors: Sequence[torch.Tensor]) -> None:
        """Add the tensors that one function returned."""
        sources = [self._source(tensor.source) for tensor in node.inputs]
        numbers, depends = tuple(number for number, _ in sources if number >= 0), joined_bits(b for _, b in sources)
        if node.base is not None:
            before, after = node.base
            self._known[after.source] = (-1, depends | self._source(before)[1])
        for traced, tensor in zip(node.outputs, tensors, strict=True):
            if tensor.numel() == 0 or tensor.is_complex() or tensor.device.type == "meta":
                self._known[traced.source] = (-1, depends)
                continue
            array = to_array(tensor)
            # The same value under another source, so that what is computed from either has one source.
            if len(numbers) == 1 and _is_equal(self.values[numbers[0]].result.array, array):
                self._known[traced.source] = (numbers[0], depends)  # detached, or a dropout that does nothing
                continue
            name = node.name.rpartition(".")[2]
            value = TorchValue(
                len(self.values), name, Print(array), numbers, depends, _constants(node), node=node.serial
            )
            self.values.append(value)
            self._known[traced.source] = (value.number, depends)

    def _source(self, source: TensorSource) -> tuple[int, int]:
        """The number of a value, or -1, and the parameters that it depends on."""
        return self._known.get(source, (-1, self._bits.get(source.name, 0)))


def _constants(node: Node) -> dict[str, object]:
    """The arguments of a function that hold no tensor, by position or name."""
    listed = [*((str(index), value) for index, value in enumerate(node.args)), *node.kwargs.items()]
    return {key: value for key, value in listed if not any(True for _ in traced_tensors(value))}


def _is_equal(first: Array, second: Array) -> bool:
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
