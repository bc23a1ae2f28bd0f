"""The recording module: watching modules, attention put together again, the float64 lift, weights and refusals."""

from __future__ import annotations

import ast
import copy
import functools
import json
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.make import SMALL, TWO_LEVELS, make_state, record_small, save
from tests.user_model import small
from wdport import recording
from wdport.base.errors import IncompleteError
from wdport.checkpoint.state_dict import COMPONENTS
from wdport.compare.calls import CASES
from wdport.compare.measure import relative_l2
from wdport.compare.reference import Live
from wdport.recording import checkpoint_file
from wdport.recording import inputs as recording_inputs
from wdport.recording.__main__ import main
from wdport.recording.bias_shifts import bias_shifts, moved_biases
from wdport.recording.calls import Call, cast
from wdport.recording.cases import Case
from wdport.recording.code_constants import compared_numbers, unreached_notes
from wdport.recording.conditioning import _moved
from wdport.recording.errors import Refusal
from wdport.recording.fitted_inputs import call_by_name, checked_inputs, with_keys
from wdport.recording.float64 import lifted
from wdport.recording.inner_calls import ATTENTION
from wdport.recording.input_text import parse_input, parse_inputs, read_inputs
from wdport.recording.nested import to_array
from wdport.recording.observation import observe
from wdport.recording.record_file import record_file
from wdport.recording.repeatability import fast_path_error, padded_error
from wdport.recording.runs import isolate, module_names, record, run
from wdport.recording.user_code import find_function
from wdport.recording.user_model import build
from wdport.uses.waveletdiff.family import FAMILY

FOLDER = Path(recording.__file__).parent


# --- The folder by itself


