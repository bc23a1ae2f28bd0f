"""The library's two attentions agree, and what the reference does beside building the library's class."""

from __future__ import annotations

import pytest
import torch
import transformers

from tests.families.masked_lm.make import config_of, fields_of, tensors_of
from wdport.compare.measure import relative_l2
from wdport.families.masked_lm import reference
from wdport.families.masked_lm.family import signature
from wdport.recorder import lifted, run


@pytest.mark.parametrize("name", ["as published", "wide heads, one key"])
def test_both_attentions_of_the_library_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values wherever a token is visible, in float64 to its rounding."""
    config, tensors = config_of(fields_of(name)), tensors_of(fields_of(name))
    inputs = signature(config).make(0, 3, 1.0)
    made = {}
    for attention in ("eager", "sdpa"):
        monkeypatch.setattr(reference, "ATTENTION", attention)
        model = reference.build_reference(config, tensors, "float64")
        assert model.config._attn_implementation == attention
        with lifted():
            made[attention] = run(model, inputs)[0]
    assert relative_l2(made["sdpa"], made["eager"]) < 1e-12


def test_a_tied_head_is_the_embeddings_parameter() -> None:
    config = config_of(fields_of("tied"))
    model = reference.build_reference(config, tensors_of(fields_of("tied")), "float32")
    assert model.get_submodule("lm_head").weight is model.get_submodule("model.embed_tokens").weight
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_library_computes_what_its_own_arguments_say() -> None:
    """Synonyms of an activation, and old spellings, are the library's as well."""
    fields = {**fields_of("old spelling, bias of the head"), "hidden_act": "swish"}
    config, tensors = config_of(fields), tensors_of(fields)
    own = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**fields)).eval()
    own.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
    inputs = signature(config).make(0, 3, 1.0)
    right = run(own, inputs)[0]
    assert relative_l2(run(reference.build_reference(config, tensors, "float32"), inputs)[0], right) < 1e-6
