"""What a table alone tells, held against brute force and against plans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from wdport.mapping.coverage import cover
from wdport.mapping.lint import RemarkFacts, lint
from wdport.mapping.names import overlap, parse_pattern
from wdport.mapping.plan import Misfits, make_plan
from wdport.mapping.table import Table, parse_table, shipped_tables

PATTERNS = ("a.<n>", "a.<n+1>", "a.<n-1>", "a.<n+12>", "a.0", "a.1", "a.11", "a1<n>", "a1<n>.b<m>", "a<n>.b<m+2>",
            "a0<n>", "a12.b2", "a<n>", "a<m+9>", "a.<n>.0", "a.0.<m>", "b.<n>")  # fmt: skip
NUMBERS = [*range(25), 99, 100, 110, 112, 120]
NAMES = [
    *(f"a.{n}" for n in NUMBERS),
    *(f"a{n}" for n in NUMBERS),
    *(f"a0{n}" for n in NUMBERS),
    *(f"b.{n}" for n in NUMBERS),
    *(f"a{n}.b{m}" for n in (*range(14), 120) for m in range(6)),
    *(f"a.{n}.{m}" for n in range(4) for m in range(4)),
]


@pytest.mark.parametrize(("p", "q"), list(combinations(PATTERNS, 2)))
def test_overlap_agrees_with_trying_names(p: str, q: str) -> None:
    first, second = parse_pattern(p), parse_pattern(q)
    found = overlap(first, second)
    ours, theirs = ({name for name in NAMES if each.match(name) is not None} for each in (first, second))
    for witness, names, wanted in (
        (found.both, ours & theirs, (True, True)),
        (found.first, ours - theirs, (True, False)),
        (found.second, theirs - ours, (False, True)),
    ):
        assert (witness is None) == (not names), (witness, names)
        if witness is not None:
            assert (first.match(witness) is not None, second.match(witness) is not None) == wanted


def table(text: str, head: str = "keras: twin:build\n") -> Table:
    return parse_table(f"format: 2\n{head}{text}".encode(), "t.yaml")


def told(text: str, head: str = "keras: twin:build\n") -> list[tuple[str, int, str]]:
    return [(each.level, each.line, each.what) for each in lint(table(text, head))]


ROW = "  - {{torch: {}, keras: {}, rule: {}}}\n"


def rows(*each: tuple[str, str, str]) -> str:
    return "tensors:\n" + "".join(ROW.format(*row) for row in each)


FAULTS = {
    "one tensor, two rows": (rows(("a", "x", "identity"), ("a", "y", "identity")),
                             ("error", 4, "a is also claimed by line 5 of the table")),
    "shadowed": (rows(("a.<n>", "x/<n>", "identity"), ("a.3", "y", "identity")),
                 ("error", 5, "every a.3 is also claimed by line 4 of the table (a.<n>)")),
    "meeting": (rows(("a.<n>.0", "x/<n>", "identity"), ("a.0.<n>", "y/<n>", "identity")),
                ("warning", 5, "a.0.<n> and line 4 of the table (a.<n>.0) claim the same tensor, such as a.0.0")),
    "a tensor twice in a row": (rows(("[a, a]", "x", '"[part] i -> part i"')),
                                ("error", 4, "a and a are one tensor, a, which the row takes twice")),
    "one variable": (rows(("a", "x", "identity"), ("b", "x", "identity")),
                     ("error", 5, "x is also filled by line 4 of the table (a)")),
    "perhaps one variable": (rows(("a.<n>", "x/<n>", "identity"), ("b", "x/7", "identity")),
                             ("warning", 5, "x/7 is also filled by line 4 of the table (a.<n>)")),
    "a size that nothing tells": (rows(("a", "x", '"(h w) -> (w h)"')),
                                  ("error", 4, "(h w) -> (w h) fits no shapes: no shape determines the size of h, w; "
                                               "give it under sizes")),
    "sizes against labels": ('tensors:\n  - {torch: a, keras: x, rule: "(g=r,z h) -> (g=z,r h)", sizes: {g: 3}}\n',
                             ("error", 4, "(g=r,z h) -> (g=z,r h) fits no shapes: g is 2 labels and sizes states 3")),
    "sizes against tensors": ('tensors:\n  - {torch: [a, b], keras: x, rule: "[p] i -> p i", sizes: {p: 3}}\n',
                              ("error", 4, "[p] i -> p i fits no shapes: p is 2 tensors and sizes states 3")),
    "a constant for a variable of a row": (rows(("a", "x", "identity")) + "filled:\n  - {keras: x, fill: zeros}\n",
                                           ("error", 6, "x is also filled by line 4 of the table")),
    "two constants, perhaps": (rows(("a", "y", "identity"))
                               + "filled:\n  - {keras: x<n>, fill: zeros}\n  - {keras: x1, fill: ones}\n",
                               ("warning", 7, "x1 is also filled by line 6 of the table")),
    "a tie to nothing": (rows(("a", "x", "identity")) + "tied:\n  - {torch: b, same_as: c}\n",
                         ("warning", 6, "b is tied to c, which no row claims")),
    "a feature": ("tensors:\n  - {torch: a, keras: x, rule: identity, when: big}\n",
                  ("warning", 4, "when: big never applies: your own model has no features")),
    "a constant": ("tensors:\n  - {torch: a, check: table}\n",
                   ("error", 4, "check: table is a constant; your own model has none: drop it with a reason")),
    "arithmetic": ("tensors:\n  - {torch: [a, b], keras: x, rule: identity, combine: sum}\n",
                   ("note", 4, "sum is arithmetic: its inverse does not restore the stored bits")),
    "compared twice": ("layers:\n  - {torch: a, keras: x, kind: linear}\n  - {torch: a, keras: x}\n",
                       ("warning", 5, "a is already compared with x in line 4")),
    "an input": ('inputs: ["x"]\n' + rows(("a", "x", "identity")),
                 ("error", 0, "inputs: 'x' is not NAME: AXES, such as 'x: b 3 48 48'")),
    "a signature": ("signature: c\n" + rows(("a", "x", "identity")), ("warning", 0, "signature: no row claims c")),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told(name: str) -> None:
    text, wanted = FAULTS[name]
    assert wanted in told(text)


def test_a_function_without_a_name() -> None:
    assert told(rows(("a", "x", "identity")), "keras: twin\n") == [
        ("warning", 0, "keras: 'twin' is not MODULE:FUNCTION")
    ]


SOUND = {
    "alternatives of a layer": "layers:\n  - {torch: a, keras: x, kind: linear}\n",
    "a size that one side tells": rows(("a", "x", '"(h w) c -> c h w"')),
    "old and new name": "tensors:\n  - {torch: a, keras: x, rule: identity, optional: true}\n"
                        "  - {torch: b, keras: x, rule: identity, optional: true}\n",
    "offsets that do not meet": rows(("a.<n+1>", "x/<n>", "identity"), ("a.0", "y", "identity")),
    "numbers within names": rows(("conv1<n>", "x/<n>", "identity"), ("conv2<n>", "y/<n>", "identity")),
    "a tie": rows(("a.<n>", "x/<n>", "identity")) + "tied:\n  - {torch: b, same_as: a.0}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_sound_tables_have_no_remarks(name: str) -> None:
    assert told(SOUND[name], "") == []


def test_features_that_differ_may_exclude_each_other() -> None:
    text = ("tensors:\n  - {torch: a, keras: x, rule: identity, when: one}\n"
            "  - {torch: a, keras: x, rule: linear, when: two}\n")  # fmt: skip
    assert told(text, "family: waveletdiff\n") == []


def test_a_row_that_only_some_models_have_shadows_nothing_for_good() -> None:
    text = ("tensors:\n  - {torch: a, keras: x, rule: identity}\n"
            "  - {torch: a, keras: y, rule: identity, when: one}\n")  # fmt: skip
    assert [level for level, _, _ in told(text, "family: waveletdiff\n")] == ["warning", "warning"]


def test_shipped_tables_have_no_remarks() -> None:
    assert {each.path: lint(each) for each in shipped_tables() if lint(each)} == {}


POOL = ("a.0", "a.1", "b.0", "b.1", "c")
WILD = ("a.<n>", "a.<n+1>", "b.<n>", "a.0", "a.1", "b.0", "c")


def _random_table(draw: random.Random) -> Table:
    lines = ["tensors:"]
    for number in range(draw.randint(1, 4)):
        torch = draw.choice(WILD)
        index = "/<n>" if "<" in torch else ""
        optional = ", optional: true" if draw.random() < 0.3 else ""
        if draw.random() < 0.2:
            lines.append(f"  - {{torch: {torch}, drop: why{optional}}}")
        else:
            path = draw.choice(("x", "y", f"z{number}"))
            lines.append(f"  - {{torch: {torch}, keras: {path}{index}, rule: identity{optional}}}")
    return table("\n".join(lines))


def _filled(found: Table, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Every variable that the rows fill from these tensors."""
    hits = ((row, indices) for name in names for row in found.rows if (indices := row.torch[0].match(name)) is not None)
    return {pattern.format(indices): (2,) for row, indices in hits for pattern in row.keras}


