"""A mapping table: YAML bytes to typed rows, every row checked, with the line where it stands.

A table says what becomes of every tensor of one key layout (`tensors`), and which layers of the two
models compute the same thing (`taps`), in sections whose `torch` and `keras` stand before every name
in them. It holds data only: patterns with named indices, names of rules and of constants, reasons.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wdport.errors import MisfitError
from wdport.mapping.axes import AxisError, Rule
from wdport.mapping.catalog import RULES, find_rule
from wdport.mapping.names import NamePattern, PatternError, parse_pattern
from wdport.mapping.strict_yaml import Node, load_yaml

FORMAT = 1


@dataclass(frozen=True)
class Row:
    """What becomes of one family of source tensors.

    Either ``keras`` and ``rule`` are given (the tensor is used), or ``check`` alone (compared with
    a constant of the model family and then left out), or ``drop`` (left out for that reason).
    ``check`` beside ``keras`` means used *and* compared. ``when`` names a feature without which the
    row does not apply; an ``optional`` row may match nothing.
    """

    line: int
    torch: NamePattern
    keras: tuple[NamePattern, ...] = ()
    rule: Rule | None = None
    check: NamePattern | None = None
    drop: str | None = None
    when: str | None = None
    optional: bool = False


@dataclass(frozen=True)
class TapRow:
    """Two layers, by path, whose outputs must agree; ``shift``: up to what is the same at every token.

    An ``optional`` tap is left out, and reported, where the reference does not call the module, or calls other
    layers inside it; the layers inside it are compared instead.
    """

    line: int
    torch: NamePattern
    keras: NamePattern
    when: str | None = None
    shift: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Table:
    """One mapping table; ``signature`` is a tensor that only this layout has."""

    path: str
    sha256: str
    family: str
    variant: str
    signature: NamePattern
    rows: tuple[Row, ...]
    taps: tuple[TapRow, ...]


def load_table(path: Path) -> Table:
    """Read a table file; raises :class:`MisfitError` naming the line of the first fault."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MisfitError(path, f"cannot be read ({error.strerror})", "give the path of a mapping table") from None
    return parse_table(data, str(path))


def parse_table(data: bytes, where: str) -> Table:
    """Read the bytes of a table; ``where`` names it in errors."""
    root = _Fields(load_yaml(data, where), where)
    line = root.rest["format"].line if root.has("format") else root.line
    stated = root.take("format")
    if type(stated) is not int or stated != FORMAT:
        raise root.fault(f"format is not {FORMAT}", f"write `format: {FORMAT}`", line)
    family, variant = root.text("family"), root.text("variant")
    signature = root.pattern("signature")
    rows: list[Row] = []
    taps: list[TapRow] = []
    for node in root.list("sections"):
        fields = _Fields(node, where)
        section = _Section(*(fields.optional_text(name) for name in ("torch", "keras", "when")))
        if not fields.has("tensors") and not fields.has("taps"):
            raise fields.fault("a section without rows", "give it tensors or taps, or remove it")
        if fields.has("tensors"):
            rows += [_parse_row(row, where, section) for row in fields.list("tensors")]
        if fields.has("taps"):
            taps += [_parse_tap(row, where, section) for row in fields.list("taps")]
        fields.finish()
    root.finish()
    if not rows:
        raise root.fault("no tensors in any section", "give at least one row under `tensors:`")
    return Table(where, hashlib.sha256(data).hexdigest(), family, variant, signature, tuple(rows), tuple(taps))


@dataclass(frozen=True)
class _Section:
    """What stands before every name of a section, and the feature that it needs."""

    torch: str | None
    keras: str | None
    when: str | None


