"""Configuration files, single settings and what a checkpoint holds of them: what is read and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import wdport
from tests.command import Cli
from tests.make import make_state
from wdport.base.errors import MisfitError, UsageError
from wdport.conversion.prepare import Settings, prepare
from wdport.mapping.strict_yaml import load_yaml
from wdport.uses.waveletdiff.settings import parse_setting, read_saved, read_settings

PUBLIC: dict[str, dict[str, Any]] = {
    "model": {"embed_dim": 256, "num_heads": 8, "num_layers": 8, "time_embed_dim": 128, "dropout": 0.1,
              "prediction_target": "noise"},
    "attention": {"use_cross_level_attention": True},
    "noise": {"schedule": "exponential"},
    "wavelet": {"type": "auto", "levels": "auto"},
    "dataset": {"name": "etth1", "seq_len": 24},
    "training": {"epochs": 5000, "lr": 1e-3},
}  # fmt: skip


def document(**sections: Any) -> dict[str, Any]:
    """The public form, with fields of some sections replaced; ``None`` leaves a section out."""
    merged = {name: dict(section) for name, section in PUBLIC.items()}
    for name, section in sections.items():
        merged[name] = {**merged.get(name, {}), **section} if isinstance(section, dict) else section
    return {name: section for name, section in merged.items() if section is not None}


def test_the_public_form() -> None:
    assert read_settings(PUBLIC, "c.yaml") == {
        "embed_dim": 256, "num_heads": 8, "num_layers": 8, "time_embed_dim": 128, "dropout": 0.1,
        "prediction_target": "noise", "cross_level_attention": True, "noise_schedule": "exponential",
        "seq_len": 24, "wavelet": "db2", "levels": 3, "boundary_mode": "symmetric",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seq_len", "kind", "levels", "wanted"),
    [
        (24, "auto", "auto", {"wavelet": "db2", "levels": 3}),
        (64, "auto", "auto", {"wavelet": "db4", "levels": 3}),
        (128, "auto", "auto", {"wavelet": "db6", "levels": 3}),
        (1024, "auto", "auto", {"wavelet": "db8", "levels": 6}),
        (100_000, "auto", "auto", {"wavelet": "db8", "levels": 7}),
        (33, "bior2.2", 2, {"wavelet": "bior2.2", "levels": 2}),
        (512, "haar", "auto", {"wavelet": "haar", "levels": 7}),
        (24, "auto", 2, {"wavelet": "db2", "levels": 2}),
        (None, "auto", "auto", {}),
        (None, "db4", 3, {"wavelet": "db4", "levels": 3}),
        (24, None, None, {}),
        (24, None, "auto", {}),
    ],
)
def test_wavelet_and_levels(seq_len: int | None, kind: str | None, levels: Any, wanted: dict[str, Any]) -> None:
    found = read_settings(document(dataset={"seq_len": seq_len}, wavelet={"type": kind, "levels": levels}), "c.yaml")
    assert {name: value for name, value in found.items() if name in ("wavelet", "levels")} == wanted


def test_what_is_absent_or_blank_is_left_out() -> None:
    assert read_settings({"model": {"num_heads": 4}}, "c.yaml") == {"num_heads": 4, "boundary_mode": "symmetric"}
    blank = document(model={"num_heads": None}, noise=None, attention=None, wavelet=None, dataset=None)
    assert read_settings(blank, "c.yaml").keys() == {
        "embed_dim", "num_layers", "time_embed_dim", "dropout", "prediction_target", "boundary_mode",
    }  # fmt: skip
    assert read_settings({**document(), "noise": None}, "c.yaml")["num_heads"] == 8
    assert read_settings(document(model={"dropout": 0}), "c.yaml")["dropout"] == 0


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"model": {"num_heads": "8"}}, "model.num_heads", "'8' is not of type int"),
    ({"model": {"num_heads": True}}, "model.num_heads", "True is not of type int"),
    ({"model": {"dropout": "none"}}, "model.dropout", "'none' is not of type float"),
    ({"model": {"prediction_target": 1}}, "model.prediction_target", "1 is not of type str"),
    (
        {"attention": {"use_cross_level_attention": "yes"}},
        "attention.use_cross_level_attention",
        "'yes' is not of type bool",
    ),
    ({"wavelet": {"levels": 0}}, "wavelet.levels", "0 is not a level count"),
    ({"wavelet": {"levels": "three"}}, "wavelet.levels", "'three' is not a level count"),
    ({"wavelet": {"levels": True}}, "wavelet.levels", "True"),
    ({"wavelet": {"type": "db99"}}, "wavelet.type", "'db99' is not a discrete wavelet"),
    ({"wavelet": {"type": 5, "levels": 3}}, "wavelet.type", "5"),
    ({"model": [1]}, "model", "not a group of settings"),
    ({"wavelet": "auto"}, "wavelet", "not a group of settings"),
]


UNKNOWN: list[tuple[dict[str, Any], str, str]] = [
    ({"model": {"num_head": 4}}, "model.num_head", "did you mean model.num_heads?"),
    ({"model": {"num-heads": 4}}, "model.num-heads", "did you mean model.num_heads?"),
    ({"num_heads": 4}, "num_heads", "move it to its section, as model.num_heads"),
    ({"training": {"num_heads": 4}}, "training.num_heads", "move it to its section, as model.num_heads"),
    ({"training": {"epochz": 4}}, "training.epochz", "did you mean training.epochs?"),
    ({"dataset": {"sequence_length": 24}}, "dataset.sequence_length", "did you mean dataset.seq_len?"),
    ({"noise": {"type": "cosine"}}, "noise.type", "did you mean noise.schedule?"),
    ({"modle": {"num_heads": 4}}, "modle", "did you mean model?"),
    ({"conditioning": {"scale": 4}}, "conditioning.scale", "remove it if the network does not need it"),
    ({"model": {"colour": 4}}, "model.colour", "remove it if the network does not need it"),
]


@pytest.mark.parametrize(("changes", "place", "remedy"), UNKNOWN, ids=lambda value: str(value))
def test_a_name_that_is_not_known_is_refused(changes: dict[str, Any], place: str, remedy: str) -> None:
    """It may be one that is read, wrongly written, and its value would be assumed."""
    with pytest.raises(MisfitError) as caught:
        read_settings(document(**changes), "c.yaml")
    assert str(caught.value) == f"c.yaml: {place}: no such setting; {remedy}"


def test_every_name_that_is_not_known_is_listed() -> None:
    with pytest.raises(MisfitError, match=r"model\.num_head: no such setting, and 1 more like it; did") as caught:
        read_settings(document(model={"num_head": 4}, noise={"shedule": "linear"}), "c.yaml")
    assert [line.partition(":")[0] for line in caught.value.details] == ["model.num_head", "noise.shedule"]


def test_the_recorded_configurations_are_read_whole(golden: Path) -> None:
    files = sorted(golden.glob("*.config.yaml"))
    assert files
    for file in files:
        assert read_settings(load_yaml(file.read_bytes(), file).plain(), file)["num_heads"] in (4, 8)


@pytest.mark.parametrize("other", [{}, {"training": {"lr": 1}}, {"model": {"num_heads": None}}, None, "text", [1]])
def test_a_file_of_something_else_is_refused(other: Any) -> None:
    with pytest.raises(MisfitError, match=r"c\.yaml: holds no setting of a WaveletDiff model"):
        read_settings(other, "c.yaml")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("num_heads", "4", 4),
        ("seq_len", "24", 24),
        ("dropout", "0.25", 0.25),
        ("dropout", "0", 0.0),
        ("prediction_target", "coefficient", "coefficient"),
        ("noise_schedule", "custom", "custom"),
        ("wavelet", "db4", "db4"),
        ("boundary_mode", "periodization", "periodization"),
    ],
)
def test_a_single_setting_is_read(key: str, text: str, value: Any) -> None:
    read = parse_setting(key, text)
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("key", "text", "fragment"),
    [
        ("num_heads", "four", "values['num_heads']: 'four' is not a number"),
        ("num_heads", "4.0", "'4.0' is not a number"),
        ("num_heads", "", "'' is not a number"),
        ("seq_len", "24x", "'24x' is not a number"),
        ("seq_len", "9" * 5000, "is not a number"),
        ("dropout", "a bit", "'a bit' is not a number"),
        ("heads", "4", "unknown name 'heads'; did you mean num_heads?"),
        ("model.num-head", "4", "unknown name 'model.num-head'; did you mean num_heads?"),
        ("colour", "4", "unknown name 'colour'; use one of num_heads, "),
        ("embed_dim", "16", "unknown name 'embed_dim'"),
        ("", "4", "unknown name ''"),
    ],
)
def test_a_bad_single_setting_is_refused(key: str, text: str, fragment: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_setting(key, text)
    assert fragment in str(caught.value)


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


def test_convert_prints_them(tmp_path: Path, state: dict[str, Any], cli: Cli) -> None:
    shown = cli("convert", saved(tmp_path, state, {"num_heads": 2, "seq_length": 24})).out
    assert "num_heads 2 (hyper_parameters)" in shown
    assert "note      hyper_parameters.seq_length is not read; seq_len is assumed" in shown
