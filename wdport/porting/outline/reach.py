"""Find the readers of a tensor, the events that the outputs need, and chains of rearrangements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wdport.porting.outline.axes import Move, chained
from wdport.porting.outline.events import Event, Source, Trace
from wdport.porting.outline.flow import Flow

Readers = Mapping[Source, Sequence[Event]]


def readers_of(trace: Trace) -> dict[Source, list[Event]]:
    """The readers of each tensor: functions and layers, not the enclosing modules."""
    readers: dict[Source, list[Event]] = {}
    for event in trace.events:
        if event.module is None or event.is_layer:
            for tensor in event.inputs:
                readers.setdefault(tensor.source, []).append(event)
    return readers


def needed(trace: Trace) -> set[int]:
    """Events that the model's outputs, or one of its layers, depend on."""
    left = [tensor.source for tensor in trace.root.outputs]
    layers = [event for event in trace.events if event.module is not None and event.is_layer]
    left += [tensor.source for event in layers for tensor in event.inputs]
    serials: set[int] = set()
    while left:
        source = left.pop()
        if source.kind == "event" and source.event not in serials:
            serials.add(source.event)
            left += [tensor.source for tensor in trace.events[source.event].inputs]
    return serials


@dataclass(frozen=True)
class Chain:
    """Reshapes and transposes, each the only reader of the one before it, and their combined move."""

    move: Move
    events: tuple[Event, ...]


def chains(trace: Trace, flow: Flow, readers: Readers, is_step: Callable[[Event], bool]) -> dict[int, Chain]:
    """The rearrangements that are steps, by the serial of their last event."""
    by_serial: dict[int, Chain] = {}
    for event in trace.events:
        move = flow.moves.get(event.serial)
        if move is None or event.module is not None or not is_step(event):
            continue
        source = event.inputs[0].source
        before = by_serial.get(source.event) if source.kind == "event" else None
        if before is not None and _is_only_reader(before.events[-1], event, trace, readers):
            del by_serial[source.event]
            by_serial[event.serial] = Chain(chained(before.move, move), (*before.events, event))
        else:
            by_serial[event.serial] = Chain(move, (event,))
    return by_serial


def _is_only_reader(before: Event, event: Event, trace: Trace, readers: Readers) -> bool:
    """Whether ``event`` is the only reader of the output of ``before``, in the same module."""
    source = before.outputs[0].source
    final = any(tensor.source == source for tensor in trace.root.outputs)
    return before.parent == event.parent and not final and [r.serial for r in readers.get(source, ())] == [event.serial]
