"""Convert faults and system errors to a :class:`~wdport.base.errors.WdportError` with the path."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Final

from wdport.base.errors import InputError, MachineError
from wdport.checkpoint.faults import Fault

_NOT_A_PATH: Final = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}


def from_os(error: OSError, path: PathLike[str]) -> InputError | MachineError:
    """Convert an ``OSError``: the caller's path is wrong (exit code 3) or the system refuses (5)."""
    if error.errno == errno.ENOENT:
        return InputError(path, "no such file", "check the path")
    if error.errno in _NOT_A_PATH:
        return InputError(path, f"cannot be opened ({error.strerror})", "check the path")
    if error.errno in (errno.EACCES, errno.EPERM):
        return MachineError(path, "permission denied", "give this user read permission (chmod u+r)")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return MachineError(path, "too many open files", "raise the limit (ulimit -n)")
    return MachineError(path, f"reading failed ({error.strerror})", "check the disk and try again")


@contextmanager
def located(path: PathLike[str], part: str = "") -> Iterator[None]:
    """Convert faults and system errors of the block to errors that name ``path`` (and ``part``)."""
    try:
        yield
    except Fault as fault:
        raise InputError((path, fault.part or part), fault.what, fault.fix) from None
    except OSError as error:
        raise from_os(error, path) from error
    # The place that failed names the size that it needs, if it knows it.
    except MemoryError as error:
        text = str(error) or "not enough memory"
        raise MachineError((path, part), text, "free memory or use a larger machine") from error
