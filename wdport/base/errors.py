"""The errors that users see: where the fault is, what is wrong, what to do, and the exit code.

The text is one line, safe to print on a terminal (control characters escaped). Without the path it has at most
:data:`wdport.base.limits.MAX_MESSAGE_CHARS` characters; a path is never shortened, so that it can be copied. Only this
module formats the line.

Messages name an option by its flag and value, in backticks, such as ``give `--norm-stats FILE```; the place of an error
is an option if it is nothing but a flag. ``str(error)`` writes the Python argument instead, ``norm_stats=FILE``, from
:data:`ARGUMENTS`, and :attr:`WdportError.command_line` the option, without backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import ClassVar, Final

from wdport.base.limits import MAX_MESSAGE_CHARS, MAX_NAME_CHARS

ARGUMENTS: Final = {
    **{f"--{name.replace('_', '-')}": f"{name}=" for name in (
        "cases", "config", "data", "dtype", "key", "mapping", "max_memory", "max_shard_size", "norm_stats", "optimizer",
        "optimizer_key", "parameter_names", "reference", "repro", "scale", "seed", "transform", "anchor",
        "gradient_accumulation_steps", "schedule")},
    **{f"--{name.replace('_', '-')}": f"{name}=True" for name in (
        "allow_nonfinite", "cast", "force", "fresh", "full", "strict", "unconditional", "with_optimizer")},
    "-o": "output=",
    "--against": "recording=",
    "--input": "inputs=",
    "--keras-model": "model=",
    "--set": "values=",
}  # fmt: skip
"""The Python argument of each option that has one."""

_OPTION: Final = re.compile(r"`(--?[a-z][^`]*)`")
"""An option within a message, with its value, if any."""

_FLAG: Final = re.compile(r"-o|--set [\w.]+|--[a-z][a-z-]*")
"""The place of an error that is an option."""

Wording = Callable[[str, str], str]
"""What an option with this value, or with "", is called: the command's flag, or an argument."""


def flag(option: str, value: str = "") -> str:
    """An option as it is written on the command line."""
    return f"{option} {value}".rstrip()


def argument(option: str, value: str = "") -> str:
    """The Python argument for an option, or the option itself if there is none."""
    if option == "--set" and value:
        pairs = [pair.split("=") for pair in value.split(" --set ")]
        named = {pair[0]: pair[1].strip("'") for pair in pairs if len(pair) > 1}
        return f"values={named}" if named else f"values[{value!r}]"
    if option not in ARGUMENTS:
        return flag(option, value)
    name = ARGUMENTS[option]
    if option == "--input" and value:
        value = f"[{value}]"
    elif option in ("--dtype", "--optimizer") and value.islower():
        value = repr(value)
    elif value.endswith("MiB"):
        # The command takes MiB, the argument bytes.
        value = str(int(value.removesuffix("MiB")) << 20)
    return name + value


def worded(text: str, wording: Wording = flag) -> str:
    """Return a message with its options, which are in backticks, in these words."""
    return _OPTION.sub(lambda option: _one(option[1], wording), text)


def _one(option: str, wording: Wording) -> str:
    name, _, value = option.partition(" ")
    return wording(name, value)


def printable(text: object, limit: int | None = MAX_NAME_CHARS) -> str:
    """Escape unprintable characters of ``text`` and cut its middle out if it is longer than ``limit``."""
    raw = str(text)
    if limit is not None and len(raw) > 2 * limit:  # the rest would be cut out below, but only after escaping it all
        raw = raw[:limit] + raw[-limit:]
    # The text of ascii() without its quotes, such as \x1b, which does not move the cursor of a terminal.
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in raw)
    if limit is None or len(escaped) <= limit:
        return escaped
    head = (limit - 1) * 2 // 3
    return f"{escaped[:head]}…{escaped[head + 1 - limit :]}"


def well_formed(text: str) -> str:
    """Escape unpaired surrogates of ``text``, which JSON readers refuse: ``\\udcff`` for the byte ff of a file name."""
    return "".join(ascii(c)[1:-1] if "\ud800" <= c <= "\udfff" else c for c in text)


def did_you_mean(word: str, candidates: Iterable[str], otherwise: str = "", least: float = 0.6) -> str:
    """Return advice on an unknown name: the most similar known name, or ``otherwise`` if none is similar by ``least``,
    from 0 to 1."""
    names = {name.casefold().lstrip("-"): name for name in candidates}
    near = get_close_matches(word.casefold().lstrip("-"), list(names), 1, least)
    return f"did you mean {names[near[0]]}?" if near else otherwise


