"""The Keras layers: equal to PyWavelets on both backends, float32 under any policy, serialisable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import pywt

from wdport.wavelets import WaveletDecomposition, WaveletReconstruction

ROOT = Path(__file__).parents[2]
SCRIPT = "import sys; from tests.wavelets.test_layers import require_pywts; require_pywts(sys.argv[1])"


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def require_pywts(backend: str) -> None:
    assert keras.backend.backend() == backend
    x = draw(3, 24, 2)
    truth = np.concatenate(pywt.wavedec(x.astype(np.float64), "db2", level=3, axis=1), axis=1)
    coefficients = WaveletDecomposition(24)(x)
    back = WaveletReconstruction(24)(coefficients)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(coefficients), truth, atol=2e-6)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(back), x, atol=2e-6)


def test_equal_to_pywt() -> None:
    require_pywts("jax")


def test_equal_to_pywt_on_the_other_backend() -> None:
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    subprocess.run([sys.executable, "-c", SCRIPT, "torch"], check=True, env=environment, cwd=ROOT)


def test_float32_under_a_mixed_policy() -> None:
    layer = WaveletDecomposition(24, dtype="mixed_bfloat16")
    assert layer.compute_dtype == "float32"
    assert keras.backend.standardize_dtype(layer(draw(1, 24, 1)).dtype) == "float32"


def test_saved_and_loaded(tmp_path: Path) -> None:
    inputs = keras.Input((24, 2))
    outputs = WaveletReconstruction(24, "db4", "reflect", 2)(WaveletDecomposition(24, "db4", "reflect", 2)(inputs))
    model = keras.Model(inputs, outputs)
    assert outputs.shape == (None, 24, 2)
    model.save(tmp_path / "a.keras")
    again = keras.saving.load_model(tmp_path / "a.keras")
    x = draw(2, 24, 2)
    np.testing.assert_array_equal(again(x), model(x))
    np.testing.assert_allclose(again(x), x, atol=2e-6)


def test_wrong_length_names_the_layer() -> None:
    with pytest.raises(ValueError, match=r"was given shape \(1, 23, 1\); give \(..., 24, F\)"):
        WaveletDecomposition(24)(draw(1, 23, 1))
