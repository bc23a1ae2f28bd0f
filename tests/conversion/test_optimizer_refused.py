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
from wdport.conversion import optimizer_parameters
from wdport.conversion.optimizer_file import FORMAT, Model, read_optimizer, write_optimizer
from wdport.errors import InputError, UsageError, WdportError
from wdport.files.manifest_seal import sealed
from wdport.files.outputs import writable
from wdport.files.safetensors_writer import METADATA
from wdport.training.converted_optimizer import optimizer_of

Tree = dict[str, Any]


def groups(change: Callable[[Tree], object]) -> Callable[[Tree], object]:
    return lambda tree: change(tree["optimizer"]["param_groups"][0])


def states(change: Callable[[dict[Any, Any]], object]) -> Callable[[Tree], object]:
    return lambda tree: change(tree["optimizer"]["state"])


NAMES = ["first.weight", "first.bias", "second.weight", "second.bias"]

CHANGES: dict[str, tuple[Callable[[Tree], object], str]] = {
    "two optimizers": (
        lambda tree: tree.update(second=tree["optimizer"]),
        "has 2 optimizers: optimizer, second; choose one with optimizer_key=NAME",
    ),
    "parameters by name": (groups(lambda group: group.update(params=NAMES)), "param_groups.0: is not a group of"),
    "a parameter twice": (groups(lambda group: group.update(params=[0, 1, 2, 2])), "names a parameter twice"),
    "no parameters": (groups(lambda group: group.update(params=[])), "optimizer: has no parameters"),
    "too few names": (groups(lambda group: group.update(param_names=["a"])), "does not name its 4 parameters"),
    "no state by index": (lambda tree: tree["optimizer"].update(state=[]), "optimizer.state: is not a mapping"),
    "a stray state": (states(lambda state: state.update({9: state[0]})), "the state of parameter 9, which is in none"),
    "a state that is a list": (states(lambda state: state.update({0: [1]})), "state.0: is not the state of a"),
    "an entry that is text": (states(lambda state: state[0].update(step="1")), "its entry step is neither a tensor"),
    "a rate of two values": (
        groups(lambda group: group.update(lr=torch.ones(2))),
        "has a tensor of 2 values for lr, which is one number; Adam, AdamW and SGD are converted",
    ),
    "half a step": (states(lambda state: state[0].update(step=torch.tensor(1.5))), "state.0: has taken 1.5 steps"),
    "NaN steps": (states(lambda state: state[0].update(step=torch.tensor(torch.nan))), "state.0: has taken nan steps"),
    "moments of two dtypes": (
        states(lambda state: state[0].update(exp_avg=state[0]["exp_avg"].double())),
        "state.0: has moments of dtypes float32 and float64",
    ),
    "moments of two shapes": (
        states(lambda state: state[1].update(exp_avg_sq=torch.ones(3))),
        "has moments of shape (3,) for first.bias, which has (4,)",
    ),
    "more parameters than weights": (
        groups(lambda group: group["params"].append(4)),
        "has 5 parameters, but the weights have 4",
    ),
    "moments of other shapes": (
        states(lambda state: state[1].update(exp_avg=torch.ones(3), exp_avg_sq=torch.ones(3))),
        "its moments have other shapes than the weights",
    ),
    "another name": (
        groups(lambda group: group.update(param_names=["third.weight", *NAMES[1:]])),
        "names a parameter third.weight, which the weights do not have",
    ),
    "names in another order": (
        groups(lambda group: group.update(param_names=NAMES[::-1])),
        "has moments of shape (4, 4) for second.bias, which has (4,)",
    ),
    "a name twice": (groups(lambda group: group.update(param_names=NAMES[:2] * 2)), "names a parameter twice"),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, its table, and its conversion."""
    folder = tmp_path_factory.mktemp("two")
    module = Two()
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


@pytest.mark.parametrize("case", CHANGES)
def test_a_state_that_is_not_converted(case: str, two: Path, tmp_path: Path) -> None:
    change, said = CHANGES[case]
    tree = copy.deepcopy(torch.load(two / "two.pt"))
    change(tree)
    refuse(tree, TWO, tmp_path, said)


def test_requests_that_do_not_fit(two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = torch.load(two / "two.pt")
    refuse(tree, TWO, tmp_path, "key 'x' holds no optimizer state; optimizers are under opt", optimizer_key="x")
    refuse(tree, TWO, tmp_path, "optimizer: is 'lamb'; choose one of adam, adamw", optimizer="lamb")
    for text, said in (("{}", "is not a list of names"), ("[1, 2, 3, 4]", "is not a list of names")):
        (tmp_path / "names.json").write_text(text)
        refuse(tree, TWO, tmp_path, f"names.json: {said}", parameter_names=tmp_path / "names.json")
    monkeypatch.setattr(optimizer_parameters, "MOST_STATES", 1)
    tree["optimizer"]["param_groups"] = [{**group, "params": [2 * at, 2 * at + 1]}
                                         for group in tree["optimizer"]["param_groups"] for at in range(2)]  # fmt: skip
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
tensors:
  - {torch: [a, b], keras: vector/bias, rule: %s}
"""
JOINED = PARTS % ("vector", '"[part] out -> (part out)"')
SUMMED = PARTS % ("short", "identity, combine: sum")


class Vector(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.bias = self.add_weight(shape=shape[1:], name="bias")

    def call(self, x: Any) -> Any:
        return x + self.bias


def vector() -> Any:
    return keras.Sequential([keras.Input((6,)), Vector(name="vector")])


def short() -> Any:
    return keras.Sequential([keras.Input((3,)), Vector(name="vector")])


@pytest.mark.parametrize(
    ("chosen", "steps", "table", "said"),
    [
        (["b"], {"b": 1}, JOINED, "a: is not trained, but b is, and both fill vector/bias"),
        (["a", "b"], {"a": 1, "b": 1}, JOINED, "b: has another group than a, and both fill vector/bias"),
        (["ab"], {"a": 2, "b": 1}, JOINED, "b: has another step than a, and both fill vector/bias"),
        (["ab"], {"a": 1}, JOINED, "b: has another state than a, and both fill vector/bias"),
        (["ab"], {"a": 1, "b": 1}, SUMMED, "a and b: are combined into vector/bias, which has no moments"),
    ],
)
def test_tensors_of_one_variable(
    chosen: list[str], steps: dict[str, int], table: str, said: str, tmp_path: Path
) -> None:
    """Each of ``chosen`` is a group of parameters, and each takes its own number of ``steps``."""
    parts = Parts()
    listed = [{"params": [getattr(parts, name) for name in names]} for names in chosen]
    # Only Adam counts the steps.
    optimizer = (torch.optim.AdamW if len(set(steps.values())) > 1 else partial(torch.optim.SGD, momentum=0.9))(listed)
    for taken in range(max(steps.values())):
        for name in "ab":
            getattr(parts, name).grad = torch.ones(3) if taken < steps.get(name, 0) else None
        optimizer.step()
    state = optimizer.state_dict()
    for group, names in zip(state["param_groups"], chosen, strict=True):
        group["param_names"] = list(names)
    refuse({"model": parts.state_dict(), "optimizer": stated(optimizer) | state}, table, tmp_path, said)


CONVERT = "convert the checkpoint again"
DOCUMENTS: list[tuple[dict[str, object], str]] = [
    ({"kind": "a model"}, "is a converted model, not an optimizer's file; give the .optimizer.safetensors next to it"),
    ({"kind": "wdport optimizer", "format": 1}, f"was written by another release of wdport; {CONVERT}"),
    (
        {"kind": "wdport optimizer", "format": FORMAT},
        f"is not an optimizer's file that wdport wrote ('optimizer'); {CONVERT}",
    ),
]


@pytest.mark.parametrize(("document", "said"), DOCUMENTS)
def test_files_that_are_not_an_optimizers(document: dict[str, object], said: str, tmp_path: Path) -> None:
    file = tmp_path / "a.optimizer.safetensors"
    save_file({"a": np.zeros(1)}, file, {METADATA: sealed(document)})
    with pytest.raises(InputError) as caught:
        read_optimizer(file)
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def optimised(two: Path) -> Any:
    return read_optimizer(two / "two.optimizer.safetensors")[0]


def test_moments_of_another_kind(optimised: Any, two: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.optimizer.safetensors"
    write_optimizer(writable(file, {}), replace(optimised, kind="sgd"), Model(""))
    with pytest.raises(InputError, match="has moments that its kind does not have; convert the checkpoint again"):
        read_optimizer(file)
    with pytest.raises(InputError, match="is a converted model, not an optimizer's file"):
        read_optimizer(two / "two.safetensors")


def dense(size: int) -> Any:
    return keras.Sequential(
        [keras.Input((size,)), *(keras.layers.Dense(size, name=name) for name in ("first", "second"))]
    )


LOADED: list[tuple[int, dict[str, Any], dict[str, Any], str]] = [
    (4, {}, {"settings": {"momentum": 0.9}}, "settings: has momentum, which is not a setting of adam; known: lr, betas"),
    (4, {"schedules": {"a": {}, "b": {}}}, {}, "learning_rate: has 2 learning-rate schedules, and it is not known which"),
    (4, {"schedules": {"a": {"step_size": 3, "gamma": 0.1, "base_lrs": [0.1], "last_epoch": 3, "_last_lr": [0.01]}},
         "steps": {"first/kernel": 8}}, {}, "steps_per_epoch: the schedule is at 3 after 8 optimizer steps, not a whole"),
    (5, {}, {}, "first/kernel: has shape (4, 4), the model's variable (5, 5); give the optimizer of this model"),
]  # fmt: skip


@pytest.mark.parametrize(("size", "changed", "options", "said"), LOADED)
def test_a_state_that_is_not_loaded(
    size: int, changed: dict[str, Any], options: dict[str, Any], said: str, optimised: Any, tmp_path: Path
) -> None:
    with pytest.raises(WdportError) as caught:
        optimizer_of(tmp_path / "a", replace(optimised, **changed), dense(size), **options)
    assert said in str(caught.value)


def test_an_optimizer_is_saved_under_its_own_suffix(two: Path, tmp_path: Path) -> None:
    like = two / "two.optimizer.safetensors"
    for name in ("a.safetensors", ".optimizer.safetensors"):
        with pytest.raises(UsageError, match=f"{name}: is not a name for an optimizer; end it in .optimizer"):
            wdport.save_optimizer(None, None, tmp_path / name, like=like)  # type: ignore[arg-type]
