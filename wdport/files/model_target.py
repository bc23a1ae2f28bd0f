"""The target of a conversion: its path and format, refused early if writing would fail or destroy a file."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wdport.base.errors import InputError, MachineError, UsageError
from wdport.checkpoint.hub import hub_name
from wdport.files import orbax_folder
from wdport.files import safetensors_writer as sharded_file
from wdport.files.inputs import InputFiles
from wdport.files.manifest_seal import INDEX, MANIFEST, manifest_of
from wdport.files.orbax_folder import ITEM, require_orbax
from wdport.files.outputs import OutputPath, is_replaceable, require_apart, require_no_link, require_parent, writable

FORMATS = {".keras": "keras", ".safetensors": "safetensors", ".weights.h5": "weights.h5", ".npz": "npz"}
FOLDER: Final = "safetensors-sharded"
ORBAX: Final = "orbax"
_ORBAX: Final = ".orbax"
KERAS: Final = ("keras", "weights.h5")
"""Keras's formats, in which Keras writes the models of users."""


def stem_of(path: Path) -> str:
    """Return the name of a converted file without its suffix, one of :data:`FORMATS`."""
    return next((path.name.removesuffix(suffix) for suffix in FORMATS if path.name.endswith(suffix)), path.name)


def format_at(path: Path) -> str | None:
    """Return the format of a converted file by its name, or of a folder by its content; None if it is not one."""
    if path.is_dir():
        if not (path / MANIFEST).is_file():
            return None
        return FOLDER if (path / INDEX).is_file() else ORBAX if (path / ITEM).is_dir() else None
    return next((FORMATS[suffix] for suffix in FORMATS if path.name.endswith(suffix)), None)


@dataclass(frozen=True)
class Target:
    """A file or folder to be written, and its format."""

    output: OutputPath
    format: str

    @property
    def path(self) -> Path:
        return self.output.path


@dataclass(frozen=True)
class ModelTarget(Target):
    """A converted model to be written, with its manifest next to it, ``<out>.wdport.json``."""

    manifest: OutputPath


@dataclass(frozen=True)
class Needed:
    """What a format needs: a module, its name for the reader, and the extra that installs it."""

    module: str
    name: str
    extra: str

    def require(self, path: Path, doing: str = "writing") -> None:
        """Raise :class:`MachineError` if the module is not installed."""
        if importlib.util.find_spec(self.module) is None:
            missing = f"{doing} it needs {self.name}, which is not installed"
            raise MachineError(path, missing, f"install wdport[{self.extra}]")


def file_target(
    path: Path,
    formats: Collection[str],
    inputs: Mapping[str, Path] | None = None,
    force: bool = False,
    option: str | None = "-o",
    needs: Mapping[str, Needed] = MappingProxyType({}),
    what: str = "output",
) -> Target:
    """Return the target of a file whose suffix is one of ``formats``, and its format.

    Raises:
        UsageError: the suffix is another one, or as :func:`writable`.
        MachineError: the package that the format ``needs``, by suffix, is not installed, or as :func:`writable`.
    """
    if path.suffix not in formats:
        raise UsageError(path, f"unknown {what} format", f"end the name in {', '.join(formats)}")
    if needed := needs.get(path.suffix):
        needed.require(path)
    return Target(writable(path, inputs, force, option), path.suffix[1:])


def choose_target(inputs: InputFiles, output: Path | None, force: bool, folder: bool = False) -> ModelTarget:
    """Return the target of a conversion of ``inputs["checkpoint"]``; raises :class:`UsageError` if it may not be
    written. ``folder`` means that the output is a folder."""
    if output is not None and (folder or output.suffix == _ORBAX):
        return _choose_folder(output, inputs, force)
    source = inputs["checkpoint"]
    if not source.name:
        raise InputError(source, "is a directory", "give a checkpoint file")
    path = output or default_output(source)
    suffix = next((s for s in FORMATS if path.name.endswith(s) and path.name != s), None)
    if suffix is None:
        fix = f"end the name in {', '.join(FORMATS)} or {_ORBAX}, or in / for a folder of shards"
        raise UsageError(path, "unknown output format", fix)
    checked = writable(path, inputs, force)
    return ModelTarget(checked, FORMATS[suffix], _manifest(checked, inputs, force))


def default_output(source: Path) -> Path:
    """Return the default output of a conversion: next to the checkpoint; for one in a cache of the Hugging Face Hub, in
    the working directory."""
    if (name := hub_name(source)) is not None:
        return Path(f"{name.partition('@')[0].rpartition('/')[2]}.keras")
    stem = source.name if source.is_dir() else source.name.removesuffix(source.suffix)
    return source.with_name(f"{stem}.keras") if source.name else Path(".keras")


def _choose_folder(path: Path, inputs: InputFiles, force: bool) -> ModelTarget:
    """Return a folder that does not exist or is empty, or with ``force`` one that contains only an older conversion."""
    if any(path.name.endswith(suffix) for suffix in FORMATS):
        raise UsageError(path, "has a file's suffix", "give a folder without a suffix, or leave out `--max-shard-size`")
    if os.path.lexists(path) and not path.is_dir():
        raise UsageError(path, "is not a folder", "give another name with `-o`")
    # A folder is exchanged under its name; "." and the working directory have none that could be exchanged.
    if not path.name or path.resolve() == Path.cwd():
        raise UsageError(path, "cannot be replaced", "give the name of a folder with `-o`")
    if path.is_dir():
        require_no_link(path, " with `-o`")
        if any(is_within(file, path) for file in inputs.values()):
            raise UsageError(path, "contains an input", "give another folder with `-o`")
        ours = format_at(path) is not None and holds_ours(path)
        # `--force` never removes a folder that has a file of another program in it.
        if os.listdir(path) and not (force and ours):
            what = "exists already" if ours else "is a folder of other files, which is never replaced"
            fix = "give another name with `-o`" + (", or `--force` to replace it" if ours else "")
            raise UsageError(path, what, fix)
    require_parent(path, " with `-o`")
    output, form = OutputPath(path, inputs), ORBAX if path.suffix == _ORBAX else FOLDER
    if form == ORBAX:
        require_orbax(path)
    return ModelTarget(output, form, _manifest(output, inputs, force))


def holds_ours(folder: Path) -> bool:
    """Return whether a folder contains only what a conversion writes, complete or not."""
    return sharded_file.is_partly_ours(folder) or orbax_folder.is_partly_ours(folder)


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is inside a folder, following links."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _manifest(output: OutputPath, inputs: Mapping[str, Path], force: bool) -> OutputPath:
    """Return the manifest next to a model if it can be written there, where it replaces an older one."""
    path = manifest_of(output.path)
    require_apart([("-o", path)], inputs)
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(path, "is not a regular file, and the manifest would go there", "give another name with `-o`")
    require_no_link(path, ", or another model with `-o`")
    if not force and not is_replaceable(path, "manifest"):
        what = "exists already and is not a manifest of wdport"
        raise UsageError(path, what, "give another name with `-o`, or `--force` to replace it")
    return OutputPath(path)  # it follows the model, whatever has happened to the inputs since
