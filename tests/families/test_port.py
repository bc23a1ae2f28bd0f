"""A user's model as one object in Python, under a wrapper's attribute, and its file after its code changed."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import keras
import numpy as np
import pytest
import torch
from keras import layers

import wdport
from tests.command import Cli, Refused
from tests.families.test_custom import HEAD, TABLES, files
from tests.families.toys import nets
from wdport.base.errors import MisfitError
from wdport.families.custom import CustomConfig, CustomFamily, description, first_difference
from wdport.families.registry import own_model
from wdport.models.keras_runtime import fresh_names

pytestmark = pytest.mark.usefixtures("one_case")


def test_it_is_loaded_without_a_file(tmp_path: Path) -> None:
    """Torch itself is the reference here, called as anybody would call it."""
    checkpoint, table = files(tmp_path, "image")
    before = sorted(each.name for each in tmp_path.iterdir())
    model = wdport.Port(table).load(checkpoint)
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    module = nets.image()
    module.load_state_dict(torch.load(checkpoint))
    x = np.random.default_rng(0).standard_normal((5, 3, 12, 12)).astype(np.float32)
    wanted = module.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(model(np.moveaxis(x, 1, -1), training=False), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_it_holds_what_is_written(tmp_path: Path, name: str) -> None:
    """The converted file is read by Keras, which knows nothing of tables."""
    checkpoint, table = files(tmp_path, name)
    port = wdport.Port(table)
    model, other = port.load(checkpoint), port.load(checkpoint)
    assert model is not other
    output = port.convert(checkpoint, tmp_path / "out.weights.h5").output
    for variable in other.variables:
        if "seed" not in variable.path:
            variable.assign(np.full(variable.shape, np.nan))
    other.load_weights(output)
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        assert np.array_equal(ours.value, theirs.value)


def test_in_float64(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    with jax.enable_x64(True):
        model = wdport.Port(table).load(checkpoint, dtype="float64")
        assert {str(each.value.dtype) for each in model.weights} == {"float64"}


def test_it_is_verified_with_a_file_and_without(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    port = wdport.Port(table)
    verdict = port.verify(checkpoint)
    assert verdict
    assert verdict.exit_code == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ck.pt", "my.yaml"]
    assert port.verify(checkpoint, port.convert(checkpoint, tmp_path / "out.keras").output)


def test_a_wrong_twin_is_not_equal(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "image", "image_epsilon")
    verdict = wdport.Port(table).verify(checkpoint)
    assert not verdict
    assert {fault.reference for fault in verdict.faults} == {"bn"}


def test_what_the_table_does_not_name_is_given(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    table.write_text("format: 2\nlayers:" + TABLES["lstm"].partition("layers:")[2])
    names = {"model": "tests.families.toys.twins:lstm", "reference": "tests.families.toys.nets:lstm"}
    assert wdport.Port(table, **names, inputs=("x: b 9 5",)).verify(checkpoint)
    with pytest.raises(wdport.WdportError, match="does not name the Keras model"):
        wdport.Port(table).load(checkpoint)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(wdport.WdportError, match="no such file"):
        wdport.Port(tmp_path / "nothing.yaml")
    checkpoint, table = files(tmp_path, "lstm")
    other = tmp_path / "other.yaml"
    other.write_text(HEAD.format(torch="gru", keras="gru") + TABLES["gru"])
    with pytest.raises(wdport.WdportError, match="misfits with"):
        wdport.Port(other).load(checkpoint)
    shipped = Path(__file__).parents[2] / "mappings" / "waveletdiff.yaml"
    with pytest.raises(wdport.WdportError, match="is the table of a model that comes with wdport"):
        wdport.Port(shipped)
    table.write_text(table.read_text().replace("b 9 5", "b nine"))
    with pytest.raises(wdport.WdportError, match="nine"):
        wdport.Port(table).verify(checkpoint)


SAID = "every name has the prefix 'net.', which is removed"


def wrapped(folder: Path, *, but: str = "", with_too: str = "") -> tuple[Path, Path]:
    """A checkpoint as Lightning writes it, all names under ``net.`` except one; one more if asked for."""
    checkpoint, table = files(folder, "lstm")
    state = {name if name == but else f"net.{name}": each for name, each in torch.load(checkpoint).items()}
    if with_too:
        state[with_too] = torch.zeros(2)
    torch.save({"state_dict": state, "pytorch-lightning_version": "2.0.0"}, checkpoint)
    return checkpoint, table


def test_it_is_left_out_and_said(tmp_path: Path, cli: Cli) -> None:
    """Unless the table has it."""
    checkpoint, table = wrapped(tmp_path)
    command = ("convert", checkpoint, "-o", tmp_path / "out.keras", "--mapping", table)
    assert cli(*command).out.count(SAID) == 1
    table.write_text(table.read_text().replace("torch: lstm, ", "torch: net.lstm, ").replace("h: head", "h: net.head"))
    assert SAID not in cli(*command, "--force").out


def test_a_prefix_of_the_table_alone_is_added_and_said(tmp_path: Path, cli: Cli) -> None:
    """As of the file of a network for the class around it; the way back has the class's names."""
    checkpoint, table = files(tmp_path, "lstm")
    toy, wrapped_toy = "tests.families.toys.nets:lstm", "tests.families.toys.nets:wrapped_lstm"
    table.write_text(table.read_text().replace(toy, wrapped_toy).replace("torch: lstm, ", "torch: net.lstm, ")
                     .replace("h: head", "h: net.head"))  # fmt: skip
    output, back = tmp_path / "out.keras", tmp_path / "back.pt"
    for words in (("convert", checkpoint, "-o", output), ("verify", checkpoint, output),
                  ("export", output, "--to", "torch", "--verify", "--like", checkpoint, "-o", back)):  # fmt: skip
        printed = cli(*words, "--mapping", table).out
        assert words[0] == "export" or "every name lacks the table's prefix 'net.', which is added" in printed
    state = torch.load(checkpoint)
    written = torch.load(back)
    assert written.keys() == {f"net.{name}" for name in state}
    assert all(torch.equal(written[f"net.{name}"], state[name]) for name in state if "lstm.bias" not in name)
    # With a tensor that the table does not name, the others still get the prefix; with a few that fit, none does.
    torch.save(state | {"loss.weight": torch.zeros(2)}, checkpoint)
    rows = "\ntensors:\n  - {torch: loss.weight, drop: only for training}\n"
    table.write_text(f"{table.read_text()}{rows}")
    printed = cli("convert", checkpoint, "-o", output, "--mapping", table, "--force").out
    assert "6 of 7 names lack the table's prefix 'net.', which is added" in " ".join(printed.split())
    torch.save({name if "head" in name else f"net.{name}": tensor for name, tensor in state.items()}, checkpoint)
    assert "missing net.head" in cli("convert", checkpoint, "--mapping", table, "--force", code=4).err


