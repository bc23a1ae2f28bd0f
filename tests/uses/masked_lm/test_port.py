"""The Keras port of EuroBertForMaskedLM and the library's class; what of a folder is read, and what goes back to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import wdport
from tests.command import Cli, Refused
from tests.families.quick import filled, jitted, network_verdict
from tests.uses.masked_lm.make import SMALL, Fields, config_of, fields_of, save, tensors_of
from wdport.base.errors import MisfitError
from wdport.compare.measure import relative_l2, ulps
from wdport.compare.probe import Probe
from wdport.conversion.prepare import Settings, prepare
from wdport.nets.attention import rotary_frequencies
from wdport.nets.norms import RMSNorm
from wdport.parity.planned_items import expected
from wdport.parity.verify_options import Pair
from wdport.recording.runs import run
from wdport.uses.masked_lm import reference
from wdport.uses.masked_lm.config import Config
from wdport.uses.masked_lm.family import FAMILY, signature

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


@pytest.fixture(scope="module")
def tensors() -> dict:
    return tensors_of(SMALL)


def test_heads_of_a_tied_model(tmp_path: Path, tensors: dict, refused: Refused) -> None:
    """A tied head may be absent, or equal to the embedding; without a tie it must be there."""
    head = "lm_head.weight"
    without = {name: array for name, array in tensors.items() if name != head}
    says = "tie_word_embeddings is false, but the tensors have no lm_head.weight"
    refused("convert", save(tmp_path / "a", SMALL, without), code=4, says=says)
    refused("convert", save(tmp_path / "b", SMALL, tensors, tie_word_embeddings=True), code=4, says=head)
    equal = {**tensors, head: tensors["model.embed_tokens.weight"]}
    files = [
        wdport.convert(
            save(tmp_path / name, SMALL, each, tie_word_embeddings=True), tmp_path / f"{name}.safetensors"
        ).output
        for name, each in (("c", without), ("d", equal))
    ]
    first, second = (Path(each).read_bytes() for each in files)
    assert first[-1000:] == second[-1000:]


def test_defaults_are_the_librarys() -> None:
    theirs = transformers.EuroBertConfig().to_dict()
    ours = Config().to_dict()
    theta = ours.pop("rope_theta")
    assert {name: theirs[name] for name in ours} == ours
    assert theirs["rope_parameters"] == {"rope_theta": theta, "rope_type": "default"}


@pytest.mark.parametrize(
    ("told", "theta"),
    [({}, 10_000.0), ({"rope_theta": 500.0}, 500.0), ({"rope_theta": 500.0, "rope_scaling": None}, 500.0),
     ({"rope_parameters": {"rope_theta": 700, "rope_type": "default"}}, 700), ({"rope_parameters": None}, 10_000.0),
     ({"rope_theta": 500.0, "rope_parameters": {"rope_theta": 700.0}}, 700.0),
     ({"rope_theta": 500.0, "rope_scaling": {"type": "default"}}, 500.0),
     ({"rope_scaling": {"rope_theta": 9.0}, "rope_parameters": {"rope_theta": 700.0}}, 9.0)],
)  # fmt: skip
def test_spellings_of_rotary_positions(told: Fields, theta: float) -> None:
    assert FAMILY.load_config(FAMILY.read_settings({**SMALL, **told}, "config.json")).rope_theta == theta
    assert transformers.EuroBertConfig(**{**SMALL, **told}).rope_parameters["rope_theta"] == theta


def test_a_published_configuration_of_the_remote_code() -> None:
    told = {
        "architectures": ["EuroBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
        "auto_map": {"AutoConfig": "configuration_eurobert.EuroBertConfig"}, "bos_token": "<|begin_of_text|>",
        "bos_token_id": 128000, "eos_token": "<|end_of_text|>", "eos_token_id": 128001, "head_dim": 64,
        "hidden_act": "silu", "hidden_dropout": 0.0, "hidden_size": 768, "initializer_range": 0.02,
        "intermediate_size": 3072, "mask_token": "<|mask|>", "mask_token_id": 128002, "max_position_embeddings": 8192,
        "mlp_bias": False, "model_type": "eurobert", "num_attention_heads": 12, "num_hidden_layers": 12,
        "num_key_value_heads": 12, "pad_token": "<|end_of_text|>", "pad_token_id": 128001, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 250000, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0", "use_cache": False, "vocab_size": 128256,
    }  # fmt: skip
    config = FAMILY.load_config(FAMILY.read_settings(told, "config.json"))
    assert config == Config(num_key_value_heads=12, head_dim=64, rope_theta=250_000)


def test_origins_and_what_a_user_says(tmp_path: Path, tensors: dict) -> None:
    folder = save(tmp_path / "m", SMALL, tensors, attention_dropout=0.1)
    (tmp_path / "more.yaml").write_text("hidden_act: mish\nrope_parameters: {rope_theta: 500}\n")
    settings = Settings(config=tmp_path / "more.yaml", values={"rms_norm_eps": "1e-06", "pad_token_id": "null"})
    with prepare(folder, settings) as prepared:
        origins, config, notes = prepared.resolved.origins, prepared.config, prepared.resolved.notes
    assert (config.hidden_act, config.rope_theta, config.rms_norm_eps, config.pad_token_id) == ("mish", 500, 1e-6, None)
    told = [origins[name] for name in ("rope_theta", "rms_norm_eps", "hidden_size", "head_dim")]
    assert told == ["config", "flag", "config.json", "default"]
    assert [note.split(" ")[0] for note in notes] == ["attention_dropout"]


def test_a_lone_file_needs_its_configuration(tmp_path: Path, tensors: dict) -> None:
    folder = save(tmp_path / "m", SMALL, tensors)
    told = tmp_path / "told.json"
    (folder / "config.json").rename(told)
    file = folder / "model.safetensors"
    with pytest.raises(MisfitError, match=r"there is no config.json with .*config="):
        wdport.convert(file, tmp_path / "out.keras")
    assert wdport.convert(file, tmp_path / "out.keras", config=told).config == Config(**SMALL)
    (folder / "config.json").write_text(json.dumps(SMALL))
    with pytest.raises(MisfitError, match=r"config.json has no model_type"):
        wdport.convert(folder, tmp_path / "more.keras")


def test_a_bert_is_refused(tmp_path: Path, refused: Refused) -> None:
    shapes = {
        "bert.embeddings.word_embeddings.weight": (8, 4),
        "bert.encoder.layer.0.attention.self.query.weight": (4, 4),
    }
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    folder = save(tmp_path / "m", {"model_type": "bert"}, tensors, architectures=["BertForMaskedLM"])
    refused("convert", folder, code=4, says="no mapping table fits its 2 tensors")


TINY: Fields = {**SMALL, "vocab_size": 12, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1}


def library(fields: Fields, seed: int = 0) -> Any:
    """The library's own model, every parameter random."""
    told = transformers.EuroBertConfig(**fields, bos_token_id=None, eos_token_id=None)
    model = transformers.EuroBertForMaskedLM(told).eval()
    state = {name: torch.from_numpy(array) for name, array in tensors_of(fields, seed).items()}
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert missing == (["lm_head.weight"] if fields.get("tie_word_embeddings") else [])
    return model


