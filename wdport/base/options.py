"""Declared options of a request: sentence, bounds and kind of file are declared at a field, exclusions at its type.

A request is a frozen dataclass whose fields have their options in their types::

    cases: Annotated[int, Option("Also compare on N more random inputs.", "N", bounds=(0, MAX_CASES))] = 0

The command (:mod:`wdport.cli.click_options`), the pytest plugin and the action are derived from it. Importing this
module imports neither click nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from inspect import get_annotations
from math import inf
from numbers import Integral, Real
from os import PathLike
from types import MappingProxyType, NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from wdport.base.errors import UsageError

T = TypeVar("T")
PathText = str | PathLike[str]
NAMES: Final = {"output": ("-o", "--output"), "values": ("--set",), "inputs": ("--input",), "json_file": ("--json",)}
"""Names on the command line of fields that several requests have, where they are not the field's."""

Kind = Literal["checkpoint", "converted", "model", "table", "any", "series", "known", "folder", "document"]
"""A kind of file; a model is a converted one or a checkpoint, and suffixes are meant literally."""

Group = Literal["inputs", "model", "run", "outputs", "messages"]
"""The section of an option in the help."""

GROUPS: Final[Mapping[str, Group]] = {"output": "outputs", "html": "outputs", "markdown": "outputs", "junit": "outputs",
                                      "force": "outputs", "animate": "outputs", "json": "messages",
                                      "dtype": "model"}  # fmt: skip
"""Sections of options that several requests have, by their longest names; of others, files are inputs."""


@dataclass(frozen=True)
class Interval:
    """The finite numbers from ``smallest`` to ``largest`` without the ``excluded``; whole ones if ``integral``."""

    smallest: float
    largest: float = inf
    excluded: tuple[float, ...] = ()
    integral: bool = False

    def __contains__(self, value: Any) -> bool:
        # A bool is an int in Python. A comparison with NaN is false.
        is_number = isinstance(value, Integral if self.integral else Real) and not isinstance(value, bool)
        return is_number and bool(self.smallest <= value <= self.largest) and value not in (*self.excluded, inf)

    def __str__(self) -> str:
        """In words, for errors."""
        kind, form = ("a whole number", "d") if self.integral else ("a number", "g")
        words = f"{kind} {'above' if self.smallest in self.excluded else 'from'} {self.smallest:{form}}"
        if self.largest == inf:
            return words
        return f"{words} {'and below' if self.largest in self.excluded else 'to'} {self.largest:{form}}"


Range = Literal["above 0", "from 0", "from 0 to 1", "from 0 and below 1", "above 0 and below 1"]
_RANGES: Final[Mapping[Range, Interval]] = {
    "above 0": Interval(0, excluded=(0,)), "from 0": Interval(0), "from 0 to 1": Interval(0, 1),
    "from 0 and below 1": Interval(0, 1, excluded=(1,)), "above 0 and below 1": Interval(0, 1, excluded=(0, 1)),
}  # fmt: skip
Bounds = Interval | Range | tuple[int, int]
"""Numbers that a value may be; a range in words is one of real numbers, and a pair the first and last whole number."""


COUNT: Final = Interval(1, integral=True)


def interval_of(bounds: Bounds) -> Interval:
    """The interval that bounds stand for."""
    if isinstance(bounds, tuple):
        return Interval(*bounds, integral=True)
    return _RANGES[bounds] if isinstance(bounds, str) else bounds


@dataclass(frozen=True)
class Option:
    """What an option is, besides its type and its default.

    ``names`` are those on the command line if not those of the field or of ``NAMES``; the ``former`` ones still
    work. ``files`` is the kind of its file, or the suffixes, and ``metavar`` is FILE if not stated. ``group`` is its
    section of the help if not that of ``GROUPS``. ``bounds`` and ``choices`` are the values that it takes, and
    ``former_choices`` the present values by former ones; a shell completes it to ``completions``, several
    ``by_comma``. ``word`` stands for None; the other values are then whole numbers from 1. An option is listed
    ``after`` another one if not after the previous field. It may be given several times if its type is a tuple or a
    dictionary. ``once`` refuses a second value, where two ``names`` would overrule each other.
    """

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    group: Group | None = None
    files: Kind | tuple[str, ...] | None = None
    bounds: Bounds | None = None
    choices: tuple[str, ...] = ()
    former_choices: Mapping[str, str] = field(default_factory=dict)
    word: str = ""
    after: str = ""
    once: bool = False
    completions: Callable[[], Iterable[str]] | None = None
    by_comma: bool = False
    hidden: bool = False
    show_default: bool = True


@dataclass(frozen=True)
class Operand(Option):
    """An argument of the command: required if its field has no default, repeated if its type is a tuple."""

    help: str = ""


class Argument:
    """The field is an argument of the command, and an option elsewhere."""


@dataclass(frozen=True)
class Elsewhere:
    """The option in the plugin and the action: its sentence, if the command's does not fit there; ``each_pair`` means
    that it is given once for every pair."""

    help: str = ""
    each_pair: bool = False


class CommandOnly:
    """The option is the command's alone."""


class Unrecorded(str):
    """A recording of the model, ``--against``, excludes the option, for this reason."""


