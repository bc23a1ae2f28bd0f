"""Models of the user's own through the public functions: each shape of a comparison, and what is wrong with code."""

from __future__ import annotations

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused
from tests.families.toys import nets
from wdport.base.errors import WdportError
from wdport.compare.measure import relative_l2
from wdport.families import user_functions as code
from wdport.models.keras_runtime import described, unfilled
from wdport.parity.repro import load
from wdport.recording.input_text import parse_inputs

TABLES = {
    "image": """
inputs: ["x: b 3 12 12"]
layers:
  - {torch: conv<n>, keras: conv<n>, kind: conv2d}
  - {torch: bn, keras: bn, kind: batch_norm}
  - {torch: pool, keras: pool, kind: max_pool2d}
  - {torch: act, keras: act, kind: prelu}
  - {torch: head, keras: head, kind: linear, flatten: "c h w -> h w c", sizes: {h: 4, w: 4}}
""",
    "words": """
inputs: ["ids: b 8, below 50"]
layers:
  - {torch: embed, keras: embed, kind: embedding}
  - {torch: norm, keras: norm, kind: layer_norm}
  - {torch: mean, keras: mean, kind: linear}
  - {torch: logvar, keras: logvar, kind: linear}
""",
    "shared": """
inputs: ["x: b 6", "y: b 6"]
layers:
  - {torch: mix, keras: mix, kind: linear}
tensors:
  - {torch: offset, keras: offset, rule: identity}
tied:
  - {torch: again.weight, same_as: mix.weight}
  - {torch: again.bias, same_as: mix.bias}
""",
    "gru": """
inputs: ["x: b 9 5"]
layers:
  - {torch: gru, keras: gru_<layer>, kind: gru}
  - {torch: head, keras: head, kind: linear}
""",
    "lstm": """
inputs: ["x: b 9 5"]
layers:
  - {torch: lstm, keras: lstm, kind: lstm}
  - {torch: head, keras: head, kind: linear}
""",
    "transformer": """
inputs: ["x: b 6 5"]
layers:
  - {torch: inputs, keras: inputs_, kind: linear}
  - {torch: blocks.<i>.norm<n>, keras: blocks/<i>/norm<n>, kind: layer_norm}
  - {torch: blocks.<i>.attn, keras: blocks/<i>/attention, kind: attention_packed}
  - {torch: blocks.<i>.mlp.0, keras: blocks/<i>/hidden, kind: linear}
  - {torch: blocks.<i>.mlp.2, keras: blocks/<i>/out, kind: linear}
  - {torch: blocks.<i>, keras: blocks/<i>}
  - {torch: head, keras: head, kind: linear}
tensors:
  - {torch: position, keras: position, rule: identity}
""",
}
HEAD = "format: 2\ntorch: tests.families.toys.nets:{torch}\nkeras: tests.families.toys.twins:{keras}\n"


def files(folder: Path, name: str, twin: str = "", change: tuple[str, str] = ("", "")) -> tuple[Path, Path]:
    """A checkpoint and a table."""
    torch.save(nets.randomised(getattr(nets, name)()).state_dict(), folder / "ck.pt")
    assert change[0] in TABLES[name]
    table = folder / "my.yaml"
    table.write_text(HEAD.format(torch=name, keras=twin or name) + TABLES[name].replace(*change))
    return folder / "ck.pt", table


FULLY = ("words", "shared")
"""Models whose gradients and bfloat16 are compared, too."""

