"""Bugs of ports, put into the port's code: `verify` finds each at its place and names it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import wdport
from parity_tests.faults.ts2vec import mutants
from tests.families.quick import few_cases
from tests.families.ts2vec.make import SMALL, save
from wdport.families.ts2vec.family import FAMILY, TS2VecFamily
from wdport.families.ts2vec.reference import TS2Vec
from wdport.keras_runtime import layers_by_path

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
