"""Parse untrusted YAML text to plain Python values with line numbers, and read its fields one by one; errors name
the line.

Valid YAML that a reviewer could overlook is refused with its line: duplicate keys, anchors, aliases, merge keys, tags,
several documents, deep nesting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import yaml

from wdport.base.errors import InputError, MisfitError, did_you_mean
from wdport.base.limits import MAX_NUMBER_CHARS, MAX_TABLE_BYTES, MAX_TABLE_DEPTH, MAX_TABLE_NODES
from wdport.checkpoint.error_context import located
from wdport.checkpoint.regular_file import read_option
from wdport.checkpoint.strict_json import strict_json
from wdport.mapping.axes import AxisError, Rule, parse_rule
from wdport.mapping.names import NamePattern, PatternError, parse_pattern

# libyaml's parser is faster; PyYAML may be built without it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class YamlNode:
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


def nodes_of(value: Any) -> YamlNode:
    """The node of plain values, as if they were read from text with a line for each."""
    lines = count(1)

    def convert(value: Any) -> YamlNode:
        line = next(lines)
        if isinstance(value, Mapping):
            return YamlNode({str(key): convert(element) for key, element in value.items()}, line)
        if isinstance(value, (list, tuple)):
            return YamlNode([convert(element) for element in value], line)
        return YamlNode(value, line)

    return convert(value)


def read_yaml(path: Path, fix: str) -> YamlNode:
    """Read a file of one YAML document, or of a JSON object if its name says so; raises :class:`InputError`, with
    ``fix`` if the file cannot be read."""
    data = read_option(path, MAX_TABLE_BYTES, fix)
    if path.suffix == ".json":
        # Not as YAML: PyYAML follows YAML 1.1, in which 1e-05 is text.
        with located(path):
            return nodes_of(strict_json(data, "file"))
    return load_yaml(data, path)


def load_yaml(data: bytes, where: str | Path) -> YamlNode:
    """Read one YAML document; raises :class:`InputError` naming the line."""
    # `read_option` has the same limit; data from an archive or a package comes here directly.
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
        # Before the tree is built: an alias unfolds in `_convert`, which also recurses into every level.
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


def _convert(node: yaml.Node, where: str | Path) -> YamlNode:
    line = _line(node)
    if isinstance(node, yaml.SequenceNode):
        return YamlNode([_convert(item, where) for item in node.value], line)
    if isinstance(node, yaml.MappingNode):
        return YamlNode(_convert_pairs(node, where), line)
    return YamlNode(_scalar(node, where, line), line)


def _convert_pairs(node: yaml.MappingNode, where: str | Path) -> dict[str, YamlNode]:
    pairs: dict[str, YamlNode] = {}
    for key_node, value_node in node.value:
        line = f"line {_line(key_node)}"
        # A merge key (`<<`) has a tag that is not text, so it is refused here as well.
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
    # int() takes quadratic time in the number of digits.
    if kind in ("int", "float") and len(node.value) > MAX_NUMBER_CHARS:
        what = f"a number of {len(node.value)} characters"
        raise InputError((where, f"line {line}"), what, f"write it in at most {MAX_NUMBER_CHARS}")
    if kind in ("int", "float", "bool", "null"):
        try:
            # PyYAML follows YAML 1.1, in which `no`, `1:30` and 2024-01-01 are no text: a date ends at the error below.
            return yaml.constructor.SafeConstructor().construct_object(node)
        except ValueError:
            pass
    raise InputError((where, f"line {line}"), f"{node.value!r} is read as a {kind}", "put it in quotes")


T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """The prefixes of a section's names, and the feature that it requires; empty for the table itself."""

    torch: str | None = None
    keras: str | None = None
    when: str | None = None


