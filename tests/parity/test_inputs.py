"""Ports that differ from their reference only at the edges of its inputs, each beside a correct port."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn

import wdport
from wdport.base.errors import MisfitError, UsageError
from wdport.models.interface import Signature
from wdport.parity.model_pair import longest_inputs
from wdport.parity.proving.suggest import Models, suggest
from wdport.parity.run_gates import EVERYTHING, Setup
from wdport.parity.verdict import Verdict
from wdport.parity.verify import compare_files
from wdport.parity.verify_options import Pair
from wdport.recording.calls import MOST_CALLS
from wdport.recording.cases import CASES, EXTREMES, UNUSUAL, Case, battery
from wdport.recording.fitted_inputs import cases_of, checked_inputs, finite_case, with_ids
from wdport.recording.input_text import parse_input, parse_inputs

from ..families.toys import edges, nets

HEAD = "format: 2\ntorch: tests.families.toys.edges:{torch}\nkeras: tests.families.toys.edges:{keras}\n"
IDS = f'inputs: ["ids: b n={edges.LENGTH}, below {edges.WORDS}"]\n'
LAYERS = "layers:\n  - {torch: head, keras: head, kind: linear}\n"
EMBED = "  - {torch: embed, keras: embed, kind: embedding}\n"
TABLES = {
    "Recurrent": IDS + LAYERS + EMBED + "  - {torch: gru, keras: gru, kind: gru}\n",
    "Pooled": IDS.replace("]", f', "mask: b n={edges.LENGTH}, mask"]')
    + LAYERS + EMBED + "  - {torch: score, keras: score, kind: linear}\n",
    "Placed": IDS + LAYERS + EMBED + "  - {torch: position, keras: position, kind: embedding}\n",
    "Gappy": f'inputs: ["x: b t={edges.LENGTH} 3"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n",
    "Chunked": 'inputs: ["x: b n=16..40 3"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n",
    "Normed": 'inputs: ["x: b 5"]\n' + LAYERS
    + "  - {torch: first, keras: first, kind: linear}\n  - {torch: norm, keras: norm, kind: batch_norm}\n",
    "Steps": 'inputs: ["x: b n=8 12"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n"
    + "  - {torch: norm, keras: norm, kind: layer_norm}\n",
    "Rows": 'inputs: ["x: b h=6 w=6 3"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n",
    "Windowed": 'inputs: ["x: b n=20 3"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n",
    "Crossed": 'inputs: ["x: b n=8 3", "y: b m=8 3"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n",
    "Marked": IDS + LAYERS + EMBED + "  - {torch: rare, keras: rare, kind: embedding}\n",
    "Attended": IDS + LAYERS + EMBED + "".join(f"  - {{torch: {q}, keras: {q}, kind: linear}}\n" for q in "qk"),
}  # fmt: skip
TABLES["Imaged"] = 'inputs: ["x: b 4 4 4"]\n' + LAYERS + "  - {torch: first, keras: first, kind: conv2d, then: relu}\n"
TABLES["Siamese"] = (
    'inputs: ["first: b c=3 h=8 w=8 -> b h w c", "second: b c=3 h=8 w=8 -> b h w c"]\n' + LAYERS
    + "  - {torch: convs.<i>, keras: convs_<i>, kind: conv2d}\n"
    + "  - {torch: norms.<i>, keras: norms_<i>, kind: group_norm}\n"
)  # fmt: skip
TABLES["Tied"] = 'inputs: ["x: b 8"]\n' + LAYERS + "  - {torch: first, keras: first, kind: linear}\n"
TABLES |= {"padded": TABLES["Recurrent"], "Trained": TABLES["Steps"], "Routed": TABLES["Steps"]}

FAULTS = [
    ("Recurrent", "mask_zero"),
    ("Recurrent", "masked"),
    ("padded", "pad_row"),
    ("Recurrent", "last_id"),
    ("Pooled", "length"),
    ("Pooled", "empty"),
    ("Pooled", "added"),
    ("Pooled", "lowest"),
    ("Placed", "clipped"),
    ("Placed", "bfloat16"),
    ("Gappy", "every_feature"),
    ("Gappy", "no_step"),
    ("Attended", "unshifted"),
    ("Attended", "shifted"),
    *(("Steps", how) for how in ("kept", "remembered", "half", "tiny", "fast")),
    ("Rows", "turned"),
    ("Windowed", "endless"),
    ("Windowed", "long"),
    ("Crossed", "confused"),
    ("Marked", "cutoff"),
    ("Marked", "seen"),
    ("Normed", "trains"),
    ("Tied", "tied_small"),
    *(("Siamese", f"siamese_{how}") for how in ("capped", "at_zero", "at_large")),
]
CONTROLS = [("Recurrent", "recurrent"), ("Pooled", "pooled"), ("Placed", "placed"), ("Gappy", "gappy"),
            ("Normed", "network"), ("Attended", "attended"), ("Steps", "cached"), ("Rows", "rows"),
            ("Windowed", "windowed"), ("Crossed", "crossing"), ("Marked", "marked"),
            ("Siamese", "siamese")]  # fmt: skip
SOON = Setup(brief=True, causes=False)
"""For a port that is wrong: no more cases than show it."""


def pair_of(folder: Path, reference: str, port: str, suffix: str = "weights.h5", **told: int) -> Pair:
    """A checkpoint and what it is converted to."""
    torch.save(nets.randomised(getattr(edges, reference)()).state_dict(), folder / "ck.pt")
    table = folder / "my.yaml"
    table.write_text(HEAD.format(torch=reference, keras=port) + TABLES[reference])
    output = wdport.convert(folder / "ck.pt", folder / f"out.{suffix}", mapping=table).output
    return Pair(output, folder / "ck.pt", mapping=table, **told)  # type: ignore[arg-type]


def verified(folder: Path, reference: str, port: str, setup: Setup = EVERYTHING, **told: int) -> Verdict:
    return compare_files(pair_of(folder, reference, port, **told), setup=setup)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_a_users_default_float_changes_no_model(dtype: str, tmp_path: Path) -> None:
    """`keras.config.set_floatx`, or keras.json, gives a model's inputs this dtype where they have none."""
    pair = pair_of(tmp_path, "Gappy", "gappy", "keras")
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        model = wdport.load_model(pair.converted, mapping=pair.mapping)
        assert compare_files(pair)
    finally:
        keras.config.set_floatx(before)
    assert {str(variable.dtype) for variable in model.weights} == {"float32"}


