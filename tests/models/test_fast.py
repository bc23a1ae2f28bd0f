"""The fast network against the Keras model it is made from."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from tests.make import NO_CROSS, QK_NORM, SMALL, inputs
from wdport.models.waveletdiff.port import WaveletDiff


@pytest.mark.parametrize("config", [SMALL, QK_NORM, NO_CROSS], ids=["official", "qk norm", "no cross-level"])
def test_the_same_function(config: Any) -> None:
    with jax.enable_x64(True):
        model = WaveletDiff(config, dtype="float64")
        rng = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(rng.normal(0.1, 0.3, variable.shape))
        states, times = inputs(config, batch=4)
        denoiser = model.denoiser()
        weights = denoiser.arrange({v.path: v.value for v in model.trainable_variables})
        made = denoiser.conditions(weights, np.asarray(times))
        for step, time in enumerate(times):
            condition = jax.tree.map(lambda leaf, step=step: leaf[step], made)
            ours = np.asarray(denoiser.predict(weights, states, condition))
            theirs = np.asarray(model((states, np.full(4, time)), training=False))
            assert np.linalg.norm(ours - theirs) <= 1e-12 * np.linalg.norm(theirs)
