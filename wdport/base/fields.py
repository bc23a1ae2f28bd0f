"""Declared fields of a configuration: type, bounds, choices, description and effect of each in one place.

A configuration is a frozen dataclass that extends :class:`Fields`::

    depth: Annotated[int, Meta(ge=0, le=14), "Number of blocks.", NETWORK, Summary()] = 10

A text is the field's description. ``msgspec`` checks types and bounds. This module adds what it does not have: markers
for what a value affects, one-line error messages, values of ``--set``, and the JSON Schema of a file of such fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import lru_cache
from math import inf
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from wdport.base.errors import UsageError, did_you_mean, printable
from wdport.base.limits import MAX_WIDTH

T = TypeVar("T")
FINITE: Final = 1e30
"""Bound of real numbers, far within the range of float32; larger ones are not taken for finite."""


@dataclass(frozen=True)
class Effect:
    """What a field's value changes: the function of the network, only the outcome of these gates, or the conversion of
    samples."""

    network: bool = False
    gates: tuple[str, ...] = ()
    samples: bool = False


NETWORK: Final = Effect(network=True)
SAMPLES: Final = Effect(samples=True)
UNUSED: Final = Effect()
"""Neither the network nor a gate depends on the field."""


@dataclass(frozen=True, eq=False)  # hashable, as types that hold it have to be
class Choices:
    """Values of a text field that another module lists, or that have other spellings in files.

    ``unlisted`` values are supported, but not offered; ``synonyms`` are read as the value that they map to.
    """

    values: tuple[str | None, ...]
    unlisted: tuple[str, ...] = ()
    synonyms: Mapping[str | None, str] = field(default_factory=dict)

    @property
    def listed(self) -> str:
        """The values for an error message."""
        return ", ".join("null" if value is None else value for value in self.values)


@dataclass(frozen=True)
class Summary:
    """Label of a field that the summary of a conversion shows, its name if empty; ``place`` orders those that differ
    from the fields."""

    label: str = ""
    place: int = 0


class Phrase(str):
    """What a valid value is, in place of the phrase for its type: "a number, two numbers or null"."""


class FieldRefusal(str):
    """What is wrong with a value out of bounds, in place of the phrase for these bounds."""


class Flag(str):
    """A property of a field that a family looks up."""


OFF: Final = Flag("inference does not use the field")
Dropout = Annotated[float, Meta(ge=0, lt=1), "Dropout rate in training; not used in inference.", UNUSED, OFF]
Width = Annotated[int, Meta(ge=1, le=MAX_WIDTH)]
"""Channels, heads or features of a layer."""


@dataclass(frozen=True)
class Wording:
    """Phrases of errors in which families differ: for a whole number below and above its bounds, a text that is not one
    of the choices, an item of a list of another type, and names that are not fields."""

    below: str = "{value}: from {least} to {most} is supported"
    above: str = "{value}: from {least} to {most} is supported"
    choice: str = "{value} is not supported: use {choices}"
    item: str = "is not {phrase}"
    unknown: str = "unknown field {first}"


class Field:
    """One declared field: its name, its default, and its type with its markers."""

    def __init__(self, name: str, hint: object, default: object) -> None:
        self.name, self.default = name, default
        self.type = _Type(hint)
        texts = (marker if type(marker) is str else getattr(marker, "description", "") for marker in self.type.markers)
        self.description: str = next(filter(None, texts), "")

    @property
    def required(self) -> bool:
        """Whether the field has no default."""
        return self.default is MISSING

    @property
    def kind(self) -> type:
        """The Python type of one value: int, float, bool, str or tuple."""
        return self.type.members[0].base

    def marker(self, kind: type[T]) -> T | None:
        """The field's marker of this kind, if it has one."""
        return self.type.marker(kind)

    def checked(self, value: object, wording: Wording) -> object:
        """The value, a list as a tuple and a synonym as what it means; raises ``ValueError`` in one sentence."""
        value = self.type.spelled(value)
        if fault := self.type.fault(value, wording):
            raise ValueError(f"{self.name} {fault}")
        return value

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the field as files have it."""
        return {"description": self.description, **self.type.schema()}


class Fields:
    """Base of configurations: frozen dataclasses that check their values; raises ``ValueError`` for invalid ones."""

    wording: ClassVar[Wording] = Wording()
    __dataclass_fields__: ClassVar[dict[str, Any]]  # subclasses are dataclasses

    def __post_init__(self) -> None:
        for name, spec in fields_of(type(self)).items():
            object.__setattr__(self, name, spec.checked(getattr(self, name), self.wording))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        values = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A configuration from such values, with defaults for absent ones; raises ``ValueError``."""
        if not isinstance(values, Mapping):
            raise ValueError("the configuration is not a table of values")
        declared = fields_of(cls)
        if unknown := sorted(str(name) for name in set(values) - set(declared)):
            raise ValueError(cls.wording.unknown.format(first=_quoted(unknown[0]), names=", ".join(unknown[:5])))
        if missing := [name for name, spec in declared.items() if spec.required and name not in values]:
            raise ValueError(f"missing configuration values: {', '.join(missing)}")
        return cls(**values)


