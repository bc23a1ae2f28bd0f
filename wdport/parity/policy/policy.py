"""The policy in ``parity.toml``: bounds that differ from the defaults and waived taps, each looser entry with a
reason and a last day."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal, Required, TypedDict

from msgspec import Meta

from wdport.base.errors import InputError, did_you_mean
from wdport.base.limits import MAX_POLICY_BYTES
from wdport.base.options import PathText
from wdport.base.shared_types import Text, about
from wdport.checkpoint.regular_file import read_option
from wdport.compare.findings import GATES, label, letter_of
from wdport.families.registry import known_bounds

Day = Annotated[
    str, Meta(extra_json_schema={"format": "date"}, pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["2027-01-31"])
]
"""A TOML date, without quotes; validators get it as a string."""


class BoundForm(TypedDict, total=False):
    """A bound that replaces the default. A looser bound needs a reason and an expiration date."""

    value: Required[Annotated[float, Meta(gt=0), about(
        "The bound: a positive, finite number.")]]  # fmt: skip
    reason: Annotated[Text, about("Reason why the bound differs from the default.")]
    expires: Annotated[Day, about(
        "The last day on which the bound is in force, as a TOML date without quotes. From the next day on, the policy "
        "gate (P) fails, and the default replaces a looser bound; a tighter bound stays in force.")]  # fmt: skip


class SettingsForm(TypedDict, total=False):
    """How to treat hyper-parameters that differ."""

    differs: Annotated[Literal["warn", "fail"], about(
        "`fail`: a hyper-parameter that differs between the two models makes the policy gate (P) fail; `warn`, the "
        "default, only reports the difference.")]  # fmt: skip


class WaiverForm(TypedDict):
    """One layer that may fail one gate until a given day."""

    tap: Annotated[str, Meta(pattern=r"^(?=[\s\S]*\S)[^*?<>\[\]{}]+$"), about(
        "Full path of the layer in the reference; patterns are not allowed.")]  # fmt: skip
    gate: Annotated[str, about("The gate that the layer may fail, by its name or its letter.")]
    reason: Annotated[Text, about("Reason why the failure is acceptable.")]
    expires: Annotated[Day, about(
        "The last day on which the waiver is in force, as a TOML date without quotes.")]  # fmt: skip


class PolicyForm(TypedDict, total=False):
    """A policy: bounds, the treatment of settings that differ, and waivers of single layers."""

    bounds: Annotated[dict[str, BoundForm], about("Bounds that differ from the defaults, by name.")]
    settings: Annotated[SettingsForm, about("How to treat hyper-parameters that differ.")]
    waivers: Annotated[list[WaiverForm], about("Layers that may fail, each for one gate.")]


_Error = Annotated[float, Meta(ge=1e-15)] | Literal["inf"]


class TapRecord(TypedDict):
    """Errors of one layer, rounded up to one significant digit. An infinite error, which only a waived layer can have,
    is the string ``inf``."""

    isolated: Annotated[_Error, about(
        "Relative float64 error of the layer's outputs when the layer is fed the reference's inputs.")]  # fmt: skip
    cumulative: Annotated[_Error, about("Relative float64 error of the layer's outputs within the running network.")]
    rms_ratio: Annotated[Annotated[float, Meta(ge=1)] | Literal["inf"], about(
        "Root mean square of the layer's float32 error, as a multiple of the reference's own.")]  # fmt: skip


class BaselineForm(TypedDict):
    """Errors of every layer, recorded by ``wdport verify --baseline FILE --update-baseline``."""

    schema: Annotated[Literal[1], about("Version number of the format.")]
    taps: Annotated[dict[str, TapRecord], Meta(min_length=1), about(
        "Errors of each layer, by its path in the reference.")]  # fmt: skip


WAIVABLE = ("A", "B")
"""The gates that judge single taps, and to which a waiver can apply."""


@dataclass(frozen=True)
class BoundSetting:
    """One bound of the policy; ``expires`` is the last day on which it is in force, ``None`` if it needs none."""

    name: str
    value: float
    default: float
    reason: str = ""
    expires: date | None = None

    @property
    def looser(self) -> bool:
        return not self.value <= self.default

    def expired(self, today: date) -> bool:
        return self.expires is not None and today > self.expires

    def in_force(self, today: date) -> float:
        """The bound on this day: the default after expiry, unless that would be looser."""
        # A tighter bound stays in force after its last day; only what loosens expires.
        return self.default if self.looser and self.expired(today) else self.value


@dataclass(frozen=True)
class Waiver:
    """One tap (module path of the reference) that may fail one gate up to and including ``expires``."""

    tap: str
    gate: str
    reason: str
    expires: date

    def expired(self, today: date) -> bool:
        return today > self.expires


@dataclass(frozen=True)
class Policy:
    """A policy file's content; ``source`` is the file and ``read`` the day on which it was read. With ``settings``, a
    hyper-parameter that differs also fails."""

    bounds: tuple[BoundSetting, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    source: str = ""
    read: date = date.min
    settings: bool = False

    @property
    def empty(self) -> bool:
        return not (self.bounds or self.waivers or self.settings)

    def bounds_on(self, today: date) -> dict[str, float]:
        """The policy's bounds in force on a day, by name."""
        return {setting.name: setting.in_force(today) for setting in self.bounds}


