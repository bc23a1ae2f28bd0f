"""What h5py reads of an HDF5 file, in the words of our own reader; and files to compare on."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from wdport.files.hdf5 import read_hdf5

Facts = dict[str, tuple[str, tuple[int, ...], bytes, dict[str, Any]]]
"""Path -> dtype, shape, bytes and attributes; a group has none of the first three."""


def by_h5py(raw: bytes) -> Facts:
    facts: Facts = {}

    def visit(name: str, found: h5py.Group | h5py.Dataset) -> None:
        attributes = {key: _plain(value) for key, value in found.attrs.items()}
        if isinstance(found, h5py.Group):
            facts[name] = ("", (), b"", attributes)
        else:
            facts[name] = (found.dtype.str, found.shape, np.asarray(found[()]).tobytes(), attributes)

    with h5py.File(io.BytesIO(raw)) as file:
        visit("", file)
        file.visititems(visit)
    return facts


def by_us(raw: bytes) -> Facts:
    def read(offset: int, count: int) -> bytes:
        assert 0 <= offset <= offset + count <= len(raw)
        return raw[offset : offset + count]

    contents = read_hdf5(read, len(raw))
    facts: Facts = {path: ("", (), b"", dict(attributes)) for path, attributes in contents.groups.items()}
    for path, found in contents.datasets.items():
        data = read(found.offset, found.nbytes)
        assert path == found.path
        assert path not in facts
        facts[path] = (found.dtype.str, found.shape, data, dict(found.attributes))
    return facts


def tree(items: Mapping[str, Any], attributes: Mapping[str, Mapping[str, Any]] | None = None) -> bytes:
    """An HDF5 file with these arrays by path (None makes a group) and these attributes, in the order given."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for path, value in items.items():
            if value is None:
                file.require_group(path)
            else:
                file.create_dataset(path, data=value)
        for path, values in (attributes or {}).items():
            for name, value in values.items():
                file[path or "/"].attrs[name] = value
    return buffer.getvalue()


class Odd(keras.layers.Layer):
    """Variables as no common layer has them."""

    def build(self, shape: object) -> None:
        self.scalar = self.add_weight(shape=(), initializer="ones")
        self.empty = self.add_weight(shape=(0, 3))
        self.bytes = self.add_weight(shape=(3,), dtype="int8", initializer="zeros", trainable=False)
        self.flags = self.add_weight(shape=(3, 2), dtype="bool", initializer="zeros", trainable=False)
        self.halves = self.add_weight(shape=(3, 2), dtype="bfloat16")
        self.inner = [keras.layers.Dense(2) for _ in range(12)]
        for layer in self.inner:
            layer.build((None, 3))

    def call(self, inputs: Any) -> Any:
        return inputs * self.scalar


def save_models(folder: Path) -> list[Path]:
    """Files that Keras writes: common layers, odd ones, an optimizer, quantized and half-precision weights."""
    made: list[Path] = []
    for name, model in _models().items():
        for ending in (".keras", ".weights.h5"):
            made.append(folder / f"{name}{ending}")
            (model.save if ending == ".keras" else model.save_weights)(made[-1])
    return made


def _models() -> dict[str, keras.Model]:
    layers = keras.layers
    series = keras.Input((8, 4))
    hidden = layers.LSTM(5, return_sequences=True)(layers.Conv1D(4, 3, padding="same")(series))
    hidden = layers.BatchNormalization()(layers.MultiHeadAttention(2, 3)(hidden, hidden))
    trained = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="größe"), layers.Dropout(0.1)])
    trained.compile("adam", "mse")
    trained.fit(np.ones((4, 4)), np.ones((4, 3)), verbose=0)
    small = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    small.layers[0].quantize("int8")
    half = keras.Sequential([keras.Input((4,)), layers.Dense(3, dtype="bfloat16"), layers.Dense(3, dtype="float16")])
    return {
        "series": keras.Model(series, hidden),
        "trained": trained,
        "quantized": small,
        "half": half,
        "odd": keras.Sequential([keras.Input((4,)), Odd()]),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.bytes_):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value
