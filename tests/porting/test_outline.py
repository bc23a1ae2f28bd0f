"""`wdport map outline`: what it tells of a model, and that its steps are all that the model computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.command import Cli, Refused
from tests.porting.replay import replayed
from wdport.porting.outline.make import outline
from wdport.porting.outline.result import Outline, Step
from wdport.porting.settings import settings_of, short, torch_text
from wdport.recording.float64 import lifted
from wdport.recording.nested import tensors_of

INPUTS = {
    "images": ["x: b 3 16 16"],
    "patches": ["x: b 3 8 8"],
    "sequences": ["ids: b 7, below 50"],
    "odd": ["x: b 4", "keep: b 6, mask"],
    "encoder": ["x: b 5 8"],
    "branching": ["x: b 4"],
    "diffusing": ["x: b 3 8 8", "t: b, below 100"],
    "one_layer": ["x: 5 b 3"],
    "doubling": ["x: b 3"],
}


def made(name: str) -> Outline:
    return outline(f"tests.porting.nets:{name}", INPUTS[name])


def named(found: Outline) -> dict[str, Step]:
    """Steps by their path, functions by their name and number."""
    return {step.path or f"{step.name} {step.number}": step for step in found.root.walk()}


def said(cli: Cli, name: str, *words: str) -> str:
    inputs = [part for text in INPUTS[name] for part in ("--input", text)]
    return cli("map", "outline", "--reference", f"tests.porting.nets:{name}", *inputs, *words).out


def test_images() -> None:
    steps = named(made("images"))
    assert (steps["first"].kind, str(steps["first"].outputs[0])) == ("conv2d", "b 8 16 16")
    assert steps["down"].keras_text == "ZeroPadding2D(1) -> Conv2D(16, 3, strides=2)"
    assert [str(each) for each in steps["bn"].defaults] == [
        "BatchNormalization: epsilon is 0.001 by default, here 1e-05 (eps)",
        "BatchNormalization: momentum is 0.99 by default, here 0.9 (momentum 0.1)",
    ]
    functions = [step for step in steps.values() if step.what == "function"]
    by_type = {step.name: step for step in reversed(functions)}  # the first of each
    assert by_type["mean"].keras_text == "ops.mean(axis=(1, 2))"
    assert by_type["cat"].torch == "cat([2], up, dim=1)"
    assert by_type["cat"].keras_text == "ops.concatenate(axis=-1)"
    assert by_type["mul"].keras_text == "[9] as b 1 1 c"
    assert by_type["softmax"].keras_text == "Softmax()"
    assert "axis 1 is axis -1 with channels last" in by_type["softmax"].notes
    assert by_type["permute flatten"].settings["rearrange"] == "b c h w -> b (w h c)"
    assert steps["head"].notes == (
        'reads a flattened image: its row needs flatten: "w h c -> h w c", sizes: {w: 8, h: 8}',
    )


def test_the_residual_and_what_feeds_it() -> None:
    steps = named(made("patches"))
    block = steps["blocks.3"]
    assert [value.source for value in block.inputs] == ["blocks.2"]
    adds = [step.torch for step in block.steps if step.name == "add"]
    assert adds[0] == "x + drop"
    assert adds[1].endswith("+ mlp.2")
    attention = [step.torch for step in steps["blocks.3.attn"].steps]
    assert any(text.endswith(": b n (d m p) -> d b m n p d=3 m=2 p=4") for text in attention)
    assert any("+ triu(full((5, 5), -inf), 1)" in text for text in attention)
    assert any(text.endswith("* scale") for text in attention)
    assert steps["blocks.3.attn"].notes == ("no kind: write tensors rows for scale",)


@pytest.mark.parametrize(("module", "text"), [
    (torch.nn.Conv2d(3, 4, 3, bias=False), "Conv2d(3, 4, 3, bias=False)"),
    (torch.nn.Conv2d(3, 4, 3), "Conv2d(3, 4, 3)"),
    (torch.nn.LSTM(2, 3, bias=False), "LSTM(2, 3, bias=False)"),
    (torch.nn.LayerNorm(3, bias=False), "LayerNorm(3, bias=False)"),
    (torch.nn.LayerNorm(3, elementwise_affine=False), "LayerNorm(3, elementwise_affine=False)"),
])  # fmt: skip
def test_a_layer_without_a_bias_shows_it(module: torch.nn.Module, text: str) -> None:
    assert torch_text(type(module).__name__, settings_of(module)) == text


def test_sequences() -> None:
    found = made("sequences")
    steps = named(found)
    assert steps["rnn"].kind == "bidirectional_lstm"
    assert steps["rnn"].keras_text == "2 x Bidirectional(LSTM(4, return_sequences=True))"
    assert any(note.startswith("its last state is read") for note in steps["rnn"].notes)
    assert steps["head#2"].path == "head#2"
    assert found.uncalled == {"spare": "Linear(2, 2)"}
    assert any(step.keras_text == "nothing: Keras's layout already" for step in steps.values())


def test_functions_that_differ() -> None:
    steps = named(made("odd")).values()
    by_type = {step.name: step for step in steps}
    linears = [step for step in steps if step.name == "linear"]
    assert (linears[0].kind, linears[0].notes) == ("linear", ("a row for inner moves its weights",))
    assert (linears[1].kind, linears[1].notes) == ("", ("no row of a kind: write tensors rows for kernel",))
    assert by_type["std"].notes == ("PyTorch divides by n - 1, ops.std by n: multiply it by sqrt(n / (n - 1))",)
    assert by_type["std"].keras == ()
    assert by_type["split"].keras_text == "ops.split(2, axis=-1)"
    assert by_type["normalize"].keras_text == "ops.normalize(epsilon=1e-12)"
    assert "[:, 0] = 0" in by_type["setitem"].torch
    assert by_type["rsub"].torch.startswith("1 - ")


def test_the_fast_path_is_not_taken() -> None:
    names = [step.path for step in made("encoder").layers]
    assert "layers.1.self_attn" in names
    assert "layers.1.linear2" in names


def test_a_model_that_is_one_layer() -> None:
    (step,) = made("one_layer").root.steps
    assert (step.kind, step.keras_text) == ("gru", "GRU(4, return_sequences=True)")
    assert "its axes are t b c (batch_first is false); Keras's are b t c" in step.notes


def test_a_constant_is_told_in_short() -> None:
    steps = list(made("doubling").root.walk())
    assert [step.name for step in steps] == ["", "mul", "head"]
    assert steps[1].torch.startswith("x * log(")
    assert len(steps[1].torch) < 100


def test_another_way_for_another_batch() -> None:
    found = made("branching")
    assert any("with a batch of 3 it calls other functions" in note for note in found.notes)
    assert any("reads values of tensors" in note for note in found.notes)


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [((3, 3), "kernel_size", "3"), ((2, 3), "kernel_size", "(2, 3)"), ((4,), "normalized_shape", "4"),
     ((4, 4), "normalized_shape", "(4, 4)"), ((2, 2), "target_shape", "(2, 2)"), ((5,), "target_shape", "(5,)"),
     (((1, 1), (1, 1)), "padding", "((1, 1), (1, 1))"), ((1, 1), "axis", "(1, 1)"), (1e-5, "eps", "1e-05")],
)  # fmt: skip
def test_a_number_stands_for_every_axis_but_not_for_a_shape(value: object, name: str, text: str) -> None:
    assert short(value, name) == text


def test_a_deep_model_fits_on_a_screen(cli: Cli) -> None:
    text = said(cli, "patches")
    assert len(text.splitlines()) < 45
    assert "blocks.<n>  Block(x=[4]), 12 times, n 0 to 11, each of the one before" in text
    assert "\n  Attention: no kind: write tensors rows for scale: 6\n" in text
    every = said(cli, "patches", "--rows")
    assert len(every.splitlines()) > 240
    assert "<n>" not in every


def test_json_has_everything(cli: Cli) -> None:
    found = json.loads(said(cli, "sequences", "--json"))
    rnn = next(step for step in found["steps"] if step["path"] == "rnn")
    assert rnn["settings"]["hidden_size"] == 4
    assert rnn["outputs"][0] == {"from": "rnn[0]", "argument": None, "axes": rnn["outputs"][0]["axes"],
                                 "sizes": ["b", 7, 8], "kind": "float"}  # fmt: skip
    assert rnn["keras"][0]["arguments"]["layer"]["arguments"]["units"] == 4
    assert found["uncalled"] == {"spare": "Linear(2, 2)"}


def test_of_a_table(tmp_path: Path, cli: Cli) -> None:
    table, config = tmp_path / "t.yaml", tmp_path / "c.yaml"
    table.write_text('format: 2\ntorch: tests.porting.nets:patches\ninputs: ["x: b 3 8 8"]\nconfig: [depth]\n'
                     "layers:\n  - {torch: head, keras: head, kind: linear}\n")  # fmt: skip
    config.write_text("depth: 2\nother: 3\n")
    assert "Block(x=[4]), 2 times, n 0 to 1" in cli("map", "outline", "--mapping", table, "--config", config).out
    assert "depth not given, but required by the table" in cli("map", "outline", "--mapping", table, code=4).err


def test_a_function_that_takes_a_checkpoint(tmp_path: Path, cli: Cli) -> None:
    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / "a.pt")
    words = ["map", "outline", "--reference", "tests.porting.nets:of_a_file", "--input", "x: b 3"]
    assert "Dense(2)" in cli(*words, tmp_path / "a.pt").out
    assert "takes the path of a checkpoint" in cli(*words, code=2).err


@pytest.mark.parametrize(("words", "code", "told"), [
    ([], 2, "no model is named"),
    (["--reference", "tests.porting.nets:images"], 2, "the model's inputs are not known"),
    (["--reference", "tests.porting.nets:absent", "--input", "x: b 3"], 2, "has no absent; name a function"),
    (["--reference", "tests.porting.nets:images", "--input", "x: b 3"], 4, "running it raises"),
    (["--reference", "tests.porting.nets:images", "--input", "x"], 2, "is not NAME: AXES"),
])  # fmt: skip
def test_a_wrong_call_is_one_line(words: list[str], code: int, told: str, refused: Refused) -> None:
    refused("map", "outline", *words, code=code, says=told)


@pytest.mark.parametrize("name", ["images", "patches", "sequences", "odd", "encoder", "diffusing"])
def test_the_steps_are_all_that_the_model_computes(name: str) -> None:
    """Run nothing but the calls that the outline is made of, each on what the calls before it gave."""
    module, run, values, arrays = replayed(f"tests.porting.nets:{name}", INPUTS[name])
    with torch.no_grad(), lifted():
        wanted = tensors_of(module(*(torch.tensor(array) for array in arrays)))
    assert len(wanted) == len(run.root.outputs)
    for seen, value in zip(run.root.outputs, wanted, strict=True):
        assert torch.equal(values[seen.source], value)
