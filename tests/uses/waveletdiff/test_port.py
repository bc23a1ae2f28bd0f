"""The Keras port against our PyTorch reference, whole, in float64; its variables, dtypes and files."""

from __future__ import annotations

from pathlib import Path

import jax
import keras
import numpy as np
import pytest

from tests.families.quick import jitted
from tests.make import NO_CROSS, QK_NORM, SMALL, TINY, inputs, make_module
from wdport.base.errors import UsageError
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.measure import float32_share, relative_l2
from wdport.compare.probe import Probe
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.rearrange import apply_rule
from wdport.mapping.table import choose_table
from wdport.recording.runs import run
from wdport.uses.sampling.network import keras_network
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.port import WaveletDiff

SCALE = Config(**{**QK_NORM.to_dict(), "scale_embedding": True})
ODD = Config((3, 3, 4), 2, 12, 3, 2, 6, prediction_target="coefficient", noise_schedule="cosine")
CONFIGS = {"official": SMALL, "no cross-level": NO_CROSS, "qk norm, scale": SCALE, "odd sizes": ODD}


def call(model: WaveletDiff, values: tuple[np.ndarray, ...]) -> np.ndarray:
    """The output, compiled: eager Keras on JAX compiles every operation by itself, which takes longer."""
    return Probe(model, []).whole(values)[0]


def fill(model: WaveletDiff, config: Config, dtype: str) -> dict[str, np.ndarray]:
    """Give the port the reference's random weights through the table; the reference's tensors."""
    tensors = {name: tensor.numpy() for name, tensor in make_module(config).state_dict().items()}
    constants = {name: constant.shape for name, constant in FAMILY.constants(config).items()}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    table = choose_table(tensors, "test")
    plan = make_plan(table, shapes, FAMILY.variables(config), constants, FAMILY.features(config))
    assert isinstance(plan, Plan), plan
    variables = {variable.path: variable for variable in model.weights}
    for move in plan.moves:
        for name, array in zip(move.targets, apply_rule(move.rule, [tensors[move.source]], move.sizes), strict=True):
            variables[name].assign(np.array(array, dtype))
    return tensors


@pytest.mark.parametrize("name", CONFIGS)
def test_equals_the_reference_in_float64(name: str) -> None:
    config = CONFIGS[name]
    values: tuple[np.ndarray, ...] = inputs(config)
    with jax.enable_x64(True):
        model = WaveletDiff(config, dtype="float64")
        tensors = fill(model, config, "float64")
        ours = call(model, values)
    theirs = run(FAMILY.build_reference(config, tensors, "float64"), values)[0]
    assert relative_l2(ours, theirs) <= LOGIC
    assert float32_share(ours) < 0.01


@pytest.mark.parametrize("factor", [30, 100])
def test_compiled_stays_finite_where_the_reference_does(factor: int) -> None:
    """Logits of 1e9 and more: the softmax must subtract the very numbers whose largest it took."""
    model = WaveletDiff(TINY)
    tensors = fill(model, TINY, "float32")
    trained = [name for name, _ in make_module(TINY).named_parameters()]
    for variable in model.trainable_variables:
        variable.assign(variable.value * np.float32(factor))
    large = {**tensors, **{name: tensors[name] * np.float32(factor) for name in trained}}
    values = tuple(value.astype(np.float32) for value in inputs(TINY))
    theirs = run(FAMILY.build_reference(TINY, large, "float32"), values)[0]
    assert np.isfinite(theirs).all()
    assert relative_l2(call(model, values), theirs) <= 1e-5
    network = keras_network(model)
    same = np.full(4, values[1][2])
    single = run(FAMILY.build_reference(TINY, large, "float32"), (values[0], same))[0]
    assert relative_l2(np.asarray(jitted(network.apply)(network.weights(), values[0], same)), single) <= 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_variables_are_the_listed_ones(name: str) -> None:
    config = CONFIGS[name]
    model = WaveletDiff(config)
    assert {v.path: tuple(v.shape) for v in model.weights} == FAMILY.variables(config)
    assert [v.path for v in model.weights if v.path.startswith("level_0")] == [
        path for path in FAMILY.variables(config) if path.startswith("level_0")
    ]


def test_without_a_scale_the_scale_embedding_does_nothing() -> None:
    config = Config(**{**TINY.to_dict(), "scale_embedding": True})
    model = WaveletDiff(config)
    *given, scale = (value.astype(np.float32) for value in inputs(config))
    values = tuple(given)
    plain = call(model, values)
    assert np.array_equal(plain, call(model, values))
    assert not np.allclose(plain, call(model, (*values, scale)))


def test_bfloat16_policy_keeps_time_and_schedule_wide() -> None:
    single, half = WaveletDiff(TINY), WaveletDiff(TINY, dtype="mixed_bfloat16")
    half.set_weights(single.get_weights())
    values = tuple(value.astype(np.float32) for value in inputs(TINY))
    one, other = call(single, values), call(half, values)
    assert other.dtype == "bfloat16"
    assert 1e-4 < relative_l2(other.astype(np.float32), one) < 0.05
    assert {v.dtype for v in WaveletDiff(TINY, dtype="bfloat16").noise_schedule.weights} == {"float32"}


def test_dropout_only_while_training() -> None:
    model = WaveletDiff(TINY)
    values = tuple(value.astype(np.float32) for value in inputs(TINY))
    weights = [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]

    @jitted
    def both(trainable: list, fixed: list) -> tuple:
        return tuple(model.stateless_call(trainable, fixed, values, training=mode)[0] for mode in (False, True))

    calm, training = both(*weights)
    assert relative_l2(np.asarray(calm), call(model, values)) < 1e-5
    assert relative_l2(np.asarray(training), np.asarray(calm)) > 1e-2


def test_saved_by_keras_and_loaded_again(tmp_path: Path) -> None:
    model = WaveletDiff(QK_NORM)
    model.save(tmp_path / "own.keras")
    again = keras.saving.load_model(tmp_path / "own.keras")
    assert again.config == QK_NORM
    pairs = zip(model.get_weights(), again.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_initial_weights_follow_the_seed() -> None:
    keras.utils.set_random_seed(3)
    first = WaveletDiff(SMALL).get_weights()
    keras.utils.set_random_seed(3)
    assert all(np.array_equal(a, b) for a, b in zip(first, WaveletDiff(SMALL).get_weights(), strict=True))
    keras.utils.set_random_seed(4)
    kernel = WaveletDiff(SMALL).level_1.input_proj.kernel.numpy()
    assert not np.array_equal(
        kernel, first[[v.path for v in WaveletDiff(SMALL).weights].index("level_1/input_proj/kernel")]
    )
    assert np.abs(kernel).max() <= np.sqrt(6 / (3 + 16))


def test_float64_needs_x64() -> None:
    with pytest.raises(UsageError, match="float64 is switched off"):
        WaveletDiff(SMALL, dtype="float64")
