"""Orbax checkpoints: read by Orbax itself, loaded and checked as any other; needs the extra ``orbax``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import wdport
from wdport.base.errors import MachineError, MisfitError, UsageError, WdportError
from wdport.conversion.load import open_converted, sound_variables
from wdport.families.registry import own_model
from wdport.files.orbax_folder import nested

from .streamed_model import sharded, table, tensors
from .test_streamed import expected


def source(tmp_path: Path) -> Path:
    state = {name: value for name, value in tensors().items() if name != "none"}
    path = table(tmp_path)
    path.write_text(path.read_text().replace("streamed_model:build", "streamed_model:without_empty")
                    .replace('  - {torch: none, keras: held/none, rule: "out in -> in out"}\n', ""))  # fmt: skip
    return sharded(tmp_path / "in", state)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_orbax_reads_what_is_written(tmp_path: Path, dtype: str) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    made = wdport.convert(source(tmp_path), tmp_path / "a.orbax", mapping=tmp_path / "table.yaml", dtype=dtype)
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(made.output / "default")
    wanted = {name: value for name, value in expected(tensors(), dtype).items() if name != "held/none"}
    for name, value in wanted.items():
        found = tree
        for part in name.split("/"):
            found = found[part]
        assert np.asarray(found).dtype.name in (dtype, "float64" if not value.ndim else dtype)
        assert np.array_equal(np.asarray(found, np.float32), value.float().numpy()), name
    opened = open_converted(made.output, own_model(tmp_path / "table.yaml", None, None, ()))
    assert all(np.array_equal(array, wanted[name].float().numpy()) for name, array in sound_variables(opened))
    data = max((tmp_path / "a.orbax").rglob("d/*"), key=lambda path: path.stat().st_size)
    raw = bytearray(data.read_bytes())
    raw[len(raw) // 2] ^= 255
    data.write_bytes(raw)
    with pytest.raises((WdportError, ValueError)):
        list(sound_variables(opened))


def test_it_is_refused_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.files.model_target.require_orbax", lambda _: None)
    with pytest.raises(UsageError, match="does not work with an Orbax checkpoint"):
        wdport.convert(source(tmp_path), tmp_path / "a.orbax", mapping=tmp_path / "table.yaml", max_memory=1 << 20)
    with pytest.raises(MisfitError, match="is below another variable"):
        nested({"a": np.ones(1), "a/b": np.ones(1)})
    with pytest.raises(MisfitError, match="is above another variable"):
        nested({"a/b": np.ones(1), "a": np.ones(1)})
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MachineError, match=r"needs orbax-checkpoint; install wdport\[orbax\]"):
        wdport.convert(tmp_path / "in", tmp_path / "a.orbax", mapping=tmp_path / "table.yaml")


def test_empty_arrays_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.files.model_target.require_orbax", lambda _: None)
    folder = sharded(tmp_path / "in", tensors(torch.float32))
    with pytest.raises(MisfitError, match="held/none: has the shape"):
        wdport.convert(folder, tmp_path / "a.orbax", mapping=table(tmp_path))
    assert not (tmp_path / "a.orbax").exists()
