"""The known faults that were all found on this machine: which are found depends on the versions, the bounds and the
code of wdport, and not on the model, so they are not tried again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import jax

from wdport.base.errors import WdportError, printable
from wdport.base.jax_settings import Unusable, cache_folder, chosen_numerics
from wdport.files.atomic import write_text
from wdport.files.outputs import writable

PACKAGES = ("wdport", "torch", "keras", "jax", "jaxlib", "numpy")


@dataclass(frozen=True)
class Found:
    """A run in which all known faults were found.

    Attributes:
        count: the number of faults.
        seconds: how long it took.
        day: when it was, as YYYY-MM-DD.
    """

    count: int
    seconds: float
    day: str


def found_before(bounds: Mapping[str, float]) -> Found | None:
    """The run with the same versions, bounds and code; ``None`` if there was none, or nothing is kept."""
    path = _place(bounds)
    if path is None:
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        run = Found(int(facts["count"]), float(facts["seconds"]), printable(str(facts["day"]), 10))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return run if run.count > 0 else None


def keep_found(bounds: Mapping[str, float], count: int, seconds: float) -> None:
    """Keep that all known faults were found; a folder that cannot be written to keeps nothing."""
    path = _place(bounds)
    if path is None:
        return
    facts = {"count": count, "seconds": round(seconds, 1), "day": f"{datetime.now(UTC):%Y-%m-%d}"}
    with suppress(OSError, WdportError):
        write_text(writable(path), json.dumps(facts))


def _place(bounds: Mapping[str, float]) -> Path | None:
    """The file of a run under these bounds, beside the compiled programs, in a folder that no other user can write."""
    try:
        folder = cache_folder()
    except Unusable:
        return None
    return None if folder is None else folder / f"known-faults-{_key(bounds)}.json"


def _key(bounds: Mapping[str, float]) -> str:
    """A digest of everything that decides which faults are found."""
    machine = (platform.python_version(), platform.machine(), jax.devices()[0].device_kind)
    settings = (os.environ.get("XLA_FLAGS", ""), sorted((chosen_numerics() or {}).items(), key=str))
    facts = (machine, settings, [(name, version(name)) for name in PACKAGES], sorted(bounds.items()))
    digest = hashlib.sha256(repr(facts).encode())
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}".encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]
