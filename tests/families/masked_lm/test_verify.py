"""Folders of the library, converted, verified and taken back from the command line without any flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import wdport
from tests.families.masked_lm.make import SMALL, Fields, fields_of, random_fields, save, tensors_of
from tests.families.quick import network_verdict
from wdport.cli.main import main
from wdport.parity.planned_items import expected
from wdport.parity.verify_request import Pair

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


def test_a_folder_verifies_without_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "m", {**TINY, "tie_word_embeddings": True})
    assert main(["convert", str(folder)]) == 0
    assert main(["verify", str(folder), str(tmp_path / "m.keras"), "--html", str(tmp_path / "report.html")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "PASS" in said
    assert "padding_idx" not in said  # the port's embedding has one, too
    assert "gates that masked_lm does not have: constants (A'), trajectories (E), sampling network" in said
    page = (tmp_path / "report.html").read_text()
    assert "model.layers.0.self_attn" in page
    assert "lm_head" in page
    for each in (folder, tmp_path / "m.keras"):
        assert main(["inspect", str(each)]) == 0
        assert "masked_lm" in capsys.readouterr().out


@pytest.mark.parametrize(("tied", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_what_the_library_saves_goes_both_ways(tied: bool, dtype: torch.dtype, tmp_path: Path) -> None:
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
    for words in ([], ["--like", str(tmp_path / "m"), "--force"]):
        assert main(["export", str(file), "--to", "torch", "-o", str(back), *words]) == 0
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


def test_a_tied_head_in_the_file_comes_back(tmp_path: Path) -> None:
    fields = {**TINY, "tie_word_embeddings": True}
    tensors = tensors_of(fields)
    folder = save(tmp_path / "m", fields, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]})
    file = wdport.convert(folder, tmp_path / "m.keras").output
    assert main(["export", str(file), "--to", "torch", "-o", str(tmp_path / "back.safetensors")]) == 0
    found = load_file(tmp_path / "back.safetensors")
    assert torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])


def test_another_configuration_in_the_converted_file_is_found(tmp_path: Path) -> None:
    """Both sides would be built of it, and so would agree: gate 0 holds it to the folder's config.json."""
    folder, tensors = save(tmp_path / "m", TINY), tensors_of(TINY)
    other = save(tmp_path / "other", {**TINY, "rope_parameters": {"rope_theta": 77.0}}, tensors)
    file = wdport.convert(other, tmp_path / "out.keras").output
    said = [str(finding) for finding in network_verdict(folder, file).gates[0].findings]
    assert any("rope_theta is 77.0 in the converted file, which nothing states: 10000.0 is the" in t for t in said)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_configurations_verify(seed: int, tmp_path: Path) -> None:
    fields = random_fields(seed)
    folder = save(tmp_path / "m", fields, tensors_of(fields, seed))
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output)
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]


@pytest.mark.full
@pytest.mark.parametrize("name", ["tied, all biases", "as published"])
def test_the_full_battery(name: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "m", fields_of(name))
    verdict = wdport.verify(folder, wdport.convert(folder, tmp_path / "m.keras").output, full=True)
    assert [gate.name for gate in verdict.gates] == ["0", "A", "B", "B'", "C", "I"]
    assert verdict, [str(finding) for gate in verdict.gates for finding in gate.findings]
