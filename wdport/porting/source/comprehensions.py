"""Write like elements of a list of layers once, in a comprehension over what differs between them.

The text of a class comes in as it is before it is formatted, with every statement in one line. Elements are like if
they are calls of the same constructors, with arguments of the same names. The arguments that differ are the columns of
a table of values; elements of a ``keras.Sequential`` are named by their numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Final

from wdport.porting.lowering.keras_graph import unused
from wdport.porting.outline.counterparts import defaults

FEWEST: Final = 3
"""Elements that are written as one."""

MOST_COLUMNS: Final = 8
"""Arguments that differ."""

WIDTH: Final = 88
"""Characters of a line of the formatted source."""

SAVED: Final = 3
"""Lines that a table saves at least: fewer do not make up for looking up what an element is."""

_EQUAL: Final = re.compile(r" in range\([\d, ]+\)$")

_WHOLE: Final = re.compile(r"(\w+)\[0\].*")

_DEPTH: Final = 8
"""Spaces before a statement of a method."""

_VALUES: Final = (ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator,
                  ast.unaryop, ast.expr_context)  # fmt: skip
"""What the values of a table consist of."""


Defaults = Mapping[str, Mapping[str, str]]
"""The arguments of the port's classes in their order, each with the text of its default or "", by class."""


def with_comprehensions(text: str, classes: Defaults = MappingProxyType({})) -> str:
    """The text of a class with like elements of its lists written once, where that takes fewer lines."""
    while (edit := next(_edits(text, classes), None)) is not None:
        start, end, new = edit
        text = text[:start] + new + text[end:]
    return text


def _edits(text: str, classes: Defaults) -> Iterator[tuple[int, int, str]]:
    """The places of elements that a comprehension replaces, and its text; inner lists come first."""
    source = _Source(text, classes)
    for method in ast.walk(ast.parse(text)):
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
            continue
        names = {node.arg for node in ast.walk(method) if isinstance(node, ast.arg)}
        for depth, node in sorted(_lists(method, _DEPTH), key=lambda placed: -placed[0]):
            yield from source.folded(node, depth, names)


def _lists(node: ast.AST, depth: int) -> Iterator[tuple[int, ast.List]]:
    """The lists in a statement, with the spaces before their elements when each has lines of its own."""
    inner = depth + 4 if isinstance(node, (ast.Call, ast.List)) else depth
    if isinstance(node, ast.List):
        yield inner, node
    for child in ast.iter_child_nodes(node):
        yield from _lists(child, inner)


@dataclass
class _Columns:
    """What differs between like elements: the values of each column, and the name of its variable. Expressions may be
    computed from the columns ``computed_from``."""

    used: set[str]
    computed_from: frozenset[tuple[str, ...]] = frozenset()
    names: dict[tuple[str, ...], str] = field(default_factory=dict)

    def variable(self, hint: str, values: Sequence[str]) -> str:
        """The variable that has these values."""
        key = tuple(values)
        if key not in self.names:
            self.names[key] = unused(hint, self.used)
            self.used.add(self.names[key])
        return self.names[key]


class _DifferentError(Exception):
    """Elements are not like."""