CONVERTED = [
    *((name, ".keras", name in FULLY) for name in TABLES),
    ("image", ".weights.h5", False),
    ("gru", ".safetensors", False),
    pytest.param("transformer", ".keras", True, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("name", "suffix", "full"), CONVERTED)
def test_it_is_converted_and_verified(tmp_path: Path, name: str, suffix: str, full: bool) -> None:
    checkpoint, table = files(tmp_path, name)
    output = wdport.convert(checkpoint, tmp_path / f"out{suffix}", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table, full=full)
    assert [list(map(str, gate.findings)) for gate in verdict.gates if not gate.passed] == []
    assert not full or {gate.name for gate in verdict.gates} == {"0", "A", "B", "B'", "C", "M"}
    assert verdict.exit_code == 0
    if name == "gru":  # PyTorch's module has two layers: its output is the last one's, which the one before it feeds
        assert [(tap.reference, tap.candidate) for tap in verdict.taps[:2]] == [("gru", "gru_1"), ("head", "head")]
    worst = max(max(tap.isolated, tap.cumulative, tap.inputs) for tap in verdict.taps)
    assert worst < 1e-12
    assert verdict.settings.of("differs") == []
    assert verdict.settings.compared > 5
    assert json.loads(Path(f"{output}.wdport.json").read_text())["mapping"]["family"] == "custom"


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize(
    ("change", "cause"),
    [(("c h w -> h w c", "h w c -> h w c"), 'flatten "c h w -> h w c" agrees where "h w c -> h w c" does not'),
     ((', flatten: "c h w -> h w c", sizes: {h: 4, w: 4}', ""),
      'flatten "c h w -> h w c" agrees, with sizes {h: 4, w: 4}; the table states none')],
)  # fmt: skip
def test_the_order_of_a_flattened_image_is_named(tmp_path: Path, change: tuple[str, str], cause: str) -> None:
    checkpoint, table = files(tmp_path, "image", change=change)
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    verdict = wdport.verify(checkpoint, output, mapping=table)
    assert verdict.exit_code == 1
    assert {fault.reference or fault.feeds for fault in verdict.faults} == {"head"}
    assert [told for texts in verdict.causes.values() for told in texts] == [cause]


def test_a_converted_file_names_its_function(tmp_path: Path, refused: Refused) -> None:
    """Which is not called for that."""
    checkpoint, table = files(tmp_path, "lstm")
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    refused("verify", checkpoint, output, code=4, says="built by tests.families.toys.twins:lstm")


def test_a_function_of_another_model(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    with pytest.raises(WdportError) as error:
        wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table, model="tests.families.toys.bad:other_inputs")
    assert "no row of the table fills" in f"{error.value} {getattr(error.value, 'details', '')}"
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out.keras").exists()


BAD, NETS = "tests.families.toys.bad", "tests.families.toys.bad_nets"


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A checkpoint, its table and the converted file."""
    folder = tmp_path_factory.mktemp("lstm")
    checkpoint, table = files(folder, "lstm")
    return checkpoint, table, wdport.convert(checkpoint, folder / "out.keras", mapping=table).output


KERAS = [
    (f"{BAD}:raises", 4, "raises ValueError: out of order"),
    (f"{BAD}:calls_exit", 4, "raises SystemExit: usage: train.py DATA"),
    (f"{BAD}:number", 4, "returns a int, not a keras.Model"),
    (f"{BAD}:of_pytorch", 4, "returns a Lstm, not a keras.Model"),
    (f"{BAD}:lambda_layer", 4, "has a Lambda layer, lambda"),
    (f"{BAD}:broken", 4, "raises TypeError when it is called on its inputs: out of order"),
    (f"{BAD}:unused", 4, "does not use its layer other"),
    ("tests.families.toys.nothing:build", 2, "no module named tests.families.toys.nothing"),
    (f"{BAD}:nothing", 2, "has no nothing; name a function"),
    (BAD, 2, "is not MODULE:FUNCTION"),
]


@pytest.mark.parametrize(("target", "code", "words"), KERAS)
def test_the_keras_function(
    lstm: tuple[Path, Path, Path], tmp_path: Path, target: str, code: int, words: str, refused: Refused
) -> None:
    checkpoint, table, output = lstm
    options = ("--mapping", table, "--keras-model", target)
    refused("convert", checkpoint, "-o", tmp_path / "out.keras", *options, code=code, says=words)
    assert not (tmp_path / "out.keras").exists()
    refused("verify", checkpoint, output, *options, code=code, says=words)


def test_a_module_beside_the_table_is_not_run_and_named(lstm: tuple[Path, Path, Path], refused: Refused) -> None:
    checkpoint, table, output = lstm
    (table.parent / "beside_keras.py").write_text("raise SystemExit\n")
    says = f"beside_keras.py stands beside the table; write PYTHONPATH={table.parent} before the command"
    refused("verify", checkpoint, output, "--mapping", table, "--keras-model", "beside_keras:build", says=says)


def test_a_class_without_get_config(lstm: tuple[Path, Path, Path], tmp_path: Path, cli: Cli, refused: Refused) -> None:
    checkpoint, table, _ = lstm
    command = ("convert", checkpoint, "--mapping", table, "--keras-model", f"{BAD}:unkept", "-o")
    words = "Unkept has arguments and no get_config, which a .keras file needs; give it a get_config, or write -o"
    refused(*command, tmp_path / "out.keras", code=4, says=words)
    assert not (tmp_path / "out.keras").exists()
    for suffix in ("weights.h5", "safetensors"):
        cli(*command, tmp_path / f"out.{suffix}")


def test_convert_says_which_tensors_are_dropped_and_why(tmp_path: Path, cli: Cli) -> None:
    checkpoint, table = files(tmp_path, "image")
    state = torch.load(checkpoint)
    torch.save({**state, **{f"extra.{n}": torch.zeros(2) for n in range(5)}}, checkpoint)
    table.write_text(f"{table.read_text()}tensors:\n  - {{torch: extra.<n>, drop: of the loss}}\n")
    out = cli("convert", checkpoint, "--mapping", table, "-o", tmp_path / "out.keras").out
    assert "dropped  bn.num_batches_tracked: counts training batches; inference does not read it\n" in out
    assert "dropped  extra.0, extra.1, extra.2 and 2 more: of the loss\n" in out


FLAT_NET = """
import keras
import torch
from keras import layers, ops

def torch_model():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), torch.nn.Flatten(), torch.nn.Linear(20, 2))