def test_errors_mean_that_no_checkpoint_fits_and_coverage_agrees_with_plans() -> None:
    draw, refused, planned = random.Random(0), 0, 0
    for _ in range(150):
        found = _random_table(draw)
        errors = [each for each in lint(found) if each.level == "error"]
        for size in range(1, len(POOL) + 1):
            for names in combinations(POOL, size):
                plan = make_plan(found, dict.fromkeys(names, (2,)), _filled(found, names), {})
                claims = cover(found, names, ())
                twice = isinstance(plan, Misfits) and any("is filled by" in fault for fault in plan.faults)
                assert bool(claims.faults) or twice == isinstance(plan, Misfits), (found.rows, names, plan)
                assert not claims.faults or isinstance(plan, Misfits), (found.rows, names, plan)
                if errors:
                    refused += 1
                    assert isinstance(plan, Misfits), (errors, names)
                planned += not isinstance(plan, Misfits)
    assert refused > 500
    assert planned > 100


def test_coverage_of_lists_and_ties() -> None:
    found = table('tensors:\n  - {torch: [a.<n>.q, a.<n>.k], keras: x/<n>, rule: "[p] i -> p i"}\n'
                  "tied:\n  - {torch: b, same_as: c}\n")  # fmt: skip
    claims = cover(found, ["a.0.q", "a.0.k", "a.1.q", "b", "d"], ())
    assert claims.unclaimed == ("d",)
    assert claims.incomplete == ("line 4 of the table needs a.1.k, which the checkpoint does not have",
                                 "line 6 of the table needs c, which the checkpoint does not have")  # fmt: skip
    assert [each.tensors for each in claims.rows] == [("a.0.q", "a.0.k", "a.1.q"), ("b",)]
    assert len(claims.faults) == 3


def test_a_remark_says_where_it_stands() -> None:
    assert RemarkFacts("note", "common.yaml", 3, "x").place == "common.yaml, line 3"
    assert RemarkFacts("note", "", 0, "x").place == ""


def test_a_table_of_thousands_of_names_is_soon_read() -> None:
    """Each pair of them would be compared if names were not told apart first."""
    many = table(rows(*((f"a.{n}.w", f"x/{n}", "identity") for n in range(2500)), ("a.<n>.v", "y/<n>", "identity")))
    assert lint(many) == ()
