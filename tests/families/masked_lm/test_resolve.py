"""What of a folder is read, and what goes back to it; whole folders, verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import wdport
from tests.command import Cli, Refused
from tests.families.masked_lm.make import SMALL, Fields, save, tensors_of
from tests.families.quick import network_verdict
from wdport.conversion.prepare import Settings, prepare
from wdport.errors import MisfitError
from wdport.families.masked_lm.config import Config
from wdport.families.masked_lm.family import FAMILY
from wdport.parity.planned_items import expected
from wdport.parity.verify_request import Pair


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
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
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
    if (transformers := pytest.importorskip("transformers", exc_type=ImportError)) is not None:
        own = transformers.EuroBertConfig(**{**SMALL, **told})
        assert own.rope_parameters["rope_theta"] == theta


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
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
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
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
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
