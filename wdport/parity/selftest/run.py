"""The self-test: try every known fault and every correct variant; needs no files. Under a policy, a dozen of the faults
are the gate known faults (S)."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain

import jax

from wdport.compare.bounds import bounds as default_bounds
from wdport.compare.findings import Gate, fact
from wdport.compare.glossary import GATES
from wdport.compare.memory import release_memory
from wdport.errors import MachineError, UsageError
from wdport.families.faults import Bounds, Group, Kill
from wdport.families.registry import all_families
from wdport.families.roles import Faulty, FaultyAround, Sampled, Trained
from wdport.parity.policy.policy import Policy, loosened
from wdport.parity.selftest.inject import NOTHING, inject, run_mutants
from wdport.parity.selftest.result import GroupResult, SelftestResult
from wdport.parity.selftest.samplers import run_sampler_faults
from wdport.parity.selftest.specimen import Specimen
from wdport.parity.selftest.state import run_state_faults
from wdport.parity.selftest.training import run_training_faults
from wdport.parity.selftest.variant import Variant
from wdport.parity.selftest.variants import run_variants

Say = Callable[[str], None]
QUICK_SAMPLER_FAULT = "target mixed up"
AT_ONCE = 25
"""Faults that are tried before memory is released."""


def run_selftest(
    quick: bool = False, bounds: Bounds | None = None, say: Say | None = None, family: str = ""
) -> SelftestResult:
    """Inject every known fault into a correct port, one at a time, and run correct ports in many ways.

    Args:
        quick: a dozen faults only, without diagnosis and without correct variants.
        bounds: the bounds that differ from the default, by name.
        family: name of the only family whose faults are tried; not for a quick run.
        say: called with a short message at every step, for a progress display.

    Raises:
        MachineError: torch is missing.
        UsageError: the family has no known faults.
    """
    require_torch("selftest", "install wdport[torch]")
    chosen = faulty_families(family)
    started = time.monotonic()
    say = say or (lambda _: None)
    limits = {**default_bounds(), **(bounds or {})}
    groups: list[GroupResult] = []
    variants: list[Variant] = []
    if quick:
        groups.append(_gather(Group("", "quick faults", quick_faults(limits)), say))
    else:
        for each in chosen:
            for at, name in enumerate(each.examples()):
                group, correct = run_example(each, name, limits, say, single=at == 0)
                groups.append(group)
                variants += correct
            groups += [_gather(group, say) for group in further_groups(each, limits)]
    seconds = time.monotonic() - started
    causes = any(each.causes_known for each in chosen)
    return SelftestResult(tuple(groups), tuple(variants), quick, causes, limits, _environment(), seconds)


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
    found = [family for family in all_families() if isinstance(family, Faulty)]
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


def run_example(
    family: Faulty, name: str, held: Bounds | None = None, say: Say = lambda _: None, single: bool = False
) -> tuple[GroupResult, tuple[Variant, ...]]:
    """Try the faults and the correct variants of one of the family's examples; ``single`` runs them in float32 too."""
    say(f"{name}: building both models")
    specimen = Specimen(name, family, family.examples()[name])
    group = _gather(layer_group(specimen, held or {}, single), say)
    variants = []
    for variant in run_variants(specimen, held, single):
        say(f"{name}, correct: {variant.name}")
        variants.append(variant)
    return group, tuple(variants)


def layer_group(specimen: Specimen, held: Bounds, single: bool) -> Group:
    """Faults of a specimen's layers and of its state; causes are looked for if the text of a correct one is known."""
    family = specimen.family
    known = run_mutants(specimen, held=held, diagnose=family.causes_known, single=single)
    return Group("A", f"{family.name}: the network, {specimen.name}", chain(known, run_state_faults(specimen, held)))


def further_groups(family: Faulty, held: Bounds) -> Iterator[Group]:
    """Faults of everything around the network, by the family's roles; if they need a network, it is the smallest."""
    if isinstance(family, FaultyAround):
        for group in family.faults(held):
            yield replace(group, name=f"{family.name}: {group.name}")
    name, config = "the smallest network", family.smallest()
    if isinstance(family, Sampled):
        tried = run_sampler_faults(family, Specimen(name, family, config), held)
        yield Group("E", f"{family.name}: the samplers", tried)
    if isinstance(family, Trained):
        tried = run_training_faults(family, Specimen(name, family, config), held)
        yield Group("D", f"{family.name}: training", tried)


def _gather(group: Group, say: Say) -> GroupResult:
    kills = []
    for at, kill in enumerate(group.kills, 1):
        say(f"{group.name}: {kill.mutant}")
        kills.append(kill)
        if at % AT_ONCE == 0:
            _release()
    _release()
    return GroupResult(group.gate, group.name, tuple(kills))


def _release() -> None:
    """Free the programs of single operations, of which ports that run eagerly leave hundreds of megabytes."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    release_memory()


def _environment() -> dict[str, str]:
    packages = {name: version(name) for name in ("wdport", "torch", "keras", "jax", "numpy")}
    return {"python": platform.python_version(), **packages, "device": str(jax.devices()[0])}
