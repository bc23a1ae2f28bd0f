"""Folders of models as transformers and diffusers save them: one file or shards, and config.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import scan_cache_dir
from safetensors.torch import save_file

from tests.command import Cli
from wdport.base.errors import InputError, WdportError
from wdport.base.limits import MAX_DEPTH
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.model_folder import read_adjacent
from wdport.conversion.convert import convert

from .bad import refuse
from .legacy import saved
from .test_torch_equal import same

BASE = torch.arange(12.0).reshape(3, 4)
STATE = {"a.weight": BASE, "a.tied": BASE, "b.weight": BASE[:, 1].clone(), "b.bias": torch.ones(2, dtype=torch.int64)}
FIRST, SECOND = dict(list(STATE.items())[:2]), dict(list(STATE.items())[2:])
CONFIG = {"model_type": "tiny", "sizes": [1, 2], "nested": {"x": None, "y": 0.5}}


def index_of(folder: Path, name: str, ending: str) -> None:
    places = dict.fromkeys(FIRST, f"{name}-00001-of-00002{ending}")
    places |= dict.fromkeys(SECOND, f"{name}-00002-of-00002{ending}")
    (folder / f"{name}{ending}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def model(folder: Path, kind: str) -> Path:
    """A folder of the kind, with config.json."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if kind == "one":
        save_file({key: value.clone() for key, value in STATE.items()}, folder / "model.safetensors")
    elif kind == "shards":
        save_file({key: value.clone() for key, value in FIRST.items()}, folder / "model-00001-of-00002.safetensors")
        save_file(SECOND, folder / "model-00002-of-00002.safetensors")
        index_of(folder, "model", ".safetensors")
    elif kind == "bin":
        torch.save(STATE, folder / "diffusion_pytorch_model.bin")
        torch.save({"lr": 1}, folder / "training_args.bin")
    else:
        torch.save(FIRST, folder / "pytorch_model-00001-of-00002.bin")
        (folder / "pytorch_model-00002-of-00002.bin").write_bytes(saved(SECOND))
        index_of(folder, "pytorch_model", ".bin")
    return folder