def test_beside_a_loss(tmp_path: Path, cli: Cli, refused: Refused) -> None:
    """As in a LightningModule with a loss that has weights: one row drops them, and every verb says so."""
    checkpoint, table = wrapped(tmp_path, with_too="loss.weight")
    output, run = tmp_path / "out.keras", tmp_path / "run.npz"
    refused("convert", checkpoint, "-o", output, "--mapping", table, code=4, says="unexpected loss.weight (2,); ")
    table.write_text(f"{table.read_text()}\ntensors:\n  - {{torch: loss.weight, drop: only for training}}\n")
    for words in (("convert", checkpoint, "-o", output), ("verify", checkpoint, output),
                  ("record", checkpoint, "-o", run)):  # fmt: skip
        printed = " ".join(cli(*words, "--mapping", table).out.split())
        assert printed.count("6 of 7 names have the prefix 'net.', which is removed") == 1
    assert wdport.verify_recording(output, run, mapping=table)


def test_two_tensors_never_get_one_name(tmp_path: Path) -> None:
    checkpoint, table = wrapped(tmp_path, with_too="net.loss.weight")
    state = torch.load(checkpoint)["state_dict"]
    torch.save({"state_dict": {**state, "loss.weight": torch.ones(2)}}, checkpoint)
    table.write_text(f"{table.read_text()}\ntensors:\n  - {{torch: loss.weight, drop: only for training}}\n")
    with pytest.raises(MisfitError, match=r"net\."):
        wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table)


@pytest.mark.parametrize("change", [{"but": "head.bias"}, {"with_too": "net.extra"}])
def test_all_or_nothing(tmp_path: Path, change: dict[str, str]) -> None:
    checkpoint, table = wrapped(tmp_path, **change)
    with pytest.raises(MisfitError, match=r"net\."):
        wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table)


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


DIFFERENCES = {
    "": "",
    "gelu": "approximate false in the file and true now",
    "seed": "",
    "padding": "layer conv has padding same in the file and valid now",
    "epsilon": "layer norm has epsilon 1e-05 in the file and 0.001 now",
    "permute": "layer permute is only in what it makes now",
}


@pytest.mark.parametrize("edit", DIFFERENCES)
def test_the_first_difference(edit: str) -> None:
    """An operation between layers counts, too."""
    found = first_difference(description(build()), description(build(edit)), True)
    assert DIFFERENCES[edit] in found
    assert bool(found) == bool(DIFFERENCES[edit])


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


def test_code_that_changed_after_the_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """The mended function computes what PyTorch does, and the file still does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    right = TWIN.format(torch="ReLU()", keras='Activation("relu", name="last")')
    Path("pair_of_files.py").write_text(right.replace('"relu"', '"gelu"'))
    Path("table.yaml").write_text(TABLE)
    import torch
    from pair_of_files import theirs  # type: ignore[import-not-found]

    torch.save(theirs().state_dict(), "net.pt")
    cli("convert", "net.pt", "--mapping", "table.yaml")
    _again(right)
    assert cli("verify", "net.pt", "net.keras", "--mapping", "table.yaml", code=4).err == (
        "error: net.keras: holds another model than pair_of_files:ours makes now: layer last has activation gelu in "
        "the file and relu now; convert the checkpoint again, or restore the code that it was made with\n"
    )
    cli("convert", "net.pt", "--mapping", "table.yaml", "--force")
    cli("verify", "net.pt", "net.keras", "--mapping", "table.yaml")


def _again(text: str) -> None:
    """Edit the module, and have it imported anew."""
    import importlib
    import sys

    Path("pair_of_files.py").write_text(text)
    # Python compiles a file again if its size or its second is another one.
    os.utime("pair_of_files.py", (time := Path("pair_of_files.py").stat().st_mtime + 2, time))
    del sys.modules["pair_of_files"]
    importlib.invalidate_caches()


HERE = "tests.families.test_port"


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
