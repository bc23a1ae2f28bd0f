"""The scale of a WaveletDiff: what the checkpoint tells of it, and faults, each of which verify finds at its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from parity_tests.faults.waveletdiff import FAULTS
from parity_tests.faults.waveletdiff.network import scale_embedding_mutants, scale_mutants
from tests.families.waveletdiff.sources import source
from tests.make import TINY
from wdport.families.faults import Mutant
from wdport.families.waveletdiff.resolve import resolve
from wdport.parity.selftest.inject import inject
from wdport.parity.selftest.specimen import Specimen

SCALED = replace(TINY, scale_embedding=True)


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return Specimen("scaled", FAULTS, SCALED)


QUICK = ("scale not multiplied by 10", "condition ignored", "scale embedded as a time")
"""`make parity` makes them all, at every place."""


@pytest.mark.parametrize(
    "mutant",
    [mutant for mutant in (*scale_mutants(), *scale_embedding_mutants()) if mutant.name in QUICK],
    ids=lambda mutant: mutant.name,
)
def test_a_fault_of_the_scale_is_found_at_its_place(specimen: Specimen, mutant: Mutant) -> None:
    (place,) = mutant.places(specimen.layers())
    kill = inject(specimen, mutant, place)
    assert kill.right, kill


def test_the_correct_port_passes(specimen: Specimen) -> None:
    verdict = specimen.verify()
    assert verdict.exit_code == 0, [gate for gate in verdict.gates if not gate.passed]


@pytest.mark.parametrize(("bias", "conditioning"), [(0.0, "none"), (0.1, None)])
def test_biases_of_zero_were_never_trained(bias: float, conditioning: str | None) -> None:
    tensors = FAULTS.random_tensors(SCALED, 0)
    for at in (0, 2):
        tensors[f"scale_embedding.mlp.{at}.bias"] = np.full_like(tensors[f"scale_embedding.mlp.{at}.bias"], bias)
    found = resolve(source({name: torch.from_numpy(array) for name, array in tensors.items()}), {}, {"num_heads": 2})
    assert found.config.conditioning == conditioning
    assert sum("takes a condition: scale" in note for note in found.notes) == 1
