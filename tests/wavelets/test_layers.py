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

SCRIPT = """
import sys, numpy as np, keras, wdport
from wdport.wavelets import WaveletDecomposition, WaveletReconstruction
assert keras.backend.backend() == sys.argv[1]
x = np.random.default_rng(0).standard_normal((3, 24, 2)).astype(np.float32)
c = WaveletDecomposition(24)(x)
np.savez(sys.argv[2], c=keras.ops.convert_to_numpy(c), x=keras.ops.convert_to_numpy(WaveletReconstruction(24)(c)))
"""


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_equal_to_pywt_on_both_backends(backend: str, tmp_path: Path) -> None:
    if backend == "torch":
        pytest.importorskip("torch")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    subprocess.run([sys.executable, "-c", SCRIPT, backend, str(tmp_path / "a.npz")], check=True, env=environment)
    x = draw(3, 24, 2)
    truth = np.concatenate(pywt.wavedec(x.astype(np.float64), "db2", level=3, axis=1), axis=1)
    with np.load(tmp_path / "a.npz") as found:
        np.testing.assert_allclose(found["c"], truth, atol=2e-6)
        np.testing.assert_allclose(found["x"], x, atol=2e-6)


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
