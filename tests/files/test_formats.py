"""Output files: the three formats hold the same arrays, other libraries read them, Keras's own is equal."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import wdport
from tests.bad.ground import ground
from tests.make import QK_NORM, SETTINGS, make_state, save
from wdport.conversion.load import open_converted
from wdport.files.model_files import read_variables

FORMATS = ("keras", "safetensors", "weights.h5")


@pytest.fixture
def outputs() -> dict[str, Path]:
    return {name: ground() / f"good.{name}" for name in FORMATS}


def arrays(path: Path) -> dict[str, np.ndarray]:
    return dict(read_variables(path, open_converted(path).variables))


def test_all_formats_hold_the_same(outputs: dict[str, Path]) -> None:
    first = arrays(outputs["keras"])
    assert len(first) > 100
    for name in FORMATS[1:]:
        other = arrays(outputs[name])
        assert first.keys() == other.keys()
        assert all(np.array_equal(first[key], other[key]) for key in first)


def test_load_model_reads_every_format(outputs: dict[str, Path]) -> None:
    """Their arrays are the same, so that one is loaded whole."""
    model = wdport.load_model(outputs["weights.h5"])
    assert all(open_converted(outputs[name]).config == model.config for name in FORMATS)
    expected = arrays(outputs["keras"])
    assert {v.path for v in model.weights} == set(expected)
    assert all(np.array_equal(v.numpy(), expected[v.path]) for v in model.weights)


def test_plain_keras_loads_the_archive_and_the_weights(outputs: dict[str, Path], tmp_path: Path) -> None:
    model = keras.saving.load_model(outputs["keras"])
    model.save(tmp_path / "theirs.keras")
    same_layout(outputs["keras"], tmp_path / "theirs.keras")
    expected = arrays(outputs["keras"])
    assert all(np.array_equal(v.numpy(), expected[v.path]) for v in model.weights)
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    model.load_weights(outputs["weights.h5"])
    assert all(np.array_equal(v.numpy(), expected[v.path]) for v in model.weights)


def layout(archive: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Datasets and configuration of a `.keras` file."""
    with zipfile.ZipFile(archive) as file, h5py.File(io.BytesIO(file.read("model.weights.h5"))) as weights:
        found: dict[str, np.ndarray] = {}
        weights.visititems(lambda n, o: found.update({n: o[()]}) if isinstance(o, h5py.Dataset) else None)
        return found, json.loads(file.read("config.json"))


def same_layout(ours: Path, theirs: Path) -> None:
    """Same places, same arrays, same configuration."""
    (arrays, config), (other_arrays, other_config) = layout(ours), layout(theirs)
    assert config == other_config
    assert arrays.keys() == other_arrays.keys()
    assert all(np.array_equal(arrays[key], other_arrays[key]) for key in arrays)


def test_our_archive_is_what_keras_writes(tmp_path: Path) -> None:
    """As `model.save` of the loaded model writes it, which is read again."""
    ours, theirs = tmp_path / "ours.keras", tmp_path / "theirs.keras"
    wdport.convert(save(tmp_path / "a.ckpt", make_state(QK_NORM)), ours, values=SETTINGS)
    model = wdport.load_model(ours)
    model.save(theirs)
    same_layout(ours, theirs)
    again = wdport.load_model(theirs)
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), again.get_weights(), strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_same_input_same_bytes(tmp_path: Path, outputs: dict[str, Path], name: str) -> None:
    again = tmp_path / f"again.{name}"
    wdport.convert(ground() / "good.ckpt", again, values=SETTINGS)
    assert again.read_bytes() == outputs[name].read_bytes()


def test_variables_own_their_memory(outputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable must not change when the array that it was filled from does."""
    import wdport.conversion.load as load

    source = {name: array.copy() for name, array in arrays(outputs["keras"]).items()}
    monkeypatch.setattr(load, "read_variables", lambda *_: iter(source.items()))
    model = load.load_model(outputs["keras"])
    before = [v.numpy().copy() for v in model.weights]
    for array in source.values():
        array[...] = 777.0
    assert all(np.array_equal(a, v.numpy()) for a, v in zip(before, model.weights, strict=True))
