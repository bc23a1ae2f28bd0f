"""Check before any work that output files can be written and do not destroy an input or another output.

The writers of files take an :class:`OutputPath`, which only a check makes, so nothing is written that was not checked.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wdport.base.errors import MachineError, UsageError
from wdport.files.inputs import InputFiles
from wdport.files.report_formats import FORMATS

LONGEST = 200
"""Less than the 255 bytes that file systems allow, since temporary files and manifests have longer names."""

HEAD: Final = 1024
"""Bytes that identify the writer of a file."""

OURS: Final[Mapping[str, re.Pattern[bytes]]] = {
    **{name: report.first_bytes for name, report in FORMATS.items()},
    "baseline": re.compile(rb'\{\s*"schema": \d+,\s*"taps": \{'),
    "manifest": re.compile(rb'\{\s*"manifest": \d+,\s*"wdport": "'),
    "layer": re.compile(rb"PK\x03\x04.{26}facts\.npy", re.DOTALL),
    "metrics": re.compile(rb"epoch,"),
    "archive": re.compile(rb"PK"),
    "script": re.compile(rb'""".*import wdport\.parity\.repro', re.DOTALL),
}
"""The first bytes of a file that wdport wrote, by kind: it may be replaced without ``force``."""

_ARTICLE: Final = {"html": "an"}

UNFINISHED: Final = re.compile(r"\.(?P<finished>.+)\.(?P<token>[0-9a-f]+)\.wdport-tmp.*", re.DOTALL)
"""The temporary name of a file that is being written, see :mod:`wdport.files.atomic`."""

_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/(self|\d+)/fd/\d+")


@dataclass(frozen=True)
class OutputPath:
    """The path of a file or folder that may be written: a function of this package has checked it.

    ``inputs`` are those of its content, which must be unchanged when it gets its name. ``is_new`` means that nothing
    had this name, and that nothing may be replaced.
    """

    path: Path
    inputs: InputFiles | None = None
    is_new: bool = False

    def require_inputs(self) -> None:
        """Raise :class:`~wdport.base.errors.InputError` if an input has been changed since it was named."""
        if self.inputs is not None:
            self.inputs.require_unchanged()

    def require_new(self) -> None:
        """Raise :class:`MachineError` if something else has got the name meanwhile."""
        if self.is_new and os.path.lexists(self.path):
            what = "was written by another process meanwhile, and is kept"
            raise MachineError(self.path, what, "give another name, or force it to be replaced")


