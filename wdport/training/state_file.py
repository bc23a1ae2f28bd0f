"""The state of a run in one file, written whole or not at all, from which it goes on bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from wdport.errors import InputError
from wdport.files.atomic import whole_file
from wdport.model import Array

NAME: Final = "state.npz"
FORMAT: Final = 1
_FACTS: Final = "facts"

Arrays = Mapping[str, Sequence[Array]]
"""Lists of arrays by role: the variables of the network, of the optimizer, and their averages."""


def write_state(folder: Path, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Write the state; raises :class:`MachineError`."""
    flat = {f"{role}/{at}": np.asarray(each) for role, several in arrays.items() for at, each in enumerate(several)}
    told = json.dumps({"format": FORMAT, **facts}, allow_nan=False)
    with whole_file(folder / NAME) as file:
        np.savez(file, **flat, **{_FACTS: np.array(told)})  # type: ignore[arg-type]


def read_state(folder: Path) -> tuple[dict[str, list[Array]], dict[str, Any]] | None:
    """Read the state of a run, None if it has none; raises :class:`InputError` if the file is damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    fix = "remove it to start the run again"
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            facts = json.loads(str(file[_FACTS]))
            if facts.pop("format") != FORMAT:
                raise InputError(path, "was written by a newer wdport", "upgrade wdport")
            found: dict[str, list[Array]] = {}
            names = [name for name in file.files if name != _FACTS]
            for name in sorted(names, key=lambda each: int(each.rpartition("/")[2])):
                found.setdefault(name.rpartition("/")[0], []).append(file[name])
            return found, facts
    except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
        raise InputError(path, f"is damaged ({type(error).__name__})", fix) from None
