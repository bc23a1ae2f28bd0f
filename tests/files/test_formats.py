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
import safetensors.numpy

import wdport
from tests.make import QK_NORM, SETTINGS, SMALL, make_state, save
from wdport.conversion.load import open_converted
from wdport.files.model_files import read_variables

FORMATS = ("keras", "safetensors", "weights.h5")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("formats") / "small.ckpt", make_state())


@pytest.fixture(scope="module")
def outputs(checkpoint: Path) -> dict[str, Path]:
    made = {name: checkpoint.with_name(f"small.{name}") for name in FORMATS}
    for path in made.values():
        wdport.convert(checkpoint, path, values=SETTINGS)
    return made


def arrays(path: Path) -> dict[str, np.ndarray]:
    return dict(read_variables(path, open_converted(path).variables))


def test_all_formats_hold_the_same(outputs: dict[str, Path]) -> None:
    first = arrays(outputs["keras"])
    assert len(first) > 100
    for name in FORMATS[1:]:
        other = arrays(outputs[name])
        assert first.keys() == other.keys()
        assert all(np.array_equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", FORMATS)
def test_load_model_reads_every_format(outputs: dict[str, Path], name: str) -> None:
    model = wdport.load_model(outputs[name])
    assert open_converted(outputs[name]).config == model.config
    expected = arrays(outputs[name])
    assert {v.path for v in model.weights} == set(expected)
    assert all(np.array_equal(v.numpy(), expected[v.path]) for v in model.weights)


def test_plain_keras_loads_the_archive_and_the_weights(outputs: dict[str, Path]) -> None:
    model = keras.saving.load_model(outputs["keras"])
    expected = arrays(outputs["keras"])
    assert all(np.array_equal(v.numpy(), expected[v.path]) for v in model.weights)
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    model.load_weights(outputs["weights.h5"])
    assert all(np.array_equal(v.numpy(), expected[v.path]) for v in model.weights)


def test_the_safetensors_library_reads_ours(outputs: dict[str, Path]) -> None:
    theirs = safetensors.numpy.load_file(outputs["safetensors"])
    ours = arrays(outputs["safetensors"])
    assert theirs.keys() == ours.keys()
    assert all(np.array_equal(theirs[key], ours[key]) for key in ours)


def layout(archive: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Datasets and configuration of a `.keras` file."""
    with zipfile.ZipFile(archive) as file, h5py.File(io.BytesIO(file.read("model.weights.h5"))) as weights:
        found: dict[str, np.ndarray] = {}
        weights.visititems(lambda n, o: found.update({n: o[()]}) if isinstance(o, h5py.Dataset) else None)
        return found, json.loads(file.read("config.json"))


@pytest.mark.parametrize("config", [SMALL, QK_NORM], ids=["official", "qk norm"])
def test_our_archive_is_what_keras_writes(tmp_path: Path, config: object) -> None:
    """Same places, same arrays, same configuration as `model.save` of the loaded model."""
    checkpoint = save(tmp_path / "a.ckpt", make_state(config))  # type: ignore[arg-type]
    wdport.convert(checkpoint, tmp_path / "ours.keras", values=SETTINGS)
    wdport.load_model(tmp_path / "ours.keras").save(tmp_path / "theirs.keras")
    ours, theirs = layout(tmp_path / "ours.keras"), layout(tmp_path / "theirs.keras")
    assert ours[1] == theirs[1]
    assert ours[0].keys() == theirs[0].keys()
    assert all(np.array_equal(ours[0][key], theirs[0][key]) for key in ours[0])


@pytest.mark.parametrize("name", ["safetensors", "weights.h5", "keras"])
def test_same_input_same_bytes(checkpoint: Path, outputs: dict[str, Path], name: str) -> None:
    again = checkpoint.with_name(f"again.{name}")
    wdport.convert(checkpoint, again, values=SETTINGS)
    assert again.read_bytes() == outputs[name].read_bytes()


def test_a_model_that_keras_saved_is_read(outputs: dict[str, Path], tmp_path: Path) -> None:
    model = wdport.load_model(outputs["keras"])
    model.save(tmp_path / "resaved.keras")
    again = wdport.load_model(tmp_path / "resaved.keras")
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), again.get_weights(), strict=True))


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


def test_float64_model(outputs: dict[str, Path]) -> None:
    import jax

    with jax.enable_x64(True):
        model = wdport.load_model(outputs["safetensors"], dtype="float64")
        assert {v.dtype for v in model.weights} == {"float64"}