def test_it_is_python_3_8_and_needs_numpy_and_torch_alone() -> None:
    outside = set[str]()
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom) and not node.level}
        outside |= {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
        at_once = [ast.unparse(node) for node in tree.body if node in imports]
        assert not any("torch" in line for line in at_once if not line.startswith("from ."))
    assert outside == {"numpy", "torch"}


def test_it_runs_where_wdport_is_not(tmp_path: Path) -> None:
    """Copied into a project whose environment lacks wdport, as its documentation says."""
    site, project = tmp_path / "site", tmp_path / "project"
    site.mkdir()
    project.mkdir()
    for entry in Path(torch.__file__).parents[1].iterdir():
        if not entry.name.startswith(("wdport", "_editable", "__")):
            (site / entry.name).symlink_to(entry)
    shutil.copytree(FOLDER, project / "recording")
    (project / "net.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.Linear(3, 2)\n")
    torch.save(nn.Linear(3, 2).state_dict(), project / "small.ckpt")
    program = (
        "import sys, runpy, importlib.util; sys.path[:0] = [sys.argv.pop(1), '.']\n"
        "assert importlib.util.find_spec('wdport') is None\n"
        "runpy.run_module('recording', run_name='__main__')"
    )
    arguments = ["net:build", "--input", "x: b 10 3", "small.ckpt", "-o", "run.npz"]
    command = [sys.executable, "-I", "-S", "-c", program, str(site), *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("wrote run.npz: ")
    with np.load(project / "run.npz") as file:
        assert json.loads(file["index"].tobytes())["reference"] == "net:build"
    command[-3] = "nothing.ckpt"
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "error: nothing.ckpt: cannot be read (No such file or directory); check the path\n"


@pytest.mark.parametrize(("output", "said"), [
    ("x.npz", "x.npz: is the checkpoint; give another name with -o"),
    ("link.npz", "link.npz: is the checkpoint; give another name with -o"),
    ("x.txt", "x.txt: unknown output format; end the name in .npz"),
    ("", "python -m recording: the following arguments are required: -o/--output; see --help"),
])  # fmt: skip
def test_it_writes_over_no_input(
    output: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.npz").write_bytes(b"checkpoint")
    Path("link.npz").symlink_to("x.npz")
    assert main(["net:build", "x.npz", *(["-o", output] if output else [])]) == 2
    assert capsys.readouterr().err == f"error: {said}\n"
    assert Path("x.npz").read_bytes() == b"checkpoint"


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("x: b 3 48 40", (4, 3, 48, 40), "float64"),
        ("x: t=7 b 40", (7, 4, 40), "float64"),
        ("x: b c=3 h=4 w=5 -> b h w c, from 0 to 1", (4, 3, 4, 5), "float64"),
        ("ids: b 12, below 1000", (4, 12), "int64"),
        ("t: b, steps 1000", (4,), "float64"),
        ("x: b 31 3, parts 5 5 8 13", (4, 31, 3), "float64"),
        ("m: b 9, mask", (4, 9), "bool"),
    ],
)
def test_inputs_are_drawn_as_they_say(text: str, shape: tuple[int, ...], dtype: str) -> None:
    told = parse_input(text)
    made = told.make(1, 4, 1.0)
    assert (made.shape, str(made.dtype)) == (shape, dtype)
    assert np.array_equal(made, told.make(1, 4, 1.0))
    assert not np.array_equal(made, told.make(2, 4, 1.0))
    assert len(np.unique(made)) > 1
    larger = told.make(1, 4, 50.0)
    assert np.array_equal(larger, made) is not ("from" not in text and told.draw in ("normal", "parts"))
    if told.every is not None:
        assert {1, 500, 1000} <= set(np.round(1000 * made).astype(int))
        assert set(made) <= set(told.every)


@pytest.mark.parametrize(
    "text", ["x b 3", "x: b n", "x: b=4 3", "x: b 3 -> b 4", "x: b 3, below", "x: b 3, below 1.5", "x: b c=3 c=4",
             "x: b 0", "x: b 3, parts 1 1", "x: b 3, from 0 1 2", "x: b 3, often", "x: b 3, below n", ""]
)  # fmt: skip
def test_inputs_that_say_nothing(text: str) -> None:
    with pytest.raises(Refusal) as refusal:
        read_inputs([text])
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("texts", [
    ("ids: b t=8..64, below n", "mask: b t, mask", "bias: h=2 t t", "x: n=12 3"),
    ("x: n 3", "bias: h=2 t t", "mask: b t=8..64, mask", "ids: b t, ids < n", "adj: n=12 n"),
])  # fmt: skip
def test_inputs_share_sizes_in_any_order(texts: tuple[str, ...]) -> None:
    shapes = {batch: {spec.name: spec.make(0, batch, 1.0).shape for spec in parse_inputs(texts)}
              for batch in (4, 1)}  # fmt: skip
    for batch, length in ((4, 8), (1, 64)):
        expected = {"ids": (batch, length), "mask": (batch, length), "bias": (2, length, length), "x": (12, 3)}
        assert {name: shapes[batch][name] for name in expected} == expected
    ids = next(spec for spec in parse_inputs(texts) if spec.name == "ids")
    assert ids.make(0, 4, 1.0).max() == 11


@pytest.mark.parametrize(("texts", "message"), [
    (("ids: b t=8..64", "mask: b s, mask"), "'mask: b s, mask': no input states the size of s, such as s=8..64"),
    (("edges: 2 e=9, below n",), "'edges: 2 e=9, below n': no input states the size of n, such as n=8..64"),
    (("x: b t=8..64", "y: b t=8"), "'y: b t=8': t is 8 here, and 8..64 before; use another name"),
    (("x: t=8 t=9",), "'x: t=8 t=9': t is 9 here, and 8 before; use another name"),
    (("x: b=4 3",), "'x: b=4 3': 'b=4' is not b, a size, NAME=SIZE or a NAME whose size is stated elsewhere"),
    (("x: b 3", "x: b 4"), "several inputs have the name x; each needs its own"),
])  # fmt: skip
def test_sizes_that_contradict_are_named(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_inputs(texts)


def test_the_documented_statements_are_read() -> None:
    page = (Path(__file__).parents[1] / "docs" / "inputs.md").read_text("utf-8")
    rows = [re.findall(r"`(\w+\??: [^`]+)`", line) for line in page.splitlines() if line.startswith("| `")]
    statements = [texts for texts in rows if texts]
    assert len(statements) == 15
    for texts in statements:
        # The rows on values leave the size of n to another input.
        parse_inputs([*texts, *(["nodes: n=12 3"] if "edges: 2 e=30, below n" in texts else [])])


def test_edges_have_frequent_nodes_and_leave_some_out() -> None:
    edges = parse_inputs(["nodes: n=12..40 6", "edges: 2 e=60..90, below n"])[1]
    for seed in range(5):
        for batch, nodes in ((4, 12), (1, 40)):
            counts = np.bincount(edges.make(seed, batch, 1.0)[1], minlength=nodes)
            assert len(counts) == nodes
            assert counts.max() > 2 * counts.sum() / nodes
            assert np.count_nonzero(counts == 0) >= nodes // 5


@pytest.mark.parametrize(("names", "expected"), [
    (("x: b 2", "z: b 2"), {"x": 0, "z": 1}),
    (("z: b 2", "x: b 2"), {"z": 0, "x": 1}),
    (("z: b 2", "y?: b 2", "x: b 2"), {"z": 0, "y": 1, "x": 2}),
    (("a: b 2", "z: b 2"), {"x": 0, "z": 1}),
    (("a: b 2", "c: b 2"), {"x": 0, "y": 1}),
])  # fmt: skip
def test_inputs_are_passed_by_the_names_of_parameters(names: tuple[str, ...], expected: dict[str, int]) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, y: Tensor | None = None, z: Tensor | None = None) -> dict[str, Tensor]:
            return {name: tensor for name, tensor in (("x", x), ("y", y), ("z", z)) if tensor is not None}

    module, inputs = Net(), parse_inputs(names)
    call_by_name(module, inputs)
    arrays = [np.full((1, 2), float(place)) for place in range(len(inputs))]
    for count in (len(inputs), len(recording_inputs.given(inputs, 0))):
        kept = [index for index, spec in enumerate(inputs) if count == len(inputs) or not spec.optional]
        found: list[str] = []
        outputs = run(module, [arrays[index] for index in kept], found)
        wanted = {name: place for name, place in expected.items() if place in kept}
        assert {name: int(output[0, 0]) for name, output in zip(found, outputs, strict=True)} == wanted


# --- Watching


class Odd(nn.Module):
    """Modules as they are called in the wild."""

    def __init__(self) -> None:
        super().__init__()
        self.named, self.pair, self.twice = Named(), Pair(), nn.Linear(3, 3)
        self.inplace = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        found = self.pair(self.named(shift=x, x=2.0 * x, flag=True))
        x = self.inplace(found["first"] - 0.5)
        return self.twice(self.twice(x)) + found["rest"][0]


class Named(nn.Module):
    def forward(self, x: Tensor, flag: bool, shift: Tensor | None = None) -> Tensor:
        return x if shift is None else x + shift


class Pair(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"first": x, "rest": [x + 1.0, None]}


def test_calls_as_they_come() -> None:
    """By name and out of order, dictionaries, in place, and twice."""

    torch.manual_seed(0)
    x, notes = np.random.default_rng(0).standard_normal((2, 3)), []
    module = Odd().double().eval()
    (output,), calls = record(module, (x,), note=notes.append)
    assert list(calls) == ["named", "pair", "inplace", "twice", "twice#2"]
    assert notes == []
    assert np.array_equal(calls["twice#2"].inputs[0], calls["twice"].outputs[0])
    assert calls["named"].names == ("x", "shift")
    assert [array.tolist() for array in calls["named"].inputs] == [(2 * x).tolist(), x.tolist()]
    assert [array.tolist() for array in calls["pair"].outputs] == [(3 * x).tolist(), (3 * x + 1.0).tolist()]
    assert calls["inplace"].inputs[0].min() < 0.0 <= calls["inplace"].outputs[0].min()
    zeros = {name: Call(cast(call.inputs, np.float64), call.outputs) for name, call in calls.items()}
    zeros["pair"] = Call((0 * x,), (0 * x, 0 * x))
    zeros["twice"] = Call((x,), (-x,))
    (answered,), seen = isolate(module, (x,), zeros)
    assert np.array_equal(seen["twice#2"].inputs[0], -x)
    assert np.array_equal(seen["pair"].inputs[0], calls["named"].outputs[0])
    assert np.array_equal(seen["pair"].outputs[1], 0 * x + 1.0)
    assert np.array_equal(seen["inplace"].inputs[0], 0 * x - 0.5)
    assert not np.array_equal(answered, output)


# --- Attention


def tokens(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


class Asks(nn.Module):
    """Attention of one kind, with keys and values of their own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, **kwargs)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.attn(query, value=value, key=key, need_weights=False)[0]


KINDS: dict[str, dict[str, Any]] = {
    "packed": {"batch_first": True},
    "batch second": {},
    "no biases": {"batch_first": True, "bias": False},
    "separate weights": {"batch_first": True, "kdim": 6, "vdim": 5},
}


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_put_together(kind: str) -> None:
    torch.manual_seed(1)
    module = Asks(**KINDS[kind]).double().eval()
    widths = (8, KINDS[kind].get("kdim", 8), KINDS[kind].get("vdim", 8))
    inputs = [tokens(2, length, width, seed=length) for length, width in zip((3, 4, 4), widths, strict=True)]
    turn = not KINDS[kind].get("batch_first", False)
    (output,), calls = record(module, [x.swapaxes(0, 1) if turn else x for x in inputs])
    assert [name for name in module_names(module) if name in calls] == [
        "attn",
        *(f"attn.{s}" for s in ATTENTION),
    ]
    for step, given in zip(("query", "key", "value"), inputs, strict=True):
        call = calls[f"attn.{step}"]
        assert np.array_equal(call.inputs[0], given)
        assert call.outputs[0].shape == (*given.shape[:2], 8)
    made = calls["attn.out"].outputs[0]
    assert relative_l2(made.swapaxes(0, 1) if turn else made, output) < 1e-14
    heads = [calls[f"attn.{step}"].outputs[0].reshape(2, -1, 2, 4) for step in ("query", "key", "value")]
    logits = np.einsum("bqhk,bshk->bhqs", heads[0], heads[1]) / 2.0
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    merged = np.einsum("bhqs,bshk->bqhk", weights, heads[2]).reshape(2, 3, 8)
    assert relative_l2(calls["attn.out"].inputs[0], merged) < 1e-14


def test_attention_is_isolated_step_by_step() -> None:
    """Every step computes from its answer's inputs and hands its answer's outputs on to the next."""
    torch.manual_seed(2)
    module = Asks(batch_first=True).double().eval()
    inputs = [tokens(2, 3, 8, seed=seed) for seed in range(3)]
    (output,), calls = record(module, inputs)
    answers = {name: Call(tuple(2.0 * x for x in call.inputs), tuple(0.5 * x for x in call.outputs))
               for name, call in calls.items()}  # fmt: skip
    (answered,), seen = isolate(module, inputs, answers)
    assert np.array_equal(answered, answers["attn"].outputs[0])
    assert np.array_equal(seen["attn"].outputs[0], answers["attn.out"].outputs[0])
    assert np.array_equal(seen["attn.query"].inputs[0], 2.0 * inputs[0])
    bias = module.attn.in_proj_bias[:8].detach().numpy()
    assert relative_l2(seen["attn.query"].outputs[0], 2.0 * calls["attn.query"].outputs[0] - bias) < 1e-14
    again = {name: call for name, call in calls.items() if name != "attn.out"}
    _, whole = isolate(module, inputs, again)
    assert relative_l2(whole["attn"].outputs[0], output) < 1e-14
    assert "attn.out" not in whole


class Scaled(nn.MultiheadAttention):
    def forward(self, query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Any:
        return super().forward(query * (1 + 1e-9), key, value, **kwargs)


def test_attention_that_is_not_plain() -> None:
    """Something of its own is refused; keys of its own are noted, and the insides are not recorded."""
    module = Asks(batch_first=True)
    scaled = Scaled(8, 2, batch_first=True)
    scaled.load_state_dict(module.attn.state_dict())
    x, notes = tokens(2, 3, 8), []
    record(Asks(batch_first=True, add_zero_attn=True).double().eval(), (x, x, x), note=notes.append)
    assert notes == ["attn is attention with add_zero_attn, so its parts are not recorded"]
    module.attn = scaled
    module.double().eval()
    with pytest.raises(Refusal, match=r"attn: its output is \S+ off the one recomputed") as refusal:
        record(module, (x, x, x))
    assert refusal.value.exit_code == 6
    names = [name for name in module_names(module) if not name.startswith("attn.")]
    assert list(record(module, (x, x, x), names)[1]) == ["attn"]


class Masked(nn.Module):
    def __init__(self, masks: dict[str, Any], batch_first: bool = True) -> None:
        super().__init__()
        self.attn, self.masks = nn.MultiheadAttention(8, 2, batch_first=batch_first), masks

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(x, x, x, **self.masks)[0]


LATER = torch.ones(3, 3, dtype=torch.bool).triu(1)
OTHERS = torch.tensor([[False, True, False], [False, True, False], [False, False, True]])
PADDED = torch.tensor([[False, False, True], [False, True, True]])
BY_HEAD = torch.stack([LATER, torch.eye(3, dtype=torch.bool), ~LATER, LATER.T])
MASKS: dict[str, dict[str, Any]] = {
    "bool": {"attn_mask": LATER},
    "added": {"attn_mask": torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)},
    "lowest": {"attn_mask": LATER.double() * torch.finfo(torch.float64).min},
    "causal without a mask": {"attn_mask": torch.zeros(3, 3).bool(), "is_causal": True, "need_weights": False},
    "causal with weights": {"attn_mask": LATER, "is_causal": True},
    "by head": {"attn_mask": BY_HEAD, "need_weights": False},
    "padding": {"key_padding_mask": PADDED},
    "both": {"attn_mask": LATER, "key_padding_mask": PADDED, "need_weights": False},
    "both, causal": {"attn_mask": OTHERS, "key_padding_mask": PADDED, "is_causal": True, "need_weights": False},
    "no key": {"attn_mask": LATER, "key_padding_mask": PADDED.flip(1)},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("form", MASKS)
def test_attention_with_a_mask_is_put_together(form: str, batch_first: bool) -> None:
    """Its parts give torch's output, which is checked; what they give must follow the mask."""
    torch.manual_seed(1)
    x, notes = tokens(2, 3, 8) if batch_first else tokens(3, 2, 8), []
    plain, module = (Masked(masks, batch_first).double().eval() for masks in ({}, MASKS[form]))
    plain.load_state_dict(module.state_dict())
    (output,), calls = record(module, (x,), note=notes.append)
    out = calls["attn.out"]
    assert np.isfinite(out.inputs[0]).all()
    assert relative_l2(out.outputs[0] if batch_first else out.outputs[0].swapaxes(0, 1), output) < 1e-14
    assert not relative_l2(output, record(plain, (x,))[0][0]) < 1e-3
    blind = ["attn has queries that see no key; they get zeros, where torch may also give NaN"]
    assert notes == (blind if form in ("no key", "by head") else [])


class Encoded(nn.Module):
    """The mean of an encoder's outputs, of all steps or of those that count."""

    def __init__(self, counted: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder, self.counted = nn.TransformerEncoder(layer, 1), counted

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        made = self.encoder(x, src_key_padding_mask=~keep)
        return (made * keep[..., None] if self.counted else made).mean(1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_fused_encoder_calls_its_submodules() -> None:
    """In float32, too, where torch would run a layer as one function and leave the padding out."""
    module = Encoded(True).eval()
    x = torch.from_numpy(tokens(2, 3, 8)).float()
    with torch.no_grad():
        assert not module.encoder(x, src_key_padding_mask=PADDED)[PADDED].any()
    _, calls = record(module, (x.numpy(), ~PADDED.numpy()))
    assert "encoder.layers.0.self_attn.out" in calls
    assert np.abs(calls["encoder"].outputs[0][PADDED.numpy()]).min() > 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("counted", "is_off"), [(True, False), (False, True)])
def test_padding_at_the_end_is_said_if_the_fast_path_computes_something_else(counted: bool, is_off: bool) -> None:
    """A mask with holes, as the first case has it, does not take the path that drops padding."""
    torch.manual_seed(0)
    module = Encoded(counted).eval()
    inputs = np.asarray(tokens(2, 5, 8)), np.array([[True, False, True, True, False], [True, True, False, True, True]])
    observation = observe({"float32": module, "float64": copy.deepcopy(module).double()},
                                   Case(0, 2, 1.0), inputs)  # fmt: skip
    assert not fast_path_error(module, observation)
    assert (padded_error(module, observation) > 0.05) is is_off


class Padded(nn.Module):
    """Attention with two masks: true in ``pad`` means left out, true in ``keep`` visible."""

    def __init__(self, causal: bool = False, own: bool = False, both: bool = False) -> None:
        super().__init__()
        self.attn, self.causal, self.own, self.both = nn.MultiheadAttention(4, 2, batch_first=True), causal, own, both

    def forward(self, x: Tensor, pad: Tensor, keep: Tensor | None = None) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        if self.own:
            hidden = pad[:, None] | (later if self.causal else torch.tensor(False))
            x = (x @ x.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ x
        else:
            x = self.attn(x, x, x, key_padding_mask=pad, attn_mask=later)[0]
        return x if keep is None else self.attn(x, x, x, key_padding_mask=~keep)[0]


@pytest.mark.parametrize(
    ("module", "hides", "right"),
    [
        (Padded(), [True, None], False),
        (Padded(causal=True), [True, None], True),
        (Padded(own=True), [True, None], False),
        (Padded(own=True, causal=True), [True, None], True),
        (Padded(both=True), [True, False], False),
        (nn.Identity(), [None, None], False),
    ],
)
def test_masks_leave_every_query_a_key(module: nn.Module, hides: list[bool | None], right: bool) -> None:
    """Whichever value marks what is left out."""
    inputs = [parse_input(text) for text in ("x: b n=5 4", "pad: b n=5, mask", "keep: b n=5, mask")]
    inputs = inputs[: 3 if getattr(module, "both", True) else 2]
    made = with_keys(inputs, module.double(), CASES, lambda case, drawn: checked_inputs(None, case, "", drawn))
    assert [spec.hides for spec in made[1:]] == hides[: len(made) - 1]
    assert {spec.right for spec in made[1:]} == {right}
    for spec in made[1:]:
        masks = [spec.make(case.seed, case.batch, case.scale, case.extremes) for case in CASES]
        full = [mask.all(-1) if spec.hides else ~mask.any(-1) for mask in masks]
        assert any(map(np.any, full)) is (spec.hides is None)


class Sized(nn.Module):
    """Compares sizes and positions with numbers, of which 16 to 40 positions reach some."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1])
        near = (steps[:, None] - steps >= 0) & (steps[:, None] - steps < 64)
        near = near.triu(-80) & (torch.minimum(steps.clamp(max=70), torch.tensor(90)) < 1000)
        x = self.norm(x.mT).mT * (2.0 if x.size()[1] <= 20 else 1.0)
        return near.to(x) @ x * (3.0 if x.shape[1] < 8 else 1.0) + (x.shape[1] > 50)


def test_numbers_that_no_size_reaches_are_named() -> None:
    inputs, ranges = [parse_input("x: b n=16..40 3")], {}
    for case in CASES[:2]:
        compared_numbers(Sized().double().eval(), checked_inputs(None, case, "", inputs), ranges)
    sentences = unreached_notes(ranges, inputs)
    assert sorted(text.partition(" the code ")[2] for text in sentences) == [
        "compares them with 1000; state n=16..1062 to try both sides",
        "compares them with 50; state n=16..58 to try both sides",
        "compares them with 64; state n=16..72 to try both sides",
        "compares them with 70; state n=16..78 to try both sides",
        "compares them with 80; state n=16..88 to try both sides",
        "compares them with 8; state n=4..40 to try both sides",
        "compares them with 90; state n=16..98 to try both sides",
    ]
    assert unreached_notes(ranges, [parse_input("x: b n=16 3")]) == []


# --- The lift


def test_float32_by_name_is_float64_while_lifted() -> None:
    counts = np.arange(5.0)
    with lifted():
        made = {
            "default": torch.linspace(0, 1, 5),
            "arange": torch.arange(5, dtype=torch.float32).exp(),
            "float": torch.arange(5).float().exp(),
            "to": torch.arange(5).to(torch.float32).exp(),
            "type": torch.arange(5).type(torch.FloatTensor).exp(),
            "tensor": torch.tensor([0, 1, 2, 3, 4], dtype=torch.float).exp(),
            "softmax": torch.arange(5).double().softmax(-1, dtype=torch.float32),
        }
    assert torch.get_default_dtype() == torch.float32
    for name, tensor in made.items():
        assert tensor.dtype == torch.float64, name
    for name in ("arange", "float", "to", "type", "tensor"):
        assert np.allclose(made[name].numpy(), np.exp(counts), rtol=1e-15, atol=0)
    assert torch.arange(5).float().dtype == torch.float32


class Rounds(nn.Module):
    """Rounds to 16 bits as its code says, and adds the module's input, which is not rounded."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.scale = how, nn.Parameter(torch.tensor(1 / 3))
        rates = torch.arange(1, 9) / 7
        self.register_buffer("rates", rates.half() if how == "buffer" else rates)

    def forward(self, x: Tensor) -> Tensor:
        rates = self.rates
        return (
            x
            + self.scale
            * {
                "buffer": lambda: rates.to(x.dtype),
                "to": lambda: rates.to(torch.bfloat16).to(x.dtype),
                "float": lambda: rates.half().float(),
                "type": lambda: rates.type(torch.HalfTensor),
                "name": lambda: rates.type("torch.BFloat16Tensor"),
                "tensor": lambda: torch.tensor([0.1], dtype=torch.float16) * rates,
                "linspace": lambda: torch.linspace(0.1, 1, 8, dtype=torch.bfloat16) * rates,
                "product": lambda: rates.half() * rates.half(),
                "function": lambda: rates.bfloat16().exp()[None].expand(4, 8),
                "sum": lambda: rates.bfloat16().sum(dtype=torch.float32),
                "as weights": lambda: rates.to(self.scale.dtype),
            }[self.how]()
        )


@pytest.mark.parametrize("how", ["buffer", "to", "float", "type", "name", "tensor", "linspace", "product", "function",
                                 "sum", "as weights"])  # fmt: skip
def test_16_bits_that_the_code_states_stay_while_lifted(how: str, tmp_path: Path) -> None:
    """The float64 module computes what the module itself does in float32, to its rounding."""
    save(tmp_path / "a.pt", Rounds(how).state_dict())
    with pytest.MonkeyPatch.context() as context:
        context.setattr(sys.modules[__name__], "rounding", lambda: Rounds(how), raising=False)
        modules = build(f"{__name__}:rounding", str(tmp_path / "a.pt")).modules
    x = tokens(4, 8)
    with torch.no_grad():
        plain = Rounds(how)(torch.from_numpy(x).float()).double().numpy()
    with lifted():
        (output,) = run(modules["float64"], (x,))
    assert output.dtype == np.float64
    assert np.allclose(output, plain, rtol=1e-6, atol=1e-6)
    assert modules["float64"].rates.dtype == torch.float64
    assert not np.array_equal(output, output.astype(np.float32))


class Summed(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.fc = how, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "half":
            return (x.half() @ x.half().transpose(0, 1)).to(x.dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.how == "autocast"):
            return self.fc(x).to(x.dtype)


@pytest.mark.parametrize("how", ["half", "autocast", "disabled"])
def test_sums_in_16_bits_are_refused(how: str) -> None:
    single = Summed(how).eval()
    modules = {"float32": single, "float64": copy.deepcopy(single).double()}
    if how == "disabled":
        observe(modules, CASES[0], (tokens(4, 8),))
        return
    with pytest.raises(Refusal, match="no port can repeat") as refusal:
        observe(modules, CASES[0], (tokens(4, 8),))
    assert refusal.value.exit_code == 6


def test_a_module_stored_in_16_bits_computes_in_float64(tmp_path: Path) -> None:
    """Its weights are rounded, and nothing else."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)
            self.register_buffer("rates", torch.arange(8) / 7)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) * self.rates

    save(tmp_path / "a.pt", Net().half().state_dict())
    with pytest.MonkeyPatch.context() as context:
        context.setattr(sys.modules[__name__], "stored", lambda: Net().to(torch.float16), raising=False)
        wide = build(f"{__name__}:stored", str(tmp_path / "a.pt")).modules["float64"]
    assert torch.equal(wide.rates, torch.arange(8, dtype=torch.float64) / 7)
    assert torch.equal(wide.fc.weight, wide.fc.weight.half().double())


def test_arrays_become_tensors_while_lifted() -> None:
    """What torch.tensor is given is looked at, to tell empty tensors: that may be an array, or a list of them."""
    values = np.arange(3.0)
    with lifted():
        assert torch.equal(torch.tensor(values), torch.arange(3))
        assert torch.equal(torch.tensor([values[0]]), torch.zeros(1))
        assert torch.tensor(np.float32(0.5), dtype=torch.float32).dtype is torch.float64


@pytest.mark.parametrize("inplace", [False, True])
def test_the_slope_of_hardsigmoid_is_a_sixth_while_lifted(inplace: bool) -> None:
    """torch's own gradient has the float32 number nearest to 1 / 6 in float64 as well."""
    x = torch.linspace(-4, 4, 9, dtype=torch.float64).requires_grad_()
    hard = torch.nn.Hardsigmoid(inplace)
    with lifted():
        values = hard(x * 1)
    (slopes,) = torch.autograd.grad(values.sum(), x)
    assert torch.equal(values, torch.nn.functional.hardsigmoid(x))
    assert np.allclose(slopes, (x.detach().abs() < 3).double() / 6, rtol=1e-15, atol=0)


def test_loading_is_not_lifted(tmp_path: Path) -> None:
    """A file's float32 stays what it is, bytes and all."""
    values = {"a": torch.randn(3, 4), "b": torch.zeros(0), "c": torch.arange(3)}
    torch.save(values, tmp_path / "a.pt")
    with lifted():
        read = torch.load(tmp_path / "a.pt", weights_only=True)
    assert all(torch.equal(read[name], values[name]) and read[name].dtype == values[name].dtype for name in values)


# --- The model, built twice


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("recorder") / "small.ckpt", make_state(TWO_LEVELS))


def test_both_modules_hold_the_checkpoint(checkpoint: Path) -> None:
    subject = build("tests.user_model:two_levels", str(checkpoint))
    state, tables = make_state(TWO_LEVELS), ("pe", "emb", "_all")
    narrow, wide = (subject.modules[dtype].state_dict() for dtype in ("float32", "float64"))
    assert set(state) == set(narrow) == set(wide) == set(subject.tensors)
    assert all(torch.equal(narrow[name], state[name]) for name in state)
    for name, tensor in wide.items():
        assert tensor.dtype == torch.float64
        assert torch.equal(tensor, state[name].double()) is not name.endswith(tables), name
    assert subject.evaluating
    assert subject.notes == []
    constants = FAMILY.constants(SMALL)
    assert np.allclose(wide["time_embedding.emb"].numpy(), constants["time_frequencies"].values, rtol=1e-14, atol=0)
    assert np.allclose(wide["beta_all"].numpy(), constants["noise_schedule.beta"].values, rtol=1e-12, atol=0)


def changed(**tensors: Tensor) -> dict[str, Tensor]:
    return {**make_state(), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}


def test_a_table_that_the_code_does_not_compute_is_the_checkpoints(tmp_path: Path) -> None:
    state = changed(beta_all=make_state()["beta_all"] * 1.01)
    subject = build("tests.user_model:small", str(save(tmp_path / "a.ckpt", state)))
    assert subject.notes == ["beta_all is the checkpoint's: the code computes other values"]
    assert torch.equal(subject.modules["float64"].beta_all, state["beta_all"].double())


def test_tables_that_16_bits_ruined_are_computed_again(tmp_path: Path) -> None:
    state = {name: tensor.bfloat16() for name, tensor in make_state().items()}
    subject = build("tests.user_model:small", str(save(tmp_path / "a.ckpt", state)))
    assert "alpha_bar_all is stored in 16 bits and was recomputed" in subject.notes
    assert subject.tensors["alpha_bar_all"].sha256 is None
    assert subject.tensors["alpha_bar_all"].dtype == "bfloat16"
    narrow = subject.modules["float32"].alpha_bar_all
    assert float(narrow[1]) < 1.0
    assert subject.tensors["level_transformers.0.input_proj.bias"].sha256 is not None


def test_the_lowest_number_stays_one_in_another_dtype() -> None:
    """Masks add it: minus infinity in its place makes rows of padding alone NaN. It is exact, and so never moved."""
    lowest = float(np.finfo(np.float64).min)
    given = np.array([0.5, lowest, -np.inf, np.nan, -lowest])
    rounded = cast(given, np.float32)
    assert rounded.dtype == np.float32
    assert np.array_equal(rounded[:3], np.array([0.5, np.finfo(np.float32).min, -np.inf], np.float32))
    assert np.isnan(rounded[3])
    assert rounded[4] == np.finfo(np.float32).max
    for lowest in (np.finfo(np.float64).min, np.finfo(np.float32).min):
        moved = _moved(np.array([0.5, lowest]), np.random.default_rng(0), 2.0**-24)
        assert moved[0] != 0.5
        assert moved[1] == lowest


def test_biases_move_and_come_back(checkpoint: Path) -> None:
    modules = build("tests.user_model:two_levels", str(checkpoint)).modules
    before = {name: p.clone() for name, p in modules["float32"].named_parameters()}
    shifts = bias_shifts(modules["float32"])
    assert set(shifts) == {name for name, p in before.items() if p.ndim == 1}
    assert len({shift.tobytes() for shift in shifts.values()}) == len(shifts)
    with moved_biases(modules, shifts):
        wide = dict(modules["float64"].named_parameters())
        for name, p in modules["float32"].named_parameters():
            assert torch.equal(p, before[name] + torch.from_numpy(shifts[name]) if name in shifts else before[name])
            assert torch.equal(wide[name], p.double())
    assert all(torch.equal(p, before[name]) for name, p in modules["float32"].named_parameters())


def wrapped(name: str) -> str:
    """The name in a module whose children are wrapped twice."""
    head, dot, rest = name.partition(".")
    return f"{head}._fsdp_wrapped_module._checkpoint_wrapped_module.{rest}" if dot else head


def wrapping() -> nn.Module:
    """A model with children in wrappers, whose names have none of them."""
    module = small()
    for name, child in module.named_children():
        setattr(module, name, checkpoint_wrapper(torch.compile(nn.DataParallel(child))))
    return module


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_wrappers_inside_the_model_have_no_names(tmp_path: Path) -> None:
    torch.save(make_state(), tmp_path / "a.pt")
    module = build(f"{__name__}:wrapping", str(tmp_path / "a.pt")).modules["float32"]
    assert module_names(module) == module_names(small())
    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in make_state().items())


def test_the_reader_removes_the_same_wrappers() -> None:
    assert checkpoint_file.COMPONENTS == COMPONENTS


LAYOUTS: dict[str, Any] = {
    "bare": lambda state: state,
    "lightning": lambda state: {"epoch": 1, "state_dict": {f"model.{n}": t for n, t in state.items()}},
    "fabric": lambda state: {"model": state, "epoch": 1},
    "hand-written": lambda state: {"model_state_dict": {f"module._orig_mod.{n}": t for n, t in state.items()}},
    "wrapped": lambda state: {f"_fsdp_wrapped_module.{wrapped(n)}": t for n, t in state.items()},
    "averaged": lambda state: {"n_averaged": torch.tensor(3), **{f"module.{n}": t for n, t in state.items()}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_state_dict_is_found(tmp_path: Path, layout: str) -> None:
    torch.save(LAYOUTS[layout](make_state()), tmp_path / "a.pt")
    state = build("tests.user_model:small", str(tmp_path / "a.pt")).modules["float32"].state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in make_state().items())


def test_a_key_names_one_of_several(tmp_path: Path) -> None:
    torch.save({"nets": {"ema": make_state(seed=1)}, "state_dict": make_state()}, tmp_path / "a.pt")
    subject = build("tests.user_model:small", str(tmp_path / "a.pt"), key="nets.ema")
    assert torch.equal(subject.modules["float32"].state_dict()["beta_all"], make_state()["beta_all"])
    name = "time_embedding.mlp.0.weight"
    assert torch.equal(subject.modules["float32"].state_dict()[name], make_state(seed=1)[name])


def nothing() -> nn.Module:
    return nn.Linear(2, 2)


@functools.cache
def shared() -> nn.Module:
    return nn.Linear(2, 2)


HELD, ACT, NORM = nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2, elementwise_affine=False)


def shared_part() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), ACT, HELD)


def shared_activation() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), ACT, NORM, nn.Linear(2, 2), ACT)


