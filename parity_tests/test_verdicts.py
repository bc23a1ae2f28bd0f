"""`verify` on small models: correct ports pass, broken ones fail at the broken layer, gaps are not passes.

One fault at a time is put into a correct port or its file; exactly the layers that the fault is in must
be named.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

import wdport
from tests.make import NO_CROSS, SETTINGS, TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from wdport.errors import MisfitError
from wdport.families.waveletdiff import layers, port
from wdport.families.waveletdiff.family import FAMILY
from wdport.parity import model_pair as sides
from wdport.parity.verdict import Verdict

pytestmark = pytest.mark.usefixtures("one_case")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and its conversion."""
    path = save(tmp_path_factory.mktemp("pair") / "small.ckpt", make_state())
    return path, wdport.convert(path, path.with_suffix(".weights.h5"), values=SETTINGS).output


@pytest.fixture(scope="module")
def two_levels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pair for what does not depend on the parts of the model."""
    path = save(tmp_path_factory.mktemp("pair") / "two.ckpt", make_state(TWO_LEVELS))
    return path, wdport.convert(path, path.with_suffix(".weights.h5"), values=TWO_LEVELS_SETTINGS).output


def failed(verdict: Verdict) -> set[str]:
    return {gate.name for gate in verdict.gates if not gate.passed}


@pytest.mark.full
def test_half_precision_checkpoint_passes(tmp_path: Path) -> None:
    path = save(tmp_path / "a.ckpt", {name: tensor.bfloat16() for name, tensor in make_state().items()})
    assert wdport.verify(path, wdport.convert(path, values=SETTINGS).output)


ATTENTION = "level_0/block_1/attention"


def swap(file: h5py.File) -> None:
    query, key = (file[f"{ATTENTION}/{part}/vars/0"] for part in ("query", "key"))
    query[...], key[...] = key[()], query[()]


def move_bias(file: h5py.File) -> None:
    file["level_1/block_0/mlp/out/vars/1"][...] += 1e-5


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (swap, {f"{ATTENTION}/query", f"{ATTENTION}/key"}),
        pytest.param(move_bias, {"level_1/block_0/mlp/out"}, marks=pytest.mark.full),
    ],
)
def test_faults_in_the_file(
    two_levels: tuple[Path, Path], tmp_path: Path, change: Callable[[h5py.File], None], places: set[str]
) -> None:
    """Those in code and other weights: test_every_fault_of_the_network_dies_where_it_is."""
    broken = tmp_path / "broken.weights.h5"
    shutil.copy(two_levels[1], broken)
    with h5py.File(broken, "a") as file:
        change(file)
    verdict = wdport.verify(two_levels[0], broken)
    assert verdict.exit_code == 1
    assert {"0", "A"} <= failed(verdict)
    assert {fault.candidate for fault in verdict.faults} == places


@pytest.mark.full
def test_a_float32_step_is_called_a_precision_leak(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    call = layers.Position.call

    def leaky(self: Any, tokens: Any) -> Any:
        return keras.ops.cast(keras.ops.cast(call(self, tokens), "float32"), tokens.dtype)

    monkeypatch.setattr(layers.Position, "call", leaky)
    verdict = wdport.verify(*pair)
    gate = next(gate for gate in verdict.gates if gate.name == "A")
    assert not gate.passed
    assert str(gate.findings[0]).startswith("precision leak: level_transformers.0.pos_encoding")
    assert failed(verdict) == {"A"}


def test_nan_fails(two_levels: tuple[Path, Path], tmp_path: Path) -> None:
    broken = tmp_path / "nan.weights.h5"
    shutil.copy(two_levels[1], broken)
    with h5py.File(broken, "a") as file:
        file["level_1/output_proj/vars/1"][0] = np.nan
    verdict = wdport.verify(two_levels[0], broken)
    assert verdict.exit_code == 1
    assert {fault.candidate for fault in verdict.faults} == {"level_1/output_proj"}


def test_a_table_off_its_formula_fails(two_levels: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tables = FAMILY.port_tables

    def bent(model: Any) -> dict[str, Any]:
        return {name: table * (1 + 1e-6) for name, table in tables(model).items()}

    monkeypatch.setattr(FAMILY, "port_tables", bent)
    assert failed(wdport.verify(*two_levels)) == {"A'"}


def test_a_constant_that_the_port_does_not_show_is_incomplete(
    two_levels: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = FAMILY.port_tables
    monkeypatch.setattr(FAMILY, "port_tables", lambda model: {n: t for n, t in tables(model).items() if "pos" not in n})
    verdict = wdport.verify(*two_levels)
    assert verdict.exit_code == 6
    assert "position_table.0 is in no table of the port" in map(str, verdict.gates[1].findings)


def test_a_layer_that_never_runs_is_incomplete(two_levels: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The port forgets its dropout layer: the same numbers, but a tap that cannot be compared."""

    def call(self: Any, tokens: Any, time: Any) -> Any:
        a = self.norm1(tokens, time)
        tokens = tokens + self.attention(a, a, a)
        return tokens + self.mlp(self.norm2(tokens, time))

    monkeypatch.setattr(port.Block, "call", call)
    verdict = wdport.verify(*two_levels)
    assert verdict.exit_code == 6
    assert any("dropout did not run on both sides" in str(finding) for finding in verdict.gates[0].findings)


@pytest.mark.full
def test_another_checkpoints_conversion_fails(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = save(tmp_path / "other.ckpt", make_state(seed=1))
    assert wdport.verify(other, pair[1]).exit_code == 1


def test_a_model_of_other_sizes_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(MisfitError):
        wdport.verify(save(tmp_path / "a.ckpt", make_state(NO_CROSS)), pair[1])


def test_zero_weights_on_both_sides_do_not_pass(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero weights on both sides agree, and must not pass: every tap would be constant."""
    make = sides.converted_weights

    def zeros(prepared: Any, converted: Any) -> Any:
        weights = make(prepared, converted)
        moved = {move.source for move in prepared.plan.moves}
        tensors = {n: a * 0 if n in moved else a for n, a in weights.tensors.items()}
        return sides.Weights("zeros", tensors, {name: array * 0 for name, array in weights.variables.items()})

    monkeypatch.setattr(sys.modules["wdport.parity.verify"], "converted_weights", zeros)
    verdict = wdport.verify(*pair)
    assert not verdict
    assert any("constant" in str(finding) for gate in verdict.gates for finding in gate.findings)
