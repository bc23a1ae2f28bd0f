"""Inject known bugs of samplers into a correct port, and test them at trajectories (E); see
:mod:`wdport.parity.trajectories`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log10

import numpy as np

from wdport.compare.bounds import TRAJECTORY, bounds
from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.process import Process
from wdport.families.faults import Bounds, Kill, fate
from wdport.families.roles import Sampled
from wdport.model import Array
from wdport.parity.selftest.specimen import Specimen
from wdport.parity.trajectories import kill_sampler_faults, trajectories_gate
from wdport.parity.trajectory_sides import Reference, reference_network, trial_condition
from wdport.recorder import lifted, run

PLACE = "the sampler"


def run_sampler_faults(
    family: Sampled,
    specimen: Specimen,
    faults: Callable[[Process], Sequence[SamplerFault]],
    held: Bounds | None = None,
    sound: bool = True,
) -> Iterator[Kill]:
    """Yield the outcome of no fault, if ``sound`` asks for it, then of every one that ``faults`` has of the family's
    process."""
    limit = {**bounds(), **(held or {})}["trajectory"]
    name, reference, model = specimen.name, _reference(family, specimen), specimen.model("float64")
    if sound:
        gate, _ = trajectories_gate(reference, {"float64": model})
        worst = float("inf") if gate.worst is None else gate.worst
        yield fate(name, PLACE, "E", "", log10(worst / limit) if worst else -np.inf, not gate.passed)
    for fault, margin, killed in kill_sampler_faults(reference, model, faults(reference.process)):
        over = margin - log10(limit / TRAJECTORY)
        yield fate(name, PLACE, "E", fault, over, killed and over > 0.0)


def _reference(family: Sampled, specimen: Specimen) -> Reference:
    """The reference's network with the schedule in its tensors."""
    module = specimen.live.modules["float64"]
    sources = {constant: source for source, constant in specimen.plan.checks.items()}
    process = family.process(specimen.config, lambda name: specimen.tensors[sources[name]])
    about = family.diffused(specimen.config)
    signature = specimen.family.signature(specimen.config)

    def double(inputs: tuple[Array, ...]) -> Array:
        with lifted():
            return run(module, inputs)[0]

    network = reference_network(signature, trial_condition(about), double)
    return Reference(network, process, about.shape)
