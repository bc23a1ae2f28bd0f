"""`wdport.sample` on a small converted model, and the command line, which gives the same bytes."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import pywt

import wdport
from tests.make import TINY
from wdport.base.errors import UsageError
from wdport.cli.main import main
from wdport.uses import sampling
from wdport.uses.cli.sample import command
from wdport.uses.sampling import api, job
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import programs_of
from wdport.uses.waveletdiff.port import WaveletDiff

FAST: dict[str, Any] = {"sampler": "ddim", "steps": 10, "eta": 0.5}
SHAPE = (TINY.coefficients, TINY.features)


@pytest.fixture(scope="module")
def model(converted: Path) -> Any:
    return wdport.load_model(converted)


def test_samples_come_as_coefficients_and_as_series_in_data_units(model: Any) -> None:
    samples = wdport.sample(model, 3, **FAST)
    assert len(samples) == 3
    assert samples.coefficients.shape == (3, *SHAPE)
    groups = [samples.coefficients[:, part] for part in TINY.level_slices]
    series = pywt.waverec(groups, "db2", mode="symmetric", axis=1) * [0.5, 2.0, 10.0] + [1.0, -2.0, 30.0]
    assert samples.series is not None
    np.testing.assert_allclose(samples.series, series, rtol=1e-5, atol=1e-5 * np.abs(series).max())
    samples.coefficients[0] = 0.0  # the caller's own memory


def test_seed_decides(model: Any) -> None:
    """And more samples begin with the same ones."""
    draws = ((3, 1), (5, 1), (3, 2))
    first, again, other = (wdport.sample(model, n, seed=seed, **FAST).coefficients for n, seed in draws)
    np.testing.assert_allclose(again[:3], first, rtol=1e-3, atol=1e-4 * np.abs(first).max())
    assert not np.allclose(first, other)
    assert len({part.tobytes() for part in first}) == 3


def test_init_and_noise_settle_everything(model: Any) -> None:
    rng = np.random.default_rng(0)
    init, tape = rng.standard_normal((3, *SHAPE)), rng.standard_normal((10, 3, *SHAPE))
    one, other = (wdport.sample(model, init=init, noise=tape, seed=seed, **FAST).coefficients for seed in (0, 1))
    assert np.array_equal(one, other)
    assert not np.allclose(one, wdport.sample(model, noise=tape, **FAST).coefficients)
    assert not np.allclose(one, wdport.sample(model, init=init, **FAST).coefficients)


def test_weights_lie_as_the_batch_has_them_in_any_order(model: Any) -> None:
    """33 samples of this size are few rows, 34 are many."""
    init = np.random.default_rng(0).standard_normal((34, *SHAPE))
    many, few, again = (wdport.sample(model, init=init, batch=batch, **FAST).coefficients for batch in (34, 17, 34))
    assert np.array_equal(many, again)
    np.testing.assert_allclose(few, many, rtol=1e-3, atol=1e-4 * np.abs(many).max())
    model.trainable_variables[-1].assign(model.trainable_variables[-1] + 0.5)
    other = wdport.sample(model, init=init, batch=17, **FAST).coefficients
    model.trainable_variables[-1].assign(model.trainable_variables[-1] - 0.5)
    assert np.abs(other - few).max() > 0.01 * np.abs(few).max()


def test_new_weights_are_seen(converted: Path) -> None:
    model = wdport.load_model(converted)
    before = wdport.sample(model, 3, **FAST).coefficients
    bias = model.level_0.output_proj.bias
    bias.assign(bias.value + 1.0)
    assert not np.allclose(wdport.sample(model, 3, **FAST).coefficients, before)
    held = model.noise_schedule.alpha_bar
    held.assign(np.ones(1001, np.float32))
    with pytest.raises(UsageError, match="alpha_bar is 1 at step 1"):
        wdport.sample(model, 3, **FAST)


def test_without_a_wavelet_there_are_no_series() -> None:
    model = WaveletDiff({**TINY.to_dict(), "wavelet": None})
    network = programs_of(model).network
    state = np.zeros((1, *SHAPE), np.float32)
    coefficients, series = network.finish(network.weights(), state)
    assert coefficients is state
    assert series is None


ZEROS = np.zeros((2, *SHAPE))
IMPOSSIBLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no model": (lambda m: wdport.sample(7), "model: a int is not a diffusion model; give what wdport.load_model"),
    "another keras model": (
        lambda m: wdport.sample(keras.Sequential([keras.layers.Dense(1)])), "a Sequential is not a diffusion model"),
    "no samples": (lambda m: wdport.sample(m, 0), "n: invalid value 0"),
    "half a sample": (lambda m: wdport.sample(m, 0.5), "n: invalid value 0.5"),
    "huge seed": (lambda m: wdport.sample(m, 1, seed=2**32), "seed: invalid value 4294967296"),
    "empty init": (lambda m: wdport.sample(m, init=ZEROS[:0]), "init: has shape (0, 26, 3)"),
    "init of another count": (lambda m: wdport.sample(m, 3, init=ZEROS), "n: n is for 3, init is for 2"),
    "init beyond float32": (lambda m: wdport.sample(m, init=ZEROS + 1e200), "init: has values up to 1e+200"),
    "too many": (lambda m: wdport.sample(m, 2**32 + 1), "n: 4294967297 is more than the samples of one seed"),
    "eta of another kind": (lambda m: wdport.sample(m, sampler="ddim", eta="1"), "eta: invalid value '1'"),
    "init of text": (lambda m: wdport.sample(m, init=ZEROS.astype(str)), "init: has values that are not finite"),
    "a short tape": (
        lambda m: wdport.sample(m, noise=ZEROS[None], **FAST), "noise: has shape (1, 2, 26, 3); give (10, n, 26, 3)"),
    "a tape for others": (
        lambda m: wdport.sample(m, init=ZEROS[:1], noise=np.zeros((10, *ZEROS.shape)), **FAST),
        "n: init is for 1, noise is for 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_the_impossible_is_refused(model: Any, case: str) -> None:
    call, expected = IMPOSSIBLE[case]
    with pytest.raises(UsageError) as raised:
        call(model)
    assert expected in str(raised.value)


RNG = np.random.default_rng(0)
STATE = (TINY.coefficients, TINY.features)
INIT = RNG.standard_normal((5, *STATE))
KNOWN = np.where(np.arange(24)[:, None] < 12, RNG.standard_normal((24, 3)), np.nan)
DDIM: dict[str, Any] = {"sampler": "ddim", "steps": 4, "eta": 0.5, "seed": 3}

CASES: dict[str, dict[str, Any]] = {
    "ddpm": {"seed": 2**32 - 1},
    "batch": {"n": 5, "batch": 2, "spacing": "karras", **DDIM},
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
    given = {**CASES["known, resampled"], "n": 5, "batch": 2, "init": INIT, "devices": 1, "spacing": "beta", "steps": 1}
    assert main(["sample", str(converted), *flags(tmp_path, given), "-o", str(tmp_path / "a.npz")]) == 0
    wdport.sample(models.get(None) or wdport.load_model(converted), **given)
    one, other = ({name: value for name, value in vars(each).items() if name != "called"} for each in asked)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("given", [
    {"n": 3, "init": INIT, **DDIM}, {"init": INIT[:, :-1], **DDIM}, {"init": INIT * np.nan, **DDIM}, {"steps": 50},
    {"known": KNOWN[:-1], **DDIM}, {"known": KNOWN + 1e30, **DDIM}, {"resample": 3}, {"sampler": "plms"},
    {"spacing": "karras", "steps": 1000},
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
