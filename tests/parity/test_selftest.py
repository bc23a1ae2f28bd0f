"""The self-test on the smallest port: faults die where they are, correct ports live, a loosened bound is found out."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from keras import ops

from parity_tests.faults.run import run_rewrites
from parity_tests.faults.waveletdiff import FAULTS, mutants
from parity_tests.faults.waveletdiff.wavelets import WAVELET_FAULTS
from wdport.compare.findings import Gate
from wdport.families.faults import Kill, Mutant, calling
from wdport.parity.fresh.process import Message, to_json
from wdport.parity.policy.policy import Policy, read_policy
from wdport.parity.run_gates import Setup
from wdport.parity.selftest.inject import judgement_of, run_mutants
from wdport.parity.selftest.known_faults import KnownFaults
from wdport.parity.selftest.run import canary_gate, run_quick
from wdport.parity.selftest.specimen import EAGER, Specimen
from wdport.uses.waveletdiff.canary import FILTERS_REVERSED, MUTANTS, run_wavelet_faults
from wdport.uses.wavelets.transform import WaveletTransform


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return Specimen("smallest", FAULTS, FAULTS.smallest)


TWO_LEVELS = replace(FAULTS.smallest, level_lengths=(5, 5), cross_level_attention=False)
"""For faults that any level can have."""


PLACES = {
    "time off by one": "time_embedding",
    "positions off by one": "level_1/position",
    "SiLU for sigmoid": "cross_level/gate_1/sigmoid",
}


def simultaneous(specimen: Specimen, setup: Setup = EAGER) -> list[str]:
    """Three faults in three parts of a specimen at once: the places that verify names."""
    known = {mutant.name: mutant for mutant in mutants(specimen.config)}
    verdict = specimen.verify([(known[name], place) for name, place in PLACES.items()], setup=setup)
    return list(judgement_of(verdict).sites)


@pytest.mark.full
def test_three_faults_at_once(specimen: Specimen) -> None:
    """The places reported are those three, in the order of the computation."""
    assert simultaneous(specimen, Setup(eager=True, network=True, brief=True)) == list(PLACES.values())


def test_the_cause_is_named(specimen: Specimen) -> None:
    names = {"layer norm epsilon 1e-6", "query bias dropped", "one minus the gate", "levels 0 and 1 swapped"}
    kills = list(run_mutants(specimen, lambda mutant: mutant.name in names))
    assert {kill.mutant for kill in kills} == names
    assert all(kill.diagnosed and len(kill.causes) == 1 for kill in kills)
    (found,) = (kill for kill in kills if kill.mutant == "query bias dropped")
    assert found.causes == (f"{found.site}/bias is all zeros",)  # of the file's weights


@pytest.mark.parametrize(
    ("bound", "value", "name"),
    [
        ("logic", 1e-4, "layer norm epsilon 1e-6"),
        ("numerics", 1e5, "matrix products in TF32"),
        ("table_ulp", 100.0, "position angles in float32"),
    ],
)
def test_a_loosened_bound_lets_its_fault_live(bound: str, value: float, name: str) -> None:
    """Under the default bounds, the quick run kills it."""
    specimen = Specimen("two levels", FAULTS, TWO_LEVELS)
    assert name in {mutant.name for mutant in MUTANTS}
    (kill,) = run_mutants(specimen, lambda mutant: mutant.name == name, {bound: value}, diagnose=False)
    assert not kill.right


@pytest.mark.full
def test_a_rewrite_that_leaks_is_an_alarm() -> None:
    """A mean in float32 inside a float64 model."""

    def leaky(layer: Any, x: Any) -> Any:
        centred = x - jnp.mean(jnp.asarray(x, "float32"), axis=-1, keepdims=True)
        return centred * ops.rsqrt(ops.mean(centred * centred, axis=-1, keepdims=True) + layer.epsilon)

    rewrite = Mutant("norm by a narrow mean", ("*/norm1/norm",), calling(leaky), equivalent="it is not")
    specimen = Specimen("two levels", replace(FAULTS, rewrites=lambda _: (rewrite,)), TWO_LEVELS)
    (found,) = run_rewrites(specimen)
    places = [path for path in specimen.layers() if path.endswith("norm1/norm")]
    assert {(each.gate, each.place) for each in found.alarms} == {("A", path) for path in places}


def test_wavelet_faults_die_both_ways_or_one() -> None:
    (group,) = FAULTS.around({})
    kills = list(group.kills)
    assert {kill.mutant for kill in kills} == {fault.name for fault in WAVELET_FAULTS}
    assert [kill for kill in kills if not kill.right or kill.margin < 9] == []
    assert {kill.site for kill in kills} == {"analysis", "synthesis", "analysis and synthesis"}


@pytest.mark.parametrize(("mode", "bound"), [("symmetric", "wavelet"), ("smooth", "wavelet_extrapolated")])
def test_a_loosened_wavelet_bound_lets_faults_live(mode: str, bound: str) -> None:
    transform = replace(WaveletTransform(24), mode=mode)
    for held, right in ((None, True), ({bound: 100.0}, False)):
        kills = run_wavelet_faults([transform], [FILTERS_REVERSED], held)
        assert [kill.right for kill in kills] == [right]


@pytest.mark.full
def test_quick_has_a_fault_for_every_bound_and_kills_it() -> None:
    """The known faults that `make pairs`, a part of `make test`, tries under its policy."""
    kills = run_quick()
    assert len(kills) >= 12
    assert [kill for kill in kills if not kill.right] == []
    assert {kill.gate for kill in kills if not kill.equivalent} == {"0", "A", "A'", "B", "E", "F"}
    assert "target mixed up" in {kill.mutant for kill in kills}


def test_known_faults_are_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the bounds are looser, the code changes, or not all of them were found."""
    tried: list[object] = []
    right = Kill("small", "epsilon 1e-6", "a/norm", "A", "A", ("a/norm",), True, 5.0)
    outcomes = [right]

    def run(bounds: object = None) -> tuple[Kill, ...]:
        tried.append(bounds)
        return tuple(outcomes)

    class Here:
        """In place of the separate process."""

        def __init__(self, role: str, arguments: dict[str, Any]) -> None:
            assert role == "known faults"
            self.arguments = arguments

        def __enter__(self) -> Here:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def begin(self) -> None:
            self.gate = canary_gate(self.arguments["loose"], self.arguments["source"])

        def result(self, _: object) -> Message:
            return Message({"gate": json.loads(json.dumps(to_json(self.gate)))})

    def asked(policy: Policy | None = None) -> Gate:
        with KnownFaults().tried(policy) as gate:
            return gate(lambda _: None)

    monkeypatch.setenv("WDPORT_COMPILE_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr("wdport.parity.selftest.run.run_quick", run)
    monkeypatch.setattr("wdport.parity.selftest.known_faults.Worker", Here)
    (tmp_path / "kept").mkdir(mode=0o700)
    first, second = asked(), asked()
    assert first.passed
    assert second.passed
    assert [finding.detail.partition(":")[0] for finding in second.findings] == ["not tried again"]
    assert (first.compared, second.compared, tried) == (1, 1, [None])
    (kept,) = (tmp_path / "kept").iterdir()
    for text in ("", "[]", '{"count": 0, "seconds": 1, "day": "2026-01-01"}', kept.read_text()[:-9]):
        kept.write_text(text)
        assert asked().findings == ()
    policy = tmp_path / "parity.toml"
    policy.write_text('[bounds]\nnumerics = { value = 9.0, reason = "a test", expires = 2999-01-01 }\n')
    outcomes[:] = [replace(right, gate="")]
    for _ in range(2):
        gate = asked(read_policy(policy, date(2026, 1, 1)))
        assert [finding.detail for finding in gate.findings] == [
            "epsilon 1e-6 (small) is not found", f"the bounds of {policy} are too loose: tighten numerics"
        ]  # fmt: skip
    assert len(tried) == 7
    monkeypatch.setenv("WDPORT_COMPILE_CACHE", "off")
    asked()
    assert len(tried) == 8
