"""Known faults of video autoencoders: every one dies where it is, and correct ports live."""

from __future__ import annotations

import pytest

from parity_tests.faults.state import run_state_faults
from parity_tests.faults.wan_vae import FAULTS
from wdport.families.wan_vae.family import FAMILY
from wdport.parity.selftest.inject import run_mutants
from wdport.parity.selftest.specimen import Specimen

EXAMPLES = tuple(FAULTS.examples)

CHOSEN = ("convolution: past one frame too old", "frames doubled: first frame seen",
          "network: mean and log-variance exchanged")  # fmt: skip
"""Seen in a layer's later calls, in a step, and in one of several outputs."""


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_fault_dies_where_it_is(name: str) -> None:
    specimen = Specimen(name, FAULTS, FAULTS.examples[name])
    kills = [*run_mutants(specimen, diagnose=False), *run_state_faults(specimen)]
    assert [kill for kill in kills if not kill.right] == []
    assert len([kill for kill in kills if not kill.equivalent]) >= 45
    assert specimen.verify()  # and nothing of them is left


@pytest.mark.full
def test_some_faults_die_where_they_are() -> None:
    specimen = Specimen(EXAMPLES[0], FAULTS, FAULTS.smallest)
    kills = list(run_mutants(specimen, chosen=lambda mutant: mutant.name in CHOSEN, diagnose=False))
    assert len(kills) == len(CHOSEN)
    assert [kill for kill in kills if not kill.right] == []
    assert {tap.reference.partition("#")[2] for tap in specimen.verify().taps} >= {"", "2", "3"}


def test_faults_have_places() -> None:
    """Without running anything: every fault of either example has a layer, and names are unique."""
    from fnmatch import fnmatchcase

    from wdport.keras_runtime import layers_by_path

    for config in FAULTS.examples.values():
        mutants = FAULTS.mutants(config)
        layers = layers_by_path(FAMILY.build(config))
        assert len({mutant.name for mutant in mutants}) == len(mutants) >= 45
        for mutant in mutants:
            for site in mutant.sites:
                assert not site or any(fnmatchcase(path, site) for path in layers), (mutant.name, site)
