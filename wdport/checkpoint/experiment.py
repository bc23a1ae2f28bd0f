"""Read an experiment: a checkpoint and its training configuration, as a folder or a tar archive.

An archive is hostile input. Only the checkpoint and the configuration are copied out of it, into files without a name,
which go with the process; links, absolute paths and parent folders are refused, and so are sizes beyond the limits.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from wdport.base.errors import MachineError
from wdport.base.limits import MAX_ARCHIVE_BYTES, MAX_ARCHIVE_MEMBERS, MAX_TABLE_BYTES
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular_file import inside, open_regular, read_small, state_of
from wdport.checkpoint.source import CHUNK, Source

CONFIGS: Final = ("config.yaml", "config.yml")
CHECKPOINTS: Final = (".ckpt", ".pt", ".pth")
USUAL: Final = "checkpoint.ckpt"
"""The checkpoint of a folder with several."""

_GZIP: Final = b"\x1f\x8b"
_LEGACY: Final = ("sys_info", "pickle", "tensors", "storages")
"""First members of archives of torch before 0.1.10, which are not experiments."""

_HEADER: Final = 1 << 20
"""Bytes of the headers of one member."""

_PLAIN: Final = "pack plain files and folders, or give the checkpoint itself"


@dataclass(frozen=True)
class TrainingConfig:
    """A training configuration: its path, for messages, and its bytes."""

    path: Path
    data: bytes = field(repr=False)


def adjacent_config(checkpoint: Path) -> TrainingConfig | None:
    """The training configuration next to a checkpoint's file; None without one."""
    for name in CONFIGS:
        path = checkpoint.parent / name
        if path.is_file():
            return TrainingConfig(path, read_small(path, MAX_TABLE_BYTES))
        if os.path.lexists(path):
            raise Fault(f"{name} next to it is not a regular file", "replace it, or add --no-config to leave it out")
    return None


def checkpoint_in(folder: Path, names: list[str]) -> Path | None:
    """The checkpoint of an experiment's folder that has these names; None if it has none."""
    checkpoints = [name for name in names if name.endswith(CHECKPOINTS)]
    if not checkpoints:
        return None
    return inside(folder, _chosen(checkpoints, "is a directory of"))


def _chosen(checkpoints: list[str], what: str) -> str:
    if len(checkpoints) > 1 and USUAL not in checkpoints:
        listing = ", ".join(sorted(checkpoints)[:4]) + (", ..." if len(checkpoints) > 4 else "")
        raise Fault(f"{what} several checkpoints: {listing}", "give the path of one of them")
    return USUAL if len(checkpoints) > 1 else checkpoints[0]


def is_archive(head: bytes) -> bool:
    """Whether a file that begins so may be a tar archive, compressed or not."""
    # A tar header begins with the name of the first member, 100 bytes padded with zeros.
    member = head[:100].rstrip(b"\0").decode("latin-1").removeprefix("./")
    return head.startswith(_GZIP) or (head[257:262] == b"ustar" and member not in _LEGACY)


class ArchiveMember(Source):
    """A member of an archive, copied into a file without a name; ``path`` is the archive's."""

    def __init__(self, archive: Path, member: str, file: IO[bytes]) -> None:
        self.path, self.member = archive, member
        self._fd = os.dup(file.fileno())
        self._state = state_of(self._fd)
        self._archive = state_of(archive)
        self.size = self._state.size
        self.observer = None

    def require_unchanged(self) -> None:
        """Raise :class:`Fault` if the archive was changed since it was opened."""
        self._archive.require(state_of(self.path))


