"""Faults that only sampling, single time steps, units or the file's own library show: each is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras  # noqa: F401  before our modules that need it
import pytest

import wdport
from parity_tests.test_verdicts import failed
from tests.make import SETTINGS, TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from wdport.conversion.load import open_converted
from wdport.families.waveletdiff import layers, series
from wdport.files import keras_writer as keras_files
from wdport.files import model_files
from wdport.files.model_files import read_variables
from wdport.parity import trajectories
from wdport.parity.file_pair import misread

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    path, statistics = save(folder / "small.ckpt", make_state(TWO_LEVELS)), folder / "norm.json"
    statistics.write_text(json.dumps({"mean": [0.5, 2.0, 30.0], "std": [2.0, 0.25, 7.0]}))
    return path, wdport.convert(path, values=TWO_LEVELS_SETTINGS, norm_stats=statistics).output


def called(change: Callable[[Any], Any]) -> Patch:
    """Samplers call the model with changed states."""

    def network(model: Any, known_values: Any = None) -> Any:
        made = PLAIN(model, known_values)
        return replace(made, apply=lambda weights, state, *more: made.apply(weights, change(state), *more))

    return lambda patch: patch.setattr(trajectories, "keras_network", network)


def mixed(state: Any) -> Any:
    """Every sample sees a little of the others."""
    return state + 1e-4 * (state.mean(0) - state)


def rounded(state: Any) -> Any:
    """In float32 alone the products' operands are rounded."""
    return state.astype(jnp.bfloat16).astype(state.dtype) if state.dtype == jnp.float32 else state


def whole_time(self: Any, value: Any) -> Any:
    angle = jnp.floor(value * self.gain)[:, None] * self.frequencies
    return self.mlp(jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1))


def exchanged_statistics(config: Any, coefficients: Any) -> Any:
    return SERIES(replace(config, norm_mean=config.norm_std, norm_std=config.norm_mean), coefficients)


SERIES, PLAIN = series.to_series, trajectories.keras_network
FAULTS: dict[str, tuple[Patch, set[str]]] = {
    "samples mixed": (called(mixed), {"E'"}),
    "bfloat16 operands": (called(rounded), {"E'"}),
    "whole steps in the port": (lambda patch: patch.setattr(layers.SinusoidEmbedding, "call", whole_time), {"B"}),
    "mean and deviation exchanged": (lambda patch: patch.setattr(series, "to_series", exchanged_statistics), {"F"}),
}


QUICK = ("samples mixed",)
"""A fault that `wdport selftest` does not show; `make parity` has them all."""


@pytest.mark.parametrize(
    "fault", [each if each in QUICK else pytest.param(each, marks=pytest.mark.full) for each in FAULTS]
)
def test_it_dies(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    change, gates = FAULTS[fault]
    change(monkeypatch)
    verdict = wdport.verify(*pair)
    assert verdict.exit_code == 1
    assert failed(verdict) == gates
    if "B" in gates:
        assert verdict.faults[0].candidate == "time_embedding"


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_writer_and_reader_that_exchange_two_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """wdport reads back what it meant; Keras does not."""
    places = keras_files.dataset_paths
    first, second = (f"level_1/block_0/attention/{part}/kernel" for part in ("query", "key"))

    def exchanged(names: Any) -> dict[str, str]:
        found = places(names)
        return {**found, first: found[second], second: found[first]}

    for module in (keras_files, model_files):
        monkeypatch.setattr(module, "dataset_paths", exchanged)
    path = save(tmp_path / "small.ckpt", make_state())
    opened = open_converted(wdport.convert(path, path.with_suffix(suffix), values=SETTINGS).output)
    ours = dict(read_variables(opened.path, opened.variables))
    monkeypatch.undo()
    assert list(map(str, misread(opened, ours))) == [
        f"{name} is another array as Keras reads the file" for name in (first, second)
    ]


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".safetensors"])
def test_a_files_own_library_reads_the_same(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / "small.ckpt", make_state())
    opened = open_converted(wdport.convert(path, path.with_suffix(suffix), values=SETTINGS).output)
    ours = dict(read_variables(opened.path, opened.variables))
    assert misread(opened, ours) == []
    first = next(iter(ours))
    assert list(map(str, misread(opened, {**ours, first: -ours[first]}))) == [
        f"{first} is another array as {'safetensors' if suffix == '.safetensors' else 'Keras'} reads the file"
    ]
