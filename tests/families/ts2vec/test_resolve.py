"""Configurations: what shapes tell, what contradicts them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import wdport
from tests.families.ts2vec.make import SMALL, save
from wdport.errors import MisfitError, UsageError, WdportError
from wdport.families.ts2vec.config import Config
from wdport.families.ts2vec.family import FAMILY
from wdport.families.ts2vec.reference import random_tensors


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("ts2vec") / "small.pt")


@pytest.mark.parametrize("config", [SMALL, Config(1, 1, 1, 0, 1), Config(7, 3, 9, 4, 5)])
def test_shapes_tell_every_size(config: Config) -> None:
    shapes = {name: array.shape for name, array in random_tensors(config, 0).items()}
    assert FAMILY.sizes(shapes) == config.to_dict()
    assert Config.from_dict(config.to_dict()) == config


def test_one_wrong_tensor_is_reported_by_the_plan(tmp_path: Path) -> None:
    state = torch.load(save(tmp_path / "a.pt"))
    state["module.input_fc.bias"] = torch.zeros(9)
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(MisfitError, match=r"input_fc\.bias has shape \(9,\)"):
        wdport.convert(tmp_path / "a.pt")


BROKEN = {
    "no projector": (lambda s: {n: t for n, t in s.items() if "projector" not in n}, "missing .*projector"),
    "no input": (lambda s: {n: t for n, t in s.items() if "input_fc" not in n}, "input_dims cannot be determined"),
    "a gap": (lambda s: {n: t for n, t in s.items() if ".net.1." not in n}, "unexpected|misfits"),
    "a stranger": (lambda s: {**s, "module.sfd.weight": torch.zeros(2)}, r"unexpected sfd\.weight"),
    "even kernel": (lambda s: {n: t[..., :2] if t.ndim == 3 else t for n, t in s.items()}, "kernel_size 2 is even"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_whole_encoder_is_refused(checkpoint: Path, tmp_path: Path, name: str) -> None:
    change, message = BROKEN[name]
    torch.save(change(torch.load(checkpoint)), tmp_path / "a.pt")
    with pytest.raises(MisfitError, match=message):
        wdport.convert(tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_what_is_given_has_to_agree(checkpoint: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("repr_dims: 6\nbatch_size: 8\n")
    values = {"depth": "2", "hidden_dims": "4"}
    assert wdport.convert(checkpoint, tmp_path / "a.keras", config=config, values=values).output.exists()
    with pytest.raises(MisfitError, match="depth is 10 in the flag but 2 in the file"):
        wdport.convert(checkpoint, tmp_path / "b.keras", values={"depth": "10"})
    config.write_text("repr_dims: 320\n")
    with pytest.raises(MisfitError, match="output_dims is 320 in the config but 6 in the file"):
        wdport.convert(checkpoint, tmp_path / "b.keras", config=config)


@pytest.mark.parametrize(("text", "message"), [("repr_dims: six", "not a whole number"), ("lr: 1", "no setting of")])
def test_a_configuration_file_of_something_else_is_refused(
    checkpoint: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(MisfitError, match=message):
        wdport.convert(checkpoint, tmp_path / "b.keras", config=tmp_path / "config.yaml")


def test_settings_from_the_command_line() -> None:
    assert FAMILY.parse_setting("depth", "3") == 3
    with pytest.raises(UsageError, match="unknown name 'wavelet'"):
        FAMILY.parse_setting("wavelet", "db2")
    with pytest.raises(UsageError, match="not a whole number"):
        FAMILY.parse_setting("depth", "many")


def test_statistics_are_not_kept(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "stats.json").write_text('{"mean": [0, 0], "std": [1, 1]}')
    with pytest.raises(WdportError, match="a ts2vec encoder keeps none"):
        wdport.convert(checkpoint, tmp_path / "b.keras", norm_stats=tmp_path / "stats.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_dims": 60000, "output_dims": 60000, "depth": 14}, "values, at most"),
        ({"wavelet": "db2"}, "unknown configuration values: wavelet"),
    ],
)
def test_impossible_configurations(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config.from_dict({**SMALL.to_dict(), **change})
    with pytest.raises(ValueError, match="missing configuration values: input_dims"):
        Config.from_dict({"hidden_dims": 1, "output_dims": 1, "depth": 1})
