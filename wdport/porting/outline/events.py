"""What a run of a PyTorch model leaves: calls of modules and functions, and the tensors that passed, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Depends = Literal["constant", "parameter", "input"]
"""What a value is made of: numbers in the code, weights and buffers, or the model's inputs, the last of these it is."""


class Size(int):
    """A whole number; ``text`` is what it is said as: ``b`` where it is the batch's."""

    text: str

    def __new__(cls, value: int, text: str = "") -> Size:
        made = super().__new__(cls, value)
        made.text = text or str(value)
        return made

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


@dataclass(frozen=True)
class Source:
    """Where a tensor is from: ``name`` of an input, a parameter, a buffer or a plain attribute, or output ``index`` of
    the event ``event``."""

    kind: Literal["input", "parameter", "buffer", "constant", "event"]
    name: str = ""
    event: int = -1
    index: int = 0


@dataclass(frozen=True)
class Seen:
    """A tensor that was passed."""

    source: Source
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
        serial: its place among all events.
        name: the function's, such as ``torch.Tensor.view``, or the call's, such as ``conv1#2``.
        args: what it was given by position; tensors are :class:`Seen`.
        kwargs: and by name. A module's tensors all stand here, by the names of its parameters.
        outputs: its tensors.
        several: whether they are a list, even of one.
        module: the module that was called.
        whole: whether the module is one layer, so that nothing inside it is an event.
        parent: the serial of the module call around it; -1 for the model's own.
        depends: what its outputs are made of.
        inside: the events inside a module call.
        around: lines on the call that no argument tells.
    """

    serial: int
    name: str
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    outputs: tuple[Seen, ...] = ()
    several: bool = False
    module: torch.nn.Module | None = None
    whole: bool = True
    parent: int = -1
    depends: Depends = "constant"
    inside: list[Event] = field(default_factory=list)
    around: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> list[Seen]:
        """Every tensor that it was given."""
        return list(seen_in([*self.args, *self.kwargs.values()]))


@dataclass(frozen=True)
class Trace:
    """A run: the event of the model itself, with all others inside it, and every event by its serial."""

    root: Event
    events: Sequence[Event]
    reads: tuple[str, ...]
    """Modules whose Python reads values that depend on the inputs, such as a branch on one."""


def seen_in(value: object) -> Iterator[Seen]:
    """The tensors in nested tuples and mappings, in order."""
    if isinstance(value, Seen):
        yield value
    elif isinstance(value, Mapping):
        yield from seen_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from seen_in(item)
