"""Write and read ``parity-baseline.json``: one line per tap, written atomically."""

from __future__ import annotations

import json
import sys
from math import inf
from pathlib import Path
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular import read_option
from wdport.checkpoint.strict_json import strict_json
from wdport.errors import InputError
from wdport.files.atomic import write_text
from wdport.files.writable import writable
from wdport.limits import MAX_BASELINE_BYTES
from wdport.options import PathText
from wdport.parity.policy.baseline import RULES, SCHEMA, Baseline

_FIX: Final = "make it again with wdport verify --update-baseline"


def write_baseline(path: PathText, baseline: Baseline, force: bool = False) -> None:
    """Write a baseline; an older one stays until the new one is complete, and another file always, except with
    ``force``.

    Raises :class:`~wdport.errors.UsageError` for another file, and :class:`~wdport.errors.MachineError` if writing
    fails; then no temporary file is left.
    """
    lines = [f"  {json.dumps(name)}: {json.dumps(entry, allow_nan=False)}" for name, entry in baseline["taps"].items()]
    body = ",\n".join(lines)
    text = f'{{\n "schema": {json.dumps(baseline["schema"])},\n "taps": {{\n{body}\n }}\n}}\n'
    write_text(writable(Path(path), force=force, option=None, kind="baseline"), text)


def read_baseline(path: PathText) -> Baseline:
    """Read a baseline; raises :class:`~wdport.errors.InputError` if the file is not one."""
    file = Path(path)
    data = read_option(file, MAX_BASELINE_BYTES, _FIX)
    try:
        document = strict_json(data, "baseline", finite=False)
    except Fault as fault:
        raise InputError(file, fault.what, _FIX) from None
    if set(document) != {"schema", "taps"}:
        raise InputError(file, "is not a baseline: its keys are not schema and taps", _FIX)
    if type(document["schema"]) is not int or document["schema"] != SCHEMA:
        raise InputError((file, "schema"), f"is not {SCHEMA}, which this wdport reads", _FIX)
    if not isinstance(document["taps"], dict) or not document["taps"]:
        raise InputError((file, "taps"), "holds no taps", _FIX)
    for name, entry in document["taps"].items():
        _check(file, name, entry)
    return {"schema": document["schema"], "taps": document["taps"]}


def _check(file: Path, name: str, entry: object) -> None:
    if not isinstance(entry, dict) or set(entry) != set(RULES):
        raise InputError((file, name), f"does not have exactly the numbers {', '.join(RULES)}", _FIX)
    for key, value in entry.items():
        number = inf if value == "inf" else value
        sound = isinstance(number, (int, float)) and not isinstance(number, bool)
        largest = inf if value == "inf" else sys.float_info.max
        if not sound or not RULES[key].least <= number <= largest:
            what = f"{key} is {value!r}, not a number of at least {RULES[key].least:g}"
            raise InputError((file, name), what, _FIX)
