"""Error measures by hand, what a tap leaves open, and the gates' names."""

from __future__ import annotations

import re
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

from wdport.base.errors import MisfitError
from wdport.compare.calls import Call, ExpectedCall
from wdport.compare.explained import explained
from wdport.compare.findings import FED, GATES, Finding, label, letter_of
from wdport.compare.gate_bounds import UNIT_ROUNDOFF
from wdport.compare.layer_errors import InPort, floors_of, narrowed, tap_errors
from wdport.compare.measure import ErrorPair, Ranges, float32_share, like, relative_l2, ulps
from wdport.compare.taps import Tap
from wdport.mapping.table import parse_table
from wdport.parity.verdict import TapResult, locate
from wdport.recording.cases import Case
from wdport.recording.conditioning import Conditioning, Spread
from wdport.recording.observation import Observation
from wdport.uses.wavelets.check import WAVELET


def test_relative_l2() -> None:
    assert relative_l2(np.array([3.0, 4.5]), np.array([3.0, 4.0])) == pytest.approx(0.1)
    assert relative_l2(np.zeros(3), np.zeros(3)) == 0.0
    assert relative_l2(np.ones(3), np.zeros(3)) == inf


@pytest.mark.parametrize("bad", [nan, inf])
def test_nan_and_infinity_are_infinitely_wrong(bad: float) -> None:
    assert relative_l2(np.array([1.0, bad]), np.ones(2)) == inf
    assert relative_l2(np.array([1.0, bad]), np.array([1.0, -bad])) == inf
    # Logits of what is not allowed are infinite on both sides.
    assert relative_l2(np.array([1.0, bad]), np.array([1.0, bad])) == (0.0 if bad == inf else inf)
    pair = ErrorPair()
    pair.add(np.array([1.0, bad]), np.ones(2), np.ones(2))
    assert pair.rms_ratio == inf
    assert pair.max_ratio == inf


def test_what_is_undefined_on_all_sides_is_no_error() -> None:
    truth = np.array([1.0, nan])
    pair = ErrorPair()
    pair.add(truth, truth, truth)
    assert pair.ratio == 0.0
    for sides in ((np.ones(2), truth, truth), (truth, np.ones(2), truth), (truth, truth, np.ones(2))):
        pair = ErrorPair()
        pair.add(*sides)
        assert pair.ratio == inf


def test_float32_share() -> None:
    exact = np.random.default_rng(0).standard_normal(1000)
    assert float32_share(exact) < 0.01
    assert float32_share(exact.astype(np.float32).astype(np.float64)) == 1.0
    assert float32_share(np.array([0.0, 1.0, -1.0])) == 0.0
    assert float32_share(np.rint(100.0 * exact)) == 0.0  # as rounding makes them
    assert float32_share((1e9 * exact).astype(np.float32).astype(np.float64)) == 1.0
    bias = np.float64(np.float32([0.1, 0.2]))
    assert float32_share(np.concatenate([exact[:8], *[bias] * 99])) == 0.2


@pytest.mark.parametrize("extremes", [(), ("constant", "", "large")])
def test_the_effect_of_a_rounding_is_measured_as_an_error(extremes: tuple[str, ...]) -> None:
    """By sample in a case with extreme values: a large sample of good conditioning hides no other one."""
    case, rng = Case(0, 3, 1.0, extremes=extremes), np.random.default_rng(0)
    still, noise = rng.standard_normal((2, 3, 5)) * np.array([1e-3, 1.0, 1e6])[:, None]
    moved = still + 1e-9 * noise * np.array([1e6, 1.0, 1e-6])[:, None]
    spread = Spread()
    for part in ("fed", "made", "running"):
        spread.add(part, [moved], [still], len(extremes))
    call = Call((still,), (still,))
    observation = Observation((still,), (still,), {"a": call})
    by_tap, output = explained(Conditioning({"a": spread}, (np.abs(moved - still),)), observation, floors_of(case))
    layer = Tap("a", "a", None)
    error = tap_errors(
        layer, {"a": Call((moved,), (moved,))}, {"a": ExpectedCall({0: still}, 1, (still,))}, floors_of(case)
    )
    assert error is not None
    expected = [8 * each for each in (*error, error[1])]
    assert [by_tap["a"].fed, by_tap["a"].isolated, by_tap["a"].running] == pytest.approx(expected)
    assert output.running == pytest.approx(expected[1])


def test_ratio_counts_rounding_as_the_least_error() -> None:
    truth = np.ones(100)
    pair = ErrorPair()
    pair.add(truth + 4 * UNIT_ROUNDOFF, truth, truth)
    assert pair.rms_ratio == pytest.approx(4.0)
    assert pair.max_ratio == pytest.approx(4.0)
    assert pair.bias == pytest.approx(4 * UNIT_ROUNDOFF)


def test_ratio_against_the_references_own_error() -> None:
    truth = np.ones(2)
    pair = ErrorPair()
    pair.add(np.array([1.0, 1.0 + 6e-6]), np.array([1.0 + 3e-6, 1.0]), truth)
    assert pair.rms_ratio == pytest.approx(2.0)


def test_like_merges_trailing_axes_only() -> None:
    array = np.arange(24.0).reshape(2, 3, 2, 2)
    assert np.array_equal(like(array, np.zeros((2, 3, 4))), array.reshape(2, 3, 4))
    for shape in [(3, 2, 4), (2, 3, 5), (4, 6)]:
        with pytest.raises(ValueError, match="shape"):
            like(array.reshape(2, 3, 4), np.zeros(shape))


