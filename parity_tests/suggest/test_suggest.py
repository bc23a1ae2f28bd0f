"""`wdport map suggest` on every pair under every naming, and on twins with seeded faults."""

from __future__ import annotations

import pytest

from .corpus import PAIRS
from .faults import locate
from .names import HOW, How
from .nets.goldens import GOLDEN
from .scoring import score, sums_alone
from .seeded import FAULTS, HARMLESS, Fault

FEW = {("onet", "honest"), ("fused", "misleading")}
FEW_FAULTS = {"a pooling that does not round up, and leaves another size", "no scale in attention", "no shortcut"}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")


@pytest.mark.parametrize(
    ("name", "names"),
    [pytest.param(name, names, marks=() if (name, names) in FEW else pytest.mark.full)
     for name in PAIRS for names in HOW],
)  # fmt: skip
def test_it_finds_the_table_and_proves_it(name: str, names: How) -> None:
    if PAIRS[name].golden and not (GOLDEN / PAIRS[name].golden).exists():
        pytest.skip("the golden checkpoints are not here")
    found = score(name, names)
    assert found.code == 0 or sums_alone(found.answer.document["verdict"]), found.note
    assert not found.wrong
    assert found.error <= 1e-10


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if fault.name in FEW_FAULTS else pytest.mark.full) for fault in (*FAULTS, *HARMLESS)],
    ids=lambda fault: fault.name.replace(" ", "_"),
)
def test_it_names_the_place_of_a_fault(fault: Fault) -> None:
    found = locate(fault)
    assert found.named, (found.first, found.causes)
    if fault.name in FEW_FAULTS:
        assert found.cause, found.causes


@pytest.mark.full
def test_most_causes_are_named() -> None:
    settable = [fault for fault in FAULTS if fault.words]
    named = sum(locate(fault).cause for fault in settable)
    assert named >= 0.75 * len(settable)
