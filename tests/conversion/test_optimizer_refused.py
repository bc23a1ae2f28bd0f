"""States of optimizers that are not converted, files of optimizers that are not loaded, and what is said of each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

import wdport
from tests.conversion.test_optimizer import TWO, Two, saved
from tests.make import stated
from wdport.base.errors import InputError, WdportError
from wdport.conversion import optimizer_parameters
from wdport.conversion.converted_optimizer import optimizer_of
from wdport.conversion.optimizer_file import FORMAT, Model, read_optimizer, write_optimizer
from wdport.files.manifest_seal import sealed
from wdport.files.outputs import writable
from wdport.files.safetensors_writer import METADATA

Tree = dict[str, Any]
Change = Callable[[Tree], object]
NAMES = ["first.weight", "first.bias", "second.weight", "second.bias"]
NAN, ONES = torch.tensor(torch.nan), torch.ones(3)


def group(**entries: Any) -> Change:
    return lambda tree: tree["optimizer"]["param_groups"][0].update(entries)


def state(index: int, **entries: Any) -> Change:
    return lambda tree: tree["optimizer"]["state"].update({index: tree["optimizer"]["state"].get(index, {}) | entries})


CHANGES: list[tuple[Change, str]] = [
    (lambda tree: tree.update(b=tree["optimizer"]), "has 2 optimizers: optimizer, b; choose one with optimizer_key=N"),
    (group(params=NAMES), "optimizer.param_groups.0: is not a group of parameters as torch writes it; save the opt"),
    (group(params=[0, 1, 2, 2]), "optimizer.param_groups.0: names a parameter twice"),
    (group(params=[]), "optimizer: has no parameters"),
    (group(param_names=["a"]), "optimizer.param_groups.0: does not name its 4 parameters"),
    (lambda tree: tree["optimizer"].update(state=[]), "optimizer.state: is not a mapping of parameters to their st"),
    (state(9, step=1), "optimizer: has the state of parameter 9, which is in none of its groups"),
    (lambda tree: tree["optimizer"]["state"].update({0: [1]}), "optimizer.state.0: is not the state of a parameter"),
    (state(0, step="1"), "optimizer.state.0: its entry step is neither a tensor nor a number"),
    (group(lr=torch.ones(2)), "has a tensor of 2 values for lr, which is one number"),
    (state(0, step=torch.tensor(1.5)), "optimizer.state.0: has taken 1.5 steps; Adam, AdamW and SGD are converted"),
    (state(0, step=NAN), "optimizer.state.0: has taken nan steps"),
    (state(1, exp_avg=torch.ones(4).double()), "optimizer.state.1: has moments of dtypes float32 and float64"),
    (state(1, exp_avg_sq=ONES), "optimizer: has moments of shape (3,) for first.bias, which has (4,)"),
    (group(params=[0, 1, 2, 3, 4]), "optimizer: has 5 parameters, but the weights have 4"),
    (state(1, exp_avg=ONES, exp_avg_sq=ONES), "optimizer: its moments have other shapes than the weights"),
    (group(param_names=["x", *NAMES[1:]]), "optimizer: names a parameter x, which the weights do not have; give"),
    (group(param_names=NAMES[::-1]), "optimizer: has moments of shape (4, 4) for second.bias, which has (4,)"),
    (group(param_names=NAMES[:2] * 2), "optimizer: names a parameter twice"),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, its table, and its conversion."""
    folder, module = tmp_path_factory.mktemp("two"), Two()
    checkpoint, table = saved(folder, torch.optim.AdamW(module.parameters()), module)
    wdport.convert(checkpoint, folder / "two.safetensors", mapping=table, with_optimizer=True)
    return folder


def refuse(tree: Tree, table: str, folder: Path, said: str, **options: Any) -> None:
    """The checkpoint's optimizer is not converted, and no file is written."""
    torch.save(tree, folder / "run.pt")
    (folder / "table.yaml").write_text(table)
    before = set(folder.iterdir())
    with pytest.raises(WdportError) as caught:
        wdport.convert(folder / "run.pt", folder / "run.safetensors", mapping=folder / "table.yaml",
                       with_optimizer=True, **options)  # fmt: skip
    assert said in str(caught.value)
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_state_that_is_not_converted(change: Change, said: str, two: Path, tmp_path: Path) -> None:
    tree = copy.deepcopy(torch.load(two / "two.pt"))
    change(tree)
    refuse(tree, TWO, tmp_path, said)


