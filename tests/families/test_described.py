"""A user's converted file is compared with what its function makes now; its variables take no memory to know."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from wdport.cli.main import main
from wdport.families.custom import CustomConfig, CustomFamily, description, first_difference
from wdport.families.registry import own_model
from wdport.keras_runtime import fresh_names

pytestmark = pytest.mark.usefixtures("one_case")


def build(edit: str = "") -> keras.Model:
    """A small network, named as in a new process, with one edit."""
    with fresh_names():
        return _build(edit)


def _build(edit: str) -> keras.Model:
    x = inputs = keras.Input((8, 8, 3), name="x")
    x = keras.layers.Conv2D(4, 3, padding="valid" if edit == "padding" else "same", name="conv")(x)
    x = keras.layers.BatchNormalization(epsilon=1e-3 if edit == "epsilon" else 1e-5, name="norm")(x)
    x = keras.activations.gelu(x, approximate=edit == "gelu")
    if edit == "permute":
        x = keras.layers.Permute((3, 1, 2), name="permute")(x)
    x = keras.layers.Dropout(0.1, seed=1 if edit == "seed" else None, name="drop")(x)
    return keras.Model(inputs, keras.layers.Dense(2, name="out")(keras.layers.Flatten(name="flat")(x)), name="net")


SAID = {
    "": "",
    "seed": "",
    "padding": "layer conv has padding same in the file and valid now",
    "epsilon": "layer norm has epsilon 1e-05 in the file and 0.001 now",
    "permute": "layer permute is only in what it makes now",
}


@pytest.mark.parametrize("edit", SAID)
def test_the_first_difference(edit: str) -> None:
    assert first_difference(description(build()), description(build(edit)), True) == SAID[edit]


def test_an_operation_between_layers_counts() -> None:
    assert "approximate false in the file and true now" in first_difference(
        description(build()), description(build("gelu")), True
    )


def test_another_release_of_keras_may_have_other_keys() -> None:
    saved, now = description(build()), description(build())
    saved["config"]["layers"][1]["config"]["lora_rank"] = None  # type: ignore[index]
    assert first_difference(saved, now, True)
    assert first_difference(saved, now, False) == ""


TWIN = """
import keras, torch

def theirs():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.{torch})

def ours():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, name="first"), keras.layers.{keras}])
"""
TABLE = """
format: 2
torch: pair_of_files:theirs
keras: pair_of_files:ours
inputs: ["x: b 3"]
layers:
  - {torch: "0", keras: first, kind: linear}
"""


def test_code_that_changed_after_the_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mended function computes what PyTorch does, and the file still does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    right = TWIN.format(torch="ReLU()", keras='Activation("relu", name="last")')
    Path("pair_of_files.py").write_text(right.replace('"relu"', '"gelu"'))
    Path("table.yaml").write_text(TABLE)
    import torch
    from pair_of_files import theirs  # type: ignore[import-not-found]

    torch.save(theirs().state_dict(), "net.pt")
    assert main(["convert", "net.pt", "--mapping", "table.yaml"]) == 0
    _again(right)
    capsys.readouterr()
    assert main(["verify", "net.pt", "net.keras", "--mapping", "table.yaml"]) == 4
    assert capsys.readouterr().err == (
        "error: net.keras: holds another model than pair_of_files:ours makes now: layer last has activation gelu in "
        "the file and relu now; convert the checkpoint again, or restore the code that it was made with\n"
    )
    assert main(["convert", "net.pt", "--mapping", "table.yaml", "--force"]) == 0
    assert main(["verify", "net.pt", "net.keras", "--mapping", "table.yaml"]) == 0


def _again(text: str) -> None:
    """Edit the module, and have it imported anew."""
    import importlib
    import sys

    Path("pair_of_files.py").write_text(text)
    del sys.modules["pair_of_files"]
    importlib.invalidate_caches()


HERE = "tests.families.test_described"


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