class _Source:
    """The text of a class, by the nodes of its tree."""

    def __init__(self, text: str, classes: Defaults) -> None:
        self._text, self._classes = text, classes
        self._defaults: dict[ast.expr, str] = {}
        self._lines = [0, *(place + 1 for place, letter in enumerate(text) if letter == "\n")]
        self._is_ascii = text.isascii()

    def _place(self, line: int, column: int) -> int:
        start = self._lines[line - 1]
        if self._is_ascii:
            return start + column
        return start + len(self._text[start:].encode()[:column].decode())

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def _code(self, node: ast.expr) -> str:
        if node in self._defaults:
            return self._defaults[node]
        start, end = self._span(node)
        return self._text[start:end]

    def folded(self, node: ast.List, depth: int, names: set[str]) -> Iterator[tuple[int, int, str]]:
        """The runs of like elements of a list that a comprehension replaces."""
        begin = 0
        while begin < len(node.elts):
            text, end = "", begin + 1
            for stop in range(begin + FEWEST, len(node.elts) + 1):
                if (longer := self._comprehension(node.elts[begin:stop], depth, names)) is None:
                    break
                text, end = longer, stop
            if text:
                elements, is_whole = node.elts[begin:end], end - begin == len(node.elts)
                before = sum(_lines(element, self._code(element), depth) for element in elements)
                new = text if is_whole else f"*[{text}]"
                after = _lines(ast.parse(f"[{text}]", mode="eval").body, f"[{text}]", depth)
                if before - after >= (1 if _EQUAL.search(text) else SAVED):
                    yield self._span(elements[0])[0], self._span(elements[-1])[1], new
            begin = end

    def _comprehension(self, elements: Sequence[ast.expr], depth: int, names: set[str]) -> str | None:
        """One comprehension for these elements, without brackets; ``None`` if they are not like."""
        numbers = _numbers(elements)
        if numbers is not None and any(number != numbers[0] + place for place, number in enumerate(numbers)):
            return None
        inner = {node.id for element in elements for node in ast.walk(element) if isinstance(node, ast.Name)}
        index = next((name for name in ("i", "j", "k") if name not in inner), None)
        if index is None:
            return None
        used = {*names, *inner, index, "ops", "layers", "keras", "math"}
        columns, name = _Columns({*used}), f'f"{{{index}}}"' if numbers else ""
        try:
            self._like(elements, "", columns, name)
            columns = _Columns(used, frozenset(columns.names))
            text = self._like(elements, "", columns, name)
        except _DifferentError:
            return None
        table, variables = list(zip(*columns.names, strict=True)), list(columns.names.values())
        if len(variables) > MOST_COLUMNS or (not variables and numbers is None):
            return None
        rows = [row[0] if len(variables) == 1 else f"({', '.join(row)})" for row in table]
        argument = _WHOLE.fullmatch(", ".join(rows))
        over, target = f"[{', '.join(rows)}]", ", ".join(variables)
        if argument and rows == [f"{argument[1]}[{place}]" for place in range(len(rows))] and (
                f"if len({argument[1]}) != {len(rows)}:" in self._text):  # fmt: skip
            over = argument[1]
        if numbers is None:
            target = f"({target})" if depth + len(target) + len("    for  in [") > WIDTH else target
            return f"{text} for {target} in {over}"
        start = numbers[0]
        if not variables:
            span = f"{start}, {start + len(elements)}" if start else f"{len(elements)}"
            return f"{text} for {index} in range({span})"
        target = f"({target})" if len(variables) > 1 else target
        return f"{text} for {index}, {target} in enumerate({over}{f', start={start}' if start else ''})"

    def _like(self, nodes: Sequence[ast.expr], hint: str, columns: _Columns, name: str = "") -> str:
        """The code of like elements, with variables for what differs; ``name`` stands for their names."""
        first, codes = nodes[0], [self._code(node) for node in nodes]
        if len(set(codes)) == 1 and not name:
            return codes[0]
        if all(map(_is_constructor, nodes)):
            return self._calls([node for node in nodes if isinstance(node, ast.Call)], columns, name)
        if isinstance(first, ast.List) and all(
            isinstance(node, ast.List) and len(node.elts) == len(first.elts) for node in nodes
        ):
            lists = [node.elts for node in nodes if isinstance(node, ast.List)]
            return f"[{', '.join(self._like(nodes, '', columns) for nodes in zip(*lists, strict=True))}]"
        bound = {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}
        if (
            not hint
            or bound & {"i", "j", "k"}
            or not all(isinstance(one, _VALUES) for node in nodes for one in ast.walk(node))
        ):
            raise _DifferentError
        leaves = list(_leaves(nodes))
        values = [tuple(map(self._code, leaf)) for leaf in leaves]
        if leaves[0][0] is not first and columns.computed_from.issuperset(values):
            text, begin = codes[0], self._span(first)[0]
            for leaf, value in zip(leaves[::-1], values[::-1], strict=True):
                start, end = self._span(leaf[0])
                text = text[: start - begin] + columns.variable(hint, value) + text[end - begin :]
            return text
        return columns.variable(hint, codes)

    def _calls(self, calls: Sequence[ast.Call], columns: _Columns, name: str) -> str:
        """The code of like calls of a constructor."""
        heads = {(self._code(call.func), len(call.args)) for call in calls}
        if len(heads) > 1:
            raise _DifferentError
        function = next(iter(heads))[0]
        declared = list(defaults(function)) if function.startswith("layers.") else []
        hints = [*declared, *([""] * len(calls[0].args))]
        texts = [self._like(nodes, hint, columns) for nodes, hint
                 in zip(zip(*(call.args for call in calls), strict=True), hints, strict=False)]  # fmt: skip
        for key, values in self._keywords(function, calls).items():
            texts.append(f"{key}={name if name and key == 'name' else self._like(values, key, columns)}")
        return f"{function}({', '.join(texts)})"

    def _keywords(self, function: str, calls: Sequence[ast.Call]) -> dict[str, list[ast.expr]]:
        """The values of the keywords of like calls, with the defaults of those that some do not state."""
        stated = [{keyword.arg or "": keyword.value for keyword in call.keywords} for call in calls]
        of_class = self._classes.get(function, {})
        names = {*stated[0]} if all(one.keys() == stated[0].keys() for one in stated) else {*chain(*stated)}
        ordered = [*(name for name in of_class if name in names), *(name for name in stated[0] if name not in of_class)]
        if {*ordered} != names:
            raise _DifferentError
        return {name: [one[name] if name in one else self._default(of_class.get(name, "")) for one in stated]
                for name in ordered}  # fmt: skip

    def _default(self, code: str) -> ast.expr:
        if code in ("", "None"):
            raise _DifferentError
        node = ast.parse(code, mode="eval").body
        self._defaults[node] = code
        return node