def writable(
    path: Path,
    inputs: Mapping[str, Path] | None = None,
    force: bool = True,
    option: str | None = "-o",
    kind: str | None = None,
    streams: bool = False,
) -> OutputPath:
    """Refuse a file that cannot be written, or that would destroy an input or another file.

    Args:
        path: the file, which is first written next to it under a longer name.
        inputs: the input files, by label; the path may not be one of them. If they are :class:`InputFiles`, they must
            be unchanged when the file gets its name.
        force: whether a file of this name may be replaced.
        option: the option that names it, for the message; None in Python.
        kind: a key of :data:`OURS`, if an older file of that kind may be replaced without ``force``.
        streams: whether it may be a stream (:func:`is_stream`), which is written to and not replaced.

    Raises:
        UsageError: another name is needed.
        MachineError: the folder cannot be written to.
    """
    by = f" with `{option}`" if option else ""
    if streams and is_stream(path):
        require_apart([(option or "output", path)], inputs or {})
        return _output(path, inputs)
    if os.path.isdir(path):
        raise UsageError(path, "is a directory", f"give a file name{by}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(path, "is not a regular file", f"give another name{by}")
    _require_folder(path, by)
    require_apart([(option or "output", path)], inputs or {})
    require_no_leftover(path.parent, re.compile(re.escape(path.name), re.DOTALL), inputs or {})
    require_no_link(path, by)
    if not force and not is_replaceable(path, kind):
        if option and isinstance(inputs, InputFiles):  # an input that is missing is reported first
            inputs.require_present()
        replace = "`--force`" if option else "force=True"
        what = "exists already" + (f" and is not {_ARTICLE.get(kind, 'a')} {kind} file of wdport" if kind else "")
        raise UsageError(path, what, f"give another name{by}, or {replace} to replace it")
    _require_name(path, by)
    return _output(path, inputs, not force and not os.path.exists(path))


def _output(path: Path, inputs: Mapping[str, Path] | None, is_new: bool = False) -> OutputPath:
    # Only InputFiles have recorded states that can be compared.
    return OutputPath(path, inputs if isinstance(inputs, InputFiles) else None, is_new)


def require_parent(path: Path, by: str) -> None:
    """Refuse a name of a file or folder that cannot be written; raises as :func:`writable` does."""
    _require_folder(path, by)
    _require_name(path, by)


def _require_name(path: Path, by: str) -> None:
    if len(os.fsencode(path.name)) > LONGEST:
        raise UsageError(path, f"has a name of more than {LONGEST} bytes", f"give a shorter one{by}")
    if not os.access(path.parent, os.W_OK):
        raise MachineError(path, "its folder cannot be written to", f"choose another folder{by}")


def require_no_link(path: Path, by: str) -> None:
    """Refuse a symbolic link: writing would replace either the link or its target."""
    if os.path.islink(path):
        raise UsageError(path, "is a symbolic link", f"give the name of a file{by}")


def _require_folder(path: Path, by: str) -> None:
    try:
        if stat.S_ISDIR(os.stat(path.parent).st_mode):
            return
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        what = f"its folder cannot be accessed ({error.strerror or error})"
        raise MachineError(path, what, f"choose another folder{by}") from None
    raise UsageError(path, "its folder does not exist", "create the folder first")


def require_apart(outputs: Iterable[tuple[str, Path]], inputs: Mapping[str, Path]) -> None:
    """Refuse an output that is also an input or another output, by any path or link.

    Outputs are given with their options, inputs with their labels. Raises :class:`UsageError`.
    """
    reserved = [(path, f"is an input ({name})") for name, path in inputs.items()]
    for option, path in outputs:
        named = f"`{option}`" if option.startswith("-") else option
        by = f" with {named}" if option.startswith("-") else ""
        for other, what in reserved:
            if is_same_file(path, other):
                raise UsageError(path, what, f"give another name{by}")
        if not is_stream(path):
            reserved.append((path, f"is also an output ({named})"))


def require_no_leftover(folder: Path, outputs: re.Pattern[str], inputs: Mapping[str, Path]) -> None:
    """Refuse an input with the name of an unfinished file of these ``outputs`` in ``folder``: it would be removed."""
    for name, path in inputs.items():
        if is_temporary(path.name, outputs) and os.path.realpath(path.parent) == os.path.realpath(folder):
            raise UsageError(path, f"is an input ({name}) with the name of an unfinished output", "rename it")


def is_temporary(name: str, of: re.Pattern[str]) -> bool:
    """Return whether this is the name of an unfinished file whose final name matches ``of``."""
    match = UNFINISHED.fullmatch(name)
    return match is not None and of.fullmatch(match["finished"]) is not None


def in_temporary_folder(path: Path) -> bool:
    """Return whether a file lies in an unfinished folder, which goes with it."""
    return any(UNFINISHED.fullmatch(part) for part in path.parts[:-1])


def is_same_file(one: Path, other: Path) -> bool:
    """Return whether both are the same regular file, or will be once it exists; symbolic and hard links are
    followed."""
    try:
        if one.exists() and other.exists():
            # samefile compares inodes, so that two names of one file (hard links, another case) are the same.
            return one.is_file() and os.path.samefile(one, other)
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):  # what cannot be examined is refused when it is opened
        return False


def is_replaceable(path: Path, kind: str | None) -> bool:
    """Return whether replacing the path loses nothing: no file, an empty one, or one of wdport's of this ``kind``."""
    if not os.path.exists(path):
        return True
    if kind is None:
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return not head or OURS[kind].match(head) is not None


def is_stream(path: Path) -> bool:
    """Return whether the path is written to, not replaced: ``/dev/stdout`` in any case, a pipe, a device."""
    if _STREAM.fullmatch(os.path.abspath(path)):
        return os.path.exists(path)
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
