"""Where a conversion goes: a path to its format, refused early where writing would fail or destroy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wdport.errors import InputError, UsageError
from wdport.files.manifests import manifest_of
from wdport.files.writable import is_replaceable, require_apart, require_no_link, require_writable

FORMATS = {".keras": "keras", ".safetensors": "safetensors", ".weights.h5": "weights.h5"}


def stem_of(path: Path) -> str:
    """The name of a converted file without its ending, one of :data:`FORMATS`."""
    return next(path.name.removesuffix(suffix) for suffix in FORMATS if path.name.endswith(suffix))


@dataclass(frozen=True)
class Target:
    """A file to be written, its format, and its manifest beside it."""

    path: Path
    format: str

    @property
    def manifest(self) -> Path:
        """``<out>.wdport.json``."""
        return manifest_of(self.path)


def choose_target(source: Path, output: Path | None, force: bool, inputs: Mapping[str, Path] | None = None) -> Target:
    """The target of a conversion of ``source``; raises :class:`UsageError` where it may not be written.

    ``inputs`` are the other files that are read, by what they are called.
    """
    if not source.name:
        raise InputError(source, "is a directory", "give a checkpoint file")
    stem = source.name if source.is_dir() else source.name.removesuffix(source.suffix)
    path = output or source.with_name(f"{stem}.keras")
    suffix = next((s for s in FORMATS if path.name.endswith(s) and path.name != s), None)
    if suffix is None:
        raise UsageError(path, "unknown output format", f"end the name in {', '.join(FORMATS)}")
    target = Target(path, FORMATS[suffix])
    inputs = {"checkpoint": source, **(inputs or {})}
    require_writable(path, inputs, force)
    require_manifest(target, inputs, force)
    return target


def require_manifest(target: Target, inputs: Mapping[str, Path], force: bool) -> None:
    """The same for the manifest, which is written beside the file and replaces an older one."""
    path = target.manifest
    require_apart([("-o", path)], inputs)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(path, "is no regular file, and the manifest goes there", "give another name with -o")
    require_no_link(path, ", or another model with -o")
    if not force and not is_replaceable(path, "manifest"):
        what = "exists already and is no manifest of wdport"
        raise UsageError(path, what, "give another name with -o, or --force to replace it")