def loosened(policy: Policy) -> dict[str, float]:
    """The bounds that are looser than the defaults on the day on which the policy was read, by name.

    Known faults must still fail under these bounds.
    """
    held = policy.bounds_on(policy.read)
    return {setting.name: held[setting.name] for setting in policy.bounds if not held[setting.name] <= setting.default}


_MOST_DOTS = 50
_PATTERN = frozenset("*?<>[]{}")


def read_policy(path: PathText, today: date) -> Policy:
    """Read a policy file.

    Args:
        path: a TOML file with tables ``bounds`` and ``settings`` and an array of tables ``waivers``, all optional.
        today: the day that decides what has expired; an expired entry is not an error here, but fails the verdict.

    Raises:
        InputError: the file cannot be read, or a key is unknown, of the wrong type, or lacks its reason
            or its expiry.
    """
    file = Path(path)
    document = _Table(_load(file), file, "")
    held, waivers, settings = document.table("bounds"), document.tables("waivers"), document.table("settings")
    document.end()
    policy = Policy(
        bounds=tuple(_bound(held.table(name), name) for name in list(held.rest)),
        settings=_settings(settings),
        waivers=tuple(_waiver(table) for table in waivers),
        source=str(path),
        read=today,
    )
    waived: set[tuple[str, str]] = set()
    for index, waiver in enumerate(policy.waivers):
        if (waiver.tap, waiver.gate) in waived:
            raise InputError(
                (file, f"waivers[{index}]"), f"waives {waiver.tap} for {label(waiver.gate)} again", "keep one"
            )
        waived.add((waiver.tap, waiver.gate))
    return policy


def _settings(table: _Table) -> bool:
    """Whether a hyper-parameter that differs fails the verdict."""
    differs = (table.optional_text("differs") or "warn").lower()
    table.end()
    if differs not in ("warn", "fail"):
        raise InputError((table.file, table.at("differs")), f"is {differs!r}", 'write differs = "fail", or "warn"')
    return differs == "fail"


def _load(file: Path) -> dict[str, object]:
    data = read_option(file, MAX_POLICY_BYTES, "give the policy file")
    _require_flat(file, data)
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(file, "is not UTF-8", "save the file as UTF-8") from None
    # tomllib calls itself for nested arrays and tables.
    except (ValueError, RecursionError) as error:
        raise InputError(file, f"is not TOML: {error}", "correct it there") from None


def _require_flat(file: Path, data: bytes) -> None:
    """Refuse a key of many parts: the library keeps every prefix of it, so memory grows with their square."""
    longest = max((line.count(b".") for line in data.splitlines()), default=0)
    if longest > _MOST_DOTS:
        raise InputError(file, f"has a line with {longest} dots", "split it, or name one layer per waiver")


