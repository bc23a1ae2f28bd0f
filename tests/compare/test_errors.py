"""What a tap leaves open, and what a loosened bound does to the faults that are located."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wdport.compare.calls import Call
from wdport.compare.layer_errors import InPort, tap_errors
from wdport.compare.taps import Tap
from wdport.errors import MisfitError
from wdport.mapping.table import parse_table
from wdport.parity.verdict import TapResult, locate

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