def keras_model():
    inputs = keras.Input((4, 4, 3))
    x = layers.Flatten()(layers.Conv2D(5, 3, name="conv")(inputs))
    return keras.Model(inputs, layers.Dense(2, name="head")(BETWEEN))
"""
FLAT_TABLE = """format: 2
keras: flat_net:keras_model
torch: flat_net:torch_model
inputs: ["x: b 3 4 4"]
layers:
  - {torch: "0", keras: conv, kind: conv2d}
  - {torch: "2", keras: head, kind: linear}
"""


@pytest.mark.parametrize(("between", "noted"), [
    ("x", True), ("layers.Dropout(0.1)(layers.ReLU()(x))", True), ("ops.flip(x, -1)", False),
    ("(lambda relu: relu(ops.flip(relu(x), -1)))(layers.ReLU())", False),
])  # fmt: skip
def test_convert_notes_a_row_that_lacks_the_order_of_flattened_axes(
    between: str, noted: bool, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flat_net", raising=False)
    Path("flat_net.py").write_text(FLAT_NET.replace("BETWEEN", between))
    torch.save(importlib.import_module("flat_net").torch_model().state_dict(), "flat.pt")
    Path("flat.yaml").write_text(FLAT_TABLE)
    note = (
        "note     head: Flatten puts channels last; if PyTorch's flatten has them first, write flatten: "
        '"c h w -> h w c", sizes: {h: 2, w: 2} in line 7 of the table\n'
    )
    convert = ("convert", "flat.pt", "--mapping", "flat.yaml", "-o", "flat.keras", "--force")
    assert (note in cli(*convert).out) == noted
    order = 'kind: linear, flatten: "c h w -> h w c", sizes: {h: 2, w: 2}'
    Path("flat.yaml").write_text(FLAT_TABLE.replace("kind: linear", order))
    assert "Flatten" not in cli(*convert).out


def test_what_cannot_be_float64(lstm: tuple[Path, Path, Path], tmp_path: Path, cli: Cli, refused: Refused) -> None:
    checkpoint, table, _ = lstm
    output = wdport.convert(checkpoint, tmp_path / "out.weights.h5", mapping=table).output
    words = "float32 where keras.config.dtype_policy() is float64; build a new model at every call"
    words_of = ("verify", checkpoint, output, "--mapping", table, "--keras-model")
    refused(*words_of, f"{BAD}:the_same_again", code=4, says=words)
    cli(*words_of, f"{BAD}:dtype_of_its_own")  # a float32 that is stated is float64 too


TORCH = [
    (f"{NETS}:raises", 4, "raises ValueError: out of order"),
    (f"{NETS}:calls_exit", 4, "raises SystemExit: usage: train.py DATA"),
    (f"{NETS}:number", 4, "gives a int, not a torch.nn.Module"),
    (f"{NETS}:of_keras", 4, "gives a Functional, not a torch.nn.Module"),
    (f"{NETS}:broken", 4, "running it raises RuntimeError: out of order"),
    (f"{NETS}:two_inputs", 4, "missing 1 required positional argument: 'y'"),
    ("tests.families.toys.nets:gru", 4, "lacks gru.bias_hh_l0 and 9 more"),
    ("tests.families.toys.nothing:build", 2, "no module named tests.families.toys.nothing"),
]


@pytest.mark.parametrize(("target", "code", "words"), TORCH)
def test_the_pytorch_function(
    lstm: tuple[Path, Path, Path], tmp_path: Path, target: str, code: int, words: str, refused: Refused
) -> None:
    checkpoint, table, output = lstm
    refused("verify", checkpoint, output, "--mapping", table, "--reference", target, code=code, says=words)
    refused("record", target, checkpoint, "--mapping", table, "-o", tmp_path / "run.npz", code=code, says=words)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [("lstm", ("torch: lstm", "torch: rnn"), "is lstm.weight_ih_l0 the same tensor renamed?"),
     ("lstm", ("keras: lstm", "keras: rnn"), "did you mean lstm/cell/kernel?"), ("gru", ("", ""), "misfits with")],
)  # fmt: skip
def test_a_table_that_does_not_fit(
    tmp_path: Path, name: str, change: tuple[str, str], words: str, refused: Refused
) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    table.write_text(HEAD.format(torch=name, keras=name) + TABLES[name].replace(*change))
    refused("convert", checkpoint, "--mapping", table, "-o", tmp_path / "out.keras", code=4, says=words)


@pytest.mark.usefixtures("one_case")
def test_the_script_of_a_fault_computes_what_the_gate_did(tmp_path: Path) -> None:
    """A recurrent bias is the sum of two tensors, which is rounded in the file, and not in float64 (A)."""
    checkpoint, table = files(tmp_path, "lstm", "lstm_relu")
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    assert wdport.verify(checkpoint, output, mapping=table, repro=tmp_path / "repro").exit_code == 1
    case = load(tmp_path / "repro" / "layer.npz", table)
    assert relative_l2(case.actual[0], case.run()[0]) < 1e-12


SINE = """
import keras
from tests.families.toys.twins import lstm
def build():
    model = lstm()
    return keras.Model(model.inputs, keras.ops.sin(model.outputs[0]))
