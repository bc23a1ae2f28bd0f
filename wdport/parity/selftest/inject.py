"""Inject known bugs one at a time into a correct port, its samplers or its training, and have the gates judge each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from math import inf, log10
from typing import cast

import jax

from wdport.base.errors import IncompleteError, InternalError, MisfitError
from wdport.compare.calls import CASES, Case, layer_of
from wdport.compare.findings import Gate
from wdport.compare.gate_bounds import bounds as default_bounds
from wdport.families.faults import Bounds, FaultSet, Kill, Mutant, fate
from wdport.families.roles import Family, Trained
from wdport.families.shipped import CANARY, provided
from wdport.parity.diagnose import tapped
from wdport.parity.run_gates import Setup
from wdport.parity.selftest.result import rejected_by
from wdport.parity.selftest.specimen import Injected, Specimen
from wdport.parity.training_faults import CANARY_FAULTS, TrainingFault, kill_training_faults
from wdport.parity.verdict_api import Verdict

UseFaults = Callable[[Family, Specimen, Bounds], Iterator[Kill]]
"""The outcomes of the known faults of what a model is used for."""

JUDGED = ("0", "A", "A'", "B")
"""The gates of the network, in the order in which they are asked."""

IN_FILE = "unequal"
"""The kind of the facts that state that a variable is not its tensor's: `verify` has them before anything runs."""


@dataclass(frozen=True)
class Judgement:
    """What a verdict states about a fault: failed gates, the places that they name, the largest number over its
    bound by gate, the last case that ran, the causes, and the largest float32 ratio."""

    gates: tuple[str, ...]
    sites: tuple[str, ...] = ()
    over: Mapping[str, float] = field(default_factory=dict)
    inputs: str = ""
    causes: tuple[str, ...] = ()
    ratio: float = 0.0

    def gate(self, expected: str) -> str:
        """The gate that found it: the expected one if it failed, or else the first; "" if none did."""
        return expected if expected in self.gates else next(iter(self.gates), "")


