"""Hyper-parameters that a checkpoint holds: one more source of the configuration, and never a reason to refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import wdport
from tests.make import make_state
from wdport.cli.main import main
from wdport.conversion.prepare import Settings, prepare
from wdport.errors import MisfitError
from wdport.families.waveletdiff.settings import read_saved

NESTED = {"model": {"num_heads": 2, "prediction_target": "coefficient"}, "noise": {"schedule": "exponential"},
          "wavelet": {"type": "auto", "levels": "auto"}, "dataset": {"name": "etth1", "seq_len": 24},
          "training": {"anything": [1, 2]}}  # fmt: skip
FLAT = {"num_heads": 2, "prediction_target": "coefficient", "noise_schedule": "exponential", "wavelet_type": "db2",
        "seq_len": 24, "lr": 1e-3, "callbacks": [], "optimizer": {"name": "adam", "betas": (0.9, 0.99)}}  # fmt: skip
READ = {"num_heads": 2, "prediction_target": "coefficient", "noise_schedule": "exponential", "wavelet": "db2",
        "seq_len": 24}  # fmt: skip


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    return make_state()


def saved(tmp_path: Path, state: dict[str, Any], values: Any) -> Path:
    whole = {"epoch": 1, "pytorch-lightning_version": "2.6.6", "state_dict": state, "hyper_parameters": values}
    torch.save(whole, tmp_path / "a.ckpt")
    return tmp_path / "a.ckpt"


@pytest.mark.parametrize("values", [NESTED, FLAT, {"config": NESTED}, {"config": FLAT, "data_module": None}])
def test_both_forms_are_read(values: dict[str, Any]) -> None:
    found = read_saved(values)
    assert {name: value for name, value in found.fields.items() if name != "levels"} == READ
    assert found.notes == []


def test_they_are_one_more_source(tmp_path: Path, state: dict[str, Any]) -> None:
    path = saved(tmp_path, state, NESTED)
    with prepare(path, Settings(strict=False)) as prepared:
        told = {name: prepared.resolved.origins[name] for name in (*READ, "embed_dim", "dropout")}
        assert {name: getattr(prepared.config, name) for name in READ} == READ
    assert told == {**dict.fromkeys(READ, "hyper_parameters"), "embed_dim": "shapes", "dropout": "assumed"}
    with prepare(path, Settings(values={"num_heads": "4"})) as prepared:
        assert (prepared.config.num_heads, prepared.resolved.origins["num_heads"]) == (4, "flag")


def test_a_configuration_that_contradicts_them_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    path, config = saved(tmp_path, state, {"num_heads": 2}), tmp_path / "c.yaml"
    config.write_text("model: {num_heads: 4}")
    with pytest.raises(MisfitError, match="num_heads is 4 in the config but 2 in its hyper_parameters"):
        wdport.convert(path, config=config)
    wdport.convert(path, config=config, values={"num_heads": "4"})  # which verify takes as it is
    with prepare(path, Settings(known={"num_heads": 4})) as prepared:
        assert prepared.config.num_heads == 4


NOT_USED: list[tuple[Any, str]] = [
    (
        {"num_heads": 2, "embed_dim": 64},
        "hyper_parameters are not used: embed_dim is 64 in the hyper_parameters but 16",
    ),
    ({"num_heads": 3}, "hyper_parameters are not used: num_heads 3 does not divide embed_dim 16"),
    ({"num_heads": 2, "wavelet_type": "db8", "seq_len": 24}, "hyper_parameters are not used: seq_len 24 with db8"),
    ({"num_heads": "2"}, "hyper_parameters.num_heads is '2', which is not of type int; not used"),
    ({"num_heads": 2, "model": {"num_heads": 4}}, "hyper_parameters.model.num_heads is 4, but 2 elsewhere in it"),
    ({"num_head": 2}, "hyper_parameters.num_head is not read; num_heads is assumed"),
    ({"model": {"heads": 2}}, "hyper_parameters.model.heads is not read; num_heads is assumed"),
    ({"wavelet": {"type": 5}}, "hyper_parameters: wavelet.type: 5 is not a name; not used"),
    ([1, 2], "hyper_parameters is a list and not read"),
]


@pytest.mark.parametrize(("values", "note"), NOT_USED, ids=lambda value: str(value)[:50])
def test_what_is_not_used_is_said(tmp_path: Path, state: dict[str, Any], values: Any, note: str) -> None:
    with prepare(saved(tmp_path, state, values), Settings()) as prepared:
        assert [each.startswith(note) for each in prepared.resolved.notes] == [True], prepared.resolved.notes
        assert prepared.resolved.origins["num_heads"] == "assumed"


def test_a_near_miss_is_said_only_where_the_value_is_assumed(tmp_path: Path, state: dict[str, Any]) -> None:
    with prepare(saved(tmp_path, state, {"num_head": 4, "num_heads": 2}), Settings()) as prepared:
        assert prepared.resolved.notes == ()


def test_a_group_within_itself_ends(tmp_path: Path) -> None:
    values: dict[str, Any] = {"num_heads": 2}
    values |= {f"config{i}": values for i in range(20)} | {"config": values}
    assert read_saved(values).fields == {"num_heads": 2}


def test_convert_prints_them(tmp_path: Path, state: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(saved(tmp_path, state, {"num_heads": 2, "seq_length": 24}))]) == 0
    shown = capsys.readouterr().out
    assert "num_heads 2 (hyper_parameters)" in shown
    assert "note      hyper_parameters.seq_length is not read; seq_len is assumed" in shown
