"""A model of the user's own as one object in Python, and checkpoints whose names stand under a wrapper's attribute."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import wdport
from tests.families.test_custom import HEAD, TABLES, files
from tests.families.toys import nets
from wdport.cli.main import main
from wdport.errors import MisfitError

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


def test_it_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = wrapped(tmp_path)
    assert main(["convert", str(checkpoint), "-o", str(tmp_path / "out.keras"), "--mapping", str(table)]) == 0
    assert capsys.readouterr().out.count(SAID) == 1


def test_beside_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a LightningModule with a loss that has weights: one row drops them, and every verb says so."""
    checkpoint, table = wrapped(tmp_path, with_too="loss.weight")
    output, run, told = tmp_path / "out.keras", tmp_path / "run.npz", ["--mapping", str(table)]
    assert main(["convert", str(checkpoint), "-o", str(output), *told]) == 4
    assert "unexpected loss.weight (2,); " in capsys.readouterr().err
    table.write_text(f"{table.read_text()}\ntensors:\n  - {{torch: loss.weight, drop: only for training}}\n")
    said = "6 of 7 names have the prefix 'net.', which is removed"
    for words in (["convert", str(checkpoint), "-o", str(output)], ["verify", str(checkpoint), str(output)],
                  ["record", str(checkpoint), "-o", str(run)]):  # fmt: skip
        assert main([*words, *told]) == 0
        assert " ".join(capsys.readouterr().out.split()).count(said) == 1
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


def test_a_table_that_has_it_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = wrapped(tmp_path)
    table.write_text(table.read_text().replace("torch: lstm, ", "torch: net.lstm, ").replace("h: head", "h: net.head"))
    assert main(["convert", str(checkpoint), "-o", str(tmp_path / "out.keras"), "--mapping", str(table)]) == 0
    assert SAID not in capsys.readouterr().out
