"""Ports that compute the same with inner values in another arrangement pass, and say so; wrong ones do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from keras import ops

import wdport
from tests.make import SETTINGS, make_state, save
from wdport.families.waveletdiff import layers, port

pytestmark = pytest.mark.usefixtures("one_case")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    path = save(tmp_path_factory.mktemp("pair") / "small.ckpt", make_state())
    return path, wdport.convert(path, values=SETTINGS).output


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
