"""Try all known faults and all correct variants of the families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any
from unittest.mock import patch

import jax

from parity_tests.faults import FAMILIES, fault_set
from parity_tests.faults.samplers import faults_of
from parity_tests.faults.training import TRAINING_FAULTS
from wdport.base.errors import UsageError
from wdport.compare.activities import Say
from wdport.families.faults import Bounds, FaultGroup, FaultSet, Kill, Mutant
from wdport.families.roles import Referenced, Trained
from wdport.parity.run_gates import Setup
from wdport.parity.selftest.inject import inject, run_mutants, run_training_faults
from wdport.parity.selftest.result import Alarm, GroupResult, Variant, rejected_by
from wdport.parity.selftest.run import gather
from wdport.parity.selftest.specimen import EAGER, Injected, Recalled, Specimen
from wdport.parity.verdict_api import Verdict
from wdport.uses.gates.sampler_faults import run_sampler_faults
from wdport.uses.roles import Sampled


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


NAME = "weights captured at trace time"


def run_state_faults(specimen: Specimen, held: Bounds | None = None) -> Iterator[Kill]:
    """Try the fault at one layer of the specimen."""
    tapped = {path: layer for path, layer in specimen.layers().items() if path in specimen.tapped}
    places = [path for path, layer in tapped.items() if _has_bias(layer)]
    places = places or [path for path, layer in tapped.items() if _has_scale(layer)]
    place = places[len(places) // 2]
    yield inject(specimen, Mutant(NAME, (place,), lambda layer, _: captured(layer)), place, held)


def _has_bias(layer: Any) -> bool:
    """Whether this is a plain dense layer with a bias; a bias of an attention's key has no effect."""
    return hasattr(layer, "units") and getattr(layer, "bias", None) is not None


def _has_scale(layer: Any) -> bool:
    """Whether this is a layer whose only weights are vectors, which the battery's last case shifts as it shifts
    biases."""
    return bool(layer.weights) and all(len(weight.shape) == 1 for weight in layer.weights)


@contextmanager
def captured(layer: Any) -> Iterator[None]:
    """Inside, the layer's call is compiled at its first run with the values that its weights have then."""
    compiled = jax.jit(layer.call)
    with patch.object(layer, "call", lambda x, **_: compiled(x)):
        yield


SEEDS = (1, 2, 3)
"""Of other inputs."""


def run_variants(specimen: Specimen, held: Bounds | None = None, rules: bool = False) -> Iterator[Variant]:
    """Try every way to run the specimen's port, then every rewrite of it; ``rules`` applies the fixed tolerances."""
    yield from run_ways(specimen, held, rules)
    yield from run_rewrites(specimen, held, rules)


def run_ways(specimen: Specimen, held: Bounds | None = None, rules: bool = False) -> Iterator[Variant]:
    """Run the unchanged port eagerly and compiled, against references on one thread and on two, and as users do, with
    every gate."""
    yield _variant(specimen, "eager", EAGER, held, rules)
    yield _variant(specimen, "compiled, every gate", Setup(), held, rules)
    for seed in SEEDS:
        yield _variant(specimen, f"eager, inputs of seed {seed}", EAGER, held, rules, seed=seed)
    for count in (1, 2):
        with _torch_threads(count):
            setup = Setup(network=True, reference=Recalled(specimen.live))
            threads = f"compiled, reference on {count} thread{'s' if count > 1 else ''}"
            yield _variant(specimen, threads, setup, held, rules)


def run_rewrites(specimen: Specimen, held: Bounds | None = None, rules: bool = False) -> Iterator[Variant]:
    """Run every rewrite of the port that its family has, everywhere at once."""
    layers = specimen.layers()
    for rewrite in specimen.faults.rewrites(specimen.config):
        everywhere = [(rewrite, place) for place in rewrite.places(layers)]
        yield _variant(specimen, rewrite.name, EAGER, held, rules, everywhere, rewrite.equivalent)


def _variant(
    specimen: Specimen,
    name: str,
    setup: Setup,
    held: Bounds | None,
    rules: bool,
    changes: Sequence[Injected] = (),
    why: str = "",
    seed: int = 0,
) -> Variant:
    verdict = specimen.verify(changes, held=held, setup=setup, seed=seed)
    worst = {gate.name: gate.worst for gate in verdict.gates}
    rejected = rejected_by(partial(specimen.outputs, changes)) if rules else None
    return Variant(specimen.name, name, worst["A"], worst["B"], tuple(_alarms(verdict)), rejected, why)


def _alarms(verdict: Verdict) -> Iterator[Alarm]:
    """The gates that fail, with the layers that they name, or else their findings."""
    places = [fault.candidate or "the network" for fault in verdict.faults]
    for gate in verdict.gates:
        if not gate.passed:
            subjects = [finding.subject or str(finding) for finding in gate.findings if not finding.notice]
            named = places if gate.name in ("A", "B") and places else subjects or ["not everything was compared"]
            yield from (Alarm(gate.name, place) for place in dict.fromkeys(named))


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
