"""Whether a file may be written, asked before any work is done for it."""

from __future__ import annotations

import os
from pathlib import Path

from wdport.errors import MachineError, UsageError

LONGEST = 200
"""Of the 255 bytes that file systems allow; temporary files and what lies beside an output have longer names."""


def require_writable(path: Path, source: Path | None = None, force: bool = True, option: str | None = "-o") -> None:
    """Refuse a file that cannot be written, or that would destroy what it should not.

    Args:
        path: the file, which is written beside it under a longer name first.
        source: the input, which it must not be.
        force: whether a file of this name may be replaced.
        option: the option that names it, for the message; None in Python.

    Raises:
        UsageError: another name is needed.
        MachineError: the folder cannot be written to.
    """
    by = f" with {option}" if option else ""
    if path.is_dir():
        raise UsageError(path, "is a directory", f"give a file name{by}")
    if path.exists() and not path.is_file():
        raise UsageError(path, "is no regular file", f"give another name{by}")
    if not path.parent.is_dir():
        raise UsageError(path, "its folder does not exist", "make the folder first")
    if source is not None and path.exists() and source.exists() and os.path.samefile(path, source):
        raise UsageError(path, "is the input itself", f"give another name{by}")
    if path.exists() and not force:
        replace = "--force" if option else "force=True"
        raise UsageError(path, "exists already", f"give another name{by}, or {replace} to replace it")
    if len(os.fsencode(path.name)) > LONGEST:
        raise UsageError(path, f"has a name of more than {LONGEST} bytes", f"give a shorter one{by}")
    if not os.access(path.parent, os.W_OK):
        raise MachineError(path, "its folder cannot be written to", f"choose another folder{by}")
