"""Gate known faults (S): try a dozen known faults in a small model before a verdict under a policy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

from wdport.compare.bounds import bounds as default_bounds
from wdport.compare.findings import Gate, fact
from wdport.compare.glossary import GATES
from wdport.errors import MachineError, UsageError
from wdport.families.faults import Bounds, Kill
from wdport.families.registry import shipped
from wdport.families.roles import Faulty, FaultyAround, Sampled, Trained
from wdport.parity.policy.policy import Policy, loosened
from wdport.parity.selftest.inject import NOTHING, inject, run_mutants
from wdport.parity.selftest.samplers import run_sampler_faults
from wdport.parity.selftest.specimen import Specimen
from wdport.parity.selftest.training import run_training_faults

QUICK_SAMPLER_FAULT = "target mixed up"


def canary_gate(policy: Policy | None) -> Gate:
    """Gate known faults (S): a dozen known faults in a small model, which must all be found under the policy's bounds.

    Raises :class:`MachineError` without torch, which comparing with a recording does not need.
    """
    require_torch("verify", "install wdport[torch], or give --no-canary")
    loose = loosened(policy) if policy else {}
    begun = time.monotonic()
    kills = run_quick(loose or None)
    seconds = time.monotonic() - begun
    missed = [fact(f"{kill.mutant} ({kill.example}) is not found", kill.mutant) for kill in kills if not kill.right]
    if missed and policy and loose:
        missed.append(fact(f"the bounds of {policy.source} are too loose: tighten {', '.join(loose)}"))
    return replace(GATES["S"].gate(len(kills), max(len(kills), 1), facts=tuple(missed)), seconds=seconds)


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


def faulty_families(name: str = "") -> list[Faulty]:
    """The families with known faults, or the one of this name; raises :class:`UsageError` if it has none."""
    found = [family for family in shipped() if isinstance(family, Faulty)]
    chosen = [family for family in found if name in ("", family.name)]
    if not chosen:
        known = ", ".join(family.name for family in found)
        raise UsageError("--family", f"{name!r} has no known faults", f"use one of {known}")
    return chosen


def require_torch(where: str, fix: str) -> None:
    """Raise :class:`MachineError` without torch."""
    if find_spec("torch") is None:
        raise MachineError(where, "known faults need torch, which is not installed", fix)


def quick_faults(held: Bounds) -> Iterator[Kill]:
    """Yield the outcomes of the quick faults: those of the first family, which together go through every gate."""
    family = faulty_families()[0]
    specimen = Specimen("the smallest port", family, family.smallest())
    yield inject(specimen, NOTHING, "", held)
    yield from run_mutants(specimen, lambda mutant: mutant.quick, held, diagnose=False)
    if isinstance(family, FaultyAround):
        for group in family.faults(held, quick=True):
            yield from group.kills
    if isinstance(family, Sampled):
        yield from run_sampler_faults(family, specimen, held, QUICK_SAMPLER_FAULT)
    if isinstance(family, Trained) and held["gradient"] > default_bounds()["gradient"]:
        yield from run_training_faults(family, specimen, held)
