"""Known faults of video autoencoders: every one dies where it is, and correct ports live."""

from __future__ import annotations

import pytest

from parity_tests.faults.run import run_state_faults
from parity_tests.faults.wan_vae import FAULTS
from wdport.families.wan_vae.family import FAMILY
from wdport.parity.selftest.inject import run_mutants
from wdport.parity.selftest.specimen import Specimen


@pytest.mark.full
@pytest.mark.parametrize("name", FAULTS.examples)
def test_every_fault_dies_where_it_is(name: str) -> None:
    specimen = Specimen(name, FAULTS, FAULTS.examples[name])
    kills = [*run_mutants(specimen, diagnose=False), *run_state_faults(specimen)]
    assert [kill for kill in kills if not kill.right] == []
    assert len([kill for kill in kills if not kill.equivalent]) >= 45
    verdict = specimen.verify()
    assert verdict  # and nothing of them is left
    calls = {tap.reference.partition("#")[2] for tap in verdict.taps}
    assert calls >= {"", "2", "3"} or name != next(iter(FAULTS.examples))


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