def run_mutants(
    specimen: Specimen, chosen: Callable[[Mutant], bool] = lambda _: True, held: Bounds | None = None,
    diagnose: bool = True, single: bool = False, probes: Sequence[Case] | None = None,
) -> Iterator[Kill]:  # fmt: skip
    """Try every chosen mutant of the specimen's family at one place, under the bounds ``held`` (default: those in
    force). ``diagnose`` looks for the probable cause; ``single`` also measures what float32 alone and fixed tolerances
    would report; ``probes`` are the cases to run, all if ``None``."""
    layers = specimen.layers()
    for mutant in (mutant for mutant in specimen.faults.mutants(specimen.config) if chosen(mutant)):
        places = mutant.places(layers)
        if not places:
            raise InternalError(mutant.name, f"matches no layer of {specimen.name}", "correct its pattern")
        yield inject(specimen, mutant, places[len(places) // 2], held, diagnose, single, probes)


NOTHING = Mutant("no fault", ("",), lambda *_: nullcontext(), equivalent="nothing is changed")
"""A correct port, which must pass."""


def inject(
    specimen: Specimen, mutant: Mutant, place: str, held: Bounds | None = None, diagnose: bool = False,
    single: bool = False, probes: Sequence[Case] | None = None,
) -> Kill:  # fmt: skip
    setup = Setup(eager=True, network=True, brief=not single, causes=diagnose, probes=probes)
    judgement = judge(specimen, [(mutant, place)], held, setup)
    kill = kill_of(specimen, mutant, place, judgement)
    if diagnose:
        kill = replace(kill, causes=judgement.causes, facts=mutant.facts, sought=kill.gate == "A")
    if not single:
        return kill
    single_gate = next((gate for gate in judgement.gates if gate in ("0", "B")), "")
    rejected = rejected_by(partial(specimen.outputs, [(mutant, place)]))
    return replace(kill, ratio=judgement.ratio, single=single_gate, rejected=rejected)


def judge(specimen: Specimen, faults: Sequence[Injected], held: Bounds | None, setup: Setup) -> Judgement:
    """What `verify` reports on the specimen with these faults."""
    try:
        verdict = specimen.verify(faults, held=held, setup=setup)
    except (IncompleteError, MisfitError) as error:  # the faulty port does not run, or not all of it
        return Judgement(("0",), (str(error.where),), {"0": inf}, ratio=inf)
    return judgement_of(verdict)


def judgement_of(verdict: Verdict) -> Judgement:
    """What a verdict states about the fault in a port."""
    gates = {gate.name: gate for gate in verdict.gates}
    failed = tuple(name for name in JUDGED if name in gates and _fails(gates[name]))
    silent = {finding.subject for finding in gates["0"].findings if finding.kind == "silent"}
    sites = [tap.candidate for tap in verdict.taps if tap.reference in silent]
    sites += [fault.candidate for fault in verdict.faults]
    if not sites and "A'" in failed:
        sites = [finding.subject for finding in gates["A'"].findings if not finding.notice]
    # Infinite without a number or a bound.
    over = {name: inf if gate.worst is None or gate.bound is None else gate.worst / gate.bound
            for name, gate in gates.items() if name in JUDGED}  # fmt: skip
    causes = dict.fromkeys(text for texts in verdict.causes.values() for text in texts)
    ratio = gates["B"].worst if "B" in gates and gates["B"].worst is not None else inf
    return Judgement(failed, tuple(dict.fromkeys(map(layer_of, sites))), over, next(reversed(verdict.inputs), ""),
                     tuple(causes), ratio)  # fmt: skip


def _fails(gate: Gate) -> bool:
    """Whether a gate fails for another reason than that the file's variables are not the checkpoint's."""
    return not gate.passed and any(not finding.notice and finding.kind != IN_FILE for finding in gate.findings)


def kill_of(specimen: Specimen, mutant: Mutant, place: str, judgement: Judgement) -> Kill:
    site = tapped(place, specimen.tapped)
    gate, sites = judgement.gate(mutant.gate), judgement.sites
    inside = all(path == site or path.startswith(f"{site}/") or not site for path in sites)
    less = "0" in judgement.gates  # layers inside no longer run, or not as often
    exact = sites == (site,) or ((mutant.shares or less) and bool(sites) and inside)
    if gate == "A'":  # one layer was changed, so the one table is its own
        exact = len(sites) == 1
    over = judgement.over.get(gate, max((n for n in judgement.over.values() if n < inf), default=0.0))
    margin = log10(over) if 0.0 < over < inf else (inf if over else -inf)
    return Kill(specimen.name, mutant.name, site or "the network", gate, mutant.gate, sites, exact, margin,
                equivalent=mutant.equivalent, inputs=judgement.inputs)  # fmt: skip


TRAINING_PLACE = "the training step"


def run_training_faults(
    trained: Trained, specimen: Specimen, faults: Sequence[TrainingFault], held: Bounds | None = None
) -> Iterator[Kill]:
    """Yield the outcome of no fault, then of every one of these. Changes the port's weights."""
    limit = {**default_bounds(), **(held or {})}["gradient"]
    family, config, model = specimen.family, specimen.config, specimen.model("float64")
    with jax.enable_x64(True):
        objective = trained.objective(config, model)
    kills = kill_training_faults(specimen.plan.moves,
                                 lambda: family.build_reference(config, specimen.tensors, "float64"),
                                 model, objective, faults, limit)  # fmt: skip
    for fault, margin, killed in kills:
        yield fate(specimen.name, TRAINING_PLACE, "D", fault, margin, killed)


def find_canary() -> FaultSet:
    """The faults that together go through every gate; needs torch."""
    return cast(FaultSet, import_module(CANARY).CANARY)


def quick_faults(held: Bounds) -> Iterator[Kill]:
    """Yield the outcomes of the canary's faults, which together go through every gate, on the first case alone: others
    have other shapes, for which every operation of an eager port is compiled again."""
    canary = find_canary()
    family, specimen = canary.family, Specimen("the smallest port", canary, canary.smallest)
    yield inject(specimen, NOTHING, "", held, probes=CASES[:1])
    yield from run_mutants(specimen, held=held, diagnose=False, probes=CASES[:1])
    for group in canary.around(held):
        yield from group.kills
    yield from cast(UseFaults, provided("canary"))(family, specimen, held)
    if isinstance(family, Trained) and held["gradient"] > default_bounds()["gradient"]:
        yield from run_training_faults(family, specimen, CANARY_FAULTS, held)