def findings(verdict: Verdict) -> list[str]:
    return [str(each) for gate in verdict.gates for each in gate.findings if not each.notice]


@pytest.mark.parametrize(("reference", "port"), CONTROLS)
def test_a_correct_port_passes(reference: str, port: str, tmp_path: Path) -> None:
    assert findings(verified(tmp_path, reference, port)) == []


@pytest.mark.parametrize(("reference", "port"), FAULTS)
def test_a_port_that_is_wrong_at_an_edge_fails(reference: str, port: str, tmp_path: Path) -> None:
    verdict = verified(tmp_path, reference, port, SOON)
    assert verdict.exit_code == 1, port
    assert findings(verdict)
    if reference == "Normed":
        assert any("where the model is called as model(x)" in each for each in findings(verdict))


def test_a_sample_that_rounding_decides_is_left_out(tmp_path: Path) -> None:
    verdict = verified(tmp_path, "Tied", "tied")
    notes = [str(finding) for finding in verdict.gates[0].findings if "one rounding decides" in str(finding)]
    assert verdict
    assert len(notes) == 1
    assert notes[0].startswith("left out of head: samples of constant,")


@pytest.mark.parametrize("port", ["imaged", "imaged_first", "imaged_wrong"])
def test_sizes_that_do_not_tell_the_layout_of_an_input(port: str, tmp_path: Path) -> None:
    verdict = verified(tmp_path, "Imaged", port)
    notes = [str(finding) for finding in verdict.gates[0].findings if "do not tell the layout" in str(finding)]
    assert bool(verdict) is (port != "imaged_wrong")
    assert [note.partition(" with ")[2] for note in notes] == (
        [] if port == "imaged_first" else ["'x: b c=4 h=4 w=4 -> b h w c', which is used; state it so"]
    )
    assert [fault.reference for fault in verdict.faults] == (["first"] if port == "imaged_wrong" else [])
    names = [f"tests.families.toys.edges:{name}" for name in ("Imaged", port)]
    found = suggest(Models(names[0], names[1], ("x: b 4 4 4",)))
    assert found.models.inputs == (("x: b c=4 h=4 w=4 -> b h w c",) if port == "imaged" else ("x: b 4 4 4",))


