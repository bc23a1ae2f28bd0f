"""Inject known bugs of training code into a correct port, and test them at optimiser (D); see
:mod:`wdport.parity.training_kills`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax

from wdport.compare.bounds import bounds
from wdport.families.faults import Bounds, Kill, fate
from wdport.families.roles import Trained
from wdport.parity.selftest.specimen import Specimen
from wdport.parity.training_faults import TrainingFault
from wdport.parity.training_kills import kill_training_faults

PLACE = "the training step"


def run_training_faults(
    trained: Trained, specimen: Specimen, faults: Sequence[TrainingFault], held: Bounds | None = None
) -> Iterator[Kill]:
    """Yield the outcome of no fault, then of every one of these. Changes the port's weights."""
    limit = {**bounds(), **(held or {})}["gradient"]
    family, config, model = specimen.family, specimen.config, specimen.model("float64")
    with jax.enable_x64(True):
        objective = trained.objective(config, model)
    for fault, margin, killed in kill_training_faults(
        specimen.plan.moves,
        lambda: family.build_reference(config, specimen.tensors, "float64"),
        model,
        objective,
        faults,
        limit,
    ):
        yield fate(specimen.name, PLACE, "D", fault, margin, killed)
