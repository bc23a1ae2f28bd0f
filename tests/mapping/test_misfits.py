"""One fault at a time between table, checkpoint and model: each is a sentence that names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wdport.mapping.axes import Shape
from wdport.mapping.plan import Misfits, Plan, make_plan
from wdport.mapping.table import parse_table

from .small import Case, case

BLOCK = "level_transformers.1.blocks.0"
MLP = f"{BLOCK}.mlp.0.weight"
TIME = "time_embedding.mlp.0.weight"


def renamed(model: Case, *pairs: tuple[str, str]) -> Case:
    shapes = {new: model.sources[old] for old, new in pairs}
    return model.without(*(old for old, _ in pairs)).having(shapes)


FAULTS: dict[str, tuple[Callable[[Case], Case], list[str]]] = {
    "extra": (lambda m: m.having({"surprise": (2,)}), ["unexpected surprise (2,)"]),
    "extra block": (lambda m: m.having({"level_transformers.1.blocks.2.mlp.0.bias": (64,)}),
                    ["unexpected level_transformers.1.blocks.2.mlp.0.bias (64,)"]),
    "transposed": (lambda m: m.having({MLP: (16, 64)}),
                   [f"{MLP} has shape (16, 64), @ (linear) expects (64, 16) (transposed?)"]),
    "packed and transposed": (
        lambda m: m.having({f"{BLOCK}.attn.in_proj_weight": (16, 48)}),
        [f"{BLOCK}.attn.in_proj_weight has shape (16, 48), @ (attention_packed_weight) expects (48, 16)"
         " (transposed?)"],
    ),
    "two alike renamed": (lambda m: renamed(m, (f"{BLOCK}.mlp.0.bias", "a"), (f"{BLOCK}.norm1.ada_lin.bias", "b"),
                                            (MLP, "c")),
                          [f"missing {MLP}; is c the same tensor renamed?",
                           f"missing {BLOCK}.norm1.ada_lin.bias; is b the same tensor renamed?",
                           f"missing {BLOCK}.mlp.0.bias; is a the same tensor renamed?"]),
    "which of two is not guessed": (lambda m: renamed(m, (f"{BLOCK}.mlp.3.bias", "a"),
                                                      (f"{BLOCK}.attn.out_proj.bias", "b")),
                                    [f"missing {BLOCK}.attn.out_proj.bias (16,)", f"missing {BLOCK}.mlp.3.bias (16,)",
                                     "unexpected a (16,)", "unexpected b (16,)"]),
    "several at once, worst first": (
        lambda m: m.without(TIME, "time_embedding.emb").having({MLP: (1, 2), "surprise": (2,), "alpha_all": (1,)}),
        [f"missing {TIME} (32, 8)", "missing time_embedding.emb (4,)",
         f"{MLP} has shape (1, 2), @ (linear) expects (64, 16)",
         "alpha_all has shape (1,), the model expects (1001,)", "unexpected surprise (2,)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str) -> None:
    change, sentences = FAULTS[name]
    model = case("official")
    line = {
        name: row.short
        for row in model.table.rows
        for name in model.sources
        for p in row.torch
        if p.match(name) is not None
    }
    sentences = [text.replace("@", str(line.get(text.split()[0]))) for text in sentences]
    faults = change(model).faults()
    assert sorted(faults) == sorted(sentences)
    assert [f.split()[0] for f in faults if f[0] in "mu"] == [f.split()[0] for f in sentences if f[0] in "mu"]


def plan_of(rows: str, sources: dict[str, Shape], targets: dict[str, Shape], **constants: Shape) -> Plan | Misfits:
    """A plan by a table with these rows, one a line from line 7 on."""
    lines = "".join(f"      - {row.strip()}\n" for row in rows.strip().splitlines())
    head = "format: 1\nfamily: f\nvariant: v\nsignature: a\nsections:\n  - tensors:\n"
    return make_plan(parse_table(f"{head}{lines}".encode(), "t.yaml"), sources, targets, constants)


SAME = "keras: x, rule: identity"


def test_a_table_of_every_kind_of_row() -> None:
    plan = plan_of(
        "{torch: a, keras: x, rule: linear}\n{torch: b, check: c}\n{torch: d.<i>, drop: why}\n"
        "{torch: e, keras: y, rule: identity, check: c}\n{torch: f, drop: rare, optional: true}",
        {"a": (2, 3), "b": (1,), "d.0": (9,), "d.7": (8,), "e": (1,)},
        {"x": (3, 2), "y": (1,)},
        c=(1,),
    )
    assert isinstance(plan, Plan)
    assert [(m.source, m.targets, m.sizes, m.line) for m in plan.moves] == [
        ("a", ("x",), {"out": 2, "in": 3}, 7),
        ("e", ("y",), {}, 10),
    ]
    assert plan.checks == {"b": "c", "e": "c"}
    assert plan.drops == {"d.0": "why", "d.7": "why"}


@pytest.mark.parametrize(
    ("rows", "sources", "targets", "sentence"),
    [
        (f"{{torch: a, {SAME}}}\n{{torch: a, {SAME}}}", ["a"], ["x"], "a is claimed by the table's lines 7 and 8"),
        (f"{{torch: a.<i>, check: c.<i>}}\n{{torch: a.1, {SAME}}}", ["a.1"], ["x"], "a.1 is claimed by the table's"),
        (f"{{torch: a, {SAME}}}\n{{torch: b, {SAME}}}", ["a", "b"], ["x"], "x is filled by a and by b"),
        (f"{{torch: a, {SAME}}}\n{{torch: b, drop: why}}", ["a"], ["x"], "line 8 of the table (b) matches nothing"),
        (f"{{torch: a, {SAME}}}\n{{torch: b, check: c}}", ["a"], ["x"], "line 8 of the table (b) matches nothing"),
        (f"{{torch: a, {SAME}}}", ["a"], ["x", "y"], "no row of the table fills y"),
        (f"{{torch: a, {SAME}}}\n{{torch: b, keras: y, rule: identity}}", ["a", "b"], ["x"], "unexpected b (4,)"),
        (f"{{torch: a, {SAME}, optional: true}}", [], ["x"], "missing a (4,)"),
    ],
)
def test_a_table_that_does_not_fit_is_told_so(rows: str, sources: list[str], targets: list[str], sentence: str) -> None:
    plan = plan_of(rows, dict.fromkeys(sources, (4,)), dict.fromkeys(targets, (4,)))
    assert isinstance(plan, Misfits)
    assert any(fault.startswith(sentence) for fault in plan.faults), plan.faults
    assert not [fault for fault in plan.faults for name in sources if fault.startswith(f"missing {name}")]


def test_a_check_against_a_constant_that_the_family_does_not_know() -> None:
    for row in (f"{{torch: a, {SAME}, check: c}}", "{torch: a, check: c}"):
        plan = plan_of(row, {"a": (4,)}, {"x": (4,)} if "keras" in row else {}, d=(4,))
        assert isinstance(plan, Misfits)
        assert not [fault for fault in plan.faults if fault.startswith("missing a")]


def test_rows_on_one_line_are_still_two_rows() -> None:
    """A row that matches nothing is noticed beside one that does."""
    text = f"""{{format: 1, family: f, variant: v, signature: a, sections: [
        {{tensors: [{{torch: a, {SAME}}}, {{torch: b, drop: why}}]}}]}}"""
    plan = make_plan(parse_table(text.encode(), "t.yaml"), {"a": (4,)}, {"x": (4,)}, {})
    assert plan == Misfits(("line 2 of the table (b) matches nothing",))


def test_a_missing_tensor_is_listed_beside_a_misshapen_one_whose_name_ends_alike() -> None:
    rows = "{torch: w.<i>, keras: x.<i>, rule: identity}\n{torch: deep.w.<i>, keras: y.<i>, rule: identity}"
    plan = plan_of(rows, {"w.0": (4,), "deep.w.1": (5,)}, {"x.0": (4,), "x.1": (4,), "y.1": (4,)})
    assert isinstance(plan, Misfits)
    assert [fault.split(" ")[:2] for fault in plan.faults] == [["missing", "w.1"], ["deep.w.1", "has"]]


def test_a_row_applies_only_with_its_feature() -> None:
    text = """{format: 1, family: f, variant: v, signature: a, sections: [
        {when: deep, tensors: [{torch: a, keras: x, rule: identity}]}]}"""
    table = parse_table(text.encode(), "t.yaml")
    assert isinstance(make_plan(table, {"a": (4,)}, {"x": (4,)}, {}, {"deep"}), Plan)
    assert make_plan(table, {"a": (4,)}, {}, {}, {"wide"}) == Misfits(("unexpected a (4,)",))
    assert isinstance(make_plan(table, {}, {}, {}, ()), Plan)
