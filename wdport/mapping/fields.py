"""Read the fields of a YAML mapping one by one; errors name the line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from wdport.errors import MisfitError, did_you_mean
from wdport.mapping.axes import AxisError, Rule, parse_rule
from wdport.mapping.names import NamePattern, PatternError, parse_pattern
from wdport.mapping.strict_yaml import Node

T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """The prefixes of a section's names, and the feature that it requires; empty for the table itself."""

    torch: str | None = None
    keras: str | None = None
    when: str | None = None


class Fields:
    """A mapping's fields, read one by one; fields that remain are unknown."""

    def __init__(self, node: Node, where: str, names: Iterable[str] | None = None) -> None:
        """With ``names`` fields, others are refused at once: before a field that is missing under its right name."""
        self.line, self.where = node.line, where
        if not isinstance(node.value, dict):
            raise self.fault("not a list of `field: value` pairs", "write it as one")
        self.rest: dict[str, Node] = dict(node.value)
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

    def list(self, field: str) -> list[Node]:
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
        """Parse a rule's text."""
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
            return parse_pattern(prefix if text == "." else f"{prefix}{joint}{text}")
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

    def _refuse(self, fields: Mapping[str, Node], names: Iterable[str]) -> None:
        for field, node in fields.items():
            raise self.fault(f"unknown field {field!r}", did_you_mean(field, names, "remove it"), node.line)
