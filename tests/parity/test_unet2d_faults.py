"""Known faults of U-Net ports and of schedulers: every one dies where it is, and correct ports live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parity_tests.faults.run import run_state_faults
from parity_tests.faults.samplers import SCHEDULER_FAULTS, faults_of
from parity_tests.faults.unet2d import FAULTS
from wdport.diffusion.scheduler import Scheduler
from wdport.families.unet2d.family import FAMILY
from wdport.parity.selftest.inject import run_mutants, run_sampler_faults
from wdport.parity.selftest.specimen import Specimen


@pytest.mark.full
@pytest.mark.parametrize(("name", "count"), list(zip(FAULTS.examples, (74, 69, 71), strict=True)))
def test_every_fault_dies_where_it_is(name: str, count: int) -> None:
    specimen = Specimen(name, FAULTS, FAULTS.examples[name])
    kills = [*run_mutants(specimen, diagnose=False), *run_state_faults(specimen)]
    assert [kill for kill in kills if not kill.right] == []
    assert len([kill for kill in kills if not kill.equivalent]) == count
    assert specimen.verify()  # and nothing of them is left


@pytest.mark.full
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_every_fault_of_a_scheduler_dies(prediction: str) -> None:
    scheduler = replace(FAULTS.smallest.scheduler or Scheduler(), prediction_type=prediction)
    specimen = Specimen("smallest", FAULTS, replace(FAULTS.smallest, scheduler=scheduler))
    kills = list(run_sampler_faults(FAMILY, specimen, faults_of))
    assert len(kills) == 1 + len(SCHEDULER_FAULTS)
    assert [kill for kill in kills if not kill.right] == []


def test_a_scheduler_has_the_faults_that_it_can_have() -> None:
    names = {fault.name for fault in faults_of(Scheduler(clip=None, timestep_spacing="trailing").process())}
    left_out = {"clipping forgotten", "noise of the clipped state", "trailing for leading", "steps_offset forgotten"}
    assert names == {fault.name for fault in SCHEDULER_FAULTS} - left_out
    assert {fault.name for fault in faults_of(Scheduler().process())} == {fault.name for fault in SCHEDULER_FAULTS}