def test_a_folder_verifies_without_a_flag(tmp_path: Path, cli: Cli) -> None:
    folder, file = save(tmp_path / "m", {**TINY, "tie_word_embeddings": True}), tmp_path / "m.keras"
    cli("convert", folder)
    said = " ".join(cli("verify", folder, file, "--html", tmp_path / "report.html").out.split())
    assert "PASS" in said
    assert "padding_idx" not in said  # the port's embedding has one, too
    assert "gates that masked_lm does not have: constants (A'), trajectories (E), sampling network" in said
    page = (tmp_path / "report.html").read_text()
    assert "model.layers.0.self_attn" in page
    assert "lm_head" in page
    for each in (folder, file):
        assert "masked_lm" in cli("inspect", each).out


@pytest.mark.parametrize(("tied", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_what_the_library_saves_goes_both_ways(tied: bool, dtype: torch.dtype, tmp_path: Path, cli: Cli) -> None:
    """In shards; back again bit for bit, and the library loads it."""
    model = library({**SMALL, "tie_word_embeddings": tied}, 1).to(dtype)
    model.save_pretrained(tmp_path / "m", max_shard_size="3KB")
    assert len(list((tmp_path / "m").glob("*.safetensors"))) > 2
    file = wdport.convert(tmp_path / "m", tmp_path / "m.keras").output
    stored = {name: each for part in (tmp_path / "m").glob("*.safetensors") for name, each in load_file(part).items()}
    assert ("lm_head.weight" in stored) is not tied
    assert "lm_head" in expected(Pair(file, tmp_path / "m")).layers  # as the pytest plugin names its tests
    back = tmp_path / "back.safetensors"
    for words in ((), ("--like", tmp_path / "m", "--force")):
        cli("export", file, "--to", "torch", "-o", back, *words)
        found = load_file(back)
        assert set(found) == set(stored)
        assert all(found[name].dtype == dtype and torch.equal(found[name], each) for name, each in stored.items())
    other = transformers.EuroBertForMaskedLM(model.config)
    other.load_state_dict(
        {**found, **({"lm_head.weight": found["model.embed_tokens.weight"]} if tied else {})}, strict=True
    )
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "config.json").write_text((tmp_path / "m" / "config.json").read_text())
    save_file(found, tmp_path / "again" / "model.safetensors", {"format": "pt"})
    again = transformers.EuroBertForMaskedLM.from_pretrained(tmp_path / "again", dtype=dtype)
    ids = torch.arange(10)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


def test_a_tied_head_in_the_file_comes_back(tmp_path: Path, cli: Cli) -> None:
    fields = {**TINY, "tie_word_embeddings": True}
    tensors = tensors_of(fields)
    folder = save(tmp_path / "m", fields, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]})
    file = wdport.convert(folder, tmp_path / "m.keras").output
    cli("export", file, "--to", "torch", "-o", tmp_path / "back.safetensors")
    found = load_file(tmp_path / "back.safetensors")
    assert torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])


def test_another_configuration_in_the_converted_file_is_found(tmp_path: Path) -> None:
    """Both sides would be built of it, and so would agree: gate 0 holds it to the folder's config.json."""
    folder, tensors = save(tmp_path / "m", TINY), tensors_of(TINY)
    other = save(tmp_path / "other", {**TINY, "rope_parameters": {"rope_theta": 77.0}}, tensors)
    file = wdport.convert(other, tmp_path / "out.keras").output
    said = [str(finding) for finding in network_verdict(folder, file).gates[0].findings]
    assert any("rope_theta is 77.0 in the converted file, which nothing states: 10000.0 is the" in t for t in said)