def fields_of(config: type[Fields]) -> Mapping[str, Field]:
    """The declared fields of a configuration, by name."""
    return _declared(config)  # type: ignore[arg-type]  # mypy takes the hash of the instances for that of the class


@lru_cache
def _declared(config: type[Fields]) -> Mapping[str, Field]:
    hints = get_type_hints(config, include_extras=True)
    declared = fields(config)
    return MappingProxyType(
        {attribute.name: Field(attribute.name, hints[attribute.name], attribute.default) for attribute in declared}
    )


def marked(config: type[Fields], flag: Flag) -> tuple[str, ...]:
    """The fields with this flag, in their order."""
    return tuple(name for name, spec in fields_of(config).items() if flag in spec.type.markers)


def rests_on(config: type[Fields]) -> dict[str, tuple[str, ...]]:
    """The fields that the network does not depend on, each with the gates that do."""
    effects = {name: spec.marker(Effect) for name, spec in fields_of(config).items()}
    return {name: effect.gates for name, effect in effects.items() if effect and not (effect.network or effect.samples)}


def summary(config: type[Fields]) -> dict[str, str]:
    """The fields that the summary of a conversion shows, with their labels."""
    labels = {name: label for name, spec in fields_of(config).items() if (label := spec.marker(Summary))}
    return {name: labels[name].label or name for name in sorted(labels, key=lambda name: labels[name].place)}


def json_setting(config: type[Fields], key: str, text: str, place: str = "config.json") -> object:
    """One ``--set KEY=VALUE`` of a field of ``config.json``, the value as JSON or text; raises ``UsageError``."""
    names = fields_of(config)
    if key not in names:
        what = f"is not a field of this model's {place}"
        raise UsageError(f"--set {printable(key)}", what, did_you_mean(key, names, f"use one of {', '.join(names)}"))
    try:
        # JSON first, so that numbers, lists and tables are read as such; anything else is a text.
        return json.loads(text)
    except (ValueError, RecursionError):
        return None if text in ("None", "null") else text


def typed_setting(config: type[Fields], key: str, text: str, phrase: str) -> object:
    """One ``--set KEY=VALUE``, the value in the field's type; raises ``UsageError`` if it is not ``phrase``."""
    field = fields_of(config)[key]
    if field.type.optional and text in ("None", "null"):
        return None
    try:
        return field.kind(text)
    except ValueError:
        raise UsageError(f"--set {key}", f"{text!r} is not {phrase}", "give a number") from None


_PHRASES: Final[Mapping[object, tuple[str, str]]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true and false"),
    str: ("text", "names"),
}
"""What a value of a type is called, and what the values of a list are called."""


def _quoted(value: object) -> str:
    """A value for an error message; numbers of thousands of digits are not written out."""
    if type(value) is int:
        return str(value) if abs(value) < 1 << 64 else f"of {value.bit_length()} bits"
    try:
        return repr(value)[:60]
    except ValueError:  # such a number within a list
        return f"a {type(value).__name__}"


