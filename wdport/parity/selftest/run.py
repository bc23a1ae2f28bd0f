"""The self-test: try every known fault and every correct variant, or the canary's faults; needs no files. Under a
policy, the canary's are the gate known faults (S)."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from importlib.metadata import version

import jax

from wdport.base.errors import UsageError
from wdport.compare.activities import Say
from wdport.compare.findings import GATES, Gate, fact
from wdport.compare.gate_bounds import bounds as default_bounds
from wdport.compare.programs import release_memory
from wdport.families.faults import Bounds, FaultGroup, Kill
from wdport.parity.selftest.checkout import WHERE, all_faults
from wdport.parity.selftest.inject import quick_faults
from wdport.parity.selftest.known_faults import keep_found, require_torch
from wdport.parity.selftest.result import GroupResult, SelftestResult, Variant

AT_ONCE = 25
"""Faults that are tried before memory is released."""


def run_selftest(
    quick: bool = False, bounds: Bounds | None = None, say: Say | None = None, family: str = ""
) -> SelftestResult:
    """Inject every known fault into a correct port, one at a time, and run correct ports in many ways.

    Outside a source checkout there are only the faults of a quick run; the result's ``note`` states that.

    Args:
        quick: a dozen faults only, without diagnosis and without correct variants.
        bounds: the bounds that differ from the default, by name.
        family: name of the only family whose faults are tried; not for a quick run.
        say: called with a short message at every step, for a progress display.

    Raises:
        MachineError: torch, or the library of a family's reference, is missing.
        UsageError: the family has no known faults, or this is no source checkout.
    """
    require_torch("selftest", "install wdport[torch]")
    every = None if quick else all_faults()
    if family and every is None:
        raise UsageError("--family", "only the canary's faults are installed", WHERE)
    started = time.monotonic()
    say = say or (lambda _: None)
    limits = {**default_bounds(), **(bounds or {})}
    groups: list[GroupResult] = []
    variants: list[Variant] = []
    causes, note = False, ""
    if every is not None:
        groups, variants, causes = every.run_faults(family, limits, say)
    else:
        groups.append(gather(FaultGroup("", "quick faults", quick_faults(limits)), say))
        note = "" if quick else f"only the canary's faults, which are installed; to try all, {WHERE}"
    seconds = time.monotonic() - started
    return SelftestResult(tuple(groups), tuple(variants), every is None, causes, limits, _environment(), seconds, note)


def canary_gate(loose: Bounds, source: str) -> Gate:
    """Gate known faults (S): a dozen known faults in a small model, which must all be found under the bounds that
    the policy in the file ``source`` loosens. That all were found is kept, see
    :mod:`wdport.parity.selftest.known_faults`.

    Raises :class:`MachineError` without torch.
    """
    begun = time.monotonic()
    kills = run_quick(loose or None)
    seconds = time.monotonic() - begun
    missed = [fact(f"{kill.mutant} ({kill.example}) is not found", kill.mutant) for kill in kills if not kill.right]
    if missed and loose:
        missed.append(fact(f"the bounds of {source} are too loose: tighten {', '.join(loose)}"))
    gate = replace(GATES["S"].gate(len(kills), max(len(kills), 1), facts=tuple(missed)), seconds=seconds)
    if gate.passed:
        keep_found(loose, len(kills), seconds)
    return gate


def run_quick(bounds: Bounds | None = None) -> tuple[Kill, ...]:
    """The outcomes of at least a dozen faults, at least one for each bound; ``bounds`` are the bounds that differ from
    the default, by name.

    Even under a loosened bound, every one of them must be :attr:`Kill.right`. The training faults take as long as all
    the others, and are tried only if ``gradient`` is looser than its default.

    Raises:
        MachineError: torch is missing.
    """
    require_torch("selftest", "install wdport[torch]")
    return tuple(quick_faults({**default_bounds(), **(bounds or {})}))


def gather(group: FaultGroup, say: Say) -> GroupResult:
    """The results of a group, and memory released meanwhile."""
    kills = []
    for count, kill in enumerate(group.kills, 1):
        say(f"{group.name}: {kill.mutant}")
        kills.append(kill)
        if count % AT_ONCE == 0:
            _release()
    _release()
    return GroupResult(group.gate, group.name, tuple(kills))


def _release() -> None:
    """Free the programs of single operations, of which ports that run eagerly leave hundreds of megabytes."""
    jax.clear_caches()
    release_memory()


def _environment() -> dict[str, str]:
    packages = {name: version(name) for name in ("wdport", "torch", "keras", "jax", "numpy")}
    return {"python": platform.python_version(), **packages, "device": str(jax.devices()[0])}
