"""Write compiled programs, weights and facts to one file: an uncompressed zip that `loader.py` reads.

Members: ``facts.json``; ``weights.bin``, the arrays one after another in the order of ``facts["weights"]``; and
``NAME.program`` for every program, as ``jax.export`` serialises it. No dates, so equal contents give equal bytes.
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wdport.errors import MachineError, UsageError
from wdport.files.atomic import whole_file
from wdport.files.target import Target
from wdport.files.writable import require_writable
from wdport.model import Array

FORMAT = 1
SUFFIX = ".stablehlo"


def export_target(
    path: Path, inputs: Mapping[str, Path] | None = None, force: bool = False, option: str | None = "-o"
) -> Target:
    """Return the target of an artefact made from ``inputs``; raises an error if it cannot be written, before jax is
    imported."""
    if path.suffix != SUFFIX:
        raise UsageError(path, "unknown output format", f"end the name in {SUFFIX}")
    if importlib.util.find_spec("flatbuffers") is None:
        fix = "pip install flatbuffers, or install wdport[export]"
        raise MachineError(path, "writing it needs flatbuffers, which is not installed", fix)
    require_writable(path, inputs, force, option)
    return Target(path, SUFFIX[1:])


def write_artefact(
    target: Target, facts: Mapping[str, object], programs: Mapping[str, bytes], weights: Sequence[Array]
) -> int:
    """Write everything under a temporary name, rename it and return the size in bytes.

    Raises :class:`MachineError` if writing fails; no temporary file is left then.
    """
    listed = [{"dtype": str(array.dtype), "shape": list(array.shape)} for array in weights]
    document = json.dumps({"format": FORMAT, **facts, "weights": listed}, indent=1).encode()
    with whole_file(target.path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("facts.json"), document)
        for name, program in programs.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.program"), program)
        with archive.open(zipfile.ZipInfo("weights.bin"), "w", force_zip64=True) as member:
            for array in weights:
                member.write(np.ascontiguousarray(array).tobytes())
    return target.path.stat().st_size
