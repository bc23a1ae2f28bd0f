"""Gate sampling network (E') by default: one sample in float64 shows an epsilon that float32 hides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from tests.make import TWO_LEVELS
from wdport.compare.calls import Case
from wdport.nets.norms import RMSNorm
from wdport.uses.gates.trajectories import SamplingNetwork
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.layers import Standardize

CASE = Case(seed=1, batch=1, scale=1.0)


@pytest.fixture
def fresh_programs() -> Any:
    """No program that was traced before an edit, or with it."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize(
    ("config", "layer"),
    [(TWO_LEVELS, None), (TWO_LEVELS, Standardize), (replace(TWO_LEVELS, qk_norm=True), RMSNorm)],
)
def test_an_epsilon_is_found(
    config: Config, layer: type[Standardize] | None, fresh_programs: Callable[[], None]
) -> None:
    inputs = tuple(np.asarray(each) for each in FAMILY.signature(config).make(CASE.seed, CASE.batch, CASE.scale))
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        model = FAMILY.build(config, "float64")
        rng = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(rng.normal(0.1, 0.3, variable.shape))
        truth = np.asarray(jax.jit(model)(inputs))
        for each in model._flatten_layers():
            if layer is not None and isinstance(each, layer):
                each.epsilon = 1e-6
        network = SamplingNetwork(FAMILY, config, {"float64": model}, full=False)
        assert network.dtypes(CASE) == ("float64",)
        network.compare(CASE.describe(), network.predict("float64", inputs), truth)
    network.compare_single(*(truth.astype(np.float32),) * 2, truth)
    gate = network.gate()
    assert gate.compared == gate.expected == 2
    assert gate.passed is (layer is None)
