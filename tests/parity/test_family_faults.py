"""Known faults of ports of libraries' models, and of schedulers: every one dies where it is, and correct ports live."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from parity_tests.faults import fault_set
from parity_tests.faults.run import run_state_faults
from parity_tests.faults.samplers import SCHEDULER_FAULTS, faults_of
from wdport.families.faults import FaultSet
from wdport.models.keras_runtime import layers_by_path
from wdport.parity.selftest.inject import run_mutants
from wdport.parity.selftest.specimen import Specimen
from wdport.uses.diffusion.scheduler_config import Scheduler
from wdport.uses.gates.sampler_faults import run_sampler_faults
from wdport.uses.unet2d.family import FAMILY

UNET2D, WAN_VAE, MASKED_LM = map(fault_set, ("unet2d", "wan_vae", "masked_lm"))
COUNTS = ((UNET2D, (74, 69, 71)), (MASKED_LM, (80, 74, 71)), (WAN_VAE, (0, 0)))
"""How many faults the examples of a set have; 0 for 45 and more."""


@pytest.mark.full
@pytest.mark.parametrize(("faults", "name", "count"), [
    (faults, name, count) for faults, counts in COUNTS for name, count in zip(faults.examples, counts, strict=True)
])  # fmt: skip
def test_every_fault_dies_where_it_is(faults: FaultSet, name: str, count: int) -> None:
    specimen = Specimen(name, faults, faults.examples[name])
    kills = [*run_mutants(specimen, diagnose=False), *run_state_faults(specimen)]
    assert [kill for kill in kills if not kill.right] == []
    found = len([kill for kill in kills if not kill.equivalent])
    assert found == count or (count == 0 and found >= 45)
    verdict = specimen.verify()
    assert verdict  # and nothing of them is left
    calls = {tap.reference.partition("#")[2] for tap in verdict.taps}
    assert calls >= {"", "2", "3"} or faults is not WAN_VAE or name != next(iter(faults.examples))


def test_faults_of_a_video_autoencoder_have_places() -> None:
    """Without running anything: every fault of either example has a layer, and names are unique."""
    for config in WAN_VAE.examples.values():
        mutants = WAN_VAE.mutants(config)
        layers = layers_by_path(WAN_VAE.family.build(config))
        assert len({mutant.name for mutant in mutants}) == len(mutants) >= 45
        for mutant in mutants:
            for site in mutant.sites:
                assert not site or any(fnmatchcase(path, site) for path in layers), (mutant.name, site)


@pytest.mark.full
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_every_fault_of_a_scheduler_dies(prediction: str) -> None:
    scheduler = replace(UNET2D.smallest.scheduler or Scheduler(), prediction_type=prediction)
    specimen = Specimen("smallest", UNET2D, replace(UNET2D.smallest, scheduler=scheduler))
    kills = list(run_sampler_faults(FAMILY, specimen, faults_of))
    assert len(kills) == 1 + len(SCHEDULER_FAULTS)
    assert [kill for kill in kills if not kill.right] == []


def test_a_scheduler_has_the_faults_that_it_can_have() -> None:
    names = {fault.name for fault in faults_of(Scheduler(clip=None, timestep_spacing="trailing").process())}
    left_out = {"clipping forgotten", "noise of the clipped state", "trailing for leading", "steps_offset forgotten"}
    assert names == {fault.name for fault in SCHEDULER_FAULTS} - left_out
    assert {fault.name for fault in faults_of(Scheduler().process())} == {fault.name for fault in SCHEDULER_FAULTS}
