"""The folder of a run: held by one process at a time, only this user's, with the facts that determine the run.

Another user who can write a file controls the run that reads it, so folders and files of other users are refused.

An interrupted run resumes from the files in it only if all facts are those of the run that wrote them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from wdport.base.errors import InputError, InternalError, MachineError, UsageError
from wdport.base.file_trust import distrust
from wdport.base.limits import MAX_RUN_BYTES
from wdport.base.platforms import CLOEXEC, NOFOLLOW, NONBLOCK, lock
from wdport.checkpoint.regular_file import require_supported
from wdport.files.atomic import machine_error, whole_file
from wdport.files.outputs import OutputPath, is_temporary

_SAFELY: Final = NOFOLLOW | NONBLOCK | CLOEXEC
"""A link is an error, and opening a pipe does not wait for a writer."""


def private_folder(folder: Path, fix: str) -> None:
    """Make ``folder`` for this user only; raises :class:`InputError` if it is a link, or another user's.

    The owner of the parent folder may also have made it: that user can replace the output anyway.
    """
    require_supported()
    folder.mkdir(mode=0o700, exist_ok=True)
    # lstat: `mkdir` with exist_ok accepts a link to a folder of somebody else.
    status, around = os.lstat(folder), os.stat(folder.parent)
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(folder, "is a link to a folder", fix)
    if reason := distrust(status, folder.parent, {around.st_uid}):
        raise InputError(folder, reason, fix)


def open_private(file: Path, fix: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of this user's regular file; raises :class:`InputError` for any other file."""
    try:
        opened = os.open(file, flags | _SAFELY, 0o600)
    except OSError as error:
        if not os.path.islink(file) and not _is_special(file):
            raise
        raise InputError(file, "is not a regular file", fix) from error
    try:
        status = os.fstat(opened)
        reason = None if stat.S_ISREG(status.st_mode) else "is not a regular file"
        reason = reason or distrust(status, file.parent, {os.stat(file.parent).st_uid})
        if reason:
            raise InputError(file, reason, fix)
    except BaseException:
        os.close(opened)
        raise
    return opened


def read_private(file: Path, max_bytes: int, fix: str) -> bytes:
    """All bytes of such a file; raises :class:`InputError` if there are more than ``max_bytes``."""
    with private_stream(file, fix) as stream:
        # Bounded by what is read, not by the size that the system reports, which may change.
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(file, f"has more than {max_bytes} bytes", fix)
    return data


def private_stream(file: Path, fix: str) -> IO[bytes]:
    """Open such a file for reading; see :func:`open_private`."""
    return os.fdopen(open_private(file, fix), "rb")


def keep_private(file: IO[bytes]) -> None:
    """Let no other user write to a new file, whatever the process's umask is."""
    # A temporary file is made with 0o644, of which the umask may leave any part.
    os.fchmod(file.fileno(), 0o600)


def _is_special(file: Path) -> bool:
    """Whether the path exists and is not a regular file: opening a socket or a folder fails anyway."""
    try:
        return not stat.S_ISREG(os.lstat(file).st_mode)
    except OSError:
        return False


LOCK: Final = "lock"
RUN: Final = "run.json"
ANEW: Final = "remove the folder, or start again with `--force`"
FOREIGN: Final = "remove it, or give another name with `-o`"

_DIGEST: Final = re.compile(r"[0-9a-f]{16}")


