"""A fault found deep inside a file goes in; a :class:`~wdport.errors.InputError` with its path comes out.

The parsers below do not know which file they read, so they raise :class:`Fault`; the path is added
once, by :func:`located` at the boundary.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Final

from wdport.errors import InputError, MachineError

COPY_AGAIN: Final = "the file is damaged: copy or download it again"
NOT_WRITTEN_BY_TORCH: Final = "torch.save does not write this: get the file from its author again"
DO_NOT_LOAD: Final = "do not load it with torch either; get the file from a source that you trust"
LOAD_AND_SAVE: Final = "write a plain copy with torch: torch.save(torch.load(FILE), COPY)"
LOAD_TRUSTED: Final = "if you trust it, load it with its own code and torch.save(model.state_dict(), COPY)"
LOAD_CONTIGUOUS: Final = "load it with torch, call contiguous() on this tensor, and save a copy"
OTHER_DTYPE: Final = "load it with torch, make it a dense float32 tensor, and save a copy"
ASK_FOR_TENSORS: Final = "load it with the library that made it, save plain float tensors, or ask its author for them"
RENAME: Final = "load it with torch, give all names the prefix or none, and save a copy"
RENAME_TEXT: Final = "load it with torch, give every tensor a short name, and save a copy"
DROP_ENTRY: Final = "load it with torch, delete this entry, and save a copy"
NO_WEIGHTS: Final = "ask its author for the weights: torch.save(model.state_dict(), PATH)"
GATHER: Final = "gather the full state_dict where it was trained, or ask its author for it"
WEIGHTS_FILE: Final = "give a PyTorch checkpoint or a safetensors file"

_NOT_A_PATH: Final = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}


class Fault(Exception):
    """What is wrong and what to do about it; ``part`` is the tensor or member concerned, if any."""

    def __init__(self, what: str, fix: str = COPY_AGAIN, part: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.part = part


class Unread(Fault):
    """A sound tensor of a kind that is not read: elsewhere than among the weights it does no harm."""


def from_os(error: OSError, path: PathLike[str]) -> InputError | MachineError:
    """The error that stands for ``error``: the caller's path is wrong (3) or the machine refuses (5)."""
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
    """Turn faults and system errors of the block into errors that name ``path`` (and ``part``)."""
    try:
        yield
    except Fault as fault:
        raise InputError((path, fault.part or part), fault.what, fault.fix) from None
    except OSError as error:
        raise from_os(error, path) from error
    except MemoryError as error:
        text = str(error) or "not enough memory"
        raise MachineError((path, part), text, "free memory or use a larger machine") from error