class YamlFields:
    """A mapping's fields, read one by one; fields that remain are unknown."""

    def __init__(self, node: YamlNode, where: str, names: Iterable[str] | None = None) -> None:
        """With ``names`` fields, others are refused at once: before a field that is missing under its right name."""
        self.line, self.where = node.line, where
        if not isinstance(node.value, dict):
            raise self.fault("not a list of `field: value` pairs", "write it as one")
        self.rest: dict[str, YamlNode] = dict(node.value)
        self.known = set(self.rest)
        if names is not None:
            self._refuse({name: held for name, held in self.rest.items() if name not in names}, names)

    def fault(self, what: str, fix: str, line: int | None = None) -> MisfitError:
        return MisfitError((self.where, f"line {line or self.line}"), what, fix)

    def has(self, field: str) -> bool:
        return field in self.rest

    def line_of(self, field: str) -> int:
        return self.rest[field].line if field in self.rest else self.line

    def take(self, field: str, default: Any = None) -> Any:
        node = self.rest.pop(field, None)
        return default if node is None else node.value

    def text(self, field: str) -> str:
        line = self.line_of(field)
        value = self.take(field)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(f"{field} is {'missing' if value is None else 'not text'}", "give a text", line)
        return value

    def optional_text(self, field: str) -> str | None:
        return self.text(field) if field in self.rest else None

    def flag(self, field: str) -> bool:
        value = self.take(field, default=False)
        if not isinstance(value, bool):
            raise self.fault(f"{field} is not true or false", f"write `{field}: true`")
        return value

    def list(self, field: str) -> list[YamlNode]:
        line = self.line_of(field)
        value = self.take(field)
        if not isinstance(value, list) or not value:
            raise self.fault(f"{field} is not a list of rows", "give at least one row", line)
        return value

    def plain(self, field: str) -> dict[str, object]:
        """Return a field's mapping of any form, without line numbers; empty if the field is absent."""
        line, node = self.line_of(field), self.rest.pop(field, None)
        if node is not None and not isinstance(node.value, dict):
            raise self.fault(f"{field} is not a list of `field: value` pairs", "write it as one", line)
        return {} if node is None else node.plain()

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts; empty if the field is absent."""
        if field not in self.rest:
            return ()
        line, value = self.line_of(field), self.take(field)
        if not isinstance(value, list) or not all(isinstance(item.value, str) and item.value.strip() for item in value):
            raise self.fault(f"{field} is not a list of texts", f"write `{field}: [one, two]`", line)
        return tuple(item.value for item in value)

    def pairs(self, field: str, kind: type[T], good: Callable[[T], bool], example: str) -> dict[str, T]:
        """Return a mapping of names to values of one kind; empty if the field is absent."""
        if field not in self.rest:
            return {}
        line, value = self.line_of(field), self.take(field)
        # Not isinstance, for which true is an int as well.
        sound = isinstance(value, dict) and all(type(n.value) is kind and good(n.value) for n in value.values())
        if not sound or not value:
            raise self.fault(f"{field} has an invalid value", f"write `{field}: {example}`", line)
        return {name: node.value for name, node in value.items()}

    def names(self) -> dict[str, str]:
        return self.pairs("names", str, lambda text: bool(text.strip()), "{query: to_q}")

    def formerly(self) -> dict[str, str]:
        return self.pairs("formerly", str, lambda text: bool(text.strip()), "{out: proj_attn}")

    def sizes(self) -> dict[str, int]:
        return self.pairs("sizes", int, lambda size: size > 0, "{h: 3, w: 3}")

    def rule(self, text: str) -> Rule:
        try:
            return parse_rule(text.strip(), text)
        except AxisError as error:
            raise self.fault(str(error), "name every axis once on each side, as in `out in -> in out`") from None

    def pattern(self, field: str, prefix: str | None = None, joint: str = "") -> NamePattern:
        return self.join(self.text(field), prefix, joint)

    def patterns(self, field: str, prefix: str | None, joint: str) -> tuple[NamePattern, ...]:
        node = self.rest.get(field)
        if node is None or not isinstance(node.value, list):
            return (self.pattern(field, prefix, joint),) if node is not None else ()
        self.rest.pop(field)
        if not all(isinstance(item.value, str) for item in node.value):
            raise self.fault(f"{field} holds something that is not text", "put names in quotes", node.line)
        return tuple(self.join(item.value, prefix, joint) for item in node.value)

    def join(self, text: str, prefix: str | None, joint: str) -> NamePattern:
        """Return the pattern with its section's prefix; ``.`` is the prefix itself."""
        try:
            parse_pattern(text)
            if prefix is None:
                return parse_pattern(text)
            return parse_pattern(prefix if text == "." else f"{prefix}{joint}{text}" if prefix else text)
        except PatternError as error:
            raise self.fault(str(error), "use plain names with <index> for numbers") from None

    def when(self, section: Section) -> str | None:
        """Return the feature that a row requires: its own, or its section's."""
        feature = self.optional_text("when")
        if feature and section.when:
            raise self.fault("when is given for the row and for its section", "keep one of the two")
        return feature or section.when

    def same_indices(self, first: NamePattern, others: Iterable[NamePattern]) -> None:
        """Refuse a row whose names do not have the same indices."""
        for other in others:
            if set(other.indices) != set(first.indices):
                raise self.fault(f"{other.text} and {first.text} have different indices", "use the same on both")

    def finish(self, names: Iterable[str] = ()) -> None:
        """Refuse fields that were not read."""
        self._refuse(self.rest, names)

    def _refuse(self, fields: Mapping[str, YamlNode], names: Iterable[str]) -> None:
        for field, node in fields.items():
            raise self.fault(f"unknown field {field!r}", did_you_mean(field, names, "remove it"), node.line)