class _Type:
    """A field's type: what msgspec checks, and the phrases and the JSON Schema that follow from it."""

    def __init__(self, hint: Any) -> None:
        self.markers: tuple[object, ...] = getattr(hint, "__metadata__", ())
        plain = hint.__origin__ if get_origin(hint) is Annotated else hint
        origin, arguments = get_origin(plain), get_args(plain)
        self.metas = [marker for marker in self.markers if isinstance(marker, Meta)]
        self.choices = self.marker(Choices)
        self.base: type = origin or plain
        self.item: _Type | None = None
        self._lengths: tuple[int | None, int | None] = self._bound("min_length"), self._bound("max_length")
        self.members: tuple[_Type, ...] = (self,)
        self.optional = origin in (Union, UnionType) and NoneType in arguments
        if origin is Literal:
            self.base, self.choices = str, Choices(arguments)
        elif origin in (Union, UnionType):
            self.members = tuple(_Type(argument) for argument in arguments if argument is not NoneType)
            plain = Union[(*(member.checked for member in self.members), *([None] if self.optional else []))]
        elif origin is tuple:
            self.item = _Type(arguments[0])
            plain = GenericAlias(tuple, (self.item.checked, ...))
            if Ellipsis not in arguments:  # as a length: msgspec 0.22.0 crashes at int | tuple[int, int] with bounds
                self._lengths = len(arguments), len(arguments)
                plain = Annotated[plain, Meta(min_length=len(arguments), max_length=len(arguments))]
        if self.choices:
            plain = Literal[(*self.choices.values, *self.choices.unlisted)]
        self.checked: Any = Annotated[(plain, *self.metas)] if self.metas else plain

    def marker(self, kind: type[T]) -> T | None:
        """The first marker of this kind, if there is one."""
        return next((marker for marker in self.markers if isinstance(marker, kind)), None)

    def _bound(self, name: str) -> Any:
        return next((bound for meta in self.metas if (bound := getattr(meta, name)) is not None), None)

    @property
    def phrase(self) -> str:
        """What a value has to be."""
        declared, first = self.marker(Phrase), self.members[0]
        return declared or (f"a list of {_PHRASES[first.item.base][1]}" if first.item else _PHRASES[first.base][0])

    def spelled(self, value: object) -> object:
        """The value, a list as a tuple and a synonym as what it means."""
        if self.choices and isinstance(value, str | None):
            return self.choices.synonyms.get(value, value)
        return tuple(value) if isinstance(value, list) else value

    def fault(self, value: object, wording: Wording) -> str:
        """What is wrong with a value, in words that follow its name; "" if nothing is."""
        if not isinstance(value, set | frozenset):  # which msgspec takes for a list
            try:
                msgspec.convert(value, self.checked)
                return ""
            except msgspec.ValidationError:
                pass
        member = next((member for member in self.members if member._takes(value)), None)
        if member is None:
            return f"is not {self.phrase}"
        if isinstance(value, tuple):
            return member._list_fault(value, wording, self.phrase)
        return member._bound_fault(value, wording)

    def _takes(self, value: object) -> bool:
        """Whether a value has this type, whatever its size; a bool is not a number, and an int is a real number."""
        # `type`, not isinstance: a bool is an int in Python.
        return type(value) is self.base or (self.base is float and type(value) is int)

    def _list_fault(self, values: tuple[object, ...], wording: Wording, phrase: str) -> str:
        assert self.item is not None
        minimum, maximum = self._lengths
        if minimum is not None and minimum == maximum != len(values):
            return f"is not {phrase}"
        if not self.item.choices and not all(map(self.item._takes, values)):
            return wording.item.format(phrase=phrase, item=self.item.phrase)
        if not (minimum or 0) <= len(values) <= (inf if maximum is None else maximum):
            supported = f"at most {maximum}" if minimum is None else f"from {minimum} to {maximum}"
            supported = f"at least {minimum}" if maximum is None else supported
            return self._refusal(values) or f"has {len(values)} values, {supported} are supported"
        value = next(element for element in values if self.item.fault(element, wording))
        if self.item.choices:
            return f"has {_quoted(value)}, which is not supported: use {self.item.choices.listed}"
        fault = self.item._bound_fault(value, wording)
        return f"has a value that {fault}" if self.item.base is float else fault

    def _bound_fault(self, value: Any, wording: Wording) -> str:
        if self.choices:
            return wording.choice.format(value=_quoted(value), choices=self.choices.listed)
        minimum, maximum, refusal = self._bound("ge"), self._bound("le"), self._refusal(value)
        if self.base is int and maximum is not None:
            limits = {"value": _quoted(value), "least": minimum, "most": maximum}
            return wording.above.format(**limits) if value > maximum else refusal or wording.below.format(**limits)
        if self.base is str:
            return refusal or f"has {len(value)} characters, at most {self._lengths[1]} are supported"
        # The only real fields below 1 are dropout rates.
        if self._bound("lt") == 1:
            return f"{_quoted(value)} is not in [0, 1)"
        if refusal or not abs(value) < FINITE:
            return refusal or "is not a finite number"
        return "is below zero" if self._bound("gt") is None else "is not above zero"

    def _refusal(self, value: object) -> str:
        """The phrase that the field has for a value out of bounds; "" if it has none."""
        refusal = self.marker(FieldRefusal)
        return refusal.format(value=_quoted(value)) if refusal else ""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of a value as files have it."""
        if self.optional:
            return {"anyOf": [self.schema_of_value(), {"type": "null"}]}
        return self.schema_of_value()

    def schema_of_value(self) -> dict[str, Any]:
        """JSON Schema of a value that is not null."""
        extra = next((meta.extra_json_schema for meta in self.metas if meta.extra_json_schema), {})
        if self.members != (self,):
            parts = [member.schema() for member in self.members]
            return parts[0] if len(parts) == 1 else {"anyOf": parts}
        if self.choices:
            return extra or {"enum": [*self.choices.values, *self.choices.synonyms]}
        if self.item:
            lengths = zip(("minItems", "maxItems"), self._lengths, strict=True)
            length_bounds = {name: length for name, length in lengths if length is not None}
            return {"type": "array", "items": self.item.schema(), **length_bounds}
        if self.base not in _PHRASES:
            return extra
        bounds = {name: bound for name, bound in msgspec.json.schema(self.checked).items() if name not in extra}
        # The description belongs to the field, not to its value.
        bounds.pop("description", None)
        return {"type": bounds.pop("type"), **bounds, **extra}
