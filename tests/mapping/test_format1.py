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
from wdport.mapping.table import load_table
from wdport.recorder import module_names

from .small import CONFIGS, case

OLD = {table.variant: table for table in map(load_table, sorted((Path(__file__).parent / "format1").iterdir()))}


def shown(plan: Plan | Misfits) -> object:
    assert isinstance(plan, Plan), plan
    moves = [(move.sources, move.targets, move.rule, move.sizes, move.combine) for move in plan.moves]
    return moves, dict(plan.checks), dict(plan.drops), dict(plan.ties), plan.targets


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "official, one layer, two groups"])
def test_the_plans_and_the_taps_are_the_same(name: str) -> None:
    new = case(name)
    old = replace(new, table=OLD[new.table.variant])
    assert shown(new.plan()) == shown(old.plan())
    modules, layers = module_names(Reference(new.config)), set(layers_by_path(Port(new.config)))
    ours, theirs = (align(each.table, modules, layers, FAMILY.features(new.config)) for each in (new, old))
    assert [replace(tap, optional=False) for tap in ours] == [replace(tap, optional=False) for tap in theirs]


def test_format_1_has_no_layers_and_needs_what_it_needed() -> None:
    for table in OLD.values():
        assert all(row.layer is None and len(row.torch) == 1 and len(row.rules) <= 1 for row in table.rows)
        assert not any(tap.kind or tap.axes or tap.implied for tap in table.taps)
