"""Inject known faults of samplers into a correct port, one at a time, and have gate trajectories (E) judge each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log10

import numpy as np

from wdport.compare.gate_bounds import TRAJECTORY
from wdport.compare.gate_bounds import bounds as default_bounds
from wdport.families.faults import Bounds, Kill, fate
from wdport.families.roles import Family
from wdport.parity.selftest.specimen import Specimen
from wdport.uses.diffusion.faults import TARGET_MIXED_UP, SamplerFault
from wdport.uses.diffusion.process import Process
from wdport.uses.gates.trajectories import (
    TrajectoryReference,
    kill_sampler_faults,
    reference_network,
    trajectories_gate,
    trial_condition,
)
from wdport.uses.roles import Sampled

SAMPLER_PLACE = "the sampler"


def run_sampler_faults(
    family: Sampled, specimen: Specimen, faults: Callable[[Process], Sequence[SamplerFault]],
    held: Bounds | None = None, sound: bool = True,
) -> Iterator[Kill]:  # fmt: skip
    """Yield the outcome of no fault, if ``sound`` asks for it, then of every one that ``faults`` has of the family's
    process."""
    limit = {**default_bounds(), **(held or {})}["trajectory"]
    name, reference, model = specimen.name, _reference(family, specimen), specimen.model("float64")
    if sound:
        gate, _ = trajectories_gate(reference, {"float64": model})
        worst = float("inf") if gate.worst is None else gate.worst
        yield fate(name, SAMPLER_PLACE, "E", "", log10(worst / limit) if worst else -np.inf, not gate.passed)
    for fault, margin, killed in kill_sampler_faults(reference, model, faults(reference.process)):
        # The margin is over the default bound.
        over = margin - log10(limit / TRAJECTORY)
        yield fate(name, SAMPLER_PLACE, "E", fault, over, killed and over > 0.0)


def _reference(family: Sampled, specimen: Specimen) -> TrajectoryReference:
    """The reference's network with the schedule in its tensors."""
    sources = {constant: source for source, constant in specimen.plan.checks.items()}
    process = family.process(specimen.config, lambda name: specimen.tensors[sources[name]])
    about, signature = family.diffused(specimen.config), specimen.family.signature(specimen.config)
    network = reference_network(signature, trial_condition(about), specimen.live.modules["float64"])
    return TrajectoryReference(network, process, about.shape)


def canary_kills(family: Family, specimen: Specimen, held: Bounds) -> Iterator[Kill]:
    """The outcomes of the fault that `verify` tries before it judges by a policy, if the family draws samples."""
    if isinstance(family, Sampled):
        yield from run_sampler_faults(family, specimen, lambda _: (TARGET_MIXED_UP,), held, sound=False)
