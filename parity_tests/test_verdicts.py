"""`verify` on small models: correct ports pass, broken ones fail at the broken layer, gaps are not passes.

One fault at a time is put into a correct port or its file; exactly the layers that the fault is in must
be named.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from keras import ops

import wdport
from tests.make import (
    NO_CROSS,
    QK_NORM,
    SETTINGS,
    SMALL,
    TWO_LEVELS,
    TWO_LEVELS_SETTINGS,
    make_state,
    record_small,
    save,
)
from wdport.base.errors import MisfitError
from wdport.cli.main import main
from wdport.compare.findings import Gate
from wdport.parity import model_pair as sides
from wdport.parity.verdict import Verdict
from wdport.parity.verify import verify_recording
from wdport.uses.waveletdiff import layers, port
from wdport.uses.waveletdiff.family import FAMILY

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
        return jnp.asarray(jnp.asarray(call(self, tokens), "float32"), tokens.dtype)

    monkeypatch.setattr(layers.Position, "call", leaky)
    verdict = wdport.verify(*pair)
    gate = next(gate for gate in verdict.gates if gate.name == "A")
    assert not gate.passed
    assert str(gate.findings[0]).startswith("precision leak: level_transformers.0.pos_encoding")
    assert failed(verdict) == {"A", "E'"}  # samplers run the same network


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


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = save(tmp_path_factory.mktemp("closed") / "small.ckpt", make_state())
    return str(path), str(wdport.convert(path, path.with_suffix(".weights.h5"), values=SETTINGS).output)


def test_the_reference_compared_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from wdport.parity import model_pair as sides

    class Twin:
        framework = "keras"

        def __init__(self, live: Any) -> None:
            self.live = live

        def __getattr__(self, name: str) -> Any:
            return getattr(self.live, name)

    family_reference = sides.family_reference
    monkeypatch.setattr(sides, "family_reference", lambda *arguments: Twin(family_reference(*arguments)))
    path = save(tmp_path / "two.ckpt", make_state(TWO_LEVELS))
    output = wdport.convert(path, values=TWO_LEVELS_SETTINGS).output
    assert main(["verify", str(path), str(output)]) == 1
    assert "two frameworks" in " ".join(capsys.readouterr().out.split())


def test_zero_comparisons() -> None:
    """A verdict over nothing, or with a gate over nothing, is incomplete."""
    nothing = Verdict("a", "b", (), (), (), None, {}, (), {})
    assert nothing.exit_code == 6
    assert replace(nothing, gates=(Gate("A", "logic", 0, 0),)).exit_code == 6
    assert replace(nothing, gates=(Gate("A", "logic", 3, 4),)).exit_code == 6


@pytest.mark.full
def test_a_bound_that_no_longer_finds_known_faults(words: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    policy = tmp_path / "parity.toml"
    policy.write_text('[bounds]\nlogic = { value = 0.1, reason = "r", expires = 2999-01-01 }\n')
    assert main(["verify", *words, "--policy", str(policy)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "FAIL known faults (S)" in shown
    assert "too loose" in shown
    assert "loosened to 0.1" in shown


@pytest.mark.full
def test_known_faults_come_first(words: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    """A tightened bound is no reason to fail, and the known faults are found under it."""
    policy = tmp_path / "parity.toml"
    policy.write_text("[bounds]\nlogic = { value = 1e-11 }\n")
    assert main(["verify", *words, "--policy", str(policy)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ok known faults (S)" in shown
    assert "tightened to 1e-11" in shown


UNCALLED = "compared by parts alone: level_transformers.0 and 3 more (the reference does not call it)"
LONGER = "compared by parts alone: level_transformers.0 and 3 more (the reference runs output_proj inside it)"
CASES: dict[str, tuple[Any, str, str]] = {
    "cross-level": (SMALL, "public", UNCALLED),
    "no cross-level": (NO_CROSS, "public_no_cross", LONGER),
    "qk norm": (QK_NORM, "public_qk_norm", UNCALLED),
}


def verdicts(folder: Path, config: Any, factory: str) -> tuple[Verdict, Verdict]:
    """Live, and against a recording."""
    path = save(folder / "a.ckpt", make_state(config))
    converted, target = wdport.convert(path, values=SETTINGS).output, f"tests.user_model:{factory}"
    record_small(target, path, folder / "run.npz", config)
    return wdport.verify(path, converted, reference=target), verify_recording(converted, folder / "run.npz")


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_they_pass(tmp_path: Path, case: str) -> None:
    config, factory, note = CASES[case]
    for verdict in verdicts(tmp_path, config, factory):
        assert verdict.exit_code == 0
        assert note in map(str, verdict.gates[0].findings)
        names = {tap.reference for tap in verdict.taps}
        assert "level_transformers.0" not in names
        assert {"level_transformers.0.pos_encoding", "level_transformers.0.output_proj"} <= names


@pytest.mark.full
def test_another_number_of_heads_is_named(tmp_path: Path) -> None:
    """The same tensors with four heads in place of two: no file tells, the user's own code does."""
    for verdict in verdicts(tmp_path, SMALL, "public_more_heads"):
        assert verdict.exit_code == 1
        assert {fault.candidate.rpartition("/")[2].rstrip("_0123") for fault in verdict.faults} == {"attention"}
        assert set(verdict.causes.values()) == {("num_heads 2 where the reference has 4",)}
        page = verdict.to_html()  # each layer computes what it should, and one in each attention is fed something else
        assert page.count('class="fed out') == len(verdict.faults)
        assert 'class="own out' not in page