def _leaves(nodes: Sequence[ast.expr]) -> Iterator[Sequence[ast.expr]]:
    """The operands that differ in arithmetic of the same form, in their order."""
    first, *others = nodes
    if all(ast.dump(other) == ast.dump(first) for other in others):
        return
    binary = [node for node in nodes if isinstance(node, ast.BinOp)]
    unary = [node for node in nodes if isinstance(node, ast.UnaryOp)]
    operators = {*(type(node.op) for node in binary), *(type(node.op) for node in unary)}
    same = len(operators) == 1
    if same and len(binary) == len(nodes):
        yield from _leaves([node.left for node in binary])
        yield from _leaves([node.right for node in binary])
    elif same and len(unary) == len(nodes):
        yield from _leaves([node.operand for node in unary])
    else:
        yield nodes


def _is_constructor(node: ast.expr) -> bool:
    """Whether it is a call of a class."""
    if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
        return False
    return ast.unparse(node.func).rpartition(".")[2][:1].isupper()


def _numbers(elements: Sequence[ast.expr]) -> list[int] | None:
    """The numbers by which elements of a ``keras.Sequential`` are named; ``None`` for those of another list."""
    calls = [element for element in elements if isinstance(element, ast.Call)]
    names = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "name"]
    texts = [str(name.value) for name in names if isinstance(name, ast.Constant)]
    numbers = [int(text) for text in texts if text.isdigit()]
    return numbers if len(numbers) == len(elements) else None


def _lines(node: ast.expr, code: str, depth: int) -> int:
    """The lines that an expression takes, about, when it is formatted after ``depth`` spaces."""
    if depth + len(code) < WIDTH:
        return 1
    if isinstance(node, ast.ListComp):
        (generator,) = node.generators
        head, over = ast.unparse(generator.target), ast.unparse(generator.iter)
        wide = head.count(",") + 2 if depth + len(head) + len("    for  in [") > WIDTH else 0
        return 2 + _lines(node.elt, ast.unparse(node.elt), depth + 4) + wide + _lines(generator.iter, over, depth + 4)
    if isinstance(node, ast.Starred):
        return _lines(node.value, code[1:], depth)
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
    elif isinstance(node, (ast.List, ast.Tuple)):
        parts = node.elts
    if not parts or depth + 4 + len(code) - len(ast.unparse(node).partition("(")[0]) - 2 <= WIDTH:
        return 3
    return 2 + sum(_lines(part, ast.unparse(part), depth + 4) for part in parts)
