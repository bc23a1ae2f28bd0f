"""A baseline to ``parity-baseline.json`` and back, one line a tap, written whole or not at all."""

from __future__ import annotations

import json
import sys
from math import inf
from pathlib import Path
from typing import Final

from wdport.conversion.prepare import PathText
from wdport.errors import InputError
from wdport.files.atomic import write_text
from wdport.parity.policy.baseline import RULES, SCHEMA, Baseline

MAX_BYTES: Final = 16 << 20
"""A baseline of the released model has 60 kB."""

_FIX: Final = "make it again with wdport verify --update-baseline"


def write_baseline(path: PathText, baseline: Baseline) -> None:
    """Write a baseline; an older file stays until the new one is whole.

    Raises :class:`~wdport.errors.MachineError` if the machine refuses; no temporary file is left then.
    """
    lines = [f"  {json.dumps(name)}: {json.dumps(entry, allow_nan=False)}" for name, entry in baseline["taps"].items()]
    body = ",\n".join(lines)
    text = f'{{\n "schema": {json.dumps(baseline["schema"])},\n "taps": {{\n{body}\n }}\n}}\n'
    write_text(Path(path), text)


def read_baseline(path: PathText) -> Baseline:
    """Read a baseline; raises :class:`~wdport.errors.InputError` if the file is none."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(file, f"cannot be read ({error.strerror})", _FIX) from None
    if len(data) > MAX_BYTES:
        raise InputError(file, "is too long for a baseline", _FIX)
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InputError(file, f"is not JSON: {error}", _FIX) from None
    if not isinstance(document, dict) or set(document) != {"schema", "taps"}:
        raise InputError(file, "is not a baseline: it has not schema and taps, or more than these", _FIX)
    if type(document["schema"]) is not int or document["schema"] != SCHEMA:
        raise InputError((file, "schema"), f"is {document['schema']!r}, this wdport reads {SCHEMA}", _FIX)
    if not isinstance(document["taps"], dict) or not document["taps"]:
        raise InputError((file, "taps"), "holds no taps", _FIX)
    for name, entry in document["taps"].items():
        _check(file, name, entry)
    return {"schema": document["schema"], "taps": document["taps"]}


def _check(file: Path, name: str, entry: object) -> None:
    if not isinstance(entry, dict) or set(entry) != set(RULES):
        raise InputError((file, name), f"has not just the numbers {', '.join(RULES)}", _FIX)
    for key, value in entry.items():
        number = inf if value == "inf" else value
        sound = isinstance(number, (int, float)) and not isinstance(number, bool)
        largest = inf if value == "inf" else sys.float_info.max
        if not sound or not RULES[key].least <= number <= largest:
            what = f"{key} is {value!r}, not a number of at least {RULES[key].least:g}"
            raise InputError((file, name), what, _FIX)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands in it twice")
    return made
