"""Why four of Keras's parts are not used in the port: they compute in float32 inside a float64 model.

If one of these fails because Keras computes in float64 now, the port can use Keras's own part.
"""

from __future__ import annotations

import jax
import keras
import numpy as np
import pytest

from wdport.compare.measure import float32_share, relative_l2
from wdport.models.keras_runtime import exact_float64

X = np.random.default_rng(0).standard_normal((4, 6, 16))


def exact_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("name", ["sin", "cos", "var"])
def test_ops_that_leak(name: str) -> None:
    with jax.enable_x64(True):
        assert float32_share(np.asarray(getattr(keras.ops, name)(X))) == 1.0


def test_layer_normalization_leaks() -> None:
    with jax.enable_x64(True):
        layer = keras.layers.LayerNormalization(epsilon=1e-5, center=False, scale=False, dtype="float64")
        assert relative_l2(np.asarray(layer(X)), exact_norm(X)) > 1e-9


def test_fused_attention_leaks() -> None:
    """The same weights on the path with dropout, which Keras computes step by step."""
    with jax.enable_x64(True):
        fused = keras.layers.MultiHeadAttention(2, 8, dtype="float64")
        plain = keras.layers.MultiHeadAttention(2, 8, dropout=0.5, dtype="float64")
        first = np.asarray(fused(X, X))
        plain.build(X.shape, X.shape)
        plain.set_weights(fused.get_weights())
        second = np.asarray(plain(X, X, training=False))
    assert 1e-9 < relative_l2(first, second) < 1e-5


def test_true_float64_leaves_the_policy_alone() -> None:
    """Keras makes its policy at the first use, which may be inside."""
    from keras.src.backend.common import global_state

    before = global_state.get_global_attribute("dtype_policy")
    global_state.set_global_attribute("dtype_policy", None)
    try:
        with exact_float64():
            keras.config.dtype_policy()
        assert keras.config.dtype_policy().name == "float32"
    finally:
        global_state.set_global_attribute("dtype_policy", before)
