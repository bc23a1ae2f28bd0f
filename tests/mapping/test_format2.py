"""Format 2: layers expand to rows and taps, tables include tables, and every fault is one line that helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wdport.base.errors import InternalError, MisfitError
from wdport.mapping.axes import RULES, Shape
from wdport.mapping.plan import Misfits, Plan, make_plan
from wdport.mapping.table import Table, load_table, parse_table


def parsed(text: str, folder: Path | None = None) -> Table:
    return parse_table(f"format: 2\n{text}".encode(), "t.yaml", folder)


def layers(*rows: str) -> Table:
    """A table of these layers, one a line from line 3 on."""
    return parsed("layers:\n" + "".join(f"  - {{{row}}}\n" for row in rows))


def refused(text: str, line: int) -> str:
    with pytest.raises(MisfitError) as caught:
        parsed(text)
    message = str(caught.value)
    assert message.startswith(f"t.yaml: line {line}: ")
    assert "\n" not in message
    return message


BAD_LAYERS = {
    "torch: a, keras: a, kind: conv2": "unknown kind 'conv2'; did you mean conv2d",
    "torch: a, keras: a, kind: xyzzy": "unknown kind 'xyzzy'; use one of docs/mapping.md",
    "torch: a, keras: a, kind: dense": "unknown kind 'dense'; did you mean linear?",
    "torch: a, keras: a, kind: nn.Linear": "did you mean linear?",
    "torch: a, keras: a, kind: conv": "did you mean conv1d or conv2d or conv3d?",
    "torch: a, keras: a, kind: Conv2D": "did you mean conv2d or depthwise_conv2d?",
    "torch: a, keras: a, kind: EinsumDense": "did you mean linear?",
    "torch: a, keras: a, kind: BatchNormalization": "did you mean batch_norm?",
    "torch: a, keras: a, kind: Bidirectional": "did you mean bidirectional_rnn or bidirectional_lstm or ",
    "torch: a, keras: a, kind: UpSampling2D": "a layer without weights: leave out its kind",
    "torch: a, keras: a, kind: linear, flaten: c -> c": "unknown field 'flaten'; did you mean flatten?",
    "torch: a, keras: a, note: x": "unknown field 'note'; remove it",
    "torch: a": "keras is missing",
    "torch: a, kears: a, kind: linear": "unknown field 'kears'; did you mean keras?",
    "torch: a, keras: a, kidn: linear, flatten: 'c h -> h c'": "unknown field 'kidn'; did you mean kind?",
    "keras: a, kind: linear": "torch is missing",
    "torch: [a], keras: a": "torch is not text",
    "torch: a.<i>, keras: a, kind: linear": "different indices",
    "torch: a, keras: a_<i>": "different indices",
    "torch: a.<i>, keras: a_<j+1>": "different indices",
    "torch: a, keras: a_<layer>, kind: linear": "different indices",
    "torch: a.<i>, keras: a_<layer>, kind: lstm": "different indices",
    "torch: a, keras: a, kind: conv2d, flatten: c h -> h c": "conv2d does not take flatten; use it with: linear, ",
    "torch: a, keras: a, flatten: c h -> h c": "a row without a kind does not take flatten",
    "torch: a, keras: a, kind: linear, flatten: c h": "SIDE -> SIDE",
    "torch: a, keras: a, kind: linear, flatten: (c h) -> h c": "unexpected '('",
    "torch: a, keras: a, kind: linear, flatten: c out -> out c": "every axis once",
    "torch: a, keras: a, kind: linear, flatten: '[c] h -> h c'": "write the axes of both sides",
    "torch: a, keras: a, kind: linear, flatten: c h -> h c, sizes: {w: 3}": "sizes names w, which is not an axis",
    "torch: a, keras: a, kind: linear, sizes: {out: 0}": "sizes has an invalid value",
    "torch: a, keras: a, kind: linear, sizes: {out: '3'}": "sizes has an invalid value",
    "torch: a, keras: a, kind: linear, sizes: 3": "sizes has an invalid value",
    "torch: a, keras: a, axes: b c h -> b h": "every axis once",
    "torch: a, keras: a, axes: '[b] c -> b c'": "write one tensor on each side",
    "torch: a, keras: a, names: {query: to_q}": "names without a kind",
    "torch: a, keras: a, kind: linear, then: swish": "then is 'swish'; use one of ",
    "torch: a, keras: a, kind: attention, names: {qury: to_q}": "attention has no name 'qury'; did you mean query",
    "torch: a, keras: a, kind: lstm, names: {weight: w}": "lstm has no name 'weight'; remove it",
    "torch: a, keras: a, kind: attention, names: {query: 3}": "names has an invalid value",
    "torch: a, keras: a, kind: attention, names: {query: 'to q*'}": "wildcard",
    "torch: a, keras: a, kind: attention, formerly: {qury: q}": "formerly has 'qury'; did you mean query",
    "torch: a, keras: a, formerly: {query: q}": "formerly has 'query'; use a kind",
    "torch: a, keras: a, kind: attention, formerly: {query: q.<i>}": "indices",
    "torch: a, keras: a, up_to: scale": "up_to is 'scale'",
    "torch: a, keras: a, optional: 1": "optional is not true or false",
    "torch: a.<i->, keras: a": "bracket",
}

BAD_TENSORS = {
    "torch: [q, k], keras: qkv, rule: linear": "rule linear does not take 2 tensors",
    "torch: q, keras: qkv, rule: '[part] out in -> in (part out)'": "does not take 1 tensors",
    "torch: [q, k, v], keras: qkv, rule: '[part=q,k] h -> (part=q,k h)'": "does not take 3 tensors",
    "torch: [], keras: a, rule: linear": "torch is missing",
    "torch: [q, k.<i>], keras: qkv, rule: '[p] h -> (p h)'": "different indices",
    "torch: [a, b], drop: why": "about one tensor",
    "torch: a, keras: a, rule: a b": "unknown rule 'a b'; use a name from docs/mapping.md",
    "torch: a, keras: a, rule: lineer": "unknown rule 'lineer'; did you mean linear?",
    "torch: a, keras: a, rule: a b -> a": "every axis once",
    "torch: [a, b], keras: a, rule: identity, combine: mean": "unknown arithmetic 'mean'; use one of sum, weight_norm",
    "torch: a, keras: a, rule: identity, combine: sum": "sum does not take 1 tensors",
    "torch: [a, b, c], keras: a, rule: identity, combine: weight_norm": "weight_norm does not take 3 tensors",
    "torch: a, keras: a, rule: linear, sizes: {heads: 3}": "sizes names heads, which is not an axis of out in -> in",
}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no rows"),
        ("inputs: x\nlayers: [{torch: a, keras: a}]\n", 2, "inputs is not a list of texts"),
        ("config: [1]\nlayers: [{torch: a, keras: a}]\n", 2, "config is not a list of texts"),
        ("taps: [{torch: a, keras: a}]\n", 2, "unknown field 'taps'"),
        ("layer: [{torch: a, keras: a}]\n", 2, "unknown field 'layer'; did you mean layers?"),
        ("sections:\n  - {torch: a, keras: a}\n", 3, "a section without rows"),
        ("sections:\n  - when: x\n    layers:\n      - {torch: a, keras: a, when: y}\n", 5, "for its section"),
        ("tied:\n  - {torch: a}\n", 3, "same_as is missing"),
        ("tied:\n  - {torch: a, same_as: a}\n", 3, "tied to itself"),
        ("tied:\n  - {torch: a.<i>, same_as: b}\n", 3, "different indices"),
        ("filled:\n  - {keras: a}\n", 3, "fill is missing"),
        ("filled:\n  - {keras: a, fill: 0.5}\n", 3, "fill is not text"),
        ("filled:\n  - {keras: a, fill: twos}\n", 3, "fill is 'twos'; use one of zeros, ones"),
        ("filled:\n  - {torch: a, keras: b, fill: ones}\n", 3, "unknown field 'torch'"),
        ("include: [nosuch]\n", 2, "no table 'nosuch' comes with wdport; use one of "),
        ("include: [a.yaml]\n", 2, "is relative to the table's file"),
        ("include: [/etc/a.yaml]\n", 2, "is outside the table's folder"),
        ("include: [../a.yaml]\n", 2, "is outside the table's folder"),
        ("include: nosuch\n", 2, "include is not a list of texts"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    assert message in refused(text, line)


def test_a_layer_expands_to_its_tensors_and_its_tap() -> None:
    table = layers("torch: conv<n>, keras: conv<n+1>, kind: conv2d, then: relu, up_to: shift, when: deep")
    assert [tuple(p.text for p in row.torch) for row in table.rows] == [
        ("conv<n>.weight",),
        ("conv<n>.weight_g", "conv<n>.weight_v"),
        ("conv<n>.parametrizations.weight.original0", "conv<n>.parametrizations.weight.original1"),
        ("conv<n>.bias",),
    ]
    assert [row.combine for row in table.rows] == ["", "weight_norm", "weight_norm", ""]
    assert {p.text for row in table.rows[:3] for p in row.keras} == {"conv<n+1>/kernel"}
    assert table.rows[0].rules[0] is RULES["conv2d"]
    assert {(row.line, row.when, row.layer and row.layer.torch.text) for row in table.rows} == {(3, "deep", "conv<n>")}
    (tap,) = table.taps
    assert (tap.torch.text, tap.keras.text, tap.kind, tap.then, tap.shift) == (
        "conv<n>", "conv<n+1>", "conv2d", "relu", True,
    )  # fmt: skip
    assert [str(rule) for rule in tap.axes] == ["b c h w -> b h w c", "b c h w -> b c h w"]


def test_what_a_row_states_comes_before_what_its_kind_does() -> None:
    table = layers("torch: a, keras: a, kind: conv2d, axes: b c h w -> b w h c", "torch: b, keras: b")
    assert [str(rule) for tap in table.taps for rule in tap.axes] == ["b c h w -> b w h c"]
    (flat,) = layers('torch: f, keras: f, kind: flatten, flatten: "c h w -> h w c", sizes: {h: 2, w: 3}').taps
    assert [str(rule) for rule in flat.axes] == ["b (c h w) -> b (h w c)"]
    assert str(flat.flatten) == "(c h w) -> (h w c)"


def test_the_texts_of_a_table_are_kept() -> None:
    table = parsed(
        'torch: my.net:build\nkeras: my.twins:build\ninputs: ["x: b 3 48 48"]\nconfig: [hidden, heads]\n'
        "layers: [{torch: a, keras: a}]\n"
    )
    assert (table.family, table.variant, table.signature) == ("custom", "", None)
    assert (table.torch, table.keras, table.inputs, table.config) == (
        "my.net:build", "my.twins:build", ("x: b 3 48 48",), ("hidden", "heads"),
    )  # fmt: skip


def plan_of(table: Table, sources: dict[str, Shape], targets: dict[str, Shape]) -> Plan | Misfits:
    return make_plan(table, sources, targets, {})


LINEAR: dict[str, Shape] = {"a.weight": (2, 3), "a.bias": (2,)}
DENSE: dict[str, Shape] = {"a/kernel": (3, 2), "a/bias": (2,)}


@pytest.mark.parametrize(
    ("rows", "sources", "targets", "faults"),
    [
        (["torch: a, keras: a, kind: linear"], LINEAR, DENSE, None),
        (["torch: a, keras: a, kind: linear", "torch: b, keras: b, kind: linear"], LINEAR, DENSE,
         ["line 4 of the table (b) matches nothing"]),
        (["torch: a, keras: a, kind: linear", "torch: b, keras: b, kind: linear, optional: true"], LINEAR, DENSE, None),
        (["torch: a, keras: a, kind: linear", "torch: b, keras: b, kind: dropout"], LINEAR, DENSE, None),
        (["torch: a, keras: a, kind: linear"], {"a.weight": (2, 3)}, DENSE, ["missing a.bias (2,)"]),
        (["torch: a, keras: a, kind: linear"], LINEAR, {"a/kernel": (3, 2)}, ["unexpected a.bias (2,)"]),
        (["torch: a, keras: a, kind: linear"], {}, DENSE, ["missing a.weight (2, 3)", "missing a.bias (2,)"]),
        (["torch: a, keras: a, kind: linear"], {"a.weight_g": (2, 1), "a.bias": (2,)}, DENSE,
         ["missing a.weight_v (2, 3)"]),
        (["torch: a, keras: a, kind: linear"], {**LINEAR, "a.weight_g": (2, 1), "a.weight_v": (2, 3)}, DENSE,
         ["a/kernel is filled by a.weight and by a.weight_g"]),
        (["torch: a, keras: a, kind: linear"], {"a.weight_g": (3, 1), "a.weight_v": (2, 3), "a.bias": (2,)}, DENSE,
         ["a.weight_g does not fit line 3 (linear): a magnitude of shape (3, 1)"]),
        (["torch: a, keras: a, kind: linear"], {"a.weight": (3, 2), "a.bias": (2,)}, DENSE,
         ["a.weight has shape (3, 2), line 3 (linear) expects (2, 3) (transposed?)"]),
        (["torch: a.<i>, keras: a_<i-1>, kind: linear"], {"a.0.weight": (2, 3)}, {},
         ["line 3 of the table: a_<i-1>/kernel has no name for i = 0"]),
        (["torch: a.<i-1>, keras: a_<i>, kind: linear"], {}, {"a_0/kernel": (3, 2)},
         ["no row of the table fills a_0/kernel", "line 3 of the table (a.<i-1>) matches nothing"]),
        (["torch: a, keras: a, kind: linear", "torch: a, keras: b, kind: linear"], LINEAR, DENSE,
         ["a.weight is claimed by the table's lines 3 and 4", "a.bias is claimed"]),
        (["torch: r, keras: r, kind: lstm"], {"r.weight_ih_l0": (8, 3), "r.weight_hh_l0": (8, 2), "r.bias_ih_l0": (8,)},
         {"r/cell/kernel": (3, 8), "r/cell/recurrent_kernel": (2, 8), "r/cell/bias": (8,)},
         ["missing r.bias_hh_l0 (8,)"]),
    ],
)  # fmt: skip
def test_layers_and_shapes(
    rows: list[str], sources: dict[str, Shape], targets: dict[str, Shape], faults: list[str] | None
) -> None:
    plan = plan_of(layers(*rows), sources, targets)
    if faults is None:
        assert isinstance(plan, Plan), plan
        return
    assert isinstance(plan, Misfits)
    for fault in faults:
        assert any(said.startswith(fault) for said in plan.faults), plan.faults


def test_offsets_read_and_write_both_ways() -> None:
    rows = ("torch: a.<i+1>, keras: x_<i>, kind: linear", "torch: b.<i>, keras: y_<i+2>, kind: linear")
    sources: dict[str, Shape] = {"a.1.weight": (2, 3), "b.0.weight": (4, 5)}
    plan = plan_of(layers(*rows), sources, {"x_0/kernel": (3, 2), "y_2/kernel": (5, 4)})
    assert isinstance(plan, Plan)
    assert [(move.sources, move.targets) for move in plan.moves] == [
        (("a.1.weight",), ("x_0/kernel",)),
        (("b.0.weight",), ("y_2/kernel",)),
    ]
    missing = plan_of(layers(*rows), {}, {"x_0/kernel": (3, 2), "y_2/kernel": (5, 4)})
    assert missing == Misfits(("missing a.1.weight (2, 3)", "missing b.0.weight (4, 5)"))


@pytest.mark.parametrize(("sources", "targets", "row"), [
    (LINEAR, DENSE, "add `{torch: a, keras: a, kind: linear}` under layers"),
    ({"n.weight": (4,), "n.bias": (4,), "n.running_mean": (4,), "n.running_var": (4,), "n.num_batches_tracked": ()},
     {f"bn/{name}": (4,) for name in ("gamma", "beta", "moving_mean", "moving_variance")},
     "add `{torch: n, keras: bn, kind: batch_norm}` under layers"),
    ({"n.weight": (4,), "n.bias": (4,)}, {"n/gamma": (4,), "n/beta": (4,)},
     "add `{torch: n, keras: n, kind: layer_norm}` under layers (or kind group_norm, batch_norm)"),
    (LINEAR, {"a/kernel": (3, 5), "a/bias": (5,)}, ""),
    (LINEAR, {**DENSE, "b/kernel": (3, 2), "b/bias": (2,)}, ""),
])  # fmt: skip
def test_the_row_of_a_layer_that_is_left_out(sources: dict[str, Shape], targets: dict[str, Shape], row: str) -> None:
    given = layers("torch: z, keras: z, kind: embedding")
    plan = plan_of(given, {"z.weight": (7, 3), **sources}, {"z/embeddings": (7, 3), **targets})
    assert isinstance(plan, Misfits)
    assert plan.row == row


def test_a_keras_path_with_dots_is_said_once() -> None:
    given = layers("torch: a, keras: encoder.a, kind: linear", "torch: b.<i>, keras: encoder.b_<i>, kind: linear")
    blocks: dict[str, Shape] = {"b.0.weight": (2, 3), "b.0.bias": (2,)}
    targets = {f"encoder/{layer}{path[1:]}": shape for layer in ("a", "b_0") for path, shape in DENSE.items()}
    told = "line 3: Keras joins the parts of a path by slashes: write encoder/a, and 1 more"
    assert plan_of(given, {**LINEAR, **blocks}, targets) == Misfits((told,))


TIED = "layers: [{torch: e, keras: e, kind: embedding}]\ntied: [{torch: head.weight, same_as: e.weight}]\n"


def test_a_tied_tensor_may_be_absent_and_fills_nothing() -> None:
    targets: dict[str, Shape] = {"e/embeddings": (7, 3)}
    absent = plan_of(parsed(TIED), {"e.weight": (7, 3)}, targets)
    assert isinstance(absent, Plan)
    assert absent.ties == {}
    plan = plan_of(parsed(TIED), {"e.weight": (7, 3), "head.weight": (7, 3)}, targets)
    assert isinstance(plan, Plan)
    assert (plan.ties, plan.targets) == ({"head.weight": "e.weight"}, ("e/embeddings",))
    table = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    values = {"e.weight": table, "head.weight": table.copy()}

    def same(one: str, other: str) -> bool:
        return values[one].tobytes() == values[other].tobytes()

    assert plan.unequal_ties(same) == []
    back = dict(plan.invert({"e/embeddings": table}.__getitem__))
    assert {name: array.tobytes() for name, array in back.items()} == {n: a.tobytes() for n, a in values.items()}
    values["head.weight"][0, 0] = -values["head.weight"][0, 0]
    assert plan.unequal_ties(same) == ["head.weight differs from e.weight, which the table ties it to"]


def test_a_tie_that_cannot_be_is_a_misfit() -> None:
    targets: dict[str, Shape] = {"e/embeddings": (7, 3)}
    plan = plan_of(parsed(TIED), {"e.weight": (7, 3), "head.weight": (3, 7)}, targets)
    assert plan == Misfits(("head.weight has shape (3, 7), e.weight has (7, 3)",))
    plan = plan_of(parsed(TIED), {"head.weight": (7, 3)}, targets)
    assert isinstance(plan, Misfits)
    assert "line 3 of the table ties head.weight to e.weight, which the checkpoint does not have" in plan.faults


def filled(*fills: str) -> Table:
    rows = "".join(f"  - {{{row}}}\n" for row in fills)
    return parsed(f"layers:\n  - {{torch: a<n>, keras: x<n>, kind: conv2d}}\nfilled:\n{rows}")


CONV: dict[str, Shape] = {"a1.weight": (2, 3, 1, 1)}
TWINS: dict[str, Shape] = {"x1/kernel": (1, 1, 3, 2), "x1/bias": (2,), "x1/scale": (2,)}


def test_a_variable_without_a_tensor_gets_a_constant() -> None:
    """A tensor that could fill it, another row for it, and a row that fills nothing are faults."""
    table = filled("keras: x<n>/bias, fill: zeros", "keras: x<n>/scale, fill: ones")
    plan = plan_of(table, CONV, TWINS)
    assert isinstance(plan, Plan)
    assert sorted(plan.targets) == sorted(TWINS)
    made = dict(plan.apply({"a1.weight": np.ones((2, 3, 1, 1), np.float32)}.__getitem__))
    assert {name: (array.shape, array.dtype.name, set(array.flat)) for name, array in made.items()} == {
        name: (shape, "float32", {0.0 if "bias" in name else 1.0}) for name, shape in TWINS.items()
    }
    assert plan.changed_fills(made.__getitem__) == []
    made["x1/bias"] = made["x1/bias"] + np.float32([0, 1e-30])
    assert [(fill.target, fill.line) for fill in plan.changed_fills(made.__getitem__)] == [("x1/bias", 5)]
    assert dict(plan.invert(made.__getitem__)).keys() == CONV.keys()

    biased = plan_of(table, CONV | {"a1.bias": (2,)}, TWINS)
    twice = plan_of(filled("keras: x<n>/bias, fill: zeros", "keras: x1/bias, fill: ones", "keras: y, fill: ones"),
                    CONV, {name: shape for name, shape in TWINS.items() if "scale" not in name})  # fmt: skip
    assert isinstance(biased, Misfits)
    assert isinstance(twice, Misfits)
    assert biased.faults == ("x1/bias is filled by a1.bias and with zeros",)
    assert twice.faults == ("x1/bias is filled by a constant (line 5 of the table) and with ones",
                            "line 7 of the table fills y, which the model does not have")  # fmt: skip


def test_several_tensors_become_one_and_one_becomes_several() -> None:
    table = parsed(
        "tensors:\n"
        '  - {torch: [q.weight, k.weight, v.weight], keras: qkv/kernel, rule: "[part] out in -> in (part out)"}\n'
        '  - {torch: kv.bias, keras: [k/bias, v/bias], rule: "(out part=k,v) -> [part=k,v] out"}\n'
    )
    sources: dict[str, Shape] = {f"{n}.weight": (2, 3) for n in "kqv"} | {"kv.bias": (4,)}
    plan = plan_of(table, sources, {"qkv/kernel": (3, 6), "k/bias": (2,), "v/bias": (2,)})
    assert isinstance(plan, Plan), plan
    values = {n: np.random.default_rng(i).standard_normal(s) for i, (n, s) in enumerate(sources.items())}
    made = dict(plan.apply(values.__getitem__))
    wanted = np.concatenate([values[f"{n}.weight"].T for n in "qkv"], axis=1)
    np.testing.assert_array_equal(made["qkv/kernel"], wanted)
    np.testing.assert_array_equal(made["k/bias"], values["kv.bias"][::2])
    back = dict(plan.invert(made.__getitem__))
    assert {name: array.tobytes() for name, array in back.items()} == {n: a.tobytes() for n, a in values.items()}


def test_files_are_included_once_and_lines_say_which(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    files = {
        "own.yaml": "include: [a.yaml, sub/b.yaml]\nlayers: [{torch: own, keras: own, kind: linear}]\n",
        "a.yaml": "include: [base.yaml]\nlayers: [{torch: a, keras: a, kind: linear}]\n",
        "sub/b.yaml": "layers:\n  - {torch: b, keras: b, kind: linear}\n",
        "base.yaml": "layers: [{torch: base, keras: base, kind: linear}]\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(f"format: 2\n{text}")
    table = load_table(tmp_path / "own.yaml")
    assert table.includes == ("a.yaml", "base.yaml", "b.yaml")
    assert [(tap.torch.text, tap.file) for tap in table.taps] == [
        ("base", "base.yaml"), ("a", "a.yaml"), ("b", "b.yaml"), ("own", ""),
    ]  # fmt: skip
    plan = plan_of(table, {"own.weight": (1, 2)}, {"own/kernel": (2, 1)})
    assert plan == Misfits(tuple(f"line {n} of {f}.yaml ({f}) matches nothing" for f, n in
                                 (("base", 2), ("a", 3), ("b", 3))))  # fmt: skip
    (tmp_path / "base.yaml").write_text("format: 2\ninclude: [a.yaml]\n")
    with pytest.raises(MisfitError, match=r"base\.yaml: line 2: include: 'a.yaml' includes itself"):
        load_table(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("format: 2\ninclude: [own.yaml]\n")
    with pytest.raises(MisfitError, match="includes itself"):
        load_table(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("format: 2\ninclude: [none.yaml]\n")
    with pytest.raises(MisfitError, match=r"no file 'none\.yaml' next to the table"):
        load_table(tmp_path / "own.yaml")


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        row = f"{{torch: {name}, keras: {name}, kind: linear}}"
        (tmp_path / f"{name}.yaml").write_text(f"format: 2\nlayers:\n  - {row}\n")
    assert len(parsed("include: [a.yaml, b.yaml, c.yaml, b.yaml]\n", tmp_path).rows) == len(
        parsed("include: [a.yaml, b.yaml, c.yaml]\n", tmp_path).rows
    )
    monkeypatch.setattr("wdport.mapping.table.MAX_INCLUDES", 2)
    with pytest.raises(MisfitError, match=r"t.yaml: line 2: include: more than 2 files; use fewer files"):
        parsed("include: [a.yaml, b.yaml, c.yaml]\n", tmp_path)


def test_one_source_where_there_are_two() -> None:
    plan = plan_of(
        parsed("tensors:\n  - {torch: [a, b], keras: c, rule: '[part] in -> (part in)'}\n"),
        {"a": (3,), "b": (3,)},
        {"c": (6,)},
    )
    assert isinstance(plan, Plan)
    with pytest.raises(InternalError, match="a: 2 tensors where one is expected; report this"):
        assert plan.moves[0].source
