"""Write compiled programs, weights and facts to one file: an uncompressed zip that `loader.py` reads.

Members: ``facts.json``; ``weights.bin``, the arrays one after another in the order of ``facts["weights"]``; and
``NAME.program`` for every program, as ``jax.export`` serialises it. No dates, so equal contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.located import located
from wdport.checkpoint.strict_json import strict_json
from wdport.errors import InputError
from wdport.files.sealed_archive import sealed_archive
from wdport.files.target import Needed, Target, file_target
from wdport.files.zip_seal import digests_in
from wdport.model import Array

FORMAT = 1
SUFFIX = ".stablehlo"
FACTS = "facts.json"
PROGRAM = ".program"
EXPORT_AGAIN = "export the model again"
UNZIPPING = (KeyError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)
"""What `zipfile` raises for damaged archives and kinds that it does not read."""


def export_target(
    path: Path, inputs: Mapping[str, Path] | None = None, force: bool = False, option: str | None = "-o"
) -> Target:
    """Return the target of an artefact made from ``inputs``; raises an error if it cannot be written, before jax is
    imported."""
    return file_target(path, (SUFFIX,), inputs, force, option, {SUFFIX: Needed("flatbuffers", "flatbuffers", "export")})


def write_artefact(
    target: Target, facts: Mapping[str, object], programs: Mapping[str, bytes], weights: Sequence[Array]
) -> int:
    """Write everything under a temporary name, rename it and return the size in bytes.

    Raises :class:`MachineError` if writing fails; no temporary file is left then.
    """
    listed = [{"dtype": str(array.dtype), "shape": list(array.shape)} for array in weights]
    document = json.dumps({"format": FORMAT, **facts, "weights": listed}, indent=1).encode()
    with sealed_archive(target.output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(FACTS), document)
        for name, program in programs.items():
            archive.writestr(zipfile.ZipInfo(f"{name}{PROGRAM}"), program)
        with archive.open(zipfile.ZipInfo("weights.bin"), "w", force_zip64=True) as member:
            for array in weights:
                member.write(np.ascontiguousarray(array).tobytes())
    return target.path.stat().st_size


def is_artefact(path: Path) -> bool:
    """Whether the content of a file, not its name, is that of an exported program."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except UNZIPPING:
        return False
    return FACTS in names and any(name.endswith(PROGRAM) for name in names)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of an artefact; raises :class:`InputError` if it has none."""
    try:
        with located(path), zipfile.ZipFile(path) as archive:
            facts, digests = archive.read(FACTS), digests_in(archive)
            if digests is not None and hashlib.sha256(facts).hexdigest() != digests.get(FACTS):
                raise Fault("its facts are not those that wdport wrote", EXPORT_AGAIN)
            return strict_json(facts, FACTS)
    except UNZIPPING as error:
        raise InputError(path, f"is not a model that wdport exported ({error})", EXPORT_AGAIN) from None


def member_digests(path: Path) -> dict[str, str]:
    """The SHA-256 of every member but the facts; raises :class:`InputError` for a damaged one."""
    digests_by_name = {}
    try:
        with located(path), zipfile.ZipFile(path) as archive:
            names, digests = [name for name in archive.namelist() if name != FACTS], digests_in(archive)
            if len(set(names)) != len(names):
                raise Fault("has two members of one name", EXPORT_AGAIN)
            for name in names:
                with archive.open(name) as member:
                    digests_by_name[name] = hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]
                if digests is not None and digests_by_name[name] != digests.get(name):
                    raise Fault(f"its member {name} is not the one that wdport wrote", EXPORT_AGAIN)
    except UNZIPPING as error:
        raise InputError(path, f"is damaged ({error})", EXPORT_AGAIN) from None
    return digests_by_name


def write_compared(target: Target, source: Path, compared: Mapping[str, object]) -> int:
    """Write a copy of an artefact whose facts say what was ``compared``; return the size in bytes.

    Raises :class:`MachineError` if writing fails.
    """
    document = json.dumps({**read_facts(source), "compared": compared}, indent=1).encode()
    with (
        sealed_archive(target.output) as file,
        zipfile.ZipFile(source) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        archive.writestr(zipfile.ZipInfo(FACTS), document)
        for name in before.namelist():
            if name != FACTS:
                with before.open(name) as member, archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as copy:
                    shutil.copyfileobj(member, copy)
    return target.path.stat().st_size