def update(self: Any, level: int, tokens: Any, pooled: list[Any], time: Any, keys: int = 1, values: int = 1) -> Any:
    """The port's own, with the other groups in the order of ``keys`` and ``values`` (1 or -1)."""
    others = [ops.stack([pooled[i] for i in self.others[level][::step]], axis=1) for step in (keys, values)]
    attended = self._part("attention", level)(pooled[level][:, None], *others)
    expanded = self._part("expander", level)(attended[:, 0])
    every_token = ops.broadcast_to(expanded[:, None], ops.shape(tokens))
    every_time = ops.broadcast_to(time[:, None], (*ops.shape(tokens)[:2], self.config.time_embed_dim))
    gate = self._part("gate", level)(ops.concatenate([tokens, every_time], axis=-1))
    return gate * self._part("norm", level)(every_token, time)


def late_broadcast(self: Any, level: int, tokens: Any, pooled: list[Any], time: Any) -> Any:
    """One vector is normalised; the product with the gate makes it one for every token."""
    others = ops.stack([pooled[i] for i in self.others[level]], axis=1)
    attended = self._part("attention", level)(pooled[level][:, None], others, others)
    expanded = self._part("expander", level)(attended[:, 0])
    every_time = ops.broadcast_to(time[:, None], (*ops.shape(tokens)[:2], self.config.time_embed_dim))
    gate = self._part("gate", level)(ops.concatenate([tokens, every_time], axis=-1))
    return gate * self._part("norm", level)(expanded[:, None], time)


REWRITES = {
    "another order along axis 1": lambda *given: update(*given, keys=-1, values=-1),
    "before a broadcast": late_broadcast,
}


@pytest.mark.parametrize(
    "how", ["before a broadcast", pytest.param("another order along axis 1", marks=pytest.mark.full)]
)
def test_a_rewrite_passes_with_a_note(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(port.CrossLevel, "_update", REWRITES[how])
    verdict = wdport.verify(*pair)
    assert verdict.exit_code == 0
    (note,) = (text for text in map(str, verdict.gates[0].findings) if "differs inside" in text)
    assert note.startswith("differs inside, outputs equal: cross_level_attention.")
    assert note.endswith(f"({how})")


@pytest.mark.full
def test_keys_and_values_in_different_orders_fail(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port.CrossLevel, "_update", lambda *given: update(*given, keys=-1))
    verdict = wdport.verify(*pair)
    assert verdict.exit_code == 1
    assert {fault.candidate for fault in verdict.faults} == {"cross_level"}
    assert not any("differs inside" in str(text) for gate in verdict.gates for text in gate.findings)


@pytest.mark.full
def test_an_ill_conditioned_layer_is_told_from_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of 3e8 that differ by one: one rounding of them is seen after the norm, and a wrong epsilon still is."""
    state = make_state()
    bias = "level_transformers.1.input_proj.bias"
    path = save(tmp_path / "a.ckpt", {**state, bias: torch.full_like(state[bias], 3e8)})
    converted = wdport.convert(path, values=SETTINGS).output
    verdict = wdport.verify(path, converted)
    assert verdict.exit_code == 0
    (note,) = (text for text in map(str, verdict.gates[0].findings) if "ill-conditioned" in text)
    assert note.startswith("ill-conditioned here: level_transformers.1.blocks.0.norm1.norm and ")
    monkeypatch.setattr(layers.Standardize.__init__, "__defaults__", (1e-6,))
    assert wdport.verify(path, converted).exit_code == 1
