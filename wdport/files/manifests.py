"""What ties a converted file to the manifest beside it: the manifest's name, and the SHA-256 that it states."""

from __future__ import annotations

import hashlib
from pathlib import Path


def manifest_of(path: Path) -> Path:
    """``<out>.wdport.json``."""
    return path.with_name(f"{path.name}.wdport.json")


def file_sha256(path: str | Path) -> str:
    """A file's SHA-256, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
