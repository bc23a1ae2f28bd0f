"""Check that a file is the expected one and not damaged."""

from __future__ import annotations

import re
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Final

from wdport.base.errors import InputError, UsageError
from wdport.checkpoint.checkpoint import open_checkpoint, sha256_of
from wdport.checkpoint.error_context import located
from wdport.checkpoint.model_folder import INDEX
from wdport.checkpoint.source import Source
from wdport.checkpoint.zip_archive import read_members

_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_ZIP: Final = b"PK\3\4"
_OTHER_ZIPS: Final = (".npz", ".keras")
_SHOWN: Final = 16
"""Digits of a hash that messages show."""


def require_sha256(path: str | PathLike[str], expected: str | None) -> None:
    """Check a file against its expected SHA-256; does nothing for ``None``.

    A single file is hashed before anything in it is parsed. For a sharded checkpoint or a folder, it is the hash
    that a manifest states: of the index and then its shards, or of the one file. Raises :class:`InputError` for
    another file, :class:`UsageError` if ``expected`` is not a SHA-256.
    """
    if expected is None:
        return
    if not _HEX.fullmatch(expected):
        raise UsageError("--sha256", f"invalid SHA-256 {expected!r}", "give its 64 hexadecimal digits")
    file = Path(path)
    if file.is_dir() or file.name.endswith(INDEX):
        # A hash of several files is only defined once the index is parsed, so these are opened first.
        with open_checkpoint(file) as checkpoint:
            actual = checkpoint.file_sha256()
    else:
        with located(file), closing(Source(file)) as source:
            actual = sha256_of([source])
    if actual != expected.lower():
        what = f"has the SHA-256 {actual[:_SHOWN]}..., not {expected[:_SHOWN].lower()}..."
        raise InputError(file, what, "get the file again, or check which one the hash is of")


def require_undamaged(path: str | PathLike[str]) -> None:
    """Check every CRC of a PyTorch archive before it is read with torch, which does not check them.

    Files without checksums, and those of other kinds, are not checked. Raises :class:`InputError`.
    """
    file = Path(path)
    with located(file), closing(Source(file)) as source:
        if source.size > len(_ZIP) and source.read(0, len(_ZIP)) == _ZIP and file.suffix not in _OTHER_ZIPS:
            for span in read_members(source).values():
                if span.nbytes:
                    # An empty read still checks the CRC of the whole span, in constant memory.
                    span.read_into(memoryview(bytearray(0)))