def test_a_layout_in_which_longer_inputs_do_not_run_leaves_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, "Chunked", TABLES["Chunked"].replace("n=16", "n=3"))
    assert verified(tmp_path, "Chunked", "later").exit_code == 1


@pytest.mark.parametrize(("reference", "port"), [("Crossed", "joined"), ("Routed", "steps")])
def test_what_cannot_be_compared_in_isolation_ends_with_a_verdict(reference: str, port: str, tmp_path: Path) -> None:
    """A port that calls a layer once for two calls; and a reference whose rounding moves rows to another branch, so
    that a layer gets another number of them than was recorded."""
    assert verified(tmp_path, reference, port).exit_code in (1, 6)


def test_a_reference_that_raises_without_gradients_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(MisfitError, match="call me in training"):
        verified(tmp_path, "Trained", "steps")


def test_calls_that_only_a_longer_input_needs_are_compared(tmp_path: Path) -> None:
    """And a fault is placed at the first of them that has it."""
    folders = [tmp_path / port for port in ("chunked", "later")]
    good, bad = (verified(folder, "Chunked", folder.name) for folder in folders if not folder.mkdir())
    assert [tap.reference for tap in good.taps if tap.reference.startswith("first")] == [
        "first", "first#2", "first#3", "first#4", "first#5"]  # fmt: skip
    assert findings(good) == []
    assert bad.exit_code == 1
    assert [(fault.candidate, fault.feeds) for fault in bad.faults] == [("", "first#3")]


