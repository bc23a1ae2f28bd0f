"""Refusals of converted files and of places to write to that need a file, or a fault of ours, put together here."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
from safetensors.numpy import save_file

import wdport
from tests.bad.damage import resealed
from tests.bad.ground import ground
from tests.make import SETTINGS, make_state, save
from wdport.base.errors import InputError, InternalError, MachineError, UsageError, WdportError
from wdport.checkpoint.faults import Fault
from wdport.conversion import load
from wdport.conversion.load import open_converted
from wdport.files import manifest_seal as manifests
from wdport.files import model_files, npz_file
from wdport.files.atomic import whole_folder
from wdport.files.inputs import InputFiles
from wdport.files.model_files import read_variables, write_by_keras, write_model
from wdport.files.model_target import Target, choose_target
from wdport.files.orbax_folder import read_orbax
from wdport.files.outputs import OutputPath, writable
from wdport.files.safetensors_writer import PlannedTensor, SafetensorsWriter

VARIABLES = {"a": (2,), "b": (3,)}
ARRAYS = {"a": np.ones(2, np.float32), "b": np.zeros(3, np.float32)}


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    return Path(shutil.copy(ground() / "good.safetensors", tmp_path))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an entry is missing": (lambda m: m.pop("mapping"), "its manifest is damaged (KeyError: 'mapping')"),
    "a value of another type": (lambda m: m["config"]["num_heads"].update(value=[]),
                                "is not a model that wdport wrote"),
    "a larger model": (lambda m: m["config"]["embed_dim"].update(value=1 << 12), "too few for the model"),
    "a variable of another shape": (lambda m: m["tensors"][-1]["targets"][0].update(shape=[1]),
                                    "other variables than the model of its configuration"),
}  # fmt: skip


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
    save_file(ARRAYS, path)
    assert dict(read_variables(path, VARIABLES)).keys() == {"a", "b"}
    with pytest.raises(InputError, match=r"b: is not a variable of the model"):
        list(read_variables(path, {"a": (2,)}))
    with pytest.raises(InputError, match=r"c: is missing"):
        list(read_variables(path, {**VARIABLES, "c": (1,)}))


def test_faults_of_ours_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, variables, arrays = tmp_path / "a.weights.h5", {"x/a": (2,), "x/b": (3,)}, [("x/a", ARRAYS["a"])]
    with pytest.raises(InternalError, match="not every variable was written"):
        write_model(path, Target(OutputPath(path), "weights.h5"), variables, arrays, lambda _: "{}", {})
    with (
        closing(SafetensorsWriter(tmp_path / "a.safetensors", VARIABLES, "{}")) as writer,
        pytest.raises(InternalError, match="the manifest is longer than its placeholder"),
    ):
        writer.finish("x" * 99)
    other = {**ARRAYS, "b": ARRAYS["b"] + 1}
    monkeypatch.setattr(model_files, "read_metadata", lambda _: model_files.ModelMetadata(None, None))
    monkeypatch.setattr("wdport.files.keras_file.add_manifest", lambda *_: None)
    with pytest.raises(InternalError, match="b: was written with other values"):
        write_by_keras(path, Target(OutputPath(path), "keras"), lambda _: ARRAYS, lambda _: other, lambda _: "{}")


LAYER = "level_0/input_proj"


@pytest.mark.parametrize(("source", "said"), [
    (None, f"{LAYER}/bias: is missing; convert the checkpoint again"),
    (f"{LAYER}/kernel.npy", f"{LAYER}/bias: is not a float32 array of shape (32,); convert the checkpoint again"),
])  # fmt: skip
def test_archives_of_arrays(source: str | None, said: str, tmp_path: Path) -> None:
    path = wdport.convert(save(tmp_path / "a.ckpt", make_state()), tmp_path / "a.npz", values=SETTINGS).output
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members.pop(f"{LAYER}/bias.npy")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, **({f"{LAYER}/bias.npy": members[source]} if source else {})}.items():
            archive.writestr(name, data)
    with pytest.raises(InputError) as caught:
        wdport.load_model(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(("name", "module"), [("a/", model_files), ("a.npz", npz_file)])
def test_a_manifest_that_is_too_long(name: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.ckpt", make_state())
    path = wdport.convert(tmp_path / "a.ckpt", f"{tmp_path}/{name}", values=SETTINGS).output
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(InputError, match="has a manifest of more than 0 MB; convert the checkpoint again"):
        open_converted(path)


def test_orbax_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Orbax, which need not be installed, may return or raise."""
    library, entries = MagicMock(), [PlannedTensor("a/b", "float32", (2,))]
    restore = library.PyTreeCheckpointer.return_value.__enter__.return_value.restore
    monkeypatch.setitem(sys.modules, "orbax", SimpleNamespace(checkpoint=library))
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", library)
    restore.side_effect = [{"a": {"b": ARRAYS["a"]}}, {"a": {}}, {"a": ARRAYS["a"]}, ValueError, FileNotFoundError]
    assert read_orbax(Path("x"), entries)["a/b"][1] == "float32"
    for said in ("is missing", "is missing", "cannot read it .ValueError", "cannot read it .FileNotFoundError"):
        with pytest.raises(Fault, match=said):
            read_orbax(Path("x"), entries)


def test_a_folder_that_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(text: str) -> None:
        with whole_folder(OutputPath(tmp_path / "out"), lambda _: True) as folder:
            (folder / "a").write_text(text)

    write("old")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace())
    with pytest.raises(MachineError, match=r"out: could not be replaced in one step \(this system cannot exchange"):
        write("new")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(MachineError, match=r"out: could not be written \(No space left on device\); free some space"):
        write("new")
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out" / "a").read_text() == "old"


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "a.ckpt"
    checkpoint.write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^\.: cannot be replaced; give the name of a folder with output="):
        choose_target(InputFiles(checkpoint=checkpoint), Path(), True, folder=True)
    (tmp_path / "a.keras.wdport.json").mkdir()
    with pytest.raises(UsageError, match="is not a regular file, and the manifest would go there"):
        choose_target(InputFiles(checkpoint=checkpoint), None, False)

    looked = os.stat

    def refused(path: Any, **given: Any) -> os.stat_result:
        if path == tmp_path:
            raise OSError(5, "Input/output error")
        return looked(path, **given)

    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(WdportError, match=r"its folder cannot be accessed \(Input/output error\)"):
        writable(tmp_path / "new.keras", {}, force=False)
