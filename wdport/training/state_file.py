"""The state of a run in one file, written whole or not at all, from which it resumes bit for bit.

Its facts are sealed, and state the SHA-256 of every array, so that changed bytes are found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.data.arrays import opened_npz
from wdport.errors import InputError
from wdport.files.atomic import whole_file
from wdport.files.manifest_seal import sealed, unsealed
from wdport.files.run_folder import ANEW
from wdport.files.writable import OutputPath
from wdport.model import Array

NAME: Final = "state.npz"
FORMAT: Final = 2
WHOLE: Final = ("epoch", "steps")
"""Metrics that are integers."""

_FACTS: Final = "facts"
_ROWS: Final = "rows/0"

Arrays = Mapping[str, Sequence[Array]]
"""Lists of arrays by role: the variables of the network, of the optimizer, and their averages."""


def write_state(output: OutputPath, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Write the state; raises :class:`MachineError`."""
    rows = np.array([list(row.values()) for row in facts["rows"]], np.float64)
    header = {**facts, "rows": list(facts["rows"][0]) if len(rows) else []}  # an array, since they may be very many
    flat: dict[str, Any] = {
        f"{role}/{index}": np.asarray(array) for role, several in arrays.items() for index, array in enumerate(several)
    }
    flat[_ROWS] = rows
    text = sealed({"format": FORMAT, "arrays": _described(flat), **header})
    flat[_FACTS] = np.frombuffer(text.encode(), np.uint8)
    with whole_file(output) as file:
        np.savez(file, **flat)


def read_state(folder: Path) -> tuple[dict[str, list[Array]], dict[str, Any]] | None:
    """Read the state of a run, None if it has none; raises :class:`InputError` if the file is damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        flat, facts = _read(path)
        names, rows = facts["rows"], flat.pop(_ROWS)
        facts["rows"] = [{name: int(value) if name in WHOLE else value for name, value in zip(names, row, strict=True)}
                         for row in rows.tolist()]  # fmt: skip
    except InputError as error:
        raise InputError(path, error.what, ANEW) from None
    arrays: dict[str, list[Array]] = {}
    # By number: as text, 10 would come before 9.
    for name in sorted(flat, key=lambda name: int(name.rpartition("/")[2])):
        arrays.setdefault(name.rpartition("/")[0], []).append(flat[name])
    return arrays, facts


def _read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    with located(path):
        with opened_npz(path) as file:
            facts = unsealed(file[_FACTS].tobytes())
            flat = {name: file[name] for name in file.files if name != _FACTS}
        if facts.pop("format") != FORMAT:
            raise Fault("was written by another release of wdport", "use that release")
        if _described(flat) != facts.pop("arrays"):
            raise Fault("has other arrays than were written", "copy it again")
    return flat, facts


def _described(flat: Mapping[str, Array]) -> dict[str, list[Any]]:
    """Dtype, SHA-256 and shape of every array."""
    return {name: [array.dtype.str, digest(array), *array.shape] for name, array in flat.items()}


def digest(array: Array) -> str:
    """SHA-256 of an array's values."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