def _parse_row(node: Node, where: str, section: _Section) -> Row:
    fields = _Fields(node, where)
    torch = fields.pattern("torch", section.torch, ".")
    keras = fields.patterns("keras", section.keras, "/")
    rule_name, drop = fields.optional_text("rule"), fields.optional_text("drop")
    check = fields.pattern("check") if fields.has("check") else None
    optional = fields.flag("optional")
    fields.finish()
    try:
        rule = find_rule(rule_name) if rule_name else None
    except AxisError as error:
        raise fields.fault(str(error), "name every axis once on each side, as in `out in -> in out`") from None
    if rule_name and rule is None:
        raise fields.fault(f"unknown rule {rule_name!r}", f"use one of {', '.join(RULES)}")
    if bool(keras) != bool(rule):
        raise fields.fault("keras and rule go together", "give both or neither")
    if [bool(keras), bool(drop)].count(True) + (check is not None and not keras) != 1 or (drop and check):
        raise fields.fault("a row must say one thing", "give keras and rule, or check, or drop with a reason")
    if rule and (len(keras) > 1) != bool(rule.target.stacked):
        raise fields.fault(f"rule {rule.name} does not make {len(keras)} tensors", "list its targets under keras")
    for other in (*keras, *((check,) if check else ())):
        if set(other.indices) != set(torch.indices):
            raise fields.fault(f"{other.text} and {torch.text} have different indices", "use the same on both")
    return Row(node.line, torch, keras, rule, check, drop, section.when, optional)


def _parse_tap(node: Node, where: str, section: _Section) -> TapRow:
    fields = _Fields(node, where)
    torch, keras = fields.pattern("torch", section.torch, "."), fields.pattern("keras", section.keras, "/")
    up_to = fields.optional_text("up_to")
    if up_to not in (None, "shift"):
        raise fields.fault(f"up_to is {up_to!r}", "write `up_to: shift`, or leave it out")
    tap = TapRow(node.line, torch, keras, section.when, up_to is not None, fields.flag("optional"))
    fields.finish()
    if set(tap.torch.indices) != set(tap.keras.indices):
        raise fields.fault(f"{tap.torch.text} and {tap.keras.text} have different indices", "use the same on both")
    return tap


class _Fields:
    """A mapping's fields, taken one by one, so that what is left over is unknown."""

    def __init__(self, node: Node, where: str) -> None:
        self.line, self.where = node.line, where
        if not isinstance(node.value, dict):
            raise self.fault("not a list of `field: value` pairs", "write it as one")
        self.rest: dict[str, Node] = dict(node.value)

    def fault(self, what: str, fix: str, line: int | None = None) -> MisfitError:
        return MisfitError((self.where, f"line {line or self.line}"), what, fix)

    def has(self, field: str) -> bool:
        return field in self.rest

    def take(self, field: str, default: Any = None) -> Any:
        node = self.rest.pop(field, None)
        return default if node is None else node.value

    def optional_text(self, field: str) -> str | None:
        return self.text(field) if field in self.rest else None

    def text(self, field: str) -> str:
        line = self.rest[field].line if field in self.rest else self.line
        value = self.take(field)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(f"{field} is {'missing' if value is None else 'not text'}", "give a text", line)
        return value

    def flag(self, field: str) -> bool:
        value = self.take(field, default=False)
        if not isinstance(value, bool):
            raise self.fault(f"{field} is not true or false", f"write `{field}: true`")
        return value

    def list(self, field: str) -> list[Node]:
        line = self.rest[field].line if field in self.rest else self.line
        value = self.take(field)
        if not isinstance(value, list) or not value:
            raise self.fault(f"{field} is not a list of rows", "give at least one row", line)
        return value

    def pattern(self, field: str, prefix: str | None = None, joint: str = "") -> NamePattern:
        return self._pattern(self.text(field), prefix, joint)

    def patterns(self, field: str, prefix: str | None, joint: str) -> tuple[NamePattern, ...]:
        node = self.rest.get(field)
        if node is None or not isinstance(node.value, list):
            return (self.pattern(field, prefix, joint),) if node is not None else ()
        self.rest.pop(field)
        if not all(isinstance(item.value, str) for item in node.value):
            raise self.fault(f"{field} holds something that is not text", "put names in quotes", node.line)
        return tuple(self._pattern(item.value, prefix, joint) for item in node.value)

    def _pattern(self, text: str, prefix: str | None, joint: str) -> NamePattern:
        """The pattern behind its section's prefix; ``.`` is the prefix itself."""
        try:
            parse_pattern(text)
            if prefix is None:
                return parse_pattern(text)
            return parse_pattern(prefix if text == "." else f"{prefix}{joint}{text}")
        except PatternError as error:
            raise self.fault(str(error), "use plain names with <index> for numbers") from None

    def finish(self) -> None:
        for field, node in self.rest.items():
            raise self.fault(f"unknown field {field!r}", "remove it", node.line)