def test_parts_without_tensors_may_be_shared_by_all_models(tmp_path: Path) -> None:
    """Each model calls the one object twice, and both calls are recorded for either."""
    save(tmp_path / "a.pt", shared_activation().state_dict())
    modules = build(f"{__name__}:shared_activation", str(tmp_path / "a.pt")).modules
    seen = observe(modules, CASES[0], (tokens(4, 2),))
    assert list(seen.calls) == ["0", "1", "2", "3", "1#2"]
    assert seen.single is not None
    for (_, calls), dtype in zip(seen.single.isolated, (np.float32, np.float64), strict=True):
        assert {call.outputs[0].dtype for call in calls.values()} == {np.dtype(dtype)}


class Restless(nn.Module):
    """Draws in evaluation mode as well, or counts its calls."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.fc, self.how, self.calls = nn.Linear(3, 3), how, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return {
            "dropout": lambda: nn.functional.dropout(self.fc(x), 0.3),
            "noise": lambda: self.fc(x) + torch.randn(4, 3),
            "numpy": lambda: self.fc(x) * float(np.random.rand()),
            "count": lambda: self.fc(x) + self.calls,
            "unused": lambda: self.fc(x) + 0.0 * torch.randn(4, 3),
        }[self.how]()


@pytest.mark.parametrize("how", ["dropout", "noise", "numpy", "count", "unused"])
def test_a_reference_that_gives_other_outputs_cannot_be_compared(how: str, tmp_path: Path) -> None:
    """It says so and nothing else: such a reference differs without gradients as well."""
    single = Restless(how).eval()
    live = Live({"float32": single, "float64": copy.deepcopy(single).double()}, drawn=[parse_input("x: b 3")])
    if how == "unused":
        live.observe(CASES[0], ())
        assert live.findings == []
        return
    words = "gives other outputs when it runs again" if how == "count" else "draws random numbers in evaluation mode"
    with pytest.raises(IncompleteError, match=words):
        live.observe(CASES[0], ())
    assert live.findings == []


def raising() -> nn.Module:
    raise ValueError("no such\ndataset")


def text() -> str:
    return "net"


def two(first: str, second: str) -> nn.Module:
    return nn.Linear(2, 2)


def odd_inputs() -> Any:
    from tests import user_model

    return user_model.small(), lambda seed, batch, scale: (np.zeros((batch + 1, 3)),)


def wrong_inputs() -> Any:
    from tests import user_model

    return user_model.small(), lambda seed, batch, scale: (np.zeros((batch, 3, 3)), np.zeros(batch))


BIAS = "level_transformers.0.input_proj.bias"
REFUSALS: dict[str, tuple[str, Any, int, str]] = {
    "no colon": ("tests.user_model", {}, 2, "is not MODULE:FUNCTION"),
    "no module": ("tests.nowhere:build", {}, 2, "no module named tests.nowhere"),
    "no function": ("tests.user_model:build", {}, 2, "has no build; name a function"),
    "not a function": ("tests.user_model:math.pi", {}, 2, "is not a function"),
    "two arguments": ("tests.test_recorder:two", {}, 2, "needs the arguments first, second"),
    "raises": ("tests.test_recorder:raising", {}, 4, "raises ValueError: no such dataset"),
    "no module made": ("tests.test_recorder:text", {}, 4, "gives a str"),
    "lacks a tensor": ("tests.user_model:small", {BIAS: None}, 4, f"lacks {BIAS}, which the module has"),
    "one too many": ("tests.user_model:small", {"more": torch.ones(2)}, 4, "has more, which the module does not have"),
    "another shape": ("tests.user_model:small", {BIAS: torch.ones(3)}, 4, "size mismatch for"),
    "another size": ("tests.user_model:other", {}, 4, "and 47 more, which the module has"),
    "no state_dict": ("tests.user_model:small", "text", 3, "has no state_dict"),
    "not torch": ("tests.user_model:small", b"text", 3, "torch does not load it"),
    "no inputs": ("tests.test_recorder:nothing", {"weight": torch.ones(2, 2), "bias": torch.ones(2)}, 2,
                  "the model's inputs are not known"),
    "the same again": ("tests.test_recorder:shared", {"weight": torch.ones(2, 2), "bias": torch.ones(2)}, 4,
                       "returns the same module at every call"),
    "a part again": ("tests.test_recorder:shared_part",
                     {f"{n}.{name}": t for n in (0, 2) for name, t in nn.Linear(2, 2).state_dict().items()}, 4,
                     "returns the same module at every call"),
    "batch elsewhere": ("tests.test_recorder:odd_inputs", {}, 4, r"gives float64 \(5, 3\) for a batch of 4"),
    "inputs that do not fit": ("tests.test_recorder:wrong_inputs", {}, 4, "running it raises RuntimeError"),
}  # fmt: skip


BAD_IMPORTS = {
    "import absent_library": r"raises ModuleNotFoundError: No module named 'absent_library' \(bad_1.py, line 1\)",
    "raise ModuleNotFoundError('needs x')": r"raises ModuleNotFoundError: needs x \(bad_2.py, line 1\)",
    "from json import nonsense": r"raises ImportError: cannot import name 'nonsense' from 'json' .*bad_3.py, line 1\)",
    "import json\njson.nonsense": r"raises AttributeError: .* no attribute 'nonsense' \(bad_4.py, line 2\)",
    "import bad_1": r"raises ModuleNotFoundError: No module named 'absent_library' \(bad_1.py, line 1\)",
    "def f(:": r"raises SyntaxError: invalid syntax \(bad_6.py, line 1\)$",
}


@pytest.mark.parametrize(("number", "text"), [*enumerate(BAD_IMPORTS, 1)])
def test_a_failing_import_within_a_module_is_named(
    number: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, body in enumerate(BAD_IMPORTS, 1):
        (tmp_path / f"bad_{index}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Refusal) as refusal:
        find_function(f"bad_{number}:build")
    assert re.search(BAD_IMPORTS[text], refusal.value.what)


def test_users_modules_are_compiled_from_their_source(tmp_path: Path) -> None:
    """Also where a compiled file says that it need not be checked, and that of a package in the folder."""
    (tmp_path / "part").mkdir()
    code = "def build(): return {!r}"
    for name in ("model", "part/inner"):
        source = tmp_path / f"{name}.py"
        source.write_text(code.format("compiled before"))
        py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        source.write_text(code.format("source"))
    script = """
