"""The known faults under a policy: tried in a separate process while a pair is compared.

Which are found depends on the versions, the bounds and the code of wdport, and not on the model: if all were found on
this machine, they are not tried again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import jax

from wdport.base.errors import MachineError, WdportError, printable
from wdport.base.jax_settings import Unusable, cache_folder, chosen_numerics
from wdport.compare.activities import Say
from wdport.compare.findings import GATES, Gate, notice
from wdport.files.atomic import write_text
from wdport.files.outputs import writable
from wdport.parity.fresh.process import Worker, from_json
from wdport.parity.policy.policy import Policy, loosened

PACKAGES = ("wdport", "torch", "keras", "jax", "jaxlib", "numpy")


class KnownFaults:
    """The gate known faults (S), which is the same for every pair under a policy."""

    def __init__(self) -> None:
        self._gate: Gate | None = None

    @contextmanager
    def tried(self, policy: Policy | None) -> Iterator[Callable[[Say], Gate]]:
        """Inside, the faults are tried, unless they were before; the function waits for their gate.

        Raises :class:`MachineError` without torch, which comparing with a recording does not need.
        """
        require_torch("verify", "install wdport[torch], or give --no-canary")
        loose = loosened(policy) if policy else {}
        self._gate = self._gate or _found_before(loose)
        if self._gate is not None:
            gate = self._gate
            yield lambda _: gate
            return
        with Worker("known faults", {"loose": loose, "source": policy.source if policy else ""}) as worker:
            worker.begin()
            yield lambda say: self._wait(worker, say)

    def _wait(self, worker: Worker, say: Say) -> Gate:
        say("trying known faults")
        self._gate = from_json(Gate, worker.result(say).facts["gate"])
        return self._gate


def require_torch(where: str, fix: str) -> None:
    """Raise :class:`MachineError` without torch."""
    if find_spec("torch") is None:
        raise MachineError(where, "known faults need torch, which is not installed", fix)


def _found_before(loose: Mapping[str, float]) -> Gate | None:
    """The gate, if all faults were found before."""
    if (before := found_before(loose)) is None:
        return None
    text = f"not tried again: this wdport found all on {before.day} with the same libraries and bounds"
    return GATES["S"].gate(before.count, before.count, facts=(notice(f"{text}, in {before.seconds:.0f} s"),))


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
