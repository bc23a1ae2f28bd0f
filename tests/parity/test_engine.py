"""One engine, `wdport.compare.engine`: every caller fails if it does not compare."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

import wdport
from parity_tests.conformance import suite
from parity_tests.conformance.engine import run as run_pair
from parity_tests.faults.run import run_example
from parity_tests.faults.training import TRAINING_FAULTS
from parity_tests.faults.waveletdiff import FAULTS
from tests.bad.ground import ground
from tests.families.toys import edges
from wdport.compare import measure
from wdport.compare.case_runs import CaseRuns
from wdport.parity.proving.proof import prove
from wdport.parity.proving.suggest import Models, suggest
from wdport.parity.selftest import inject
from wdport.parity.selftest.inject import run_training_faults
from wdport.parity.selftest.run import canary_gate, run_quick, run_selftest
from wdport.parity.selftest.specimen import Specimen
from wdport.uses.waveletdiff.canary import CANARY, NORM_EPSILON, TF32
from wdport.uses.waveletdiff.family import FAMILY


def prove_suggestion() -> object:
    """The proof of `map suggest` for two models that are equal."""
    places = "tests.families.toys.edges"
    found = suggest(
        Models(f"{places}:Attended", f"{places}:attended", (f"ids: b n={edges.LENGTH}, below {edges.WORDS}",))
    )
    assert found.stop is None
    prove(found)
    return found.verdict


CALLERS: dict[str, Callable[[], object]] = {
    "verify": lambda: wdport.verify(ground() / "good.ckpt", ground() / "good.keras"),
    "self-test": lambda: run_selftest(quick=True),
    "self-test of a family": lambda: run_example(FAULTS, next(iter(FAULTS.examples))),
    "known faults before a policy": lambda: canary_gate({}, ""),
    "conformance": lambda: run_pair(suite.PAIRS["group_norm"]),
    "map suggest": prove_suggestion,
}


@pytest.mark.parametrize("caller", CALLERS)
def test_every_caller_fails_without_the_engine(caller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the engine is broken")

    monkeypatch.setattr(CaseRuns, "of", broken)
    monkeypatch.setenv("WDPORT_COMPILE_CACHE", "off")  # known faults that were found before are not tried
    with pytest.raises(ZeroDivisionError, match="the engine is broken"):
        CALLERS[caller]()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every measure of a difference is 0."""
    for name in ("relative_l2", "sample_errors"):
        own = getattr(measure, name)
        for module in list(sys.modules.values()):
            if getattr(module, name, None) is own:
                monkeypatch.setattr(module, name, lambda *_: 0.0)
    monkeypatch.setattr(measure, "_quotient", lambda *_: 0.0)


@pytest.mark.usefixtures("blind")
def test_the_self_test_notices_that_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """One fault of the network for each of its two measures, and that of the samplers: all survive."""
    config = replace(CANARY.smallest, level_lengths=(5, 5), cross_level_attention=False)
    canary = replace(CANARY, smallest=config, mutants=lambda _: (NORM_EPSILON, TF32))
    monkeypatch.setattr(inject, "find_canary", lambda: canary)
    kills = run_quick()
    assert {kill.expected for kill in kills if not kill.right} >= {"A", "B", "E"}
    living = {kill.mutant for kill in kills if not kill.killed}
    assert {NORM_EPSILON.name, TF32.name, "target mixed up"} <= living
    assert [kill.right for kill in kills if kill.mutant == "no fault"] == [True]


@pytest.mark.full
@pytest.mark.usefixtures("blind")
def test_the_training_faults_live_if_nothing_is_measured() -> None:
    specimen = Specimen("smallest", FAULTS, FAULTS.smallest)
    kills = list(run_training_faults(FAMILY, specimen, TRAINING_FAULTS))
    assert len(kills) > 5
    assert not any(kill.killed for kill in kills)
