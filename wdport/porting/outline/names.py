"""Names of tensors in an outline, from the view of the module whose steps are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wdport.porting.outline.events import Event, Source, Trace, TracedTensor
from wdport.porting.outline.expressions import expression

LONGEST = 60
"""Maximum length of a constant that is written out where it is used."""

DEEPEST = 8
"""Maximum depth of nested functions that are written out."""


class Names:
    """Names of the tensors of a run; ``numbers`` are the step numbers of functions, by their serial."""

    def __init__(self, trace: Trace, numbers: Mapping[int, int], behind: Mapping[int, int]) -> None:
        self._events, self._numbers, self._behind = trace.events, numbers, behind
        self._arguments: dict[int, dict[Source, str]] = {}
        self._output_indices: dict[int, dict[Source, int]] = {}
        self._texts: dict[tuple[int, int, int], str] = {}
        self._depth = 0

    def of(self, tensor: TracedTensor, around: Event, origin: int = 0) -> str:
        """The name of a tensor within the module ``around``: an argument of it, one of its steps, or a parameter. Steps
        without a name are numbered back from the step ``origin``, if it is one."""
        return self._of(tensor.source, around, tensor, origin)

    def _of(self, source: Source, around: Event, tensor: TracedTensor, origin: int) -> str:
        arguments = self._argument_names(around)
        if source in arguments and around.parent >= 0:
            return arguments[source]
        if source.kind == "event":
            return self._step_name(self._events[source.event], source, around, origin)
        if source.kind == "constant" and not source.name:
            return "a constant" if tensor.shape else "a number"
        prefix = f"{around.name.partition('#')[0]}."
        return source.name.removeprefix(prefix) if around.name else source.name

    def _step_name(self, event: Event, source: Source, around: Event, origin: int) -> str:
        """The step that computed it: a sibling of the reader, or another one by its full path."""
        step = event
        if event.module is None and event.serial not in self._numbers and event.serial not in self._behind:
            return self.written(event, around, origin)
        while step.parent != around.serial and step.parent >= 0:
            parent = self._events[step.parent]
            if not self._within(parent, around):
                step = parent
                continue
            break
        inside = step.parent == around.serial
        if step.module is None:
            number = self._numbers[self._behind.get(step.serial, step.serial)]
            return f"[{number - origin}]" + (f"[{source.index}]" if step.several else "")
        name = local(step, around) if inside else step.name
        index = self._outputs(step).get(source, 0)
        return name + (f"[{index}]" if len(step.outputs) > 1 else "")

    def written(self, event: Event, around: Event, origin: int) -> str:
        """A value that is not a step, since it does not depend on an input, written as an expression."""
        key = (event.serial, around.serial, origin)
        if key not in self._texts:
            if self._depth > DEEPEST:
                return "…"
            self._depth += 1
            text = expression(event, lambda tensor: self.of(tensor, around, origin))
            self._depth -= 1
            self._texts[key] = text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…"
        return self._texts[key]

    def _within(self, parent: Event, around: Event) -> bool:
        """Whether ``around`` is ``parent`` or inside it."""
        event: Event | None = around
        while event is not None:
            if event is parent:
                return True
            event = self._events[event.parent] if event.parent >= 0 else None
        return False

    def _argument_names(self, around: Event) -> dict[Source, str]:
        if around.serial not in self._arguments:
            names: dict[Source, str] = {}
            for name, value in around.kwargs.items():
                for path, tensor in paths(name, value):
                    names.setdefault(tensor.source, path)
            self._arguments[around.serial] = names
        return self._arguments[around.serial]

    def _outputs(self, event: Event) -> dict[Source, int]:
        if event.serial not in self._output_indices:
            self._output_indices[event.serial] = {output.source: index for index, output in enumerate(event.outputs)}
        return self._output_indices[event.serial]


def local(event: Event, around: Event) -> str:
    """The path of a module within the enclosing module."""
    prefix = f"{around.name.partition('#')[0]}."
    return event.name.removeprefix(prefix) if around.name else event.name


def paths(name: str, value: object) -> Iterator[tuple[str, TracedTensor]]:
    """The tensors of an argument, each with its access path, such as ``skips[0]``."""
    if isinstance(value, TracedTensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from paths(f'{name}["{key}"]', item)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from paths(f"{name}[{index}]", item)