from wdport.recording.user_code import find_function
import sys
print(find_function("model:build")(), find_function("part.inner:build")(), len(sys.path_hooks))
import colorsys
print("__pycache__" in colorsys.__cached__ and colorsys.__loader__.__class__.__name__)
"""
    root = str(FOLDER.parents[1])
    done = subprocess.run([sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {root!r}){script}"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.splitlines() == ["source source 3", "SourceFileLoader"], done.stderr


INPUTS = FAMILY.signature(SMALL).inputs


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(tmp_path: Path, case: str) -> None:
    target, change, code, words = REFUSALS[case]
    path = tmp_path / "a.pt"
    if isinstance(change, bytes):
        path.write_bytes(change)
    elif isinstance(change, str):
        torch.save({"state_dict": change}, path)
    elif {"weight", "0.weight"} & set(change):
        torch.save(change, path)
    else:
        torch.save({name: tensor for name, tensor in {**make_state(), **change}.items() if tensor is not None}, path)
    with pytest.raises(Refusal, match=words) as refusal:
        record_file(target, str(path), str(tmp_path / "run.npz"), inputs=() if case == "no inputs" else INPUTS)
    assert refusal.value.exit_code == code
    assert "\n" not in str(refusal.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.pt"]


# --- The file that is written


def test_no_array_is_written_twice_and_none_of_modules_that_are_left_out(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.npz"
    index = record_small("tests.user_model:two_levels", checkpoint, output, TWO_LEVELS, leave_out=["*.attn.*"])
    assert "cases" not in index
    assert "level_transformers.0.blocks.0.attn" in index["names"]
    assert not any(".attn." in name for name in index["names"])
    with np.load(tmp_path / "run.npz") as file:
        arrays = [file[name] for name in file.files if name != "index"]
        cases = json.loads(file["index"].tobytes())["cases"]
    assert len({(a.dtype.str, a.shape, a.tobytes()) for a in arrays}) == len(arrays)
    wide = {(a.shape, a.astype(np.float32).tobytes()) for a in arrays if a.dtype == np.float64}
    assert not any((a.shape, a.tobytes()) in wide for a in arrays if a.dtype == np.float32)
    singles = [case["single"] for case in cases]
    assert [single is not None for single in singles] == [case.numerics or case.extreme for case in CASES]
    assert [bool(single and single["isolated"]) for single in singles] == [case.numerics for case in CASES]
    assert not any(".attn." in name for case in cases for name in case["calls"])
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_is_not_there(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="could not be written") as refusal:
        record_small("tests.user_model:two_levels", checkpoint, tmp_path / "no" / "run.npz", TWO_LEVELS)
    assert refusal.value.exit_code == 5


def test_calls_share_copies_of_equal_values_alone() -> None:
    tensor = torch.tensor([0.0, float("nan"), 2.0])
    first = to_array(tensor)
    assert to_array(tensor) is first
    tensor.mul_(-1.0)
    second = to_array(tensor)
    assert second is not first
    assert np.signbit(second[0])
    assert first[2] == 2.0
    assert to_array(tensor.view(3, 1)).shape == (3, 1)
    assert to_array(tensor.view(torch.int32)).dtype == np.int32


@pytest.mark.parametrize("counted", [True, False])
def test_what_users_run_without_gradients_is_compared_with_the_calls(counted: bool) -> None:
    """PyTorch's fast path gives zeros at steps of padding, which a mean of all steps reads."""
    torch.manual_seed(0)
    single = Encoded(counted).eval()
    double = copy.deepcopy(single).double()
    inputs = (np.random.default_rng(0).normal(size=(4, 6, 8)), np.arange(6) < np.array([[6], [4], [3], [5]]))
    seen = observe({"float32": single, "float64": double}, CASES[0], inputs)
    assert (fast_path_error(single, seen) > 0.01) is not counted


def test_successive_seeds_go_through_few_integers() -> None:
    """A batch has room for three of twelve; a model that is wrong for one length is then found."""
    lengths = parse_input("lengths: b, below 13 from 1")
    assert {int(length) for seed in range(4) for length in lengths.make(seed, 4, 1.0)} == set(range(1, 13))
