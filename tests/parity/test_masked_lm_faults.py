"""Known faults of masked language models: every one dies where it is, and correct ports live."""

from __future__ import annotations

import pytest

from parity_tests.faults.masked_lm import FAULTS
from parity_tests.faults.run import run_state_faults
from wdport.parity.selftest.inject import run_mutants
from wdport.parity.selftest.specimen import Specimen

EXAMPLES = tuple(FAULTS.examples)
PARTS = 11
"""That have a fault which is quickly found."""


def test_a_fault_of_every_part_dies_where_it_is() -> None:
    assert FAULTS.smallest == FAULTS.examples[EXAMPLES[0]]
    specimen = Specimen(EXAMPLES[0], FAULTS, FAULTS.smallest)
    kills = list(run_mutants(specimen, chosen=lambda mutant: mutant.quick, diagnose=False))
    assert [kill for kill in kills if not kill.right] == []
    assert len({kill.mutant.partition(":")[0] for kill in kills}) == PARTS


@pytest.mark.full
@pytest.mark.parametrize(("name", "count"), list(zip(EXAMPLES, (80, 74, 71), strict=True)))
def test_every_fault_dies_where_it_is(name: str, count: int) -> None:
    specimen = Specimen(name, FAULTS, FAULTS.examples[name])
    kills = [*run_mutants(specimen, diagnose=False), *run_state_faults(specimen)]
    assert [kill for kill in kills if not kill.right] == []
    assert len([kill for kill in kills if not kill.equivalent]) == count
    assert specimen.verify()  # and nothing of them is left