def test_requests_that_do_not_fit(two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = torch.load(two / "two.pt")
    refuse(tree, TWO, tmp_path, "key 'x' holds no optimizer state; optimizers are under opt", optimizer_key="x")
    for text in ("{}", "[1, 2, 3, 4]"):
        (tmp_path / "names.json").write_text(text)
        refuse(tree, TWO, tmp_path, "names.json: is not a list of names", parameter_names=tmp_path / "names.json")
    monkeypatch.setattr(optimizer_parameters, "MOST_STATES", 1)
    (one,) = tree["optimizer"]["param_groups"]
    tree["optimizer"]["param_groups"] = [{**one, "params": [0, 1]}, {**one, "params": [2, 3]}]
    refuse(tree, TWO, tmp_path, "has too many groups of equal shapes to tell its parameters apart")


class Parts(nn.Module):
    """Two vectors that the table puts into one variable."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))


PARTS = """
format: 2
torch: tests.conversion.test_optimizer_refused:Parts
keras: tests.conversion.test_optimizer_refused:%s
tensors: [{torch: [a, b], keras: vector/bias, rule: %s}]
"""
JOINED, SUMMED = PARTS % ("six", '"[part] out -> (part out)"'), PARTS % ("three", "identity, combine: sum")


class Vector(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.bias = self.add_weight(shape=shape[1:], name="bias")

    def call(self, x: Any) -> Any:
        return x + self.bias


def six(size: int = 6) -> Any:
    return keras.Sequential([keras.Input((size,)), Vector(name="vector")])


three = partial(six, 3)


@pytest.mark.parametrize(("chosen", "steps", "table", "said"), [
    (["b"], {"b": 1}, JOINED, "a: is not trained, but b is, and both fill vector/bias"),
    (["a", "b"], {"a": 1, "b": 1}, JOINED, "b: has another group than a, and both fill vector/bias"),
    (["ab"], {"a": 2, "b": 1}, JOINED, "b: has another step than a, and both fill vector/bias"),
    (["ab"], {"a": 1}, JOINED, "b: has another state than a, and both fill vector/bias"),
    (["ab"], {"a": 1, "b": 1}, SUMMED, "a and b: are combined into vector/bias, which has no moments"),
])  # fmt: skip
def test_tensors_of_one_variable(
    chosen: list[str], steps: dict[str, int], table: str, said: str, tmp_path: Path
) -> None:
    """Each of ``chosen`` is a group of parameters, and each takes its own number of ``steps``."""
    parts = Parts()
    listed = [{"params": [getattr(parts, name) for name in names]} for names in chosen]
    # SGD does not count the steps.
    optimizer = torch.optim.AdamW(listed) if "step" in said else torch.optim.SGD(listed, momentum=0.9)
    for taken in range(2):
        for name in "ab":
            getattr(parts, name).grad = ONES if taken < steps.get(name, 0) else None
        optimizer.step()
    tree = {"model": parts.state_dict(), "optimizer": stated(optimizer)}
    for described, names in zip(tree["optimizer"]["param_groups"], chosen, strict=True):
        described["param_names"] = list(names)
    refuse(tree, table, tmp_path, said)


@pytest.mark.parametrize(("document", "said"), [
    ({"kind": "wdport optimizer", "format": 1}, "was written by another release of wdport; convert the checkpoint"),
    ({"kind": "wdport optimizer", "format": FORMAT}, "is not an optimizer's file that wdport wrote ('optimizer'); co"),
])  # fmt: skip
def test_files_that_are_not_an_optimizers(document: dict[str, object], said: str, tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "a", {METADATA: sealed(document)})
    with pytest.raises(InputError) as caught:
        read_optimizer(tmp_path / "a")
    assert said in str(caught.value)


def test_a_model_and_moments_of_another_kind(two: Path, tmp_path: Path) -> None:
    state, _ = read_optimizer(two / "two.optimizer.safetensors")
    write_optimizer(writable(tmp_path / "a", {}), replace(state, kind="sgd"), Model(""))
    with pytest.raises(InputError, match="has moments that its kind does not have; convert the checkpoint again"):
        read_optimizer(tmp_path / "a")
    with pytest.raises(InputError, match=r"is a converted model, not an optimizer's file; give the .optim"):
        read_optimizer(two / "two.safetensors")


STEPPED = {"step_size": 3, "gamma": 0.1, "base_lrs": [0.1], "last_epoch": 3, "_last_lr": [0.01]}


@pytest.mark.parametrize(("size", "changed", "settings", "said"), [
    (4, {}, {"momentum": 0.9}, "settings: has momentum, which is not a setting of adam; known: lr, betas"),
    (4, {"schedules": {"a": {}, "b": {}}}, {}, "learning_rate: has 2 learning-rate schedules, and it is not known"),
    (4, {"schedules": {"a": STEPPED}, "steps": {"first/kernel": 8}}, {},
     "steps_per_epoch: the schedule is at 3 after 8 optimizer steps; give the number of optimizer"),
    (5, {}, {}, "first/kernel: has shape (4, 4), the model's variable (5, 5); give the optimizer of this model"),
])  # fmt: skip
def test_a_state_that_is_not_loaded(
    size: int, changed: dict[str, Any], settings: dict[str, Any], said: str, two: Path
) -> None:
    state, _ = read_optimizer(two / "two.optimizer.safetensors")
    dense = [keras.layers.Dense(size, name=name) for name in ("first", "second")]
    with pytest.raises(WdportError) as caught:
        optimizer_of(two, replace(state, **changed), keras.Sequential([keras.Input((size,)), *dense]), None, settings)
    assert said in str(caught.value)
