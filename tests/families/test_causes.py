"""Faults that hide are named at their layer with a cause: difficult networks, gates in another order, and the guide."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

import wdport
from tests.command import Cli
from tests.families.toys import difficult, gated
from tests.families.toys.nets import randomised
from wdport.base.errors import MisfitError, WdportError

TABLE = """format: 2
torch: tests.families.toys.difficult:tricky
keras: tests.families.toys.difficult:{}
inputs: ["x: b 5"]
layers:
  - {{torch: inputs, keras: inputs, kind: linear}}
  - {{torch: plain, keras: plain, kind: layer_norm}}
  - {{torch: hidden, keras: hidden, kind: linear, then: relu}}
  - {{torch: norm, keras: norm, kind: batch_norm}}
  - {{torch: head, keras: head, kind: linear}}
tensors:
  - {{torch: loss_scale, drop: only the training loss uses it}}
"""


def converted(folder: Path, state: dict[str, torch.Tensor], table: str) -> tuple[Path, Path, Path]:
    """A checkpoint, its table and the converted file."""
    checkpoint, mapping = folder / "ck.pt", folder / "my.yaml"
    torch.save(state, checkpoint)
    mapping.write_text(table)
    return checkpoint, mapping, wdport.convert(checkpoint, folder / "out.keras", mapping=mapping).output


def verified(folder: Path, twin: str, change: tuple[str, str] = ("", "")) -> wdport.Verdict:
    """The toy's variances are tiny; its checkpoint has a tensor more than its network."""
    state = randomised(difficult.tricky()).state_dict() | {"loss_scale": torch.ones(1)}
    state["norm.running_var"] *= 1e-3
    assert change[0] in TABLE
    checkpoint, table, output = converted(folder, state, TABLE.format(twin).replace(*change))
    return wdport.verify(checkpoint, output, mapping=table)


def test_it_passes(tmp_path: Path) -> None:
    verdict = verified(tmp_path, "tricky_twin")
    assert verdict.exit_code == 0
    assert "plain" in {tap.reference for tap in verdict.taps}


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize(
    ("twin", "site", "cause"),
    [("wrong_plain", "plain", "epsilon (eps) 0.001 where the reference has 1e-05"),
     ("wrong_norm", "norm", "epsilon (eps) 0.001 where the reference has 0.0010000000474974513"),
     ("no_activation", "hidden", "lacks the relu that the table states after the module")],
)  # fmt: skip
def test_a_fault_is_named_with_its_cause(tmp_path: Path, twin: str, site: str, cause: str) -> None:
    verdict = verified(tmp_path, twin)
    assert verdict.exit_code == 1
    assert [each.feeds or each.reference for each in verdict.faults] == [site]
    assert [told for texts in verdict.causes.values() for told in texts] == [cause]


@pytest.mark.usefixtures("one_case")
def test_an_activation_that_the_table_does_not_state(tmp_path: Path) -> None:
    """The layer behind is off too: what the reference's module makes is handed on without the activation."""
    verdict = verified(tmp_path, "tricky_twin", (", then: relu", ""))
    assert [each.feeds or each.reference for each in verdict.faults] == ["hidden", "norm"]
    told = "has a relu that the reference's module does not have; if it follows the module, state `then: relu`"
    assert verdict.causes["hidden"] == (told,)


SIZED = """format: 2
torch: tests.families.toys.difficult:pooled
keras: tests.families.toys.difficult:{twin}
inputs: ["x: b 1 16 16"]
layers:
  - {{torch: conv, keras: conv, kind: conv2d}}
  - {{torch: pool, keras: pool, kind: max_pool2d}}
  - {{torch: head, keras: head, kind: linear, flatten: "c h w -> h w c", sizes: {{h: 8, c: 4}}}}
"""


def refusal(folder: Path, twin: str, extra: dict[str, torch.Tensor] | None = None) -> str:
    with pytest.raises(MisfitError) as refused:
        converted(folder, difficult.pooled().state_dict() | (extra or {}), SIZED.format(twin=twin))
    return str(refused.value)


@pytest.mark.parametrize("twin", ["valid", "padded_apart"])
def test_a_pooling_that_leaves_another_size(tmp_path: Path, twin: str) -> None:
    told = refusal(tmp_path, twin)
    assert "head.weight does not fit" in told
    assert "pool: padding 'valid' gives 7 windows over 16 positions; the reference" in told


def test_not_for_a_tensor_too_many(tmp_path: Path) -> None:
    told = refusal(tmp_path, "strict", {"extra": torch.zeros(2)})
    assert told.endswith("unexpected extra (2,); correct the table, or the Keras model")


@pytest.mark.parametrize("twin", ["padded_pool", "subclassed"])
def test_not_where_the_padding_may_stand_before_the_layer(tmp_path: Path, twin: str) -> None:
    told = refusal(tmp_path, twin)
    assert "has shape" in told or "does not fit" in told
    assert told.endswith("correct the table, or the Keras model")


