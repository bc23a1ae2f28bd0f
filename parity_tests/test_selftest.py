"""The whole self-test, measured on three models, and faults that only sampling, units or a file's library show."""

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
from parity_tests.faults.run import further_groups, run_example
from parity_tests.faults.waveletdiff import EXAMPLES as CONFIGS
from parity_tests.faults.waveletdiff import FAULTS, mutants
from parity_tests.test_verdicts import failed
from tests.make import SETTINGS, TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from tests.parity.test_selftest import PLACES, simultaneous
from wdport.compare.gate_bounds import bounds
from wdport.conversion.load import open_converted
from wdport.files import keras_file as keras_files
from wdport.files import model_files
from wdport.files.model_files import read_variables
from wdport.parity.file_pair import misread
from wdport.parity.selftest.inject import inject
from wdport.parity.selftest.result import SelftestResult
from wdport.parity.selftest.specimen import Specimen
from wdport.uses.gates import trajectories
from wdport.uses.waveletdiff import layers, series

EXAMPLES = tuple(CONFIGS)


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_fault_dies_where_it_is_and_no_correct_port_does(name: str) -> None:
    group, variants = run_example(FAULTS, name, single=name == EXAMPLES[0])
    found = SelftestResult((group,), variants)
    assert found.wrong == ()
    assert found.false_alarms == ()
    assert len(variants) > 20  # and so over 40 on both
    assert len(found.faults) > 60
    assert len(found.sought) > 50
    assert sum(kill.diagnosed for kill in found.sought) >= 0.8 * len(found.sought)
    assert found.exit_code == 0


@pytest.mark.full
def test_faults_around_the_network_die() -> None:
    found = {group.gate: list(group.kills) for group in further_groups(FAULTS, bounds())}
    assert {gate: len(kills) for gate, kills in found.items()} == {"F": 24, "E": 10, "D": 7}
    assert [kill for kills in found.values() for kill in kills if not kill.right] == []


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_three_faults_at_once(name: str) -> None:
    assert simultaneous(Specimen(name, FAULTS, CONFIGS[name])) == list(PLACES.values())


@pytest.mark.full
@pytest.mark.parametrize("qk_norm", [False, True], ids=["packed", "QK-norm"])
def test_every_fault_dies_at_every_place(qk_norm: bool) -> None:
    config = replace(FAULTS.smallest, qk_norm=qk_norm, scale_embedding=qk_norm)
    specimen = Specimen("smallest", FAULTS, config)
    kills = [inject(specimen, mutant, place) for mutant in mutants(config)
             for place in mutant.places(specimen.layers())]  # fmt: skip
    assert [kill for kill in kills if not kill.right] == []
    assert len(kills) > 390


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
CHANGES: dict[str, tuple[Patch, set[str]]] = {
    "samples mixed": (called(mixed), {"E'"}),
    "bfloat16 operands": (called(rounded), {"E'"}),
    "whole steps in the port": (lambda patch: patch.setattr(layers.SinusoidEmbedding, "call", whole_time), {"B"}),
    "mean and deviation exchanged": (lambda patch: patch.setattr(series, "to_series", exchanged_statistics), {"F"}),
}


QUICK = ("samples mixed",)
"""A fault that `wdport selftest` does not show; `make parity` has them all."""


@pytest.mark.parametrize(
    "fault", [each if each in QUICK else pytest.param(each, marks=pytest.mark.full) for each in CHANGES]
)
def test_it_dies(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    change, gates = CHANGES[fault]
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