def open_archive(path: Path) -> tuple[ArchiveMember, TrainingConfig | None]:
    """The checkpoint of an archive, which the caller closes, and the configuration next to it in the archive.

    Raises :class:`Fault` for an archive that is damaged, unsafe, or not of one experiment.
    """
    checkpoints: dict[str, IO[bytes]] = {}
    configs: dict[str, bytes] = {}
    try:
        with open_regular(path) as opened, _decompressed(opened) as stream:
            for name, member in _members(stream):
                if name in checkpoints or name in configs:
                    raise Fault("has two members of one name", _PLAIN, name)
                if name.endswith(CHECKPOINTS):
                    checkpoints[name] = _copied(member)
                elif PurePosixPath(name).name in CONFIGS:
                    # One byte more than is allowed: the parser of the configuration then refuses its size in its own
                    # words.
                    configs[name] = member.read(MAX_TABLE_BYTES + 1)
        if not checkpoints:
            raise Fault("is an archive without a checkpoint", f"give one with a {', '.join(CHECKPOINTS)} file")
        names = {PurePosixPath(name).name: name for name in checkpoints}
        # Checkpoints of one name in several folders: `names` has lost some, so the full paths are listed for the
        # refusal.
        if len(names) < len(checkpoints):
            _chosen([*checkpoints], "is an archive of")
        name = names[_chosen([*names], "is an archive of")]
        config = next((other for other in configs if PurePosixPath(other).parent == PurePosixPath(name).parent), None)
        training_config = None if config is None else TrainingConfig(path / config, configs[config])
        return ArchiveMember(path, name, checkpoints[name]), training_config
    finally:
        for file in checkpoints.values():
            file.close()


class _Bounded(io.RawIOBase):
    """A stream of which at most ``left`` bytes are read, so that no header and no compression asks for more."""

    def __init__(self, inner: IO[bytes] | gzip.GzipFile) -> None:
        self.inner, self.left, self.total, self.members = inner, _HEADER, 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        # At most CHUNK before the totals are checked: a few kilobytes of gzip can unfold to gigabytes.
        data = self.inner.read(min(len(view), CHUNK))
        self.left -= len(data)
        self.total += len(data)
        if self.left < 0:
            raise Fault("has a header that is larger than any real one", _PLAIN)
        if self.total > MAX_ARCHIVE_BYTES:
            raise Fault(f"has more than {MAX_ARCHIVE_BYTES >> 30} GiB", "give the checkpoint itself")
        view[: len(data)] = data
        return len(data)


@contextmanager
def _decompressed(opened: IO[bytes]) -> Iterator[_Bounded]:
    """The bytes of an archive, decompressed; errors of its readers become a :class:`Fault`."""
    compressed = opened.read(2) == _GZIP
    opened.seek(0)
    stream = _Bounded(gzip.GzipFile(fileobj=opened) if compressed else opened)
    try:
        yield stream
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError):
        if compressed and not stream.members:
            raise Fault("is gzip-compressed, and not a tar archive", "unpack it first: gunzip") from None
        raise Fault(f"is a damaged {'' if compressed else 'tar '}archive") from None


def _members(stream: _Bounded) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of every file in an archive; each content is read before the next member."""
    # "r|" reads strictly forward, so nothing is read twice and a member cannot lie outside the stream that is counted.
    with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 16) as archive:
        for count, member in enumerate(archive):
            if count >= MAX_ARCHIVE_MEMBERS:
                raise Fault(f"has more than {MAX_ARCHIVE_MEMBERS} members", "give the checkpoint itself")
            _check(member)
            stream.members += 1
            # What the header declares may now be read, and then the next header.
            stream.left += member.size + _HEADER
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                yield str(PurePosixPath(member.name)), content


def _check(member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\0" in member.name:
        raise Fault("has a member outside its folder", _PLAIN, member.name)
    # A sparse member declares a size that its bytes do not have: it could unfold to any length.
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise Fault("has a member that is a link or a device", _PLAIN, member.name)
    if not 0 <= member.size <= MAX_ARCHIVE_BYTES:
        raise Fault(f"declares {member.size} bytes", "give the checkpoint itself", member.name)


def _copied(content: IO[bytes]) -> IO[bytes]:
    with _writing():
        file = tempfile.TemporaryFile()  # noqa: SIM115  closed by the caller
    try:
        while data := content.read(CHUNK):
            with _writing():
                file.write(data)
        with _writing():
            file.flush()
    except BaseException:
        with suppress(OSError):  # closing writes what is left in the buffer
            file.close()
        raise
    return file


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "free some space, or set TMPDIR to another folder"
        raise MachineError(tempfile.tempdir or "TMPDIR", f"could not be written ({error.strerror})", fix) from None
