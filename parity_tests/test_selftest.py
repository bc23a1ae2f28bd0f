"""The whole self-test: what the harness finds, measured on three models. `make parity` runs it, minutes long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.parity.test_selftest import PLACES, simultaneous
from wdport.models.waveletdiff.family import FAMILY
from wdport.parity.bounds import bounds
from wdport.parity.selftest import run_selftest
from wdport.parity.selftest.example import Example
from wdport.parity.selftest.inject import inject


@pytest.mark.full
def test_every_fault_dies_where_it_is_and_no_correct_port_does() -> None:
    found = run_selftest()
    assert [kill for kill in found.kills if not kill.right] == []
    assert [variant for variant in found.variants if variant.alarms] == []
    assert len(found.variants) >= 40
    assert len(found.faults) > 200
    named = sum(kill.diagnosed for kill in found.sought)
    assert len(found.sought) > 150
    assert named >= 0.8 * len(found.sought)
    assert {group.gate for group in found.groups} == {"A", "D", "E", "F"}
    assert found.exit_code == 0


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILY.examples())
def test_three_faults_at_once(name: str) -> None:
    assert simultaneous(Example(name, FAMILY, FAMILY.examples()[name])) == list(PLACES.values())


@pytest.mark.full
@pytest.mark.parametrize("qk_norm", [False, True], ids=["packed", "QK-norm"])
def test_every_fault_dies_at_every_place(qk_norm: bool) -> None:
    config = replace(FAMILY.smallest(), qk_norm=qk_norm)
    example = Example("smallest", FAMILY, config)
    tried = 0
    for mutant in FAMILY.mutants(config):
        for place in mutant.places(example.layers()):
            kill, _ = inject(example, mutant, place, bounds(), brief=True)
            assert kill.right, (mutant.name, place, kill)
            tried += 1
    assert tried > 390