def test_ulps() -> None:
    assert ulps(np.float32([1.0]), np.array([1.0 + 2**-24])) == pytest.approx(0.5)
    assert ulps(np.nextafter(np.float32([1.0]), np.float32(2.0)), np.array([1.0])) == pytest.approx(1.0)
    assert ulps(np.zeros(3), np.zeros(2)) == inf, "a table of another shape"


def test_constant() -> None:
    ranges = Ranges()
    ranges.add("one number", [np.full(4, 0.3)])
    ranges.add("two numbers", [np.array([0.3, 0.4])])
    ranges.add("ones", [np.ones((2, 1, 1))])
    ranges.add("the second output", [np.array([0.3, 0.4]), np.zeros(2)])
    for value in (0.3, 0.5):
        ranges.add("another number in another case", [np.full(4, value)])
    ranges.add("one value", [np.zeros(1)])
    assert ranges.constant == ["one number", "the second output"]


def test_integers_have_no_precision_to_lose() -> None:
    assert float32_share(np.array([3, -100, 7])) == 0.0


TABLE = Path("tests/mapping/format1/waveletdiff.yaml").read_bytes()


def test_a_shift_of_all_tokens_is_left_open() -> None:
    keys = np.random.default_rng(0).standard_normal((2, 5, 4))
    bias = np.random.default_rng(1).standard_normal(4)
    reference = {"attn.key": Call((keys,), (keys,))}

    def errors_of(tap: Tap, port: dict[str, Call]) -> tuple[float, float] | None:
        return tap_errors(tap, port, InPort([tap], port)(reference))

    for moved, free in ((keys + bias, True), (keys * (1 + 1e-3), False), (keys[:, ::-1], False)):
        port = {"attention/key": Call((keys,), (moved.reshape(2, 5, 2, 2),))}
        errors = {shift: errors_of(Tap("attn.key", "attention/key", None, shift), port) for shift in (True, False)}
        assert errors[False] is not None
        assert errors[False][1] > 1e-4
        assert errors[True] is not None
        assert (errors[True][1] < 1e-15) is free


def test_only_keys_of_packed_attention_are_compared_so() -> None:
    taps = [tap.torch.text for tap in parse_table(TABLE, "shipped").taps if tap.shift]
    assert [name.rpartition(".")[2] for name in taps] == ["key", "key"]
    normed = parse_table(Path("tests/mapping/format1/waveletdiff-qknorm.yaml").read_bytes(), "shipped")
    assert not any(tap.shift for tap in normed.taps)


def test_another_up_to_is_refused() -> None:
    with pytest.raises(MisfitError, match="up_to is 'scale'"):
        parse_table(TABLE.replace(b"up_to: shift}", b"up_to: scale}"), "changed")


def test_faults_are_located_by_the_bounds_given() -> None:
    tap = TapResult("a", "a", None, isolated=1e-6, rms_ratio=20.0)
    assert [fault.reference for fault in locate([tap])] == ["a"]
    assert len(locate([tap], logic=1e-5)) == 1
    assert locate([tap], logic=1e-5, numerics=32.0) == ()
    fed = TapResult("b", "b", None, inputs=1e-6)
    assert locate([fed], logic=1e-5) == ()
    assert locate([fed])[0].feeds == "b"


def test_a_layer_fed_wrongly_is_the_fault_of_its_caller() -> None:
    """Whatever the paths say: the network may call a layer that belongs to a group."""
    group, fed = TapResult("g", "G", None), TapResult("g.out", "G/out", None, inputs=1e-6)
    assert [(fault.candidate, fault.feeds) for fault in locate([group, fed])] == [("", "g.out")]
    fed.caller = "g"
    assert [(fault.candidate, fault.feeds) for fault in locate([group, fed])] == [("G", "g.out")]


PACKAGE = Path(__file__).parents[2] / "wdport"


def test_letters_and_names_are_unique_and_lead_to_each_other() -> None:
    terms = [*GATES.values(), WAVELET]
    assert len({term.letter for term in terms}) == len({term.name for term in terms}) == len(terms)
    assert all(letter_of(term.name) == letter_of(term.letter) == term.letter for term in GATES.values())
    assert letter_of("logic") is None
    assert (label("B'"), label("F")) == ("bfloat16 (B')", "F")
    assert str(GATES["D"]) == "optimizer (D)"


def test_every_gate_of_the_package_is_made_by_the_table() -> None:
    made = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"(?<!class )\bGate\(", path.read_text())]
    assert sorted(made) == ["findings.py", "port.py"]  # the second is a layer of a network


def test_an_infinite_error_is_not_shown_as_a_number() -> None:
    assert str(Finding("norm", FED, 0.25, 1e-10)) == "norm is off by 2.5e-01 in its inputs"
    assert str(Finding("norm", FED, inf, 1e-10)).startswith("norm is not comparable (shapes or counts differ, ")


def test_results_of_short_inputs_are_no_precision_leak() -> None:
    """0.5 w + b has a digit or two more than w and b, so that float32 holds many such results."""
    rng = np.random.default_rng(0)
    weights, bias = rng.standard_normal((2, 1000)).astype(np.float32).astype(np.float64)
    inputs = np.full((1, 1), 0.5)
    assert float32_share(0.5 * weights + bias) > 0.3
    assert narrowed(Call((inputs,), (inputs * weights + bias,))) == 0.0
    assert narrowed(Call((inputs / 3,), (weights,))) == 1.0
    assert narrowed(Call((inputs * 0.0,), (bias,))) == 0.0
