"""Plans of real models: complete where everything is there, and never made where one tensor is not."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdport.mapping.plan import Misfits, Plan
from wdport.uses.waveletdiff.variables import variables

from .small import CONFIGS, Case, case

SCHEDULE = {"beta_all", "alpha_all", "alpha_bar_all"}


def planned(given: Case) -> Plan:
    plan = given.plan()
    assert isinstance(plan, Plan), plan
    return plan


@pytest.mark.parametrize("name", CONFIGS)
def test_every_source_is_used_once_and_every_target_filled_once(name: str) -> None:
    model = case(name)
    plan = planned(model)
    moved = [move.source for move in plan.moves]
    assert sorted(moved) == sorted(model.parameters | SCHEDULE)
    assert plan.checks.keys() == model.buffers
    assert plan.drops == {}
    assert sorted(plan.targets) == sorted(variables(model.config))
    assert plan.table is model.table


@pytest.mark.parametrize("name", CONFIGS)
def test_no_number_is_lost(name: str) -> None:
    """Every move has as many elements on both sides, and reads the head count as the model has it."""
    model = case(name)
    targets = variables(model.config)
    for move in planned(model).moves:
        shapes = [targets[target] for target in move.targets]
        assert prod(model.sources[move.source]) == sum(map(prod, shapes))
        assert move.rule.target.any_axes or {move.rule.target.shape(move.sizes)} == set(shapes)
        assert move.sizes.get("heads", model.config.num_heads) == model.config.num_heads
        assert move.sizes.get("part", 3) == 3
        claiming = [row for row in model.table.rows if any(p.match(move.source) is not None for p in row.torch)]
        assert [(row.line, row.file) for row in claiming] == [(move.line, move.file)]


@pytest.mark.parametrize("name", CONFIGS)
def test_each_tensor_goes_to_its_own_level_and_block(name: str) -> None:
    """The numbers in a source's name are those in its targets', the ones of nn.Sequential apart."""
    for move in planned(case(name)).moves:
        wanted = [part for part in move.source.split(".") if part.isdigit()]
        if "mlp" in move.source or "gates" in move.source or "aggregators" in move.source:
            wanted = wanted[:-1]
        for target in move.targets:
            assert [c for part in target.split("/") for c in part.split("_") if c.isdigit()] == wanted


def test_index_buffers_and_scales_are_checked_where_they_exist() -> None:
    indexed = {f"cross_level_attention.other_indices_{i}": (3,) for i in range(4)}
    plan = planned(case("official").having(indexed))
    assert {name: plan.checks[name] for name in indexed} == {n: f"other_levels.{n[-1]}" for n in indexed}
    scales = {
        "level_transformers.0.blocks.3.attn.scale": (),
        "level_transformers.2.blocks.1.attn.scale": (),
        "cross_level_attention.cross_attention_layers.1.scale": (),
    }
    plan = planned(case("qk_norm").having(scales | indexed))
    assert [plan.checks[name] for name in scales] == [
        "attention_scale.0.3", "attention_scale.2.1", "cross_attention_scale.1",
    ]  # fmt: skip
    assert len(case("qk_norm").having({"level_transformers.2.blocks.2.attn.scale": ()}).faults()) == 1
    assert len(case("official").having({"cross_level_attention.other_indices_1": (4,)}).faults()) == 1
    assert len(case("official").having({"cross_level_attention.other_indices_4": (3,)}).faults()) == 1


@pytest.mark.parametrize("name", ["official, one layer, two groups", "qk_norm, scale embedding"])
def test_no_single_tensor_can_be_left_out(name: str) -> None:
    model = case(name)
    for tensor, shape in model.sources.items():
        assert model.without(tensor).faults() == (f"missing {tensor} {shape}",)


@pytest.mark.parametrize("name", ["official, one layer, two groups", "qk_norm, scale embedding"])
def test_no_single_shape_can_differ(name: str) -> None:
    model = case(name)
    for tensor, shape in model.sources.items():
        (fault,) = model.having({tensor: (*shape[:-1], shape[-1] + 1)}).faults()
        assert fault.startswith(f"{tensor} has shape ")
        assert f"expects {shape}" in fault


@pytest.mark.parametrize("name", CONFIGS)
def test_no_other_variant_fits(name: str) -> None:
    """The table of one variant never makes a plan of the other's tensors."""
    for other in CONFIGS:
        theirs = case(other)
        plan = Case(theirs.config, theirs.table, case(name).sources, frozenset(), frozenset()).plan()
        assert isinstance(plan, Misfits) == (name != other)


SMALL = case("official, one layer, two groups")


@given(st.data())
def test_every_one_of_many_faults_is_listed(data: st.DataObject) -> None:
    """Any tensors missing and any others of a wrong rank: as many sentences, each naming its tensor."""
    names = data.draw(st.lists(st.sampled_from(sorted(SMALL.sources)), min_size=1, max_size=12, unique=True))
    missing = names[: data.draw(st.integers(0, len(names)))]
    misshapen = names[len(missing) :]
    changed = SMALL.having({name: (*SMALL.sources[name], 1) for name in misshapen}).without(*missing)
    faults = changed.faults()
    assert sorted(faults[: len(missing)]) == sorted(f"missing {name} {SMALL.sources[name]}" for name in missing)
    assert sorted(fault.split(" has shape ")[0] for fault in faults[len(missing) :]) == sorted(misshapen)


@given(st.sampled_from(sorted(SMALL.sources)), st.text("abc.01_", min_size=1, max_size=12))
def test_a_tensor_under_any_other_name_is_noticed(name: str, other: str) -> None:
    if other not in SMALL.sources:
        shape = SMALL.sources[name]
        faults = SMALL.without(name).having({other: shape}).faults()
        assert faults[0] == f"missing {name}; is {other} the same tensor renamed?"
        assert len(faults) == 1
