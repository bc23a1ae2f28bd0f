"""The whole self-test: what the harness finds, measured on three models. `make parity` runs it, minutes long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parity_tests.faults.run import further_groups, run_example
from parity_tests.faults.waveletdiff import EXAMPLES as CONFIGS
from parity_tests.faults.waveletdiff import FAULTS, mutants
from tests.parity.test_selftest import PLACES, simultaneous
from wdport.compare.gate_bounds import bounds
from wdport.parity.selftest.inject import inject
from wdport.parity.selftest.result import SelftestResult
from wdport.parity.selftest.specimen import Specimen

EXAMPLES = tuple(CONFIGS)


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_fault_dies_where_it_is_and_no_correct_port_does(name: str) -> None:
    group, variants = run_example(FAULTS, name, single=name == EXAMPLES[0])
    found = SelftestResult((group,), variants)
    assert found.wrong == ()
    assert found.false_alarms == ()
    assert len(variants) > 25  # and so over 40 on all of them
    assert len(found.faults) > 60
    assert len(found.sought) > 50
    assert sum(kill.diagnosed for kill in found.sought) >= 0.8 * len(found.sought)
    assert found.exit_code == 0


@pytest.mark.full
def test_faults_around_the_network_die() -> None:
    found = {group.gate: list(group.kills) for group in further_groups(FAULTS, bounds())}
    assert {gate: len(kills) for gate, kills in found.items()} == {"F": 24, "E": 10, "D": 7}
    assert [kill for kills in found.values() for kill in kills if not kill.right] == []


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_three_faults_at_once(name: str) -> None:
    assert simultaneous(Specimen(name, FAULTS, CONFIGS[name])) == list(PLACES.values())


@pytest.mark.full
@pytest.mark.parametrize("qk_norm", [False, True], ids=["packed", "QK-norm"])
def test_every_fault_dies_at_every_place(qk_norm: bool) -> None:
    config = replace(FAULTS.smallest, qk_norm=qk_norm, scale_embedding=qk_norm)
    specimen = Specimen("smallest", FAULTS, config)
    tried = 0
    for mutant in mutants(config):
        for place in mutant.places(specimen.layers()):
            kill = inject(specimen, mutant, place)
            assert kill.right, (mutant.name, place, kill)
            tried += 1
    assert tried > 390