def _bound(table: _Table, name: str) -> BoundSetting:
    defaults = {name: bound.value for name, bound in known_bounds().items()}
    if name not in defaults:
        raise InputError((table.file, table.key), "is not a bound", f"use one of {', '.join(defaults)}")
    value = table.number("value")
    reason, expires = table.optional_text("reason"), table.optional_day("expires")
    table.end()
    setting = BoundSetting(name, value, defaults[name], reason or "", expires)
    if setting.looser:
        why = f"is missing, and {name} = {value:g} is looser than {setting.default:g}"
        if reason is None:
            raise InputError((table.file, table.at("reason")), why, "state the reason, or tighten the bound")
        if expires is None:
            raise InputError((table.file, table.at("expires")), why, "write the last day, such as 2027-01-31")
    return setting


def _waiver(table: _Table) -> Waiver:
    tap, gate = table.text("tap"), table.text("gate")
    reason, expires = table.text("reason"), table.day("expires")
    table.end()
    if _PATTERN & set(tap):
        what = f"{tap!r} is a pattern"
        raise InputError((table.file, table.at("tap")), what, "write one waiver per layer, with its full path")
    letter = letter_of(gate)
    # Other gates judge the whole, and a waiver of one layer could not be applied to them.
    if letter not in WAIVABLE:
        what = f"gate {gate!r} {'does not exist' if letter is None else 'does not judge single layers'}"
        raise InputError((table.file, table.at("gate")), what, f"use {' or '.join(GATES[a].name for a in WAIVABLE)}")
    return Waiver(tap, letter, reason, expires)


@dataclass
class _Table:
    """A TOML table whose keys are taken one by one; those left at the end are unknown."""

    rest: dict[str, object]
    file: Path
    key: str
    declared: list[str] = field(default_factory=list)

    def at(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def end(self) -> None:
        for name in self.rest:
            fix = did_you_mean(name, self.declared, "remove it or correct its name")
            raise InputError((self.file, self.at(name)), "is an unknown key", fix)

    def _pop(self, name: str, default: object = None) -> object:
        self.declared.append(name)
        return self.rest.pop(name, default)

    def table(self, name: str) -> _Table:
        value = self._pop(name, {})
        if not isinstance(value, Mapping):
            raise self._wrong(name, "a table", "{ value = 1e-9, ... }" if self.key else f"[{name}]")
        return _Table(dict(value), self.file, self.at(name))

    def tables(self, name: str) -> list[_Table]:
        value = self._pop(name, [])
        if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
            raise self._wrong(name, "an array of tables", f"[[{name}]]")
        return [_Table(dict(row), self.file, f"{self.at(name)}[{index}]") for index, row in enumerate(value)]

    def text(self, name: str) -> str:
        value = self._take(name, f'{name} = "..."')
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(name, "a non-empty string", f'{name} = "..."')
        return value.strip()

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self.rest else None

    def number(self, name: str) -> float:
        value = self._take(name, f"{name} = 1e-9")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, "a number", f"{name} = 1e-9")
        try:
            number = float(value)
        # A TOML integer may have any number of digits.
        except OverflowError:
            number = float("inf")
        if not isfinite(number) or number <= 0.0:
            raise self._wrong(name, "a positive, finite number", f"{name} = 1e-9")
        return number

    def day(self, name: str) -> date:
        example = f"{name} = 2027-01-31"
        value = self._take(name, example)
        if not isinstance(value, date) or isinstance(value, datetime):  # a time of day is a subclass
            raise self._wrong(name, "a date", f"{example}, without quotes")
        return value

    def optional_day(self, name: str) -> date | None:
        return self.day(name) if name in self.rest else None

    def _take(self, name: str, example: str) -> object:
        if name not in self.rest:
            raise InputError((self.file, self.at(name)), "is missing", f"write {example}")
        return self._pop(name)

    def _wrong(self, name: str, kind: str, example: str) -> InputError:
        return InputError((self.file, self.at(name)), f"is not {kind}", f"write {example}")