KINDS = {
    "one": ("safetensors", ["model.safetensors"]),
    "shards": ("safetensors-sharded",
               ["model.safetensors.index.json", "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors"]),
    "bin": ("torch-zip", ["diffusion_pytorch_model.bin"]),
    "bin shards": ("torch-sharded",
                   ["pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin",
                    "pytorch_model-00002-of-00002.bin"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder(kind: str, tmp_path: Path) -> None:
    with open_checkpoint(model(tmp_path, kind)) as checkpoint:
        assert checkpoint.format == KINDS[kind][0]
        assert checkpoint.config == CONFIG
        assert checkpoint.path == tmp_path
        assert [path.name for path in checkpoint.files.values()] == [*KINDS[kind][1], "config.json"]
        assert set(checkpoint.tensors) == set(STATE)
        for name, value in STATE.items():
            same(checkpoint.read(name), value)
        assert checkpoint.shared == ((("a.weight", "a.tied"),) if "bin" in kind else ())


def cached(cache: Path, kind: str, part: str) -> Path:
    """A snapshot as ``huggingface_hub`` keeps it: links to the repository's files, with a model in ``part``."""
    repository = cache / "models--group--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(snapshot.name)
    (folder := snapshot / part).mkdir(parents=True)
    for number, file in enumerate(sorted(model(folder, kind).iterdir())):
        file.rename(blob := repository / "blobs" / f"{number:064x}")
        file.symlink_to(os.path.relpath(blob, folder))
    return snapshot


@pytest.mark.parametrize(("kind", "part"), [*((kind, "") for kind in KINDS), ("shards", "unet")])
def test_a_snapshot_in_the_cache_of_the_hub(kind: str, part: str, tmp_path: Path) -> None:
    snapshot = cached(tmp_path, kind, part)
    (repository,) = scan_cache_dir(tmp_path).repos
    assert repository.repo_id == "group/tiny"
    assert {file.file_name for revision in repository.revisions for file in revision.files} >= set(KINDS[kind][1])
    with open_checkpoint(snapshot / part) as checkpoint:
        assert [path.name for path in checkpoint.files.values()] == [*KINDS[kind][1], "config.json"]
        for name, value in STATE.items():
            same(checkpoint.read(name), value)


def test_a_snapshot_has_no_links_out_of_its_repository(tmp_path: Path) -> None:
    snapshot, other = cached(tmp_path / "a", "one", ""), cached(tmp_path / "b", "one", "")
    for place in (other, other.parents[1] / "blobs"):
        (snapshot / "config.json").unlink()
        (snapshot / "config.json").symlink_to(next(place.iterdir()))
        refuse(snapshot, "'config.json' lies outside the folder")
    snapshot.parents[1].rename(tmp_path / "models")
    refuse(tmp_path / "models" / "snapshots" / snapshot.name, "lies outside the folder")


@pytest.mark.parametrize("kind", KINDS)
def test_descriptors_are_closed(kind: str, tmp_path: Path) -> None:
    model(tmp_path, kind)
    before = len(os.listdir("/proc/self/fd"))
    open_checkpoint(tmp_path).close()
    (tmp_path / KINDS[kind][1][-1]).write_bytes(b"")
    with pytest.raises(WdportError):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    refuse(tmp_path, "config.json: the config.json is not valid JSON")
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_config(tmp_path: Path) -> None:
    (model(tmp_path, "one") / "config.json").unlink()
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.config is None
        assert list(checkpoint.files) == ["checkpoint"]


def test_the_choice_among_several(tmp_path: Path) -> None:
    model(tmp_path, "one")
    model(tmp_path, "bin shards")
    save_file(SECOND, tmp_path / "model.fp16.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.files["checkpoint"].name == "model.safetensors"
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    refuse(tmp_path, "several checkpoints: model.fp16.safetensors, other.safetensors; give the path of one")


def broken(folder: Path, kind: str) -> None:
    model(folder, "one")
    config, weights = folder / "config.json", folder / "model.safetensors"
    outside = folder.parent / f"{folder.name}-outside"
    outside.mkdir()
    if kind == "empty":
        config.unlink(), weights.unlink()
    elif kind == "only a config":
        weights.unlink()
    elif kind == "shards without index":
        weights.rename(folder / "model-00001-of-00001.safetensors")
    elif kind == "weights are a link out":
        weights.rename(outside / "x")
        weights.symlink_to(outside / "x")
    elif kind == "config is a link out":
        config.rename(outside / "x")
        config.symlink_to(outside / "x")
    elif kind == "weights are a folder":
        weights.unlink()
        weights.mkdir()
    else:
        config.write_text(BAD_CONFIGS[kind])


BAD_CONFIGS = {
    "a list": "[]",
    "a key twice": '{"a": 1, "a": 2}',
    "NaN": '{"a": NaN}',
    "deep": '{"a": ' + "[" * (MAX_DEPTH + 5) + "]" * (MAX_DEPTH + 5) + "}",
    "very deep": '{"a": ' + "[" * 100_000,
    "digits": '{"a": ' + "1" * 10_000 + "}",
    "infinity": '{"a": 1e400}',
    "many lists": '{"a": [' + "{}," * 300_000 + "{}]}",
}
FOLDERS = {
    "empty": "is a directory without",
    "only a config": "is a directory without",
    "shards without index": "no index; also copy the .index.json",
    "weights are a link out": "'model.safetensors' lies outside the folder",
    "config is a link out": "'config.json' lies outside the folder",
    "weights are a folder": "is a directory",
    "a list": "not a JSON object",
    "a key twice": "duplicate key 'a' in its JSON; correct it, or move it away from the weights",
    "NaN": "not valid JSON",
    "deep": "nested more than",
    "very deep": "not valid JSON",
    "digits": "not valid JSON",
    "infinity": "not valid JSON",
    "many lists": "more than 500000",
}


def test_a_large_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.model_folder.MAX_CONFIG_BYTES", 10)
    refuse(model(tmp_path, "one"), "config.json: has")


def test_a_crowded_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.model_folder._MOST_FILES", 1)
    refuse(model(tmp_path, "one"), "is a directory of 2 files; give the path of a checkpoint file")


def test_a_shard_that_is_no_table_of_tensors(tmp_path: Path) -> None:
    model(tmp_path, "bin shards")
    torch.save(FIRST | {"note": "x"}, tmp_path / "pytorch_model-00001-of-00002.bin")
    refuse(tmp_path, "note: its entry in this shard is not a tensor")
    torch.save({"model": FIRST}, tmp_path / "pytorch_model-00001-of-00002.bin")
    refuse(tmp_path, "model: its entry in this shard is not a tensor")
    torch.save(FIRST | {"c": BASE}, tmp_path / "pytorch_model-00001-of-00002.bin")
    refuse(tmp_path, "c: is in this shard but not in the index")
    (tmp_path / "pytorch_model-00001-of-00002.bin").unlink()
    refuse(tmp_path, "no such file")


def test_inspect_of_a_folder(tmp_path: Path, cli: Cli) -> None:
    model(tmp_path, "bin shards")
    shown = cli("inspect", tmp_path).out
    assert "checkpoint (torch-sharded, bare)" in shown
    assert "config.json  3 entries; model_type tiny" in shown
    found = json.loads(cli("inspect", tmp_path, "--json").out)
    assert found["config_json"] == CONFIG
    assert found["bytes"] == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert set(found["files"]) == {"checkpoint", "shard 1", "shard 2", "config"}


@pytest.mark.parametrize("name", ["config.json", "model-00002-of-00002.safetensors"])
def test_no_output_destroys_an_input(name: str, tmp_path: Path) -> None:
    """What is read of a folder is an input, under whatever name it is given as the output."""
    model(tmp_path, "shards")
    link = tmp_path.parent / f"{tmp_path.name}.safetensors"
    os.link(tmp_path / name, link)
    before = link.read_bytes()
    with pytest.raises(WdportError):
        convert(tmp_path, link, force=True)
    assert link.read_bytes() == before


def test_a_pipeline(tmp_path: Path) -> None:
    """The one component with weights is read; documents are found beside it, or in the component of their name."""
    weights = {"a": torch.ones(2)}
    for part in ("net", "scheduler", "feature_extractor"):
        (tmp_path / part).mkdir()
    save_file(weights, tmp_path / "net" / "diffusion_pytorch_model.safetensors")
    (tmp_path / "net" / "config.json").write_text('{"width": 2}')
    (tmp_path / "scheduler" / "scheduler_config.json").write_text('{"steps": 3}')
    (tmp_path / "model_index.json").write_text("{}")
    for path in (tmp_path, tmp_path / "net", tmp_path / "net" / "diffusion_pytorch_model.safetensors"):
        with open_checkpoint(path) as checkpoint:
            assert list(checkpoint.tensors) == ["a"]
            assert checkpoint.config == (None if path.is_file() else {"width": 2})
        assert read_adjacent(path, "scheduler_config.json") == {"steps": 3}
        assert read_adjacent(path, "other_config.json") == {}
    (tmp_path / "net" / "scheduler_config.json").write_text('{"steps": 4}')
    assert read_adjacent(tmp_path / "net", "scheduler_config.json") == {"steps": 4}
    (tmp_path / "net" / "scheduler_config.json").write_text("[]")
    with pytest.raises(InputError):
        read_adjacent(tmp_path / "net", "scheduler_config.json")
    save_file(weights, tmp_path / "feature_extractor" / "model.safetensors")
    refuse(tmp_path, "is a pipeline with weights in feature_extractor, net; give the path of one of its folders")
    for part in ("net", "feature_extractor"):
        (tmp_path / part).rename(tmp_path.parent / f"{tmp_path.name}-{part}")
    refuse(tmp_path, "is a pipeline without weights")
    (tmp_path / "net").symlink_to(tmp_path.parent / f"{tmp_path.name}-net")
    refuse(tmp_path, "lies outside the folder")
