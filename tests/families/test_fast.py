"""The fast network against the Keras model it is made from."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from tests.families.quick import jitted
from tests.make import NO_CROSS, QK_NORM, SMALL, inputs
from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.fast import Denoiser
from wdport.families.waveletdiff.port import WaveletDiff
from wdport.families.waveletdiff.variables import variables as variable_shapes

CONFIGS = pytest.mark.parametrize(
    "config", [Config(**{**each.to_dict(), "level_lengths": (8, 8, 13)}) for each in (SMALL, QK_NORM, NO_CROSS)],
    ids=["official", "qk norm", "no cross-level"],
)  # fmt: skip


@CONFIGS
def test_the_same_function(config: Any) -> None:
    with jax.enable_x64(True):
        model = WaveletDiff(config, dtype="float64")
        rng = np.random.default_rng(0)
        for variable in model.trainable_variables:
            variable.assign(rng.normal(0.1, 0.3, variable.shape))
        states, times = inputs(config, batch=4)
        denoiser = model.denoiser()
        weights = jitted(denoiser.arrange)({v.path: v.value for v in model.trainable_variables})
        made = jitted(denoiser.embed)(weights, np.asarray(times))
        predict = jitted(denoiser.predict)
        plain = jitted(lambda states, times: model((states, times), training=False))
        for step, time in enumerate(times):
            embedded = jax.tree.map(lambda leaf, step=step: leaf[step], made)
            ours = np.asarray(predict(weights, states, embedded))
            theirs = np.asarray(plain(states, np.full(4, time)))
            assert np.linalg.norm(ours - theirs) <= 1e-12 * np.linalg.norm(theirs)


@CONFIGS
@pytest.mark.parametrize(("multiple", "by_outputs"), [(24, False), (32, True)])
def test_padding_with_zeros_changes_nothing(config: Any, multiple: int, by_outputs: bool) -> None:
    """Widths 32 and 16, hidden ones 128, 64, 16 and 8, heads 16 and 8: 24 divides none of them. Nor does it matter
    how kernels lie: without padding they lie by outputs."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        variables = {path: rng.normal(0.1, 0.3, shape) for path, shape in variable_shapes(config).items()}
        state, times = inputs(config)

        def predicted(denoiser: Denoiser, by_outputs: bool = True) -> tuple[Any, Any]:
            weights = jitted(denoiser.arrange, static_argnums=1)(variables, by_outputs)
            embedded = jax.tree.map(lambda leaf: leaf[1], jitted(denoiser.embed)(weights, times))
            return weights, np.asarray(jitted(denoiser.predict)(weights, state, embedded))

        _, wanted = predicted(Denoiser(config, "float64"))
        weights, found = predicted(Denoiser(config, "float64", multiple), by_outputs)
    assert np.linalg.norm(found - wanted) <= 1e-12 * np.linalg.norm(wanted)
    for level in weights["levels"]:
        for block in level["blocks"]:
            sizes = [size for kernel, _ in (block["qkv"], block["out"], *block["mlp"]) for size in kernel.array.shape]
            assert all(size % multiple == 0 for size in sizes)
    assert "cross" not in weights or len(weights["cross"][0]["pool"][0][1]) == multiple


def test_few_rows_are_multiplied_by_inputs_and_many_by_outputs() -> None:
    """31 coefficients in 4 groups: 33 samples have 255.75 rows on average, 34 have 263.5."""
    assert [Denoiser(SMALL, "float32").by_outputs(batch) for batch in (1, 33, 34, 64, None)] == [False] * 2 + [True] * 3
    long = Config(**{**SMALL.to_dict(), "level_lengths": (250, 250, 500), "wavelet": None, "seq_len": None})
    assert Denoiser(long, "float32").by_outputs(1)


def test_laid_out_anew_the_weights_are_the_same() -> None:
    rng = np.random.default_rng(0)
    variables = {path: rng.normal(0.0, 0.3, shape).astype(np.float32) for path, shape in variable_shapes(SMALL).items()}
    denoiser = Denoiser(SMALL, "float32")
    arrange = jitted(denoiser.arrange, static_argnums=1)
    both = {lies: arrange(variables, lies) for lies in (False, True)}
    for lies, other in both.items():
        assert_same(denoiser.lay_out(other, not lies), both[not lies])
    assert [both[lies]["levels"][0]["input"].array.shape for lies in (False, True)] == [(3, 32), (32, 3)]


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_sixteen_bits_tell_neighbouring_steps_apart() -> None:
    """The angles of the time embedding are computed in float32; bfloat16 itself holds 8 bits of a step's number."""
    rng = np.random.default_rng(0)
    variables = {path: rng.normal(0.0, 0.3, shape).astype(np.float32) for path, shape in variable_shapes(SMALL).items()}
    times = np.array([998, 999, 1000], np.float32) / np.float32(1000)
    low = {path: jax.numpy.asarray(values, jax.numpy.bfloat16) for path, values in variables.items()}
    exact, rough = (
        jax.tree.leaves(jitted(denoiser.embed)(jitted(denoiser.arrange)(given), times))
        for denoiser, given in ((Denoiser(SMALL, "float32"), variables), (Denoiser(SMALL, "bfloat16"), low))
    )
    for one, other in zip(exact, rough, strict=True):
        error = np.asarray(other, np.float32) - one
        assert np.abs(error).max() <= 0.05 * np.abs(one).max()
