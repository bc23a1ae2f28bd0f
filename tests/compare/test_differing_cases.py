"""Where a fault shows that does not show everywhere: at another size, in one kind of sample, with other weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import pytest
import torch

from wdport.compare.calls import CASES
from wdport.compare.candidate import Candidate
from wdport.compare.differing_cases import SAMPLES
from wdport.compare.engine import compare
from wdport.compare.reference import Live
from wdport.compare.results import locate
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Table, TapRow
from wdport.models.interface import Signature
from wdport.recording.cases import EXTREMES, HIDDEN, UNUSUAL
from wdport.recording.input_text import parse_input

FAULTS: dict[str, tuple[Any, str]] = {
    "always": (lambda x: x + 1e-3, ""),
    "long inputs": (lambda x: x + (1e-3 if (x.shape[1] or 0) > 12 else 0.0), "only with t = 20"),
    "zeros": (lambda x: x + 1e-3 * jnp.all(x == 0, 1, keepdims=True), "only in samples of zeros"),
    "far from 0": (lambda x: x + 1e-3 * (jnp.mean(x, 1, keepdims=True) > 100), "only in samples of values far from 0"),
    "large values": (
        lambda x: x + 1e-2 * (jnp.abs(x) > 20),
        "only with values 50 times as large, in samples of large values and in samples of values far from 0",
    ),
}


WITHOUT_BATCH = ("always", "long inputs", "zeros", "large values")
"""Faults that show in the same kinds of values if all of them are one sample."""


@pytest.mark.parametrize(("name", "stated"), [
    *((name, "x: b t=8..20") for name in FAULTS), *((name, "x: n=6 t=8..20") for name in WITHOUT_BATCH),
])  # fmt: skip
def test_a_fault_says_with_which_inputs_it_shows(name: str, stated: str) -> None:
    function, only = FAULTS[name]
    models: dict[str, Any] = {}
    for dtype in ("float64", "float32"):
        with jax.enable_x64(dtype == "float64"):
            x = keras.Input((None,), dtype=dtype)
            models[dtype] = keras.Model(
                x, keras.layers.Lambda(function, lambda shape: shape, name="layer", dtype=dtype)(x)
            )
    row = NamePattern("layer")
    candidate = Candidate(models, Table("mean", "", "", "", None, (), (TapRow(0, row, row),)),
                          Signature((parse_input(stated),)))  # fmt: skip
    module = torch.nn.Sequential()
    module.add_module("layer", torch.nn.Identity())
    live = Live({"float64": module.eval(), "float32": module}, drawn=candidate.signature.inputs)
    comparison = compare(live, candidate, CASES)
    faults = locate(comparison.taps.values())
    assert [(fault.reference, fault.only) for fault in faults][:1] == [("layer", only)]


def test_every_kind_of_sample_has_words() -> None:
    assert set(SAMPLES) == {*EXTREMES, *UNUSUAL, HIDDEN}
