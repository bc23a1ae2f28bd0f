"""The documents of --json: the number of every kind, the files that they name, and how a result becomes JSON values.

A result is a frozen dataclass in the room that makes it. Its annotations are the published schema, which
``tests/schemas`` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import to_builtins

from wdport.base.errors import well_formed
from wdport.base.shared_types import Count, Sha256, about
from wdport.files.manifest_seal import file_sha256

SCHEMAS: Final[Mapping[str, int]] = {
    "verdict": 4,
    "inspection": 1,
    "conversion": 1,
    "recording": 1,
    "training": 1,
    "samples": 1,
    "evaluation": 1,
    "coded": 1,
    "generated": 1,
    "export": 1,
    "verification": 1,
    "suggestion": 1,
    "port": 1,
    "outline": 1,
    "check": 1,
    "explanation": 1,
    "difference": 2,
    "faults": 1,
    "selftest": 1,
}
"""The number of every kind. It is raised only when a field changes its meaning or is removed."""


@dataclass(frozen=True)
class NamedFile:
    """A file that was read, identified by its hash."""

    name: Annotated[str, about("Name of the file.")]
    sha256: Annotated[Sha256, about("SHA-256 of the file.")]


@dataclass(frozen=True)
class OutputFile:
    """A file that was written."""

    name: Annotated[str, about("Name of the file, without the path.")]
    sha256: Annotated[Sha256, about("SHA-256 of the file.")]
    bytes: Annotated[Count, about("Size of the file in bytes.")]


def output_file(path: Path) -> OutputFile:
    """The name, hash and size of a file that was written."""
    return OutputFile(path.name, file_sha256(path), path.stat().st_size)


@dataclass(frozen=True)
class FaultsDocument:
    """What a command with ``--json`` prints if it ends with several faults, such as those of a mapping table."""

    error: Annotated[str, about("The error message on standard error, which names the first fault.")]
    code: Annotated[Count, about("The exit code.")]
    faults: Annotated[Sequence[str], about("Descriptions of all faults.")]


def document(kind: str, content: object) -> dict[str, Any]:
    """A result as JSON values under its schema and kind: infinities and other objects as text, unpaired surrogates
    (bytes of a file name that are not UTF-8) escaped."""
    values: Any = _plain(to_builtins(content, enc_hook=_builtin, str_keys=True))
    return {"schema": SCHEMAS[kind], "kind": kind, **values}


def _builtin(value: object) -> object:
    """What msgspec does not support: NumPy's numbers, other collections, and objects that are text in a document."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    # Before Real: an integer is also a real number.
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else str(value)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {well_formed(key): _plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    # JSON has no infinity and no NaN.
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return well_formed(value) if isinstance(value, str) else value
