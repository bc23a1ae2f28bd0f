"""The recording of the public implementation, and bugs of ports, which `verify` finds at their place and names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import wdport
from parity_tests.faults.ts2vec import mutants
from tests.families.quick import few_cases
from tests.uses.ts2vec.make import SMALL, save
from wdport.compare.calls import Call
from wdport.compare.layouts import in_port
from wdport.compare.probe import Probe
from wdport.compare.taps import align
from wdport.conversion.load import open_converted
from wdport.mapping.table import shipped_tables
from wdport.models.keras_runtime import layers_by_path
from wdport.uses.ts2vec.family import FAMILY, TS2VecFamily
from wdport.uses.ts2vec.reference import TS2Vec

(TABLE,) = (table for table in shipped_tables() if table.family == "ts2vec")


@pytest.fixture(scope="module")
def recorded(golden: Path) -> dict[str, np.ndarray]:
    with np.load(golden / "ts2vec-stocks.golden.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def converted(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("golden") / "ts2vec.keras"
    return wdport.convert(golden / "ts2vec-stocks.pt", output).output


@pytest.fixture(scope="module")
def wide(converted: Path) -> Iterator[keras.Model]:
    with jax.enable_x64(True):
        yield wdport.load_model(converted, "float64")


def test_the_configuration_is_the_recorded_one(converted: Path) -> None:
    opened = open_converted(converted)
    told = {"input_dims": 6, "hidden_dims": 64, "output_dims": 320, "depth": 10, "kernel_size": 3}
    assert opened.config.to_dict() == told
    assert set(opened.origins.values()) == {"shapes"}


def test_every_activation_and_the_output(wide: keras.Model, recorded: dict[str, np.ndarray]) -> None:
    layers = layers_by_path(wide)
    names = [name.removeprefix("act/module").lstrip(".") for name in recorded if name.startswith("act/")]
    extra = ["pool", *(f"feature_extractor.net.{i}.gelu{j}" for i in range(11) for j in (1, 2))]
    taps = {tap.reference: tap for tap in align(TABLE, [*filter(None, names), *extra], layers, ())}
    with jax.enable_x64(True):
        series = recorded["x"].astype(np.float64)
        outputs, calls = Probe(wide, [tap.candidate for tap in taps.values()]).record((series,))
    assert np.allclose(outputs[0], recorded["output64"], rtol=0, atol=1e-10)
    assert outputs[0].dtype == outputs[1].dtype == np.float64
    assert np.array_equal(outputs[1], outputs[0].max(axis=1))
    compared = 0
    for name in names:
        right = recorded[f"act/module.{name}".rstrip(".")]
        ours = calls[taps[name].candidate].outputs[0] if name else outputs[0]
        if name:
            call = Call((), (right,))
            (right,) = in_port(call, taps[name].layout, ([], [ours.shape]), ()).outputs
        assert np.linalg.norm(ours - right) <= 2e-6 * np.linalg.norm(right), name
        compared += 1
    assert compared == 61


def test_float32_is_as_close_as_the_recording(converted: Path, recorded: dict[str, np.ndarray]) -> None:
    """Loaded by Keras itself, without wdport's reader; the embedding is the maximum over all steps."""
    model = keras.saving.load_model(converted)
    compiled = jax.jit(lambda x: model(x))
    representation, _ = compiled(recorded["x"])
    error, theirs = (np.linalg.norm(np.asarray(each) - recorded["output64"])
                     for each in (representation, recorded["output"]))  # fmt: skip
    assert error <= 2 * theirs
    _, embedding = compiled(recorded["series64"])
    assert np.allclose(embedding, recorded["embedding64"], rtol=0, atol=2e-6)
    assert not np.allclose(embedding, recorded["embedding64"][::-1], rtol=0, atol=1e-2)


DEEP = replace(SMALL, depth=6)
"""Its last dilation is 64, and half of it 32: series of 24 steps do not tell these apart."""

FAULTS = {
    "dilation halved": (DEEP, "net/block_6/conv2/conv", "feature_extractor.net.6.conv2.conv"),
    "GELU by tanh": (SMALL, "net/block_1/gelu2", "feature_extractor.net.1.gelu2"),
    "causal padding": (SMALL, "net/block_0/conv1/conv", "feature_extractor.net.0.conv1.conv"),
    "mean over time for the maximum": (SMALL, "pool", "pool"),
}
"""By the bug's name, the encoder, the place that it is put at, and the module that has to be found."""


@pytest.mark.parametrize("name", FAULTS)
def test_verify_finds_it_at_its_place(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, place, module = FAULTS[name]
    checkpoint = save(tmp_path / "small.pt", config)
    converted = wdport.convert(checkpoint).output
    (mutant,) = (each for each in mutants(config) if each.name == name)
    build = TS2VecFamily.build
    with ExitStack() as stack:

        def broken(self: TS2VecFamily, config: Any, dtype: str | None = None) -> Any:
            model = build(self, config, dtype)
            layers = layers_by_path(model)
            (site,) = (path for path in mutant.places(layers) if path.endswith(place))
            stack.enter_context(mutant.change(layers[site], model))
            return model

        monkeypatch.setattr(TS2VecFamily, "build", broken)
        with few_cases(2):  # the second has the length that the widest dilation reaches
            verdict = wdport.verify(checkpoint, converted)
    assert not verdict
    assert [fault.reference for fault in verdict.faults] == [module]
    told = [cause for causes in verdict.causes.values() for cause in causes]
    assert not mutant.facts or any(mutant.facts in cause for cause in told)


def test_every_mutant_has_a_place() -> None:
    layers = layers_by_path(FAMILY.build(SMALL))
    for mutant in mutants(SMALL):
        assert any(fnmatchcase(path, site) for path in layers for site in mutant.sites), mutant.name


class Both(TS2Vec):
    """The embedding by a function of the representation: the module's own result is not used, as in published code."""

    def forward(self, series: Any) -> Any:
        representation, _ = super().forward(series)
        return representation, representation.amax(dim=1)


def both() -> Both:
    return Both(SMALL)


def test_an_output_by_a_function_of_another_is_the_same(tmp_path: Path) -> None:
    checkpoint = save(tmp_path / "small.pt")
    with few_cases(3):  # the third isolates layers with greater values
        verdict = wdport.verify(checkpoint, wdport.convert(checkpoint).output, reference=f"{__name__}:both")
    assert verdict.exit_code == 0, verdict.summary()
