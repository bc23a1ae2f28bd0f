"""What ties a converted file to its manifest: the text inside the file, sealed by a SHA-256, and the copy beside it.

The file alone says everything: what it was made from, its configuration, and a SHA-256 of every variable. The manifest
beside it repeats that for other tools, with the SHA-256 of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.strict_json import strict_json
from wdport.limits import MAX_MANIFEST_BYTES, MAX_MANIFEST_MARKS

BLANK: Final = "0" * 64
"""Stands for a SHA-256 that is not known yet, and is as long."""

CONVERT_AGAIN: Final = "convert the checkpoint again"
_HEAD: Final = '{{"format":2,"sha256":"{}","manifest":'


def manifest_of(path: Path) -> Path:
    """``<out>.wdport.json``."""
    return path.with_name(f"{path.name}.wdport.json")


def file_sha256(path: str | Path) -> str:
    """A file's SHA-256, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(parts: Iterable[tuple[str, str]]) -> str:
    """The SHA-256 that stands for a folder: of the lines that ``sha256sum`` prints for its files, (name, SHA-256) in
    this order."""
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in parts)
    return hashlib.sha256(lines.encode()).hexdigest()


def sealed(manifest: Mapping[str, object]) -> str:
    """The text that a converted file holds; manifests that differ in hashes alone give texts of one length."""
    body = json.dumps(manifest, separators=(",", ":"), allow_nan=False)
    return f"{_HEAD.format(hashlib.sha256(body.encode()).hexdigest())}{body}}}"


def unsealed(text: bytes) -> dict[str, object]:
    """The manifest in a text of :func:`sealed`; raises :class:`Fault` where a byte of it was changed."""
    head, body = text[: len(_HEAD.format(BLANK))], text[len(_HEAD.format(BLANK)) : -1]
    if len(text) > MAX_MANIFEST_BYTES:
        raise Fault(f"holds a manifest of more than {MAX_MANIFEST_BYTES >> 20} MB", CONVERT_AGAIN)
    if head != _HEAD.format(hashlib.sha256(body).hexdigest()).encode() or text[-1:] != b"}":
        raise Fault("its manifest is damaged, was edited, or is an older wdport's", CONVERT_AGAIN)
    return strict_json(body, "manifest", marks=MAX_MANIFEST_MARKS)