PADDED = """format: 2
torch: tests.families.toys.difficult:padded
keras: tests.families.toys.difficult:{}
inputs: ["x: b c=3 t=12 -> b t c"]
layers:
  - {{torch: conv, keras: conv, kind: conv1d}}
  - {{torch: attn, keras: attn, kind: attention_packed}}
  - {{torch: head, keras: head, kind: linear}}
"""


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize("twin", ["padded_twin", "padded_zeros"])
def test_padding_apart(tmp_path: Path, twin: str, cli: Cli) -> None:
    """With zeros the fault is the padding before the convolution, whose own settings are right. A recording does not
    say how it pads, so what the convolution makes of it is compared alone."""
    recording = tmp_path / "run.npz"
    checkpoint, table, output = converted(tmp_path, randomised(difficult.padded()).state_dict(), PADDED.format(twin))
    verdict = wdport.verify(checkpoint, output, mapping=table)
    cli("record", checkpoint, "--mapping", table, "-o", recording)
    recorded = wdport.verify_recording(output, recording, mapping=table)
    assert verdict.exit_code == recorded.exit_code == (twin == "padded_zeros")
    assert {"conv", "attn", "attn.query"} <= {tap.reference for tap in verdict.taps}
    assert [fault.feeds for fault in verdict.faults] == (["conv"] if twin == "padded_zeros" else [])
    assert "padding_mode" not in str(verdict.causes)
    assert {fault.reference for fault in recorded.faults} == ({"conv"} if twin == "padded_zeros" else set())


SKIPPED = """format: 2
torch: tests.families.toys.difficult:skipping
keras: tests.families.toys.difficult:skipping_twin
inputs: ["x: b 5"]
layers:
  - {torch: <n>.main, keras: main<n>, kind: linear}
  - {torch: <n>.skip, keras: skip<n>, kind: linear}
"""


@pytest.mark.usefixtures("one_case")
def test_it_is_left_out_and_told(tmp_path: Path, cli: Cli) -> None:
    checkpoint, table, output = converted(tmp_path, difficult.skipping().state_dict(), SKIPPED)
    run = tmp_path / "run.npz"
    printed = " ".join(cli("verify", checkpoint, output, "--mapping", table).out.split())
    assert "not compared: 0.skip (no tensors, and no skip0 in Keras)" in printed
    cli("record", checkpoint, "--mapping", table, "-o", run)
    verdict = wdport.verify_recording(output, run, mapping=table)
    assert verdict
    assert {tap.reference for tap in verdict.taps} == {"0.main", "1.main", "1.skip", "output"}


TOYS = "tests.families.toys.gated"
HEAD = 'format: 2\ntorch: {0}:{1}\nkeras: {0}:{2}\ninputs: ["x: b 6 5"]\nlayers:\n'
ROWS = "  - {torch: head, keras: head, kind: linear}\n"
WEIGHTS = """  - {{torch: rnn, keras: rnn}}
tensors:
  - {{torch: rnn.weight_ih_l0, keras: rnn/cell/kernel, rule: "{0}"}}
  - {{torch: rnn.weight_hh_l0, keras: rnn/cell/recurrent_kernel, rule: "{1}"}}
"""
BOTH = '  - {torch: [rnn.bias_ih_l0, rnn.bias_hh_l0], keras: rnn/cell/bias, rule: "[bias] gates -> bias gates"}\n'
MOVED = BOTH.replace("[bias] gates -> bias gates", "[bias] (gate=r,z,n h) -> bias (gate=z,r,n h)")
SUM = "  - {torch: [rnn.bias_ih_l0, rnn.bias_hh_l0], keras: rnn/cell/bias, rule: identity, combine: sum}\n"
SUM_MOVED = SUM.replace("identity", '"(gate=i,f,g,o h) -> (gate=i,g,f,o h)"')
KEPT, SWAP = "gates in -> in gates", "(gate=r,z,n h) in -> in (gate=z,r,n h)"
LSTM = "(gate=i,f,g,o h) in -> in (gate=i,g,f,o h)"
GRU = "where the layer has z, r, n"


def gates_verified(folder: Path, net: str, twin: str, rows: str) -> wdport.Verdict:
    state = randomised(getattr(gated, net)()).state_dict()
    checkpoint, table, output = converted(folder, state, HEAD.format(TOYS, net, twin) + ROWS + rows)
    return wdport.verify(checkpoint, output, mapping=table)


def test_gates_that_the_table_swaps(tmp_path: Path) -> None:
    verdict = gates_verified(tmp_path, "gru", "keras_gru", WEIGHTS.format(SWAP, SWAP) + MOVED)
    assert verdict.exit_code == 0