"""


@pytest.mark.usefixtures("one_case")
def test_a_fault_without_a_cause_shows_the_command_that_looks_further(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    (tmp_path / "sine_of_it.py").write_text(SINE)
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--mapping", table, "--keras-model", "sine_of_it:build")
    cli("convert", checkpoint, "-o", tmp_path / "out.keras", *options)
    told = cli("verify", checkpoint, tmp_path / "out.keras", *options, code=1).out
    command = "wdport map suggest --reference tests.families.toys.nets:lstm --keras-model sine_of_it:build --input"
    assert f"{command} 'x: b 9 5' --checkpoint {checkpoint}\n" in told


@pytest.mark.usefixtures("one_case")
def test_code_that_prints_is_run_twice_and_not_into_the_report(tmp_path: Path, cli: Cli) -> None:
    checkpoint, table = files(tmp_path, "lstm", "printing")
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    printed = cli("verify", checkpoint, output, "--mapping", table, "--json")
    assert json.loads(printed.out)["kind"] == "verdict"
    assert printed.err.count("built\n") == 2  # in float32 and in float64


@pytest.mark.usefixtures("one_case")
def test_inputs_that_nothing_tells(tmp_path: Path, cli: Cli, refused: Refused) -> None:
    checkpoint, table = files(tmp_path, "lstm", change=('inputs: ["x: b 9 5"]', ""))
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    command = ("verify", checkpoint, output, "--mapping", table)
    refused(*command, says="the model's inputs are not known; add `inputs:` to the table")
    cli(*command, "--input", "x: b 9 5")


def test_no_weights_are_drawn_for_a_model_that_will_be_filled() -> None:
    """What the function states of its weights it still gets."""
    model = code.build_keras("tests.families.test_custom:stated_model", {}, "float32", ())
    kernel, bias, gamma, beta, stated = (np.asarray(each.value) for each in model.weights[:5])
    assert not kernel.any()
    assert not bias.any()
    assert (gamma == 1).all()
    assert not beta.any()
    assert (stated == 0.5).all()
    assert np.asarray(stated_model().weights[0].value).all()


def test_contexts_of_two_threads_overlap() -> None:
    before = keras.Variable._initialize_with_initializer
    entered, left = Event(), Event()

    def describe() -> keras.Variable:
        with described():
            entered.set()
            left.wait()
            return keras.Variable("random_normal", (2,))

    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(describe)
        entered.wait()
        outside = keras.Variable("random_normal", (2,))
        with unfilled():
            left.set()
            assert isinstance(thread.result().value, jax.ShapeDtypeStruct)
            inside = keras.Variable("random_normal", (2,))
    assert np.asarray(outside.value).all()
    assert not np.asarray(inside.value).any()
    assert keras.Variable._initialize_with_initializer is before


def stated_model() -> keras.Model:
    return keras.Sequential([
        keras.Input((3,)),
        keras.layers.Dense(4),
        keras.layers.LayerNormalization(),
        keras.layers.Dense(2, kernel_initializer=keras.initializers.Constant(0.5)),
    ])  # fmt: skip


class Patched(keras.Model):  # type: ignore[misc]
    """Patches of four with a table of sixteen places; a rest of the image is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.places = keras.layers.Conv2D(5, 4, 4), self.add_weight(shape=(16, 5))

    def call(self, x: Any) -> Any:
        return keras.ops.reshape(self.patch(x), (keras.ops.shape(x)[0], -1, 5)) + self.places


def test_a_size_whose_rest_is_left_out_is_not_open() -> None:
    model = Patched()
    model(np.zeros((1, 16, 16, 3)))
    (image,) = parse_inputs(["x: b h=16 w=16 3"])
    assert model(np.zeros((1, 17, 16, 3))).shape == (1, 16, 5)
    assert code.open_axes(model, [image]) == {}