@dataclass(frozen=True)
class Declared:
    """An option of a request: its field's name, type and default, and the markers of the type."""

    name: str
    option: Option
    base: type
    default: Any
    required: bool
    markers: tuple[object, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """Its names on the command line."""
        return self.option.names or NAMES.get(self.name) or (f"--{self.name.replace('_', '-')}",)

    @property
    def long(self) -> str:
        """The first of them that has two dashes."""
        return next(flag for flag in self.flags if flag.startswith("--"))

    @property
    def group(self) -> Group:
        """Its section in the help."""
        return (
            self.option.group or GROUPS.get(self.long.removeprefix("--")) or ("inputs" if self.option.files else "run")
        )

    @property
    def metavar(self) -> str | None:
        """The placeholder of its value in the help; None for click's."""
        return self.option.metavar or ("FILE" if self.option.files and not isinstance(self.option, Operand) else None)

    @property
    def interval(self) -> Interval | None:
        """The numbers that it takes, if its bounds are declared."""
        bounds = Interval(1, integral=True) if self.option.word else self.option.bounds
        return None if bounds is None else interval_of(bounds)

    @property
    def title(self) -> str:
        """Its first name without dashes, by which the plugin and the action know it."""
        return self.flags[0].removeprefix("--")

    @property
    def repeats(self) -> bool:
        """Whether it may be given several times."""
        return self.base in (tuple, dict)

    def marker(self, kind: type[T]) -> T | None:
        """Its marker of this kind, if it has one."""
        return next((marker for marker in self.markers if isinstance(marker, kind)), None)


def require_number(bounds: Bounds, **values: object) -> None:
    """Raise :class:`UsageError` for the first of these named values that is not within the bounds."""
    interval = interval_of(bounds)
    for name, value in values.items():
        if value not in interval:
            raise UsageError(name, f"invalid value {value!r:.40}", f"give {interval}")


def require_within(bounds: Bounds, **values: object) -> None:
    """The same for values that may be None."""
    require_number(bounds, **{name: value for name, value in values.items() if value is not None})


def require_bounds(request: Any) -> None:
    """Raise :class:`UsageError` for the first option of a request whose value is out of its bounds."""
    for option in options_of(type(request)).values():
        if option.interval is not None:
            require_within(option.interval, **{option.flags[0]: getattr(request, option.name)})


def options_of(request: type) -> Mapping[str, Declared]:
    """The options of a request by the names of their fields, in their order, those of a base class last."""
    return _options_of(request)


@lru_cache
def _options_of(request: type) -> Mapping[str, Declared]:
    hints = get_type_hints(request, include_extras=True)
    names = list(get_annotations(request))
    listed = sorted(fields(request), key=lambda field: names.index(field.name) if field.name in names else len(names))
    declared_options = [declared for field in listed if (declared := _declared(field, hints[field.name]))]
    return MappingProxyType({declared.name: declared for declared in declared_options})


def _declared(field: Field[Any], hint: Any) -> Declared | None:
    """The option of a field; None if its type declares none."""
    markers = getattr(hint, "__metadata__", ())
    option = next((marker for marker in markers if isinstance(marker, Option)), None)
    if option is None:
        return None
    plain = hint.__origin__
    members = (
        [member for member in get_args(plain) if member is not NoneType] if NoneType in get_args(plain) else [plain]
    )
    base = get_origin(members[0]) or members[0]
    required = field.default is MISSING
    return Declared(field.name, option, base, None if required else field.default, required, markers)


MAPPING: Final = Option("A mapping table of your own.  [default: the shipped one that fits]", files="table",
                        group="model")  # fmt: skip
OWN_MAPPING: Final = Option(
    "The table of your own model, with the settings for sampling.", files="table", group="model"
)
MODEL: Final = Option("Function that builds your own Keras model, if the table does not name it.", "MODULE:FUNCTION",
                      names=("--keras-model",), former=("--model",), group="model")  # fmt: skip
SET: Final = Option("One configuration value; repeatable.", "KEY=VALUE", group="model")
INPUTS: Final = Option(
    "One input, such as 'x: b 3 48 48' or 'ids: b t=8..64, below 1000'; docs/inputs.md describes the notation.",
    "'NAME: AXES'", group="model",
)  # fmt: skip
NORM_STATS: Final = Option(
    "Statistics of the training data: mean, std and feature names (JSON, NPZ).", files=(".json", ".npz")
)
DATA: Final = Option("Training data (CSV, NPY, ARFF, MAT), from which the statistics are computed.", files="series")
TRANSFORM: Final = Option(
    "How windows were computed from the data: zscore, log1p-volume, ohlc-atr, or your own MODULE:CLASS.", "NAME",
    group="model",
)  # fmt: skip
KEY: Final = Option(
    "Key of the state_dict, if the file has several; or ema for the averaged weights, raw for the "
    "unaveraged ones.  [default: automatic]", "NAME", names=("--key", "--weights"), once=True, group="inputs",
)  # fmt: skip
NO_CONFIG: Final = Option("Do not read config.yaml next to the checkpoint.", group="inputs")
SHA256: Final = Option("Expected SHA-256 of the checkpoint or, without one, of the first file.", "HEX", group="inputs")
FORCE: Final = Option("Also replace files that wdport did not write.")
FORCE_OUTPUT: Final = Option("Replace an existing output, but never a symbolic link.")
DEVICES: Final = Option("Divide every batch among all devices, or among the first N.  [default: 1]", "all|N")
JSON: Final = Option(
    "Print the result as JSON instead of text, or write it to FILE in addition to the text "
    "(--json=FILE if ambiguous).", "[FILE]",
    files="document",
)  # fmt: skip
"""Options of several verbs."""
