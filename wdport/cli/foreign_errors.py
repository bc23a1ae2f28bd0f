"""Convert an exception that is not a :class:`~wdport.base.errors.WdportError` to an error that a user can act on.

Failures of the machine or of a library are reported as such. Anything else is a bug in wdport. Click would print its
traceback.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Final

from wdport.base.errors import InternalError, MachineError, WdportError
from wdport.checkpoint.error_context import from_os
from wdport.cli.machine import JAX_BYTES, TORCH_BYTES, address_limit
from wdport.cli.signals import discard_output

LIBRARIES: Final = ("torch", "keras", "jax", "jaxlib", "h5py", "numpy", "ml_dtypes", "safetensors", "yaml", "pyarrow",
                    "matplotlib", "tensorflow", "scipy", "rich")  # fmt: skip
"""Libraries that are named for a broken installation, the one imported first."""

DEVICES: Final = "jax._src.xla_bridge"
"""Where JAX starts its devices."""

_MEMORY: Final = re.compile(
    r"RESOURCE_EXHAUSTED|out of memory|(can't|cannot|not|failed to) allocate|bad_alloc|start new thread"
    r"|failed to map segment|Cannot allocate memory|thread creation failed|Resource temporarily unavailable",
    re.IGNORECASE,
)
"""Messages of XLA, torch, Python and the dynamic linker when memory runs out."""


def failure_of(error: Exception) -> WdportError:
    """The error to report for ``error``; an :class:`InternalError` for a bug in wdport."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if isinstance(error, OSError):
        functions = ((frame.f_globals.get("__name__"), frame.f_code.co_name) for frame in frames)
        printing = ("click.utils", "echo") in functions  # to an unbuffered stream, whose errors are raised at once
        if fault := _lost(error) if printing else lost_output():
            return fault
    if isinstance(error, MemoryError) or _MEMORY.search(str(error)) or getattr(error, "errno", None) == errno.ENOMEM:
        return out_of_memory()
    if library := next(filter(None, map(_imported, frames)), None):
        what, fix = f"cannot be imported ({_message(error)})", "reinstall it, and check its environment variables"
        if library == "keras" and os.environ.get("KERAS_BACKEND", "jax") != "jax":
            fix = "unset KERAS_BACKEND, or set it to jax"
        return MachineError(library, what, fix)
    if any(frame.f_globals.get("__name__") == DEVICES for frame in frames):
        return MachineError("jax", f"finds no device ({_message(error)})", "check JAX_PLATFORMS and the drivers")
    if isinstance(error, OSError) and error.errno is not None:
        return _system(error)
    return InternalError("", _message(error), "a bug in wdport: set WDPORT_DEBUG=1 for the traceback and report it")


@contextmanager
def postponed(failed: list[WdportError]) -> Iterator[None]:
    """Collect errors of the block, to report them when the rest is done."""
    try:
        yield
    except WdportError as error:
        failed.append(error)


def raise_first(failed: Sequence[WdportError]) -> None:
    """Raise the first of what was kept, if any, as the machine's: all of it was possible when it was asked."""
    if failed:
        raise MachineError(Path(failed[0].where), failed[0].what, failed[0].fix) from failed[0]


def out_of_memory() -> MachineError:
    """An error for exhausted memory, with the address-space limit of this process if there is one."""
    limit = address_limit()
    if limit is None:
        return MachineError("", "out of memory", "free some, or use a machine with more")
    what = f"out of memory: address space is limited to {limit >> 20} MiB"
    needs = f"jax needs {JAX_BYTES >> 20}, with torch {TORCH_BYTES >> 20}, and models more"
    return MachineError("", what, f"raise the limit (ulimit -v): {needs}")


def lost_output() -> MachineError | None:
    """Why standard output cannot be written, after which it is discarded; None if it can be."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return _lost(error)
    return None


def _lost(error: OSError) -> MachineError:
    discard_output(sys.stdout)
    fix = ("free some space, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else "") + "send it elsewhere"
    return MachineError("standard output", f"could not be written ({error.strerror})", fix)


def _system(error: OSError) -> WdportError:
    """An unexpected error of the operating system."""
    try:
        folder = Path.cwd()
    except OSError:
        return MachineError("the current folder", "can no longer be reached", "change to another (cd)")
    if isinstance(error.filename, (str, bytes, os.PathLike)):
        return from_os(error, Path(os.fsdecode(error.filename)))
    return MachineError(folder, f"the system refuses ({error.strerror})", "check its disk, limits and permissions")


def _imported(frame: FrameType) -> str | None:
    """The library that this frame was importing."""
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top if frame.f_code.co_name == "<module>" and top in LIBRARIES else None


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
