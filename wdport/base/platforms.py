"""Differences between operating systems: fallbacks for macOS, and the refusal of Windows.

Readers and writers need positional reads and writes, advisory locks and the renaming of open files. Linux and macOS
have them. Windows does not, so opening a file there raises a one-line error; ``wdport.recording`` and pure computations
work.
"""

from __future__ import annotations

import errno
import importlib.util
import os
from typing import Final

CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
DIRECTORY: Final = getattr(os, "O_DIRECTORY", 0)
NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)
"""Flags of `os.open`; 0 on Windows, where files are refused before any is used."""

DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""Flag of `os.open` on Linux for reads past the page cache; 0 on other systems."""

_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "KERAS_HOME",
                     "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")  # fmt: skip
_PREFIXES: Final = ("JAX_", "XLA_", "OMP_", "OPENBLAS_", "MKL_", "TF_", "WDPORT_", "COVERAGE_")

_NO_ALLOCATION: Final = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def unsupported() -> str:
    """Return the name of this operating system if it lacks what readers and writers need; "" otherwise."""
    has_locks = importlib.util.find_spec("fcntl") is not None
    has_all = hasattr(os, "pread") and hasattr(os, "pwrite") and has_locks
    return "" if has_all else "Windows" if os.name == "nt" else os.name


def plain_environment() -> dict[str, str]:
    """Return the environment of a process that runs alone: what Python, JAX and the numeric libraries need, and nothing
    that names files of a CI run or holds a secret. JAX's compile cache is not among it."""
    variables = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PREFIXES)}
    # Its entries run as machine code.
    return {name: value for name, value in variables.items() if not name.startswith("JAX_COMPILATION_CACHE")}


def read_at(descriptor: int, buffer: memoryview, position: int) -> int:
    """Fill ``buffer`` with bytes from ``position`` and return the number of bytes read, 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], position)
    data = os.pread(descriptor, len(buffer), position)  # macOS before 11
    buffer[: len(data)] = data
    return len(data)


def write_at(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def allocate(descriptor: int, size: int) -> None:
    """Extend a new file to ``size`` bytes; raises ``OSError`` now, not midway, if the disk has no room for them."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise
    require_room(descriptor, size)  # macOS, and file systems that cannot reserve blocks
    os.ftruncate(descriptor, size)


def require_room(place: int | str | os.PathLike[str], size: int) -> None:
    """Raise ``OSError`` (ENOSPC) if the file system of a path or descriptor has fewer than ``size`` bytes free."""
    # f_bavail, not f_bfree: some blocks are reserved for root.
    free = os.statvfs(place)
    if free.f_bavail * free.f_frsize < size:
        needed = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} bytes"
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {needed} are needed")


def is_running(process: int) -> bool:
    """Return whether a process with this id exists, of any user."""
    if process <= 0:  # a group of processes
        return False
    try:
        # Signal 0 is not sent, but its permission is checked.
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    # It exists, and belongs to another user.
    except PermissionError:
        pass
    return True


def physical_bytes() -> int | None:
    """Return the machine's physical memory in bytes, None if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def lock(descriptor: int, shared: bool = False, wait: bool = False) -> bool | None:
    """Lock an open file or folder (``flock``) until it is closed.

    Returns False if another process holds the lock, unless ``wait``; None on a file system without locks.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def write_through_cache(descriptor: int) -> None:
    """Clear ``O_DIRECT`` on an open file (Linux)."""
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~DIRECT)
