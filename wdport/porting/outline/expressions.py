"""Render functions of torch as text, such as ``x + conv1``, with the names of tensors as their module sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from wdport.porting.functions import bound, canonical
from wdport.porting.graph import Graph, Node, Slice, TensorSource, TracedTensor
from wdport.porting.settings import equal

LONGEST = 60
"""Maximum length of a constant that is written out where it is used."""

DEEPEST = 8
"""Maximum depth of nested functions that are written out."""


class TensorNames:
    """Names of the tensors of a run; ``numbers`` are the step numbers of functions, by their serial."""

    def __init__(self, graph: Graph, numbers: Mapping[int, int], behind: Mapping[int, int]) -> None:
        self._nodes, self._numbers, self._behind = graph.nodes, numbers, behind
        self._arguments: dict[int, dict[TensorSource, str]] = {}
        self._texts: dict[tuple[int, int, int], str] = {}
        self._depth = 0

    def of(self, tensor: TracedTensor, around: Node, origin: int = 0) -> str:
        """The name of a tensor within the module ``around``: an argument of it, one of its steps, or a parameter. Steps
        without a name are numbered back from the step ``origin``, if it is one."""
        source, arguments = tensor.source, self._argument_names(around)
        # The model's own arguments are its inputs, which keep the names that the user gave.
        if source in arguments and around.parent >= 0:
            return arguments[source]
        if source.kind == "node":
            return self._step_name(self._nodes[source.node], source, around, origin)
        if source.kind == "constant" and not source.name:
            return "a constant" if tensor.shape else "a number"
        prefix = f"{around.name.partition('#')[0]}."
        return source.name.removeprefix(prefix) if around.name else source.name

    def _step_name(self, node: Node, source: TensorSource, around: Node, origin: int) -> str:
        """The step that computed it: a sibling of the reader, or another one by its full path."""
        step = node
        if node.module is None and node.serial not in self._numbers and node.serial not in self._behind:
            return self.written(node, around, origin)
        while step.parent != around.serial and step.parent >= 0 and not self._within(self._nodes[step.parent], around):
            step = self._nodes[step.parent]
        inside = step.parent == around.serial
        if step.module is None:
            number = self._numbers[self._behind.get(step.serial, step.serial)]
            return f"[{number - origin}]" + (f"[{source.index}]" if step.several else "")
        name = local(step, around) if inside else step.name
        indices = {output.source: index for index, output in enumerate(step.outputs)}
        return name + (f"[{indices.get(source, 0)}]" if len(step.outputs) > 1 else "")

    def written(self, node: Node, around: Node, origin: int) -> str:
        """A value that is not a step, since it does not depend on an input, written as an expression."""
        key = (node.serial, around.serial, origin)
        if key not in self._texts:
            if self._depth > DEEPEST:
                return "…"
            self._depth += 1
            text = expression(node, lambda tensor: self.of(tensor, around, origin))
            self._depth -= 1
            self._texts[key] = text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…"
        return self._texts[key]

    def _within(self, parent: Node, around: Node) -> bool:
        """Whether ``around`` is ``parent`` or inside it."""
        node: Node | None = around
        while node is not None:
            if node is parent:
                return True
            node = self._nodes[node.parent] if node.parent >= 0 else None
        return False

    def _argument_names(self, around: Node) -> dict[TensorSource, str]:
        if around.serial not in self._arguments:
            names: dict[TensorSource, str] = {}
            for name, value in around.kwargs.items():
                for path, tensor in paths(name, value):
                    names.setdefault(tensor.source, path)
            self._arguments[around.serial] = names
        return self._arguments[around.serial]


def local(node: Node, around: Node) -> str:
    """The path of a module within the enclosing module."""
    prefix = f"{around.name.partition('#')[0]}."
    return node.name.removeprefix(prefix) if around.name else node.name


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


Name = Callable[[TracedTensor], str]
"""The name of a tensor."""

INFIX: Mapping[str, str] = MappingProxyType({
    "add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**", "floor_divide": "//",
    "remainder": "%", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!=", "logical_and": "&",
    "logical_or": "|", "logical_xor": "^",
})  # fmt: skip
_REVERSED: Mapping[str, str] = MappingProxyType({
    "rsub": "-", "rdiv": "/", "rpow": "**", "rmatmul": "@", "rfloordiv": "//", "rmod": "%",
})  # fmt: skip
_PLAIN = (None, False, "constant", "none")
"""Named arguments that are omitted: the defaults of most functions."""

_DROPPED = ("_stacklevel", "inplace", "out", "device", "layout", "pin_memory", "requires_grad", "memory_format",
            "non_blocking", "copy", "generator")  # fmt: skip


def expression(node: Node, name: Name, usual: Mapping[str, object] = MappingProxyType({})) -> str:
    """One function call as text, without arguments that equal those in ``usual``."""
    function, values = canonical(node.name), bound(node)

    def text(value: object) -> str:
        return argument(value, name)

    operands = [value for key, value in values.items() if key not in _DROPPED]
    if function in INFIX and len(operands) == 2:
        return f"{_inner(text(operands[0]))} {INFIX[function]} {_inner(text(operands[1]))}"
    if function in _REVERSED and len(operands) == 2:
        return f"{_inner(text(operands[1]))} {_REVERSED[function]} {_inner(text(operands[0]))}"
    if function in ("add", "sub") and "alpha" in values:
        first, second = list(node.args[:2])
        return f"{_inner(text(first))} {INFIX[function]} {text(values['alpha'])} * {_inner(text(second))}"
    if function == "neg":
        return f"-{_inner(text(operands[0]))}"
    if function == "logical_not":
        return f"~{_inner(text(operands[0]))}"
    if function == "getitem":
        return f"{_inner(text(values['input']))}[{index(values.get('index'), name)}]"
    if function == "setitem":
        return f"{_inner(text(values['input']))}[{index(values.get('index'), name)}] = {text(values.get('value'))}"
    # Only the dtype of the first tensor matters.
    if function.startswith("new_"):
        function = function.removeprefix("new_")
        values = {key: value for key, value in values.items() if key != "input"}
    words = []
    for key, value in values.items():
        omitted = key != "input" and not isinstance(value, (int, TracedTensor, tuple)) and value in _PLAIN
        if omitted or key in _DROPPED:
            continue
        if not isinstance(value, TracedTensor) and (equal(value, usual[key]) if key in usual else value is False):
            continue
        if key == "more":
            words += [text(element) for element in value]
        elif any(isinstance(element, TracedTensor) for element in (value if isinstance(value, tuple) else (value,))):
            unpacked = isinstance(value, tuple) and key in ("tensors", "operands")
            words.append(", ".join(map(text, value)) if unpacked else text(value))
        else:
            words.append(text(value) if key in ("input", "equation") else f"{key}={text(value)}")
    return f"{function}({', '.join(words)})"


def argument(value: object, name: Name) -> str:
    if isinstance(value, TracedTensor):
        return name(value)
    if isinstance(value, tuple):
        inner = ", ".join(argument(element, name) for element in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Slice):
        limits = (value.start, value.stop, value.step)
        start, stop, step = ("" if limit is None else argument(limit, name) for limit in limits)
        return f"{start}:{stop}" + (f":{step}" if step else "")
    if value is ...:
        return "..."
    if isinstance(value, str) and value.startswith("torch."):
        return value.removeprefix("torch.")  # a dtype
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def index(value: object, name: Name) -> str:
    items = value if isinstance(value, tuple) else (value,)
    return ", ".join(argument(item, name) for item in items)


def _inner(text: str) -> str:
    """An operand, in parentheses if it is an operation."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        # A blank outside of brackets separates operands.
        if depth == 0 and letter == " ":
            return f"({text})"
        if depth == 0 and letter == "-" and position == 0:
            return f"({text})"
    return text