class Stepped(nn.Linear):
    """Calls a layer for every step."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.step = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((self.step(x[:, step]).tanh() for step in range(x.shape[1])), super().forward(x[:, 0]))


def test_longer_inputs_call_no_layer_too_often_to_be_compared() -> None:
    signature = Signature((parse_input("x: b n=8 3"),), (), free={"n": 1})
    (spec,) = longest_inputs(signature, Stepped().double())
    assert MOST_CALLS // 2 < spec.alone["n"] <= MOST_CALLS


def test_ids_hold_the_first_the_last_and_that_of_padding() -> None:
    ids = with_ids([parse_input("ids: b 8, below 5000")], edges.padded())[0]
    few = parse_input("ids: b 24, below 40")
    for case in CASES:
        values = ids.make(case.seed, case.batch, case.scale)
        assert {0, edges.PADDING, 4999} <= set(values.flat), case
        assert case.batch == 1 or {1, 2, 3} <= set(values.flat)
        assert case.batch == 1 or set(few.make(case.seed, case.batch, case.scale).flat) == set(range(40))
    assert len({int(parse_input("k: b, below 9").make(seed, 1, 1.0)[0]) for seed in range(40)}) > 5


def test_masks_have_every_pattern() -> None:
    mask = parse_input("m: b 12, mask")
    rows = [row for case in CASES for row in mask.make(case.seed, case.batch, case.scale, case.extremes)]
    steps = [np.diff(row.astype(int)) for row in rows]
    assert any(row.all() for row in rows)
    assert not all(row.any() for row in rows)
    assert any(row.sum() == 1 for row in rows)
    assert any(list(step[step != 0]) == [1] for step in steps), "padding before"
    assert any(list(step[step != 0]) == [-1] for step in steps), "padding after"
    assert any(np.count_nonzero(step) > 3 for step in steps), "holes"


@pytest.mark.parametrize("refused", [False, True])
def test_a_sample_without_visible_tokens_has_ordinary_values(refused: bool) -> None:
    """Where the model accepts no missing values, or its inputs can have none."""
    ids = [parse_input("ids: b 12, below 5000"), parse_input("m: b 12, mask")]
    inputs = [parse_input(f"x: b 12 {edges.WIDTH}"), ids[1]] if refused else ids
    module = edges.Pooled().double()
    if refused:
        module.embed = nn.Identity()

    def drawn(case: Case) -> tuple[Any, ...]:
        return checked_inputs(None, case, "", inputs)

    case = finite_case(module, CASES[3], drawn)
    assert case.extremes == ("zeros", "constant", "large", "hidden")
    values, mask = drawn(case)
    assert not mask[3].any()
    assert np.array_equal(values[3], drawn(replace(case, extremes=()))[0][3])
    assert mask[2].sum() == 1
    alone = finite_case(nn.Identity(), CASES[3], lambda case: checked_inputs(None, case, "", inputs[:1]))
    assert alone.extremes == ("zeros", "constant", "large", "" if refused else "missing")


def test_samples_of_extreme_values() -> None:
    zeros, constant, large, missing = parse_input("x: b 12 3").make(4, 4, 1.0, EXTREMES)
    whole, sparse, small, far = parse_input("x: b 12 3").make(4, 4, 1.0, UNUSUAL)
    parts = 2.0 ** (np.arange(1, 37).reshape(12, 3) % 4)
    assert np.all(parts * whole % 2 == 1)
    assert not sparse[9:].any()
    assert 0 < np.count_nonzero(sparse[:9]) < 27
    assert not zeros.any()
    assert len(np.unique(constant)) == 1
    assert np.abs(large).max() > np.finfo(np.float16).max
    assert 1e-5 < np.abs(small).max() < 1e-3
    assert 290 < far.min() < far.max() < 310
    gone = np.isnan(missing).sum(1)
    assert gone.max() == 3
    lost = ["".join("x" if gap else "-" for gap in column) for column in np.isnan(missing).T]
    assert any("xxxx" in column for column in lost)


class Finite(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.nan_to_num()


def test_inputs_without_a_batch_axis_are_one_sample() -> None:
    inputs = parse_inputs(["x: n=12..20 3", "edges: 2 e=15, below n"])
    cases = cases_of(CASES, None, inputs)
    assert [case.extremes for case in cases if case.extremes] == [(kind,) for kind in (*EXTREMES, *UNUSUAL)]
    assert len({case.seed for case in cases}) == len(cases)
    assert {case.samples for case in cases} == {1}
    by_kind = {case.extremes: checked_inputs(None, case, "", inputs) for case in cases}
    assert not by_kind["zeros",][0].any()
    assert np.all(by_kind["constant",][1] == 11)
    assert np.isnan(by_kind["missing",][0]).any()
    kept = [finite_case(Finite(), case, lambda case: checked_inputs(None, case, "", inputs[:1])).extremes
            for case in cases if case.extremes]  # fmt: skip
    assert kept == [(kind,) for kind in (*EXTREMES, *UNUSUAL)]
    # Samples of a batch share it, whatever their values are.
    shared = inputs[1].make(4, 4, 1.0, EXTREMES)
    assert np.array_equal(shared, inputs[1].make(4, 4, 1.0))


def test_a_length_of_a_batch_of_one() -> None:
    ids = parse_input("ids: b n=24..512, below 9")
    assert ids.make(0, 4, 1.0).shape == (4, 24)
    assert ids.make(0, 1, 1.0).shape == (1, 512)


def test_other_seeds_and_more_cases(tmp_path: Path) -> None:
    assert battery() == CASES
    assert len({case.seed for case in (*battery(0, 3), *battery(1, 3))}) == 2 * (len(CASES) + 3)
    verdict = verified(tmp_path, "Gappy", "gappy", seed=2, cases=1)
    assert verdict
    assert [text.partition(",")[0] for text in verdict.inputs[-2:]] == ["seed 2003", "seed 2005"]
    with pytest.raises(UsageError, match="seed=: a recording holds its own inputs"):
        Pair("a.keras", against="a.npz", seed=1).require_consistent()