class RunFolder:
    """The folder of a run, which no other process may write to until it is closed.

    Args:
        folder: is made if it does not exist; for this user alone if it is ``private``.
        files: the names of the finished files of a run, apart from :data:`RUN`; others are never removed.
        what: a run's content, for an error message, such as "parts".

    Raises:
        InputError: another user may have written it. MachineError: another process holds it, or the system refuses.
    """

    def __init__(self, folder: Path, files: re.Pattern[str], what: str, private: bool = True) -> None:
        self.folder, self.what = folder, what
        self.facts: dict[str, object] = {}
        self._files = re.compile(rf"{files.pattern}|{re.escape(RUN)}")
        with refusals(folder):
            existed = os.path.lexists(folder)
            if private:
                private_folder(folder, FOREIGN)
            else:
                folder.mkdir(0o755, parents=True, exist_ok=True)
            try:
                self._lock = self._held()
            except OSError:
                if not existed:
                    with suppress(OSError):
                        folder.rmdir()  # it is empty if the disk is full
                raise
            # With the lock held: until then, an unfinished file could belong to a running process.
            self.clear(self._is_unfinished)

    def begin(
        self, facts: Mapping[str, object], settled: tuple[str, ...], anew: bool, holds: Callable[[], bool],
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        """Begin a run with these facts, or resume the one that the folder ``holds``, which ``check`` examines.

        The run's own values of the facts ``settled``, integers from 1, are used when it resumes. ``anew`` removes the
        files of another run, or damaged ones. Raises :class:`UsageError` for another run, :class:`InputError` for
        damaged files.
        """
        with refusals(self.folder):
            try:
                self._agree(dict(facts), settled, holds)
                check()
            except (InputError, UsageError):
                if not anew:
                    raise
                self.clear(self._files.fullmatch)
                self._agree(dict(facts), settled, holds)
                check()

    def _agree(self, facts: dict[str, object], settled: tuple[str, ...], holds: Callable[[], bool]) -> None:
        if holds():
            stored = self._read()
            facts |= {name: self.number(name, stored) for name in settled}
            for name in [*facts, *stored]:
                theirs, ours = stored.get(name), facts.get(name)
                if theirs != ours:
                    # Digests say nothing to a reader.
                    digests = any(isinstance(value, str) and _DIGEST.fullmatch(value) for value in (theirs, ours))
                    differs = f"which differs in {name}" if digests else f"with {name} {theirs} instead of {ours}"
                    raise UsageError(self.folder, f"holds {self.what} of another run, {differs}", ANEW)
        else:
            with whole_file(self.output(RUN)) as opened:
                keep_private(opened)
                opened.write(json.dumps(facts, indent=1).encode())
        self.facts = facts

    def _read(self) -> dict[str, object]:
        try:
            stored = json.loads(read_private(self.folder / RUN, MAX_RUN_BYTES, ANEW))
        except (FileNotFoundError, ValueError, RecursionError):
            stored = None
        if not isinstance(stored, dict):
            raise InputError(self.folder / RUN, "is damaged", ANEW)
        return stored

    def output(self, name: str) -> OutputPath:
        """Return a finished file of the run as an output: this process holds the folder."""
        if not self._files.fullmatch(name):
            raise InternalError(self.folder / name, "is not a file of the run", "report this")
        return OutputPath(self.folder / name)

    def number(self, name: str, facts: Mapping[str, object] | None = None) -> int:
        """A fact that is an integer from 1."""
        value = (self.facts if facts is None else facts).get(name)
        if type(value) is not int or value < 1:
            raise InputError(self.folder / RUN, "is damaged", ANEW)
        return value

    def remove(self) -> None:
        """Remove the run's files, and the folder if it is empty then."""
        with suppress(OSError):
            self.clear(self._is_unfinished)
            self.clear(self._files.fullmatch)
            (self.folder / LOCK).unlink()
            self.folder.rmdir()

    def clear(self, selects: Callable[[str], object]) -> None:
        """Remove the files whose names ``selects`` accepts."""
        for name in os.listdir(self.folder):
            path = self.folder / name
            if selects(name):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def close(self) -> None:
        """Let other processes have the folder."""
        with suppress(OSError):
            (self.folder / LOCK).unlink()
        os.close(self._lock)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_unfinished(self, name: str) -> bool:
        """Whether this is an unfinished file; its process has ended, since it would hold the lock."""
        return is_temporary(name, self._files)

    def _held(self) -> int:
        """A file descriptor that holds the folder until it is closed."""
        path = self.folder / LOCK
        while True:
            held = open_private(path, FOREIGN, os.O_CREAT | os.O_RDWR)
            if lock(held) is False:
                os.close(held)
                fix = "wait for it, or give another name with `-o`"
                raise MachineError(self.folder, "another process is writing to it", fix)
            # An empty file of this name is ours; a file with content belongs to somebody else and is never removed.
            if os.fstat(held).st_size:
                os.close(held)
                raise UsageError(path, "is not a lock of wdport, which is empty", FOREIGN)
            with suppress(FileNotFoundError):
                # The lock counts only if its name still refers to this file: `close` removes the name before it lets
                # go.
                if os.path.samestat(os.lstat(path), os.fstat(held)):
                    return held
            os.close(held)  # its holder removed the file meanwhile


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Convert an ``OSError`` of the block to a :class:`MachineError`."""
    try:
        yield
    except OSError as error:
        raise machine_error(path, error) from error
