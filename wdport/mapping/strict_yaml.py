"""Parse untrusted YAML text to plain Python values with line numbers.

Valid YAML that a reviewer could overlook is refused with its line: duplicate keys, anchors, aliases, merge keys, tags,
several documents, deep nesting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from wdport.checkpoint.regular import read_option
from wdport.errors import InputError
from wdport.limits import MAX_NUMBER_CHARS, MAX_TABLE_BYTES, MAX_TABLE_DEPTH, MAX_TABLE_NODES

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Node:
    """A YAML value (``str``, ``int``, ``float``, ``bool``, ``None``, list or dict of nodes) and its line."""

    value: Any
    line: int

    def plain(self) -> Any:
        """Return the value without line numbers."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def nodes_of(value: Any) -> Node:
    """The node of plain values, as if they were read from text with a line for each."""
    lines = count(1)

    def convert(value: Any) -> Node:
        line = next(lines)
        if isinstance(value, Mapping):
            return Node({str(key): convert(element) for key, element in value.items()}, line)
        if isinstance(value, (list, tuple)):
            return Node([convert(element) for element in value], line)
        return Node(value, line)

    return convert(value)


def read_yaml(path: Path, fix: str) -> Node:
    """Read a file of one YAML document; raises :class:`InputError`, with ``fix`` if the file cannot be read."""
    return load_yaml(read_option(path, MAX_TABLE_BYTES, fix), path)


def load_yaml(data: bytes, where: str | Path) -> Node:
    """Read one YAML document; raises :class:`InputError` naming the line."""
    if len(data) > MAX_TABLE_BYTES:
        raise InputError(where, f"{len(data)} bytes of YAML", f"keep it under {MAX_TABLE_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in data[:1024]:
            raise InputError(where, "is a binary file, not YAML", "give a text file") from None
        line = f"line {data[: error.start].count(10) + 1}"
        raise InputError((where, line), "is not UTF-8", "save the file as UTF-8") from None
    try:
        _refuse_surprises(text, where)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise _syntax(error, text, where) from None
    if root is None:
        raise InputError(where, "the file is empty", "give it content or leave it out")
    return _convert(root, where)


def _syntax(error: yaml.YAMLError, text: str, where: str | Path) -> InputError:
    mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
    number = mark.line if mark is not None else text.count("\n", 0, position) if position is not None else None
    line = "" if number is None else f"line {number + 1}"
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    return InputError((where, line), f"not valid YAML ({problem})", "correct the syntax")


def _refuse_surprises(text: str, where: str | Path) -> None:
    """Check the events in one pass, before anything is constructed."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        line = f"line {_line(event)}"
        if number > MAX_TABLE_NODES:
            raise InputError((where, line), f"more than {MAX_TABLE_NODES} values", "remove values that are not needed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_TABLE_DEPTH:
                raise InputError((where, line), f"nested deeper than {MAX_TABLE_DEPTH}", "flatten it")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError((where, line), "an anchor or alias", "write the value out")
        if tag := getattr(event, "tag", None):
            raise InputError((where, line), f"a tag ({tag})", "remove it")


def _line(item: yaml.Node | yaml.Event) -> int:
    """Return the 1-based line where a node or event starts; 0 for one that was not parsed from text."""
    return 0 if item.start_mark is None else int(item.start_mark.line) + 1


def _convert(node: yaml.Node, where: str | Path) -> Node:
    line = _line(node)
    if isinstance(node, yaml.SequenceNode):
        return Node([_convert(item, where) for item in node.value], line)
    if isinstance(node, yaml.MappingNode):
        return Node(_convert_pairs(node, where), line)
    return Node(_scalar(node, where, line), line)


def _convert_pairs(node: yaml.MappingNode, where: str | Path) -> dict[str, Node]:
    pairs: dict[str, Node] = {}
    for key_node, value_node in node.value:
        line = f"line {_line(key_node)}"
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_PREFIX}str":
            description = f"the key {key_node.value}" if isinstance(key_node, yaml.ScalarNode) else "a key"
            raise InputError((where, line), f"{description} is not text", "put it in quotes")
        if key_node.value in pairs:
            raise InputError((where, line), f"duplicate key {key_node.value!r}", "remove one")
        pairs[key_node.value] = _convert(value_node, where)
    return pairs


def _scalar(node: yaml.Node, where: str | Path, line: int) -> Any:
    kind = node.tag.removeprefix(_PREFIX)
    if kind == "str":
        return node.value
    if kind in ("int", "float") and len(node.value) > MAX_NUMBER_CHARS:
        what = f"a number of {len(node.value)} characters"
        raise InputError((where, f"line {line}"), what, f"write it in at most {MAX_NUMBER_CHARS}")
    if kind in ("int", "float", "bool", "null"):
        try:
            return yaml.constructor.SafeConstructor().construct_object(node)
        except ValueError:
            pass
    raise InputError((where, f"line {line}"), f"{node.value!r} is read as a {kind}", "put it in quotes")