class WdportError(Exception):
    """Base class of all errors; ``where``, ``what`` and ``fix`` form the message, ``details`` the full list.

    ``where`` is the file and, if useful, the tensor or line within it; a file given as a ``PathLike`` is shown in
    full. ``details`` holds one entry per fault if several were collected; the message then names only the first.
    """

    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        where: str | PathLike[str] | tuple[object, ...],
        what: str,
        fix: str,
        details: Iterable[str] = (),
    ) -> None:
        parts = where if isinstance(where, tuple) else (where,)
        self._path = printable(fspath(parts[0]), None) if parts and isinstance(parts[0], PathLike) else ""
        rest = parts[1:] if self._path else parts
        self._part = ": ".join(printable(fspath(part) if isinstance(part, PathLike) else part) for part in rest if part)
        self._what, self._fix = what, fix
        self.where = ": ".join(part for part in (self._path, self._part) if part)
        self.what, self.fix = worded(what), worded(fix)
        self.details = tuple(printable(worded(line), 4 * MAX_NAME_CHARS) for line in details)
        super().__init__(self.where, what, fix)

    def __str__(self) -> str:
        return self.line(argument)

    @property
    def as_data(self) -> list[object]:
        """Its exit code, the file, the part of the file, what, fix and details, for :func:`error_from`."""
        return [self.exit_code, self._path, self._part, self._what, self._fix, *self.details]

    @property
    def command_line(self) -> str:
        """The message for the command line, with options as flags."""
        return self.line(flag)

    def line(self, wording: Wording) -> str:
        """The message, with options named in the given wording."""
        part = _one(self._part, wording) if _FLAG.fullmatch(self._part) else self._part
        what, fix = worded(self._what, wording), worded(self._fix, wording)
        room = MAX_MESSAGE_CHARS - len("error: " + ": " + "; ")
        # However long the advice is, 70 characters remain for the place and the fault.
        fix = printable(fix, room - 70)
        room -= len(fix)
        # The place gets what the fault leaves, but at least half of the room.
        part = printable(part, max(room - len(printable(what, room)), room // 2))
        prefix = "".join(f"{place}: " for place in (self._path, part) if place)
        return f"{prefix}{printable(what, room - len(part) - 2 * bool(self._path and part))}; {fix}"


class UsageError(WdportError):
    """The command line or the call asks for something impossible."""

    exit_code = 2


class InputError(WdportError):
    """A file is damaged, unsafe, or of an unsupported kind."""

    exit_code = 3


class MisfitError(WdportError):
    """The file is valid, but the mapping table or the configuration does not fit it."""

    exit_code = 4


class MachineError(WdportError):
    """The system refused: permission, disk space, memory, or a missing package."""

    exit_code = 5


class IncompleteError(WdportError):
    """Something that had to be compared was not."""

    exit_code = 6


class InternalError(WdportError):
    """A violated invariant, that is, a bug in wdport."""

    exit_code = 70


def error_of(exit_code: int, where: str, what: str, fix: str) -> WdportError:
    """Return an error of the class that has this exit code."""
    kind = next((k for k in WdportError.__subclasses__() if k.exit_code == exit_code), InternalError)
    return kind(where, what, fix)


def error_from(data: Sequence[object]) -> WdportError:
    """Return the error that another process reports as :attr:`WdportError.as_data`."""
    # Of the other process, nothing but text is used: the class comes from the exit code.
    code, path, part, what, fix, *details = map(str, data)
    error = error_of(int(code) if code.isdecimal() else 70, part, what, fix)
    return type(error)((Path(path), part) if path else part, what, fix, details)


def require_values(values: object) -> None:
    """Raise :class:`UsageError` unless the argument ``values`` is a mapping or None."""
    if values is not None and not isinstance(values, Mapping):
        raise UsageError("values", f"is a {type(values).__name__}", "give a dict of texts by name")


def require_paths(*optional: str, **arguments: object) -> None:
    """Raise :class:`UsageError` for the first argument that is not a path, by its name; ``optional`` ones may be
    ``None``."""
    for name, value in arguments.items():
        if value is None and name in optional:
            continue
        kind = "None" if value is None else "empty" if value == "" else f"of type {type(value).__name__}"
        if not isinstance(value, (str, PathLike)) or (value == "" and name not in optional):
            raise UsageError(name, f"is {kind}, not a path", "give a str or a pathlib.Path")
