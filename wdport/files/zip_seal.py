"""The seal of a zip archive that wdport wrote, such as an ``.npz`` file: SHA-256 of every member, in its comment.

Other readers ignore the comment, and `numpy.load` finds the arrays alone. The CRC of a member shows damage by
accident; the seal also shows members that were replaced. An archive without a comment has no seal.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from typing import IO, Final

from wdport.checkpoint.faults import Fault
from wdport.files.manifest_seal import sealed, unsealed

FORMAT: Final = 1
SEAL: Final = sealed({}).encode()[:10]
"""How a seal begins."""

_FIX: Final = "write it again with wdport"


def seal_of(archive: zipfile.ZipFile) -> bytes:
    digests = {member.filename: member_sha256(archive, member) for member in archive.infolist()}
    # A zip comment has at most 65,535 bytes: enough for several hundred members.
    return sealed({"format": FORMAT, "members": digests}).encode()


def member_sha256(archive: zipfile.ZipFile, member: zipfile.ZipInfo | str) -> str:
    """The SHA-256 of a member's content; raises as zipfile does if it is damaged."""
    with archive.open(member) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def digests_in(archive: zipfile.ZipFile) -> Mapping[str, str] | None:
    """The digests of an archive's members; ``None`` without a seal, such as with a comment of another program. Raises
    :class:`Fault` if the seal is damaged, or is that of other members."""
    if not archive.comment.startswith(SEAL):
        return None
    try:
        facts = unsealed(archive.comment)
    except Fault:
        raise Fault("its seal is damaged", _FIX) from None
    digests = facts.get("members")
    if facts.get("format") != FORMAT or not isinstance(digests, dict):
        raise Fault("its seal is of another version of wdport", _FIX)
    if set(digests) != set(archive.namelist()):
        raise Fault("its members are not those that wdport wrote", _FIX)
    return digests


class Hashed:
    """A member that is read to its end, and its digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, hashlib.sha256()

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes, or fewer at the end."""
        piece = self._file.read(count)
        self._digest.update(piece)
        return piece

    def require(self, expected: str | None, name: str) -> None:
        """Raise :class:`Fault` if the digest is not this one."""
        if expected is not None and self._digest.hexdigest() != expected:
            raise Fault("is not what wdport wrote", _FIX, name)
