"""Keys that are drawn from in one loop have the values of JAX's own keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wdport.nets.dropout import Dropout
from wdport.nets.random_bits import one_loop

KEY = jax.random.key(7)
SHAPES = [(), (3,), (5, 7), (4, 3, 2, 5), (0, 3), (2, 0)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_bits_are_those_of_jax(shape: tuple[int, ...], width: int) -> None:
    with jax.enable_x64(True):
        for key in (KEY, jax.random.PRNGKey(7)):
            np.testing.assert_array_equal(
                jax.random.bits(one_loop(key), shape, f"uint{width}"), jax.random.bits(KEY, shape, f"uint{width}")
            )


def test_a_key_of_one_loop_splits_and_folds_as_jax_does() -> None:
    key = one_loop(KEY)
    for new, expected in ((jax.random.split(key, 3), jax.random.split(KEY, 3)),
                          (jax.random.fold_in(key, 5), jax.random.fold_in(KEY, 5))):  # fmt: skip
        np.testing.assert_array_equal(jax.random.key_data(new), jax.random.key_data(expected))
    # As a mapped program, with words that are traced.
    drawn = [jax.jit(jax.vmap(lambda one, form=form: jax.random.normal(form(one), (31, 7))))(jax.random.split(KEY, 4))
             for form in (one_loop, lambda one: one)]  # fmt: skip
    np.testing.assert_array_equal(*drawn)


def test_more_values_than_a_counter_of_32_bits_are_drawn_by_jax() -> None:
    def text(rows: int) -> str:
        return str(jax.jit(lambda: jax.random.bits(one_loop(KEY), (rows, 1 << 16))).lower().as_text())

    assert "optimization_barrier" in text((1 << 16) - 1)
    assert "optimization_barrier" not in text(1 << 16)


def test_other_generators_are_left_alone() -> None:
    other = jax.random.key(0, impl="rbg")
    assert one_loop(other) is other
    with jax.threefry_partitionable(False):
        assert one_loop(KEY) is KEY


@pytest.mark.parametrize("noise_shape", [None, (None, 5, 1, 2)])
def test_dropout_has_the_masks_of_keras(noise_shape: tuple[int | None, ...] | None) -> None:
    import keras

    states = np.random.default_rng(0).normal(size=(4, 5, 3, 2)).astype("float32")
    layers = [kind(0.3, noise_shape, seed=11) for kind in (Dropout, keras.layers.Dropout)]
    for _ in range(2):
        ours, theirs = (np.asarray(layer(states, training=True)) for layer in layers)
        np.testing.assert_array_equal(ours, theirs)
        assert 0.1 < np.mean(ours == 0) < 0.5
    assert keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layers[0])).rate == 0.3
    np.testing.assert_array_equal(layers[0](jnp.asarray(states)), states)