FAULTS = {
    "a GRU's gates as PyTorch has them": (
        "gru", "keras_gru", WEIGHTS.format(KEPT, KEPT) + BOTH, f"its gates are stored as r, z, n {GRU}"),
    "those of one variable": (
        "gru", "keras_gru", WEIGHTS.format(SWAP, KEPT) + MOVED,
        f"the gates of recurrent_kernel are stored as r, z, n {GRU}"),
    "an LSTM's in TensorFlow's old order": (
        "lstm", "keras_lstm", WEIGHTS.format(LSTM, LSTM) + SUM_MOVED,
        "its gates are stored as i, g, f, o where the layer has i, f, g, o"),
    "a layer of one's own": (
        "gru", "own_gru", "  - {torch: rnn, keras: rnn, kind: gru}\n",
        "its gates agree in the order 1, 0, 2 of their blocks"),
    "the second layer of a stack": (
        "gru_stack", "own_gru_stack", "  - {torch: rnn, keras: rnn_<layer>, kind: gru}\n",
        "the gates of rnn_1 agree in the order 1, 0, 2 of their blocks"),
    "a reset before the matrix": (
        "gru", "before_gru", WEIGHTS.format(SWAP, SWAP)
        + SUM.replace("identity", '"(gate=r,z,n h) -> (gate=z,r,n h)"'), ""),
}  # fmt: skip


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_gates_is_named(tmp_path: Path, fault: str) -> None:
    net, twin, rows, cause = FAULTS[fault]
    verdict = gates_verified(tmp_path, net, twin, rows)
    assert verdict.exit_code == 1
    assert [each.feeds or each.reference for each in verdict.faults] == ["rnn"]
    assert [told for texts in verdict.causes.values() for told in texts] == ([cause] if cause else [])


@pytest.mark.usefixtures("one_case")
def test_what_a_stack_is_fed(tmp_path: Path) -> None:
    """The fault is before its first layer, and its last is right by itself."""
    rows = "  - {torch: rnn, keras: rnn_<layer>, kind: gru}\n"
    verdict = gates_verified(tmp_path, "gru_stack", "gru_stack_fed_wrong", rows)
    assert verdict.exit_code == 1
    assert [(each.feeds, each.reference) for each in verdict.faults] == [("rnn", "")]


def test_a_cell_in_a_loop_cannot_be_compared(tmp_path: Path) -> None:
    rows = "  - {torch: cell, keras: rnn/cell, kind: gru_cell}\n"
    with pytest.raises(WdportError) as error:
        gates_verified(tmp_path, "stepped_gru", "scanned", rows)
    assert "rnn/cell: runs inside a loop" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_cell_in_an_unrolled_loop_is_compared(tmp_path: Path, kind: str) -> None:
    """Every call of it; Keras's cells give their output beside their states."""
    rows = f"  - {{torch: cell, keras: rnn/cell, kind: {kind}_cell}}\n"
    verdict = gates_verified(tmp_path, f"stepped_{kind}", f"unrolled_{kind}", rows)
    assert verdict.exit_code == 0
    assert [tap.reference for tap in verdict.taps[:6]] == ["cell", *(f"cell#{at}" for at in range(2, 7))]


GUIDE = Path(__file__).parents[2] / "docs" / "own-model.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's files in the current folder, and a checkpoint with random weights."""
    found = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in found] == ["net.py", "twins.py", "onet.yaml"]
    for name, text in found:
        (tmp_path / name).write_text(f"# {name}\n{text}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("net", "twins"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import net  # type: ignore[import-not-found]

    torch.save(randomised(net.build()).state_dict(), "onet.pt")
    yield tmp_path
    for name in ("net", "twins"):
        sys.modules.pop(name, None)


def commands() -> list[list[str]]:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    return [line[2:].split()[1:] for line in lines if line.startswith("$ wdport ") and "onet" in line]


MISTAKES = {
    "the textbook's flatten": ("onet.yaml", '"w h c -> h w c"', '"c h w -> h w c"', "dense5",
     'flatten "w h c -> h w c" agrees where "c h w -> h w c" does not'),
    "a pooling that rounds up": (
        "twins.py",
        '(64, 3, 3, "valid")',
        '(64, 3, 3, "same")',
        "pool2",
        "padding 'same' gives 11 windows over 21 positions, starting at -1; the reference (padding 0, ceil_mode True) "
        "gives 10, starting at 0",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("one_case", "project")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(cli: Cli, mistake: str) -> None:
    file, before, after, site, cause = MISTAKES[mistake]
    text = Path(file).read_text()
    assert before in text
    Path(file).write_text(text.replace(before, after))
    convert, verify = commands()[:2]
    cli(*convert)
    told = cli(*verify, code=1)
    assert "1 faulty layer" in (printed := told.out)
    assert "map suggest" not in told.err
    assert site in printed.partition("1 faulty layer")[2].splitlines()[1]
    assert cause in " ".join(printed.split())
    assert cause in GUIDE.read_text(encoding="utf-8")


@pytest.mark.usefixtures("project")
def test_a_shape_that_does_not_fit_is_refused(cli: Cli) -> None:
    """A pooling that rounds down leaves a smaller image, so the table's sizes are wrong before anything is run; which
    pooling it is, the settings of both models say."""
    text = Path("twins.py").read_text()
    Path("twins.py").write_text(text.replace('(32, 3, 3, "same")', '(32, 3, 3, "valid")'))
    told = cli(*commands()[0], code=4).err
    assert "dense5.weight does not fit line 10" in told
    guide = GUIDE.read_text(encoding="utf-8").partition("the message is this line (wrapped here):")[2]
    printed = guide.split("```")[1].removeprefix("text")
    assert " ".join(printed.split()) == " ".join(told.split())
    assert not Path("onet.keras").exists()
