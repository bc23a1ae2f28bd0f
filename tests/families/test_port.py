"""A model of the user's own as one object in Python."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import wdport
from tests.families.test_custom import HEAD, TABLES, files
from tests.families.toys import nets

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
