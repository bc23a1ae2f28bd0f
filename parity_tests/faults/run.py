"""Try all known faults and all correct variants of the families."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from parity_tests.faults import FAMILIES, fault_set
from parity_tests.faults.samplers import faults_of
from parity_tests.faults.state import run_state_faults
from parity_tests.faults.training import TRAINING_FAULTS
from parity_tests.faults.variants import run_variants
from wdport.compare.run_cases import Say
from wdport.errors import UsageError
from wdport.families.faults import Bounds, FaultGroup, FaultSet
from wdport.families.roles import Referenced, Sampled, Trained
from wdport.parity.selftest.inject import run_mutants, run_sampler_faults, run_training_faults
from wdport.parity.selftest.result import GroupResult, Variant
from wdport.parity.selftest.run import gather
from wdport.parity.selftest.specimen import Specimen


def run_faults(family: str, held: Bounds, say: Say) -> tuple[list[GroupResult], list[Variant], bool]:
    """The results of all faults and correct variants of a family, or of all if it is ""; and whether causes are looked
    for. Raises :class:`UsageError` if the family has no known faults."""
    groups: list[GroupResult] = []
    variants: list[Variant] = []
    chosen = fault_sets(family)
    for faults in chosen:
        if isinstance(faults.family, Referenced):
            faults.family.library_of(faults.smallest)  # raises before hours of work
    for faults in chosen:
        for at, name in enumerate(faults.examples):
            group, correct = run_example(faults, name, held, say, single=at == 0)
            groups.append(group)
            variants += correct
        groups += [gather(group, say) for group in further_groups(faults, held)]
    return groups, variants, any(faults.causes_known for faults in chosen)


def fault_sets(family: str = "") -> list[FaultSet]:
    """The faults of all families, or of the one of this name; raises :class:`UsageError` if it has none."""
    names = [name for name in FAMILIES if family in ("", name)]
    if not names:
        raise UsageError("--family", f"{family!r} has no known faults", f"use one of {', '.join(FAMILIES)}")
    return [fault_set(name) for name in names]


def run_example(
    faults: FaultSet, name: str, held: Bounds | None = None, say: Say = lambda _: None, single: bool = False
) -> tuple[GroupResult, tuple[Variant, ...]]:
    """Try the faults and the correct variants of one of the family's examples; ``single`` runs them in float32 too."""
    say(f"{name}: building both models")
    specimen = Specimen(name, faults, faults.examples[name])
    group = gather(layer_group(specimen, held or {}, single), say)
    variants = []
    for variant in run_variants(specimen, held, single):
        say(f"{name}, correct: {variant.name}")
        variants.append(variant)
    return group, tuple(variants)


def layer_group(specimen: Specimen, held: Bounds, single: bool) -> FaultGroup:
    """Faults of a specimen's layers and of its state; causes are looked for if the text of a correct one is known."""
    known = run_mutants(specimen, held=held, diagnose=specimen.faults.causes_known, single=single)
    name = f"{specimen.family.name}: the network, {specimen.name}"
    return FaultGroup("A", name, chain(known, run_state_faults(specimen, held)))


def further_groups(faults: FaultSet, held: Bounds) -> Iterator[FaultGroup]:
    """Faults of everything around the network, by the family's roles; if they need a network, it is the smallest."""
    family, name = faults.family, "the smallest network"
    for group in faults.around(held):
        yield replace(group, name=f"{family.name}: {group.name}")
    if isinstance(family, Sampled):
        tried = run_sampler_faults(family, Specimen(name, faults, faults.smallest), faults_of, held)
        yield FaultGroup("E", f"{family.name}: the samplers", tried)
    if isinstance(family, Trained):
        tried = run_training_faults(family, Specimen(name, faults, faults.smallest), TRAINING_FAULTS, held)
        yield FaultGroup("D", f"{family.name}: training", tried)
