"""The record of a run of a PyTorch model as data: calls of modules and functions, and their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Depends = Literal["constant", "parameter", "input"]
"""What a value depends on: constants in the code, weights and buffers, or the model's inputs; the last one applies."""


class Size(int):
    """An integer; ``text`` is its representation: ``b`` for the batch size."""

    text: str

    def __new__(cls, value: int, text: str = "") -> Size:
        size = super().__new__(cls, value)
        size.text = text or str(value)
        return size

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


@dataclass(frozen=True)
class TensorSource:
    """The source of a tensor: the ``name`` of an input, a parameter, a buffer or a plain attribute, or output ``index``
    of the event ``event``."""

    kind: Literal["input", "parameter", "buffer", "constant", "event"]
    name: str = ""
    event: int = -1
    index: int = 0


@dataclass(frozen=True)
class TracedTensor:
    """A tensor that was passed to or from a call."""

    source: TensorSource
    shape: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class Slice:
    start: object
    stop: object
    step: object


@dataclass
class Event:
    """One call.

    Attributes:
        serial: its position among all events.
        name: name of the function, such as ``torch.Tensor.view``, or of the call, such as ``conv1#2``.
        args: its positional arguments; tensors are :class:`TracedTensor`.
        kwargs: its named arguments. All tensors of a module are here, by the names of its parameters.
        outputs: its output tensors.
        several: whether they are a list, even a list of one.
        module: the module that was called.
        is_layer: whether the module is one layer, so that nothing inside it is an event.
        parent: the serial of the enclosing module call; -1 for the model's own.
        depends: what its outputs depend on.
        inside: the events inside a module call.
        around: notes on the call that its arguments do not show.
    """

    serial: int
    name: str
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    outputs: tuple[TracedTensor, ...] = ()
    several: bool = False
    module: torch.nn.Module | None = None
    is_layer: bool = True
    parent: int = -1
    depends: Depends = "constant"
    inside: list[Event] = field(default_factory=list)
    around: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> list[TracedTensor]:
        return list(traced_tensors([*self.args, *self.kwargs.values()]))


@dataclass(frozen=True)
class Trace:
    """A run: the event of the model itself, with all others inside it, and every event by its serial."""

    root: Event
    events: Sequence[Event]
    reads: tuple[str, ...]
    """Modules whose Python code reads values that depend on the inputs, such as in a branch."""


def traced_tensors(value: object) -> Iterator[TracedTensor]:
    """The tensors in nested tuples and mappings, in order."""
    if isinstance(value, TracedTensor):
        yield value
    elif isinstance(value, Mapping):
        yield from traced_tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from traced_tensors(item)
