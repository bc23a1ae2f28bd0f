"""The variables of a user's model, known without memory for them."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
from keras import layers

from wdport.families.custom import CustomConfig, CustomFamily
from wdport.families.registry import own_model

HERE = "tests.families.test_outline"


def huge() -> keras.Model:
    """160 GB in float32."""
    return keras.Sequential([keras.Input((200_000,)), layers.Dense(200_000, name="wide")])


class Looks(layers.Layer):
    def build(self, shape: tuple[int, ...]) -> None:
        self.table = self.add_weight(shape=(3,), initializer="ones", name="table")
        self.total = float(np.sum(np.asarray(self.table.value)))

    def call(self, x: object) -> object:
        return x


def looking() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), Looks(name="looks")])


def mixed() -> keras.Model:
    ids = keras.Input((5,), dtype="int32")
    x = layers.Dropout(0.5)(layers.Embedding(7, 4, name="embed")(ids))
    x = layers.BatchNormalization(name="norm")(layers.GRU(3, name="gru")(x))
    return keras.Model(ids, x)


def family(tmp_path: Path, name: str) -> CustomFamily:
    path = tmp_path / "table.yaml"
    path.write_text(f"format: 2\nkeras: {HERE}:{name}\nlayers:\n  - {{torch: a, keras: a, kind: linear}}\n")
    found = own_model(path, None, None, ())
    assert isinstance(found, CustomFamily)
    return found


def test_no_memory_is_taken_for_values(tmp_path: Path) -> None:
    found = family(tmp_path, "huge").outline(CustomConfig(f"{HERE}:huge"))
    assert found == {"wide/kernel": (200_000, 200_000), "wide/bias": (200_000,)}


def test_it_is_what_the_model_has(tmp_path: Path) -> None:
    for name in ("mixed", "looking"):
        config = CustomConfig(f"{HERE}:{name}")
        assert family(tmp_path, name).outline(config) == family(tmp_path, name).variables(config)
    before = keras.random.normal((2,))  # the process's own generator still has a value
    assert np.isfinite(np.asarray(before)).all()
