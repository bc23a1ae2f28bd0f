"""The manifest of a converted file: the text in the file, sealed by a SHA-256, and the copy next to it.

The file is self-describing: it states what it was made from, its configuration, and a SHA-256 of every variable. The
manifest next to it repeats that for other tools, with the SHA-256 of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from wdport.base.limits import MAX_MANIFEST_BYTES, MAX_MANIFEST_MARKS
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.strict_json import strict_json

MANIFEST: Final = "wdport.json"
"""The manifest's name in an archive or a folder. In a ``.weights.h5`` file it is a dataset of bytes; no attribute of a
layer can have this name."""

INDEX: Final = "model.safetensors.index.json"
"""The file in a folder of shards that names the shard of every variable."""

BLANK: Final = "0" * 64
"""Placeholder for a SHA-256 that is not known yet, of the same length."""

CONVERT_AGAIN: Final = "convert the checkpoint again"
_HEAD: Final = '{{"format":2,"sha256":"{}","manifest":'


def manifest_of(path: Path) -> Path:
    """``<out>.wdport.json``, next to the file or folder, also for ``.``."""
    named = Path(os.path.abspath(path)) if path.name in ("", "..") else path
    return named.parent / f"{named.name}.wdport.json"


def file_sha256(path: str | Path) -> str:
    """Return a file's SHA-256, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(parts: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of a folder: of the lines that ``sha256sum`` prints for its files, (name, SHA-256) in this
    order."""
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in parts)
    return hashlib.sha256(lines.encode()).hexdigest()


def sealed(manifest: Mapping[str, object]) -> str:
    """Return the text for a converted file; manifests that differ only in hashes give texts of the same length."""
    body = json.dumps(manifest, separators=(",", ":"), allow_nan=False)
    return f"{_HEAD.format(hashlib.sha256(body.encode()).hexdigest())}{body}}}"


def unsealed(text: bytes) -> dict[str, object]:
    """Return the manifest in a text of :func:`sealed`; raises :class:`Fault` if a byte of it was changed."""
    # By position: the body is hashed as bytes before it is parsed, so a parser never sees an edited manifest.
    head, body = text[: len(_HEAD.format(BLANK))], text[len(_HEAD.format(BLANK)) : -1]
    if len(text) > MAX_MANIFEST_BYTES:
        raise Fault(f"has a manifest of more than {MAX_MANIFEST_BYTES >> 20} MB", CONVERT_AGAIN)
    if head != _HEAD.format(hashlib.sha256(body).hexdigest()).encode() or text[-1:] != b"}":
        raise Fault("its manifest is damaged, was edited, or comes from an older wdport", CONVERT_AGAIN)
    return strict_json(body, "manifest", marks=MAX_MANIFEST_MARKS)
