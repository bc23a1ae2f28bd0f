"""One way to samples: the command line and Python give the same bytes for the same arguments, by the same plan."""

from __future__ import annotations

import inspect
import io
import os
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from tests.make import TINY
from wdport import sampling
from wdport.cli.main import main
from wdport.cli.sample import command
from wdport.sampling import api, job
from wdport.sampling.request import Request

RNG = np.random.default_rng(0)
SHAPE = (TINY.coefficients, TINY.features)
INIT = RNG.standard_normal((5, *SHAPE))
KNOWN = np.where(np.arange(24)[:, None] < 12, RNG.standard_normal((24, 3)), np.nan)
DDIM: dict[str, Any] = {"sampler": "ddim", "steps": 4, "eta": 0.5, "seed": 3}

CASES: dict[str, dict[str, Any]] = {
    "ddpm": {"seed": 2**32 - 1},
    "batch": {"n": 5, "batch": 2, **DDIM},
    "init": {"init": INIT, **DDIM},
    "known, resampled": {"n": 3, "known": KNOWN, "resample": 2, **DDIM},
    "all devices, weights shared": {"n": 3, "devices": "all", "shard_weights": True, **DDIM},
    "float64": {"n": 3, "dtype": "float64", **DDIM},
}


CONDITIONAL = {"labels", "guidance", "scale", "condition", "unconditional", "anchor", "transform"}


@pytest.fixture(scope="module")
def models() -> dict[str | None, Any]:
    """Those that were loaded, by dtype: their programs are compiled once."""
    return {}


def flags(folder: Path, given: dict[str, Any]) -> list[str]:
    """The same arguments as the command line has them; arrays in files."""
    words = []
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
            value = folder / f"{name}.npy"
        option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return words


@pytest.mark.parametrize("case", CASES)
def test_python_and_the_command_line_give_the_same_bytes(
    converted: Path, models: dict[str | None, Any], tmp_path: Path, case: str
) -> None:
    """The command line in chunks of 2, saved two at a time, which has to leave no trace."""
    given, output = CASES[case], tmp_path / "a.npz"
    chunks = ["--chunk", "2", "--save-every", "2"]
    assert main(["sample", str(converted), *flags(tmp_path, given), *chunks, "-o", str(output)]) == 0
    given, dtype = {name: value for name, value in given.items() if name != "dtype"}, given.get("dtype")
    with jax.enable_x64(True) if dtype == "float64" else nullcontext():
        if dtype not in models:
            models[dtype] = wdport.load_model(converted, dtype)
        made = wdport.sample(models[dtype], **given)
    with np.load(output) as file:
        assert sorted(file.files) == sorted(made.arrays) == ["coefficients", "series"]
        for name, values in made.arrays.items():
            assert file[name].dtype == values.dtype
            assert file[name].tobytes() == values.tobytes()


def test_every_argument_has_its_option_and_its_case() -> None:
    """``noise``, a tape, has no option: it is for comparing programs. Models with a condition or
    with windows of prices have tests of their own."""
    arguments = set(inspect.signature(wdport.sample).parameters) - {"model", "noise"}
    options = {each.name for each in command.params} | {"n"}
    assert arguments <= options
    assert arguments == {name for given in CASES.values() for name in given} - {"dtype"} | CONDITIONAL


def test_both_make_the_same_request_of_the_same_function(
    converted: Path, models: dict[str | None, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what they hand to it: nothing that determines samples is decided on the way there."""
    asked: list[Request] = []
    plan = job.plan_job

    def planned(programs: Any, request: Request) -> Any:
        asked.append(request)
        return plan(programs, request)

    for module in (api, sampling):
        monkeypatch.setattr(module, "plan_job", planned)
    given = {"n": 5, "batch": 2, "init": INIT, "known": KNOWN, "resample": 2, "devices": 1, **DDIM, "steps": 1}
    assert main(["sample", str(converted), *flags(tmp_path, given), "-o", str(tmp_path / "a.npz")]) == 0
    wdport.sample(models.get(None) or wdport.load_model(converted), **given)
    one, other = ({name: value for name, value in vars(each).items() if name != "called"} for each in asked)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("given", [
    {"n": 3, "init": INIT, **DDIM}, {"init": INIT[:, :-1], **DDIM}, {"init": INIT * np.nan, **DDIM}, {"steps": 50},
    {"known": KNOWN[:-1], **DDIM}, {"known": KNOWN + 1e30, **DDIM}, {"resample": 3}, {"sampler": "plms"},
    {"n": 1, "eta": 1.0}, {"seed": -1}, {"known": KNOWN, "sampler": "heun", "steps": 3}, {"devices": 99},
], ids=lambda given: " ".join(given))  # fmt: skip
def test_both_refuse_the_same(
    converted: Path, models: dict[str | None, Any], tmp_path: Path, given: dict[str, Any]
) -> None:
    """With the same words, but for what an argument is called: by its name, its option or its file."""
    with pytest.raises(wdport.WdportError) as raised:
        wdport.sample(models.get(None) or wdport.load_model(converted), **given)
    said = io.StringIO()
    with redirect_stderr(said):
        code = main(["sample", str(converted), *flags(tmp_path, given), "-o", str(tmp_path / "a.npz")])
    assert code == raised.value.exit_code == 2
    if given.get("n") == 3:  # the file is what the user can see, and -n the option to leave out
        assert said.getvalue() == f"error: {tmp_path / 'init.npy'}: has 5 states for 3 samples; leave out -n\n"
        return
    if "sampler" in given and len(given) == 1:  # refused before the model is known, with the samplers of all models
        assert said.getvalue().startswith("error: --sampler: unknown name 'plms'; use one of ddpm, ddim, ")
        return
    where = f"{tmp_path / 'init.npy'}" if "init" in given else f"--{raised.value.where}"
    assert said.getvalue() == f"error: {where}{str(raised.value).removeprefix(raised.value.where)}\n"
    assert not [name for name in os.listdir(tmp_path) if name.startswith("a.npz")]
