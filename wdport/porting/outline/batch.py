"""Find sizes that depend on the batch, by comparing two runs of one model with different batch sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wdport.porting.outline.events import Event, Size, Slice, Trace, TracedTensor


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
    records = [
        (_merged(x.args, y.args, batches), _merged(x.kwargs, y.kwargs, batches), _merged(x.outputs, y.outputs, batches))
        for x, y in zip(a.events, b.events, strict=True)
    ]
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
