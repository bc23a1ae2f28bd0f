"""Where a conversion goes: a path to its format, refused early where writing would fail or destroy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wdport.errors import InputError, UsageError
from wdport.writable import require_writable

FORMATS = {".keras": "keras", ".safetensors": "safetensors", ".weights.h5": "weights.h5"}
_TEMPORARY = ".wdport-tmp"


@dataclass(frozen=True)
class Target:
    """A file to be written, its format, and the two names beside it."""

    path: Path
    format: str

    @property
    def manifest(self) -> Path:
        """``<out>.wdport.json``."""
        return self.path.with_name(f"{self.path.name}.wdport.json")

    @property
    def temporary(self) -> Path:
        """The name under which the file is written until it is complete."""
        return self.path.with_name(f".{self.path.name}.{os.getpid()}{_TEMPORARY}.{self.format}")


def choose_target(source: Path, output: Path | None, force: bool) -> Target:
    """The target of a conversion of ``source``; raises :class:`UsageError` where it may not be written."""
    if not source.name:
        raise InputError(source, "is a directory", "give a checkpoint file")
    path = output or source.with_name(source.name.removesuffix(source.suffix) + ".keras")
    suffix = next((s for s in FORMATS if path.name.endswith(s) and path.name != s), None)
    if suffix is None:
        raise UsageError(path, "unknown output format", f"end the name in {', '.join(FORMATS)}")
    require_writable(path, source, force)
    return Target(path, FORMATS[suffix])


def clear_leftovers(target: Target) -> None:
    """Remove temporary files of processes that died while writing this target."""
    for file in target.path.parent.glob(f".{target.path.name}.*{_TEMPORARY}*"):
        owner = file.name.removeprefix(f".{target.path.name}.").split(".")[0]
        if owner.isdigit() and int(owner) != os.getpid() and not Path(f"/proc/{owner}").exists():
            file.unlink(missing_ok=True)
