"""Every error that a user can meet: where it is, what is wrong, what to do, and the exit code.

The text is one line, safe to print on a terminal (control characters escaped). Without the path it has at most
:data:`wdport.limits.MAX_MESSAGE_CHARS` characters; a path is never shortened, so that it can be copied. The line
is put together here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import ClassVar

from wdport.limits import MAX_MESSAGE_CHARS, MAX_NAME_CHARS


def printable(text: object, limit: int | None = MAX_NAME_CHARS) -> str:
    """``text`` with everything unprintable escaped, and its middle cut out beyond ``limit``."""
    raw = str(text)
    if limit is not None and len(raw) > 2 * limit:  # the rest would be cut out below, but only after escaping it all
        raw = raw[:limit] + raw[-limit:]
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in raw)
    if limit is None or len(escaped) <= limit:
        return escaped
    head = (limit - 1) * 2 // 3
    return f"{escaped[:head]}…{escaped[head + 1 - limit :]}"


class WdportError(Exception):
    """Base of all errors; ``where``, ``what`` and ``fix`` make the line, ``details`` the full list.

    ``where`` is the file and, if it helps, the tensor or line within it; a file that is given as a
    ``PathLike`` is shown whole. ``details`` holds one entry per fault when several were collected; the
    line itself then names only the first.
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
        self.where = ": ".join(part for part in (self._path, self._part) if part)
        self.what = what
        self.fix = fix
        self.details = tuple(printable(line, 4 * MAX_NAME_CHARS) for line in details)
        super().__init__(self.where, what, fix)

    def __str__(self) -> str:
        room = MAX_MESSAGE_CHARS - len("error: " + ": " + "; ")
        fix = printable(self.fix, room - 70)
        room -= len(fix)
        part = printable(self._part, max(room - len(printable(self.what, room)), room // 2))
        prefix = "".join(f"{place}: " for place in (self._path, part) if place)
        return f"{prefix}{printable(self.what, room - len(part) - 2 * bool(self._path and part))}; {fix}"


class UsageError(WdportError):
    """The command line or the call asks for something impossible."""

    exit_code = 2


class InputError(WdportError):
    """A file is not what it should be: damaged, unsafe, or of a kind that is not read."""

    exit_code = 3


class MisfitError(WdportError):
    """The file is sound, but the mapping table or the configuration does not fit it."""

    exit_code = 4


class MachineError(WdportError):
    """The machine refused: permission, disk space, memory, or a missing package."""

    exit_code = 5


class IncompleteError(WdportError):
    """Something that had to be compared was not."""

    exit_code = 6


class InternalError(WdportError):
    """A broken promise inside wdport itself."""

    exit_code = 70


def error_of(exit_code: int, where: str, what: str, fix: str) -> WdportError:
    """The error that ends with this exit code."""
    kind = next((k for k in WdportError.__subclasses__() if k.exit_code == exit_code), InternalError)
    return kind(where, what, fix)
