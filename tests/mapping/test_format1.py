"""The shipped tables in format 2 against the format 1 texts that they replace: the same plans and the same taps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wdport.compare.taps import align
from wdport.families.waveletdiff.family import FAMILY
from wdport.families.waveletdiff.port import WaveletDiff as Port
from wdport.families.waveletdiff.reference import WaveletDiff as Reference
from wdport.keras_runtime import layers_by_path
from wdport.mapping.plan import Misfits, Plan
from wdport.mapping.table import Table, load_table
from wdport.recorder import module_names

from .small import CONFIGS, Case, case

OLD = {table.variant: table for table in map(load_table, sorted((Path(__file__).parent / "format1").iterdir()))}


def both(name: str) -> tuple[Case, Case]:
    new = case(name)
    return new, replace(new, table=OLD[new.table.variant])


def shown(plan: Plan | Misfits) -> object:
    assert isinstance(plan, Plan), plan
    moves = [(move.sources, move.targets, move.rule, move.sizes, move.combine) for move in plan.moves]
    return moves, dict(plan.checks), dict(plan.drops), dict(plan.ties), plan.targets


@pytest.mark.parametrize("name", CONFIGS)
def test_the_plans_are_the_same(name: str) -> None:
    new, old = both(name)
    assert shown(new.plan()) == shown(old.plan())


@pytest.mark.parametrize("name", CONFIGS)
def test_the_taps_are_the_same(name: str) -> None:
    new, old = both(name)
    config = new.config
    modules, layers = module_names(Reference(config)), set(layers_by_path(Port(config)))
    ours, theirs = (align(each.table, modules, layers, FAMILY.features(config)) for each in (new, old))
    assert [replace(tap, optional=False) for tap in ours] == [replace(tap, optional=False) for tap in theirs]


@pytest.mark.parametrize("name", [pytest.param("official", marks=pytest.mark.full), "qk_norm, scale embedding"])
def test_the_faults_are_the_same(name: str) -> None:
    """One tensor after another missing, of another shape, or renamed: the same sentences, but for the line numbers."""
    new, old = both(name)
    for tensor, shape in new.sources.items():
        for change in (
            lambda model, t=tensor: model.without(t),
            lambda model, t=tensor, s=shape: model.having({t: (*s, 2)}),
            lambda model, t=tensor, s=shape: model.without(t).having({"other": s}),
        ):
            ours, theirs = (change(each).faults() for each in (new, old))
            assert [_unnumbered(new.table, fault) for fault in ours] == [_unnumbered(old.table, f) for f in theirs]


def _unnumbered(table: Table, sentence: str) -> str:
    for place in sorted({row.short for row in table.rows}, key=len, reverse=True):
        sentence = sentence.replace(f"{place} (", "a line (")
    return sentence


def test_format_1_has_no_layers_and_needs_what_it_needed() -> None:
    for table in OLD.values():
        assert all(row.layer is None and len(row.torch) == 1 and len(row.rules) <= 1 for row in table.rows)
        assert not any(tap.kind or tap.axes or tap.implied for tap in table.taps)
