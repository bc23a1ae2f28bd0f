"""Our PyTorch code against the library's own class, in true float64: equal names, equal outputs; its two attentions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.families.masked_lm.make import VARIANTS, Fields, config_of, fields_of, random_fields, tensors_of
from wdport.compare.measure import float32_share, relative_l2
from wdport.families.masked_lm import reference
from wdport.families.masked_lm.battery import signature
from wdport.families.masked_lm.config import Config
from wdport.recorder import lifted, module_names, run

pytest.importorskip("transformers", exc_type=ImportError)


def both(fields: Fields, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
    config, tensors = config_of(fields), tensors_of(fields, seed)
    theirs = reference.build_reference(config, tensors, "float64")
    assert type(theirs).__name__ == "EuroBertForMaskedLM"
    assert theirs.config._attn_implementation == "eager"
    monkeypatch.setattr(reference, "library_class", lambda: None)
    ours = reference.build_reference(config, tensors, "float64")
    assert module_names(ours) == module_names(theirs)
    assert set(dict(ours.named_parameters())) == set(dict(theirs.named_parameters()))
    inputs = signature(config).make(seed, 3, 1.0)
    with lifted():
        made, right = run(ours, inputs)[0], run(theirs, inputs)[0]
    assert made.shape == right.shape
    assert relative_l2(made, right) < 1e-12
    assert float32_share(right) < 0.01
    assert np.std(right) > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both(fields_of(name), monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_configurations_equal_the_library(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both(random_fields(seed), monkeypatch, seed)


@pytest.mark.parametrize("name", ["as published", "wide heads, one key"])
def test_both_attentions_of_the_library_agree(name: str) -> None:
    """The same values wherever a token is visible, in float64 to its rounding."""
    config, tensors = config_of(fields_of(name)), tensors_of(fields_of(name))
    inputs = signature(config).make(0, 3, 1.0)
    made = {}
    for attention in ("eager", "sdpa"):
        model = reference.build_reference(config, tensors, "float64", attention=attention)
        assert model.config._attn_implementation == attention
        with lifted():
            made[attention] = run(model, inputs)[0]
    assert relative_l2(made["sdpa"], made["eager"]) < 1e-12


def test_a_tied_head_is_the_embeddings_parameter() -> None:
    config = config_of(fields_of("tied"))
    model = reference.build_reference(config, tensors_of(fields_of("tied")), "float32")
    assert model.get_submodule("lm_head").weight is model.get_submodule("model.embed_tokens").weight
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_who_the_reference_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reference.reference_of(Config()).startswith("EuroBertForMaskedLM of transformers ")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    assert "wdport's own" in reference.reference_of(Config())


def test_the_library_computes_what_its_own_arguments_say() -> None:
    """Synonyms of an activation, and old spellings, are the library's as well."""
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    fields = {**fields_of("old spelling, bias of the head"), "hidden_act": "swish"}
    config, tensors = config_of(fields), tensors_of(fields)
    own = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**fields)).eval()
    own.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    inputs = signature(config).make(0, 3, 1.0)
    right = run(own, inputs)[0]
    assert relative_l2(run(reference.build_reference(config, tensors, "float32"), inputs)[0], right) < 1e-6
