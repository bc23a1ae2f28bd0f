"""Refusals of converted files and of places to write to that need a file, or a fault of ours, put together here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wdport
from tests.bad.damage import resealed
from tests.bad.ground import ground
from wdport.checkpoint.faults import Fault
from wdport.conversion import load
from wdport.conversion.load import open_converted
from wdport.errors import InputError, InternalError, UsageError, WdportError
from wdport.files import manifest_seal as manifests
from wdport.files import model_files
from wdport.files.model_files import Hashes, read_variables, write_by_keras, write_model
from wdport.files.model_target import Target, choose_target
from wdport.files.outputs import OutputPath, writable

VARIABLES = {"a": (2,), "b": (3,)}
ARRAYS = {"a": np.ones(2, np.float32), "b": np.zeros(3, np.float32)}


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    return Path(shutil.copy(ground() / "good.safetensors", tmp_path))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an entry is missing": (lambda m: m.pop("mapping"), "its manifest is damaged (KeyError: 'mapping')"),
    "a value of another type": (
        lambda m: m["config"]["num_heads"].update(value=[]),
        "is not a model that wdport wrote",
    ),
    "a larger model": (lambda m: m["config"]["embed_dim"].update(value=1 << 12), "too few for the model"),
    "a variable of another shape": (
        lambda m: m["tensors"][-1]["targets"][0].update(shape=[1]),
        "other variables than the model of its configuration",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_manifests(case: str, converted: Path) -> None:
    change, fragment = CHANGES[case]
    open_converted(converted)
    resealed(converted, change)
    with pytest.raises(InputError) as caught:
        open_converted(converted)
    assert fragment in str(caught.value)


def test_a_manifest_that_is_damaged_or_too_long(converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = manifests.sealed({"a": 1}).encode()
    assert manifests.unsealed(text) == {"a": 1}
    for at in range(len(text)):
        with pytest.raises(Fault, match="damaged, was edited"):
            manifests.unsealed(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(InputError, match="has a manifest of more than 0 MB"):
        open_converted(converted)


def test_variables_that_a_model_has_beside_those_of_the_file(converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_converted(converted)
    model = wdport.load_model(converted)
    monkeypatch.setattr(load, "sound_variables", lambda found: list(read_variables(found.path, opened.variables))[1:])
    with pytest.raises(InputError, match="is missing; convert the checkpoint again"):
        load.fill(model, opened)


def test_other_names_than_the_model_has(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    _write(path, "safetensors", ARRAYS)
    assert dict(read_variables(path, VARIABLES)).keys() == {"a", "b"}
    with pytest.raises(InputError, match=r"b: is not a variable of the model"):
        list(read_variables(path, {"a": (2,)}))
    with pytest.raises(InputError, match=r"c: is missing"):
        list(read_variables(path, {**VARIABLES, "c": (1,)}))


def _write(path: Path, form: str, arrays: dict[str, Any], manifest: Any = None) -> None:
    write_model(path, Target(OutputPath(path), form), VARIABLES, arrays.items(), manifest or (lambda _: "{}"), {})


def test_faults_of_ours_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(InternalError, match="not every variable was written"):
        _write(path, "safetensors", {"a": ARRAYS["a"]})

    def longer(hashes: Hashes | None) -> str:
        return "{}" if hashes is None else "x" * 99

    with pytest.raises(InternalError, match="the manifest is longer than its placeholder"):
        _write(path, "safetensors", ARRAYS, longer)
    other = {**ARRAYS, "b": ARRAYS["b"] + 1}
    monkeypatch.setattr(model_files, "read_metadata", lambda _: model_files.ModelMetadata(None, None))
    monkeypatch.setattr("wdport.files.keras_writer.add_manifest", lambda *_: None)
    with pytest.raises(InternalError, match="b: was written with other values"):
        write_by_keras(path, Target(OutputPath(path), "keras"), lambda _: ARRAYS, lambda _: other, lambda _: "{}")


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "a.ckpt"
    checkpoint.write_bytes(b"x")
    (tmp_path / "a.keras.wdport.json").mkdir()
    with pytest.raises(UsageError, match="is not a regular file, and the manifest would go there"):
        choose_target(checkpoint, None, False, {})

    looked = os.stat

    def refused(path: Any, **given: Any) -> os.stat_result:
        if path == tmp_path:
            raise OSError(5, "Input/output error")
        return looked(path, **given)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(WdportError, match=r"its folder cannot be accessed \(Input/output error\)"):
        writable(tmp_path / "new.keras", {}, force=False)
