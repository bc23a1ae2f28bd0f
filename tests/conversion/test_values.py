"""What is odd about values is told, and nothing of sound checkpoints is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import wdport
from tests.command import Cli
from tests.families.test_custom import files
from tests.families.toys import nets
from wdport.base.errors import UsageError
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.tensor import ITEMSIZE, NUMPY
from wdport.cli.convert import values_text
from wdport.cli.main import main
from wdport.conversion.prepare import Settings, prepared_from
from wdport.conversion.rounding import extremes
from wdport.conversion.values import ValueFinding, ValueLint, find_unusual_values
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.table import parse_table

GOLDENS = ["etth1-seq24-db2.ckpt", "exchange-seq24-qknorm.ckpt", "stocks-seq64-db4.pt", "ts2vec-stocks.pt"]
State = dict[str, torch.Tensor]

TABLE = b"""
format: 2
layers:
  - {torch: bn<n>, keras: bn<n>, kind: batch_norm}
  - {torch: norm<n>, keras: norm<n>, kind: rms_norm}
  - {torch: fc<n>, keras: fc<n>, kind: linear}
"""


def sound() -> State:
    """Two batch norms, two RMS norms and two linear layers, as training leaves them."""
    torch.manual_seed(0)
    state: State = {}
    for n in range(2):
        for name in ("weight", "running_var"):
            state[f"bn{n}.{name}"] = 1 + 0.2 * torch.randn(16)
        for name in ("bias", "running_mean"):
            state[f"bn{n}.{name}"] = 0.2 * torch.randn(16)
        state[f"norm{n}.weight"] = 0.3 + 0.1 * torch.randn(16)
        state[f"fc{n}.weight"], state[f"fc{n}.bias"] = 0.1 * torch.randn(8, 16), torch.zeros(8)
    return state


def plan_of(state: State) -> Plan:
    names = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    targets: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        layer, _, last = name.partition(".")
        if layer.startswith("fc"):
            targets[f"{layer}/{'kernel' if last == 'weight' else last}"] = shape[::-1]
        else:
            targets[f"{layer}/{'scale' if layer.startswith('norm') else names[last]}"] = shape
    plan = make_plan(parse_table(TABLE, "t.yaml"), shapes, targets, {})
    assert isinstance(plan, Plan), plan
    return plan


def odd(folder: Path, state: State, dtype: str = "float32") -> list[str]:
    torch.save(state, folder / "ck.pt")
    with open_checkpoint(folder / "ck.pt") as opened:
        found = find_unusual_values(plan_of(state), opened, dtype)
    return [f"{each.kind}: {' '.join(each.names)}, {each.count} of {each.total}" for each in found]


def changed(name: str, change: Callable[[torch.Tensor], Any]) -> State:
    state = sound()
    change(state[name])
    return state


def centred(*names: str) -> State:
    return sound() | {name: 0.1 * torch.randn(16, generator=torch.Generator().manual_seed(3)) for name in names}


def wide(name: str, value: float) -> State:
    return {**sound(), name: torch.full((8,), value, dtype=torch.float64)}


ODD: dict[str, tuple[State, str, str]] = {
    "nothing": (sound(), "float32", ""),
    "nothing in 16 bits": (sound(), "float16", ""),
    "a negative variance": (changed("bn0.running_var", lambda x: x[:3].neg_()), "float32",
                            "negative variance: bn0.running_var, 3 of 16"),
    "a constant channel": (changed("bn0.running_var", lambda x: x[:2].fill_(1e-38)), "float32",
                           "dead channels: bn0.running_var, 2 of 16"),
    "a channel that is left out": (changed("bn1.weight", lambda x: x[4].fill_(0)), "float32",
                                   "dead channels: bn1.weight bn1.bias, 1 of 16"),
    "zeros": (changed("fc0.weight", torch.zero_), "float32", "all zero: fc0.weight, 128 of 128"),
    "a scale of zeros": (changed("norm0.weight", torch.zero_), "float32", "all zero: norm0.weight, 16 of 16"),
    "nan": (changed("fc0.weight", lambda x: x[0, :2].fill_(torch.nan)), "float32", "nonfinite: fc0.weight, 2 of 128"),
    "nothing but infinity": (changed("fc0.bias", lambda x: x.fill_(torch.inf)), "float32",
                             "nonfinite: fc0.bias, 8 of 8"),
    "too large for float16": (changed("fc0.weight", lambda x: x[0, 0].fill_(7e4)), "float16",
                              "overflow: fc0.weight, 1 of 128"),
    "too large for float32": (wide("fc0.bias", -1e39), "float32", "overflow: fc0.bias, 1 of 8"),
    "not too large for bfloat16": (changed("fc0.weight", lambda x: x[0, 0].fill_(7e4)), "bfloat16", ""),
    "too small for float16": (changed("fc0.bias", lambda x: x[:6].fill_(1e-8)), "float16",
                              "underflow: fc0.bias, 6 of 8"),
    "too small for float32": (wide("fc0.bias", 1e-60), "float32", "underflow: fc0.bias, 8 of 8"),
    "one centred scale of two": (centred("norm1.weight"), "float32", "centred scale: norm1.weight, 1 of 2"),
    "all batch norms centred": (centred("bn0.weight", "bn1.weight"), "float32",
                                "centred scale: bn0.weight bn1.weight, 2 of 2"),
    "a matrix twice": ({**sound(), "fc1.weight": sound()["fc0.weight"]}, "float32",
                       "twice: fc0.weight fc1.weight, 2 of 2"),
    "a vector twice": ({**sound(), "norm1.weight": sound()["norm0.weight"]}, "float32", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_it_is_told(tmp_path: Path, case: str) -> None:
    state, dtype, wanted = ODD[case]
    assert odd(tmp_path, state, dtype) == ([wanted] if wanted else [])


def test_a_few_batch_norms_may_be_trained_from_zero(tmp_path: Path) -> None:
    state = centred("bn0.weight")
    shapes = {name.replace("bn1", f"bn{n}"): tensor for n in (2, 3) for name, tensor in state.items() if "bn1" in name}
    assert odd(tmp_path, state | {name: tensor + 0.01 for name, tensor in shapes.items()}) == []


def test_one_storage_is_told_from_equal_values(tmp_path: Path) -> None:
    state = sound()
    state["fc1.weight"] = state["fc0.weight"]
    torch.save(state, tmp_path / "ck.pt")
    with open_checkpoint(tmp_path / "ck.pt") as opened:
        (found,) = find_unusual_values(plan_of(state), opened)
    assert "one tensor in the checkpoint" in found.text
    state["fc1.weight"] = state["fc0.weight"].clone()
    torch.save(state, tmp_path / "ck.pt")
    with open_checkpoint(tmp_path / "ck.pt") as opened:
        (found,) = find_unusual_values(plan_of(state), opened)
    assert "equal bit for bit" in found.text


@given(st.sampled_from(["float64", "float32", "float16", "bfloat16"]), st.data())
def test_extremes_of_bits_are_those_of_values(dtype: str, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.integers(0, (1 << 8 * ITEMSIZE[dtype]) - 1), min_size=1, max_size=9))
    stored = np.array(bits, f"<u{ITEMSIZE[dtype]}")
    values = torch.from_numpy(stored.copy()).view(getattr(torch, dtype)).double()
    expected = (values.min().item(), values.max().item()) if values.isfinite().all() else None
    assert extremes(stored.view(NUMPY[dtype]), dtype) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pieces_say_what_the_whole_does(tmp_path: Path, dtype: str) -> None:
    state = changed("fc0.weight", lambda x: x[3, 3].fill_(7e4)) | {"bn0.running_var": -torch.ones(16)}
    state |= {"fc1.weight": torch.zeros(16, 8)}
    torch.save({name: tensor.to(getattr(torch, dtype)) for name, tensor in state.items()}, tmp_path / "ck.pt")
    plan = plan_of(state)
    with open_checkpoint(tmp_path / "ck.pt") as opened:
        lint = ValueLint(plan, "float16")
        for name in reversed(state):  # in whatever order they come, findings are in that of the plan
            for piece in np.array_split(opened.read_stored(name).ravel(), 3):
                lint.add(name, piece, dtype)
        found = lint.findings(opened)
        assert found == find_unusual_values(plan, opened, "float16")
    assert {"overflow", "negative variance", "all zero"} <= {finding.kind for finding in found}


def test_at_most_so_many_are_printed() -> None:
    findings = [ValueFinding("kind", "note", ("x",), 1, 1, "odd")] * 12
    assert values_text(findings) == ["  note     odd"] * 10 + ["  note     and 2 more, all with --json"]


@pytest.mark.parametrize("name", GOLDENS)
def test_nothing_is_odd_about_trained_models(golden: Path, name: str) -> None:
    with open_checkpoint(golden / name) as opened:
        prepared = prepared_from(opened, Settings())
        for dtype in ("float32", "float16"):
            assert find_unusual_values(prepared.plan, opened, dtype) == ()


def test_convert_and_check_print_it(tmp_path: Path, cli: Cli) -> None:
    _, table = files(tmp_path, "lstm")
    state = nets.randomised(nets.lstm()).state_dict()
    state["head.weight"].zero_()
    torch.save(state, tmp_path / "ck.pt")
    words = [str(tmp_path / "ck.pt"), "--mapping", str(table), "--force"]
    assert "  note     head.weight (3, 7) is all zero\n" in cli("convert", *words).out
    (told,) = json.loads(cli("convert", *words, "--json").out)["values"]
    assert (told["kind"], told["level"], told["names"], told["count"]) == ("all zero", "note", ["head.weight"], 21)
    assert "values" not in json.loads((tmp_path / "ck.keras.wdport.json").read_text())
    conversion = wdport.convert(tmp_path / "ck.pt", mapping=table, force=True)
    assert [each.kind for each in conversion.values] == ["all zero"]
    check = ["map", "check", str(table), str(tmp_path / "ck.pt"), "--values"]
    assert "note: head.weight (3, 7) is all zero" in cli(*check, "--keras-model", "tests.families.toys.twins:lstm").out
    assert main(check) == UsageError.exit_code
    assert main([*check[:3], "--values"]) == UsageError.exit_code
