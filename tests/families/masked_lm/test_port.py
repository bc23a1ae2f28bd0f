"""The Keras port of EuroBertForMaskedLM: padding, what it offers a sampler, what it rounds; and the library's class."""

from __future__ import annotations

from pathlib import Path

import jax
import keras
import numpy as np
import pytest
import torch
import transformers

import wdport
from tests.families.masked_lm.make import SMALL, config_of, fields_of, save, tensors_of
from tests.families.quick import filled, jitted
from wdport.compare.measure import relative_l2, ulps
from wdport.compare.probe import Probe
from wdport.families.masked_lm import reference
from wdport.families.masked_lm.config import Config
from wdport.families.masked_lm.family import FAMILY, signature
from wdport.nets.attention import rotary_frequencies
from wdport.nets.norms import RMSNorm
from wdport.recorder import run

Arrays = tuple[np.ndarray, ...]


def drawn(config: Config, seed: int = 0) -> Arrays:
    return FAMILY.signature(config).make(seed, 3, 1.0)


def test_padding_on_any_side_and_alone(tmp_path: Path) -> None:
    """As the library's eager attention: a sequence of padding alone reads all of it, and nothing is NaN."""
    fields = fields_of("tied, all biases")
    config, tensors = config_of(fields), tensors_of(fields)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (4, 6))
    mask = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 1, 1]])
    right = run(FAMILY.build_reference(config, tensors, "float32"), (ids, mask))[0]
    file = wdport.convert(save(tmp_path / "model", fields, tensors), tmp_path / "out.safetensors").output
    made, half = (Probe(wdport.load_model(file, dtype), []).whole((ids, mask))[0]
                  for dtype in ("float32", "mixed_bfloat16"))  # fmt: skip
    assert np.isfinite(made).all()
    assert relative_l2(made, right) < 1e-5
    assert relative_l2(made[2], right[2]) < 1e-5
    assert np.isfinite(half.astype(np.float32)).all()


def test_logits_of_chosen_tokens() -> None:
    """What a sampler needs: the features once, and the logits of a block alone, as functions of the weights."""
    config = config_of(fields_of("tied"))
    model, (ids, mask) = filled(FAMILY, config), drawn(config)
    whole = Probe(model, []).whole((ids, mask))[0]
    values = {id(variable): variable.value for variable in model.variables}

    def block(weights: dict, ids: object, mask: object, start: object) -> object:
        held = [(variable, weights[id(variable)]) for variable in model.variables]
        with keras.StatelessScope(state_mapping=held):
            hidden = model.hidden(ids, mask)
            return model.logits(jax.lax.dynamic_slice_in_dim(hidden, start, 4, axis=1))

    made = jitted(block)(values, ids, mask, 5)
    assert relative_l2(np.asarray(made), whole[:, 5:9]) < 1e-6
    doubled = {name: 2 * value for name, value in values.items()}
    assert relative_l2(np.asarray(jitted(block)(doubled, ids, mask, 5)), whole[:, 5:9]) > 0.1


def test_without_a_mask_all_tokens_are_read() -> None:
    config = config_of(SMALL)
    model, (ids, mask) = filled(FAMILY, config), drawn(config)
    hidden = jitted(model.hidden)
    unmasked, whole, masked = (np.asarray(hidden(ids, *more)) for more in ((), (np.ones_like(mask, int),), (mask,)))
    assert relative_l2(unmasked, whole) < 1e-6
    assert relative_l2(unmasked, masked) > 0.01


@pytest.mark.parametrize(("width", "theta"), [(64, 250_000), (128, 500_000.0), (80, 10_000.0), (6, 100.0)])
def test_frequencies_are_rounded_as_in_pytorch(width: int, theta: float) -> None:
    theirs = (1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)).numpy()
    ours = rotary_frequencies(width, theta, "float32")
    assert ours.dtype == np.float32
    assert np.max(np.abs(ours.view(np.int32) - theirs.view(np.int32))) <= 1
    exact = theta ** -(np.arange(0, width, 2) / width)
    assert relative_l2(rotary_frequencies(width, theta), exact) < 1e-15
    assert ulps(ours, exact) <= 16


def test_bfloat16_keeps_positions_apart_and_rounds_as_the_library() -> None:
    config = config_of(SMALL)
    single, half = filled(FAMILY, config), filled(FAMILY, config, "mixed_bfloat16")
    inputs = drawn(config)
    one, other = (Probe(model, []).whole(inputs)[0] for model in (single, half))
    assert other.dtype == "bfloat16"
    assert 1e-4 < relative_l2(other.astype(np.float32), one) < 0.1
    near = [np.asarray(each, np.float32) for each in half.rotary(np.array([[998, 999]]))]
    assert all(relative_l2(each[0, 0], each[0, 1]) > 1e-2 for each in near)


def test_a_norm_is_rounded_before_it_is_scaled() -> None:
    import ml_dtypes

    norm, rng = RMSNorm(1e-5, dtype="bfloat16"), np.random.default_rng(0)
    x, scale = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((5, 64), (64,)))
    norm.build((None, 64))
    norm.scale.assign(scale)
    wide = x.astype(np.float32)
    normal = wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + 1e-5)
    right = normal.astype(ml_dtypes.bfloat16) * scale
    other = (normal * scale.astype(np.float32)).astype(ml_dtypes.bfloat16)
    made = np.asarray(norm(x))
    assert np.mean(made == right) > 0.99 > np.mean(made == other)


def test_a_tied_head_is_the_embeddings_parameter() -> None:
    config = config_of(fields_of("tied"))
    model = reference.build_reference(config, tensors_of(fields_of("tied")), "float32")
    assert model.get_submodule("lm_head").weight is model.get_submodule("model.embed_tokens").weight
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.config._attn_implementation == "eager"


def test_the_library_computes_what_its_own_arguments_say() -> None:
    """Synonyms of an activation, and old spellings, are the library's as well."""
    fields = {**fields_of("old spelling, bias of the head"), "hidden_act": "swish"}
    config, tensors = config_of(fields), tensors_of(fields)
    own = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**fields)).eval()
    own.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    inputs = signature(config).make(0, 3, 1.0)
    right = run(own, inputs)[0]
    assert relative_l2(run(reference.build_reference(config, tensors, "float32"), inputs)[0], right) < 1e-6
