"""The public configuration file and single settings: what is read from them and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wdport.errors import MisfitError, UsageError
from wdport.families.waveletdiff.settings import parse_setting, read_settings
from wdport.mapping.strict_yaml import load_yaml

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
