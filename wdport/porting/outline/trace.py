"""Trace one run of a PyTorch model: every call of a module and every function of torch; and sizes that depend on the
batch.

A module that counts as one layer is one event; for every other module, the calls inside it are events too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.overrides import resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from wdport import recorder
from wdport.errors import MisfitError
from wdport.porting.outline.functions import (
    Depends,
    Event,
    Size,
    Slice,
    TensorSource,
    Trace,
    TracedTensor,
    is_identity,
    kind_of,
    traced_tensors,
)
from wdport.porting.torch_run import tensors_in

if TYPE_CHECKING:
    from wdport.model import Array


class CallMismatchError(Exception):
    """The two runs do not make the same calls."""


@dataclass(frozen=True)
class Batches:
    """The batch sizes of the two runs; the first is the larger."""

    first: int
    second: int

    def size(self, a: int, b: int) -> Size:
        """A number of the first run, expressed in terms of the batch if the second run has another."""
        if a == b:
            return Size(a)
        # Proportional to the batch, such as b * heads; otherwise the batch plus a constant.
        if a * self.second == b * self.first:
            times = a // self.first
            return Size(a, "b" if times == 1 else f"{times}b")
        rest = a - self.first
        if b - self.second == rest:
            return Size(a, f"b{rest:+d}")
        return Size(a)


def merge(a: Trace, b: Trace, batches: Batches) -> None:
    """Express every size of ``a`` in terms of the batch; raises :class:`CallMismatchError` if ``b`` has other calls."""
    if len(a.events) != len(b.events) or any(_call(x) != _call(y) for x, y in zip(a.events, b.events, strict=True)):
        raise CallMismatchError
    pairs: list[tuple[tuple[Any, Any], ...]]
    pairs = [((x.args, y.args), (x.kwargs, y.kwargs), (x.outputs, y.outputs))
             for x, y in zip(a.events, b.events, strict=True)]  # fmt: skip
    records = [tuple(_merged(x, y, batches) for x, y in pair) for pair in pairs]
    for event, (args, kwargs, outputs) in zip(a.events, records, strict=True):
        event.args, event.kwargs, event.outputs = args, kwargs, outputs


def _call(event: Event) -> tuple[str, int, int]:
    return event.name, event.parent, len(event.outputs)


def _merged(a: Any, b: Any, batches: Batches) -> Any:
    if isinstance(a, TracedTensor) and isinstance(b, TracedTensor):
        if a.source != b.source or len(a.shape) != len(b.shape):
            raise CallMismatchError
        return TracedTensor(a.source, tuple(batches.size(x, y) for x, y in zip(a.shape, b.shape, strict=True)), a.kind)
    if isinstance(a, Slice) and isinstance(b, Slice):
        pairs = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
        return Slice(*(_merged(x, y, batches) for x, y in pairs))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if list(a) != list(b):
            raise CallMismatchError
        return {key: _merged(a[key], b[key], batches) for key in a}
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(a) != len(b):
            raise CallMismatchError
        return tuple(_merged(x, y, batches) for x, y in zip(a, b, strict=True))
    if type(a) is int and type(b) is int:
        return batches.size(a, b)
    return a


MOST_EVENTS = 200_000
"""Maximum number of calls in one run; more are a loop, whose outline would be unreadable."""

_RANKS: Mapping[str, int] = {"constant": 0, "parameter": 1, "input": 2}


def trace(
    module: torch.nn.Module, names: Sequence[str], inputs: Sequence[Array], is_layer: Callable[[torch.nn.Module], bool]
) -> Trace:
    """Run a float64 module; ``is_layer`` selects the modules that are one event. Raises :class:`MisfitError`."""
    tracer = _Tracer(module, is_layer)
    # Copies: the model may change its inputs in place, and they are used again.
    tensors = [torch.from_numpy(array.copy()) for array in inputs]
    for name, tensor in zip(names, tensors, strict=True):
        tracer.origins[tensor] = TensorSource("input", name)
    parts = dict(module.named_modules())
    try:
        with (
            recorder.highest_precision(),
            recorder.lifted(),
            recorder.functions(tracer.function),
            recorder.watched(parts, tracer.called, MOST_EVENTS),
            torch.no_grad(),
        ):
            module(*tensors)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        what = f"running it raises {recorder.one_line(error)}"
        raise MisfitError(type(module).__name__, what, "state inputs that it takes, with `--input`") from error
    return Trace(tracer.events[0], tracer.events, tuple(tracer.reads))


_SHAPE_ALONE = frozenset((
    "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "zeros_like", "ones_like", "full_like",
    "empty_like", "rand_like", "randn_like",
))  # fmt: skip
"""Functions that do not read values of a tensor."""

_READS = frozenset((
    "__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "__contains__", "equal", "allclose",
))  # fmt: skip


class _Tracer:
    """Records the functions of torch that are called outside a layer by :meth:`function`, modules by :meth:`called`."""

    def __init__(self, module: torch.nn.Module, is_layer: Callable[[torch.nn.Module], bool]) -> None:
        self.events: list[Event] = []
        self.reads: dict[str, None] = {}
        self.origins: MutableMapping[torch.Tensor, TensorSource] = WeakTensorKeyDictionary()
        self._open: list[Event] = []
        self._is_layer, self._within = is_layer, False
        # Tied tensors keep the first name.
        for name, kind, tensor in _held(module):
            if tensor not in self.origins:
                self.origins[tensor] = TensorSource(kind, name)

    def called(
        self, name: str, caller: str, part: torch.nn.Module, compute: recorder.Compute, arguments: recorder.Given
    ) -> object:
        """Record one call of a module; a handler for :func:`wdport.recorder.watched`."""
        if self._within or (name and type(part).forward is torch.nn.Sequential.forward):
            return compute(*arguments)  # the layers of a Sequential are steps of the enclosing module
        event = self._begin(Event(-1, name, kwargs=self._plain(_named(part, *arguments)), module=part))
        event.is_layer = self._is_layer(part)
        if isinstance(part, torch.jit.ScriptModule):
            event.is_layer = True
            event.around.append("is compiled by TorchScript: its steps are not visible")
        if event.is_layer:
            self._within = True
        else:
            self._open.append(event)
        try:
            output = compute(*arguments)
        finally:
            if event.is_layer:
                self._within = False
            else:
                self._open.pop()
        if event.is_layer:
            self._end(event, output)
        else:
            event.outputs = tuple(traced_tensors(self._plain(output)))
        return output

    def function(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
        """Compute and record one call of a function."""
        if self._within:
            return function(*args, **kwargs)
        name = _name_of(function)
        # Before the call: a function in place changes what its arguments are.
        before = None if name.endswith("set_") else (self._plain(args), self._plain(kwargs))
        result = function(*args, **kwargs)
        if before is not None:
            self._record(name, before, args, result)
        return result

    def _record(self, name: str, recorded: tuple[Any, Any], args: tuple[Any, ...], result: object) -> None:
        """Record one function call, unless it returns no tensor or its input tensor itself."""
        short = name.rpartition(".")[2]
        output = args[0] if short == "__setitem__" else result
        inputs = list(traced_tensors(recorded))
        tensors = list(tensors_in(output))
        if not tensors:
            if short in _READS and any(self._depends([tensor]) == "input" for tensor in inputs):
                self.reads[self._open[-1].name if self._open else ""] = None
            return
        if len(tensors) == 1 and is_identity(short, inputs, tensors[0], recorded):
            self.origins[tensors[0]] = inputs[0].source
            return
        event = self._begin(Event(-1, name, *recorded))
        self._end(event, output)
        if short == "__setitem__" or (short.endswith("_") and not short.endswith("__")):
            # A function in place on a view changes the tensor that it is a view of.
            base = tensors[0]._base
            if base is not None:
                self.origins[base] = event.outputs[0].source

    def _begin(self, event: Event) -> Event:
        if len(self.events) >= MOST_EVENTS:
            what = f"calls more than {MOST_EVENTS} functions of torch in one pass"
            raise MisfitError("the model", what, "outline the part that it repeats")
        event.serial, event.parent = len(self.events), self._open[-1].serial if self._open else -1
        shape_alone = event.module is None and event.name.rpartition(".")[2] in _SHAPE_ALONE
        event.depends = "constant" if shape_alone else self._depends(event.inputs)
        self.events.append(event)
        if self._open:
            self._open[-1].inside.append(event)
        return event

    def _end(self, event: Event, output: object) -> None:
        tensors = list(tensors_in(output))
        if event.module is not None and event.depends == "constant" and any(True for _ in event.module.parameters()):
            event.depends = "parameter"
        for index, tensor in enumerate(tensors):
            self.origins[tensor] = TensorSource("event", "", event.serial, index)
        event.several = isinstance(output, (Mapping, list, tuple))
        event.outputs = tuple(self._traced_tensor(tensor) for tensor in tensors)

    def _depends(self, inputs: Sequence[TracedTensor]) -> Depends:
        dependences: list[Depends] = ["constant"]
        for tensor in inputs:
            kind = tensor.source.kind
            if kind == "event":
                dependences.append(self.events[tensor.source.event].depends)
            else:
                dependences.append("input" if kind == "input" else "constant" if kind == "constant" else "parameter")
        return max(dependences, key=_RANKS.__getitem__)

    def _plain(self, value: Any) -> Any:
        """A call's arguments, with tensors as :class:`TracedTensor` and all others as plain values."""
        if isinstance(value, torch.Tensor):
            return self._traced_tensor(value)
        if isinstance(value, Mapping):
            return {str(key): self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return tuple(self._plain(item) for item in value)
        if isinstance(value, slice):
            return Slice(self._plain(value.start), self._plain(value.stop), self._plain(value.step))
        if value is None or value is ... or isinstance(value, (bool, int, float, complex, str)):
            return value
        named = isinstance(value, (torch.dtype, torch.device, torch.memory_format))
        return str(value) if named else f"<{type(value).__name__}>"

    def _traced_tensor(self, tensor: torch.Tensor) -> TracedTensor:
        source = self.origins.get(tensor)
        # Made by the code itself, outside of any recorded call, such as torch.tensor([1.0]).
        if source is None:
            source = self.origins.setdefault(tensor, TensorSource("constant"))
        return TracedTensor(source, tuple(tensor.shape), kind_of(tensor))


def _name_of(function: Callable[..., Any]) -> str:
    """The name of a function, such as ``torch.Tensor.view``; for a property, its name after the class."""
    name = resolve_name(function) or f"torch.{getattr(function, '__name__', function)}"
    return name.removesuffix(".__get__")


def _held(module: torch.nn.Module) -> Iterator[tuple[str, Literal["parameter", "buffer", "constant"], torch.Tensor]]:
    """Every tensor that the modules hold, by path; those of the state_dict first."""
    yield from ((name, "parameter", tensor) for name, tensor in module.named_parameters())
    yield from ((name, "buffer", tensor) for name, tensor in module.named_buffers())
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), "constant", value


def _named(part: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    order = recorder.parameter_names(part)
    names = [*order, *(f"input_{index}" for index in range(len(order), len(args)))]
    return {**dict(zip(names, args, strict=False)), **kwargs}
