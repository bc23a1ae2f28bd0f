"""The diffusion model of weather: its data, its model, its scores; and that pages show what the demonstrations run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import pywt
import torch

from wdport.checkpoint import open_checkpoint
from wdport.conversion.convert import convert
from wdport.uses.data import Statistics, read_series

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 12
NAMES = ("temperature (°C)", "humidity (%)", "pressure (hPa)")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    folders = [str(EXAMPLES / "weather"), str(EXAMPLES)]
    sys.path[:0] = folders
    try:
        yield {name: import_module(name) for name in ("three_days", "train", "check", "demo")}
    finally:
        for name in ("three_days", "train", "check", "demo"):
            sys.modules.pop(name, None)
        for folder in folders:
            sys.path.remove(folder)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As the script runs on the command line."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stem(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("weather") / "new"
    scripts["train"].main([str(folder), "--steps", str(STEPS), "--seconds", "600"])
    return str(folder / "weather")


def coefficients(scripts: dict[str, ModuleType], held_out: bool = False) -> Any:
    scale = Statistics.of(read_series(scripts["three_days"].DATA).values)
    return scripts["train"].to_coefficients(scale.normalize(scripts["three_days"].windows(held_out)))


def test_the_data_is_a_year_of_hours(scripts: dict[str, ModuleType]) -> None:
    series = read_series(scripts["three_days"].DATA)
    assert (series.values.shape, series.names, series.dropped) == ((362 * 24, 3), NAMES, ("time",))
    hours = [line.split(",")[0] for line in scripts["three_days"].DATA.read_text(encoding="utf-8").splitlines()[1:]]
    times = np.array(hours, "datetime64[h]")
    assert (np.diff(times) == np.timedelta64(1, "h")).all()
    low, high = series.values.min(axis=0), series.values.max(axis=0)
    assert (low > [-15, 10, 980]).all()
    assert (high < [40, 100.1, 1045]).all()
    warmest = series.values[:, 0].reshape(362, 24).mean(axis=0).argmax()
    assert 13 <= warmest <= 16  # the hours are those of the place


def test_held_out_weeks_share_no_hour_with_training(scripts: dict[str, ModuleType]) -> None:
    days = scripts["three_days"]
    values = read_series(days.DATA).values
    marks = np.arange(len(values), dtype=float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(days, "read_series", lambda _: type("Marks", (), {"values": marks[:, None]}))
        training, held_out = (set(days.windows(which).ravel()) for which in (False, True))
    assert not training & held_out
    assert (len(training), len(held_out)) == (13 * 21 * 24 - 0, 362 * 24 - 13 * 21 * 24)


def test_checkpoint_opens(scripts: dict[str, ModuleType], stem: str) -> None:
    saved = torch.load(f"{stem}.ckpt", weights_only=True)
    assert saved["global_step"] == saved["lr_schedulers"][0]["last_epoch"] == STEPS
    assert saved["optimizer_states"][0]["state"][0]["step"] == STEPS
    with open_checkpoint(f"{stem}.ckpt") as checkpoint:
        assert set(checkpoint.tensors) == set(saved["state_dict"])
    module = scripts["train"].WaveletDiff(scripts["train"].CONFIG)
    assert len(saved["optimizer_states"][0]["state"]) == len(list(module.parameters()))


def test_converts_without_assumptions(scripts: dict[str, ModuleType], stem: str, tmp_path: Path) -> None:
    data = scripts["three_days"].DATA
    conversion = convert(f"{stem}.ckpt", tmp_path / "a.keras", config=f"{stem}.config.yaml", data=data)
    assert conversion.assumed == {}
    scale = Statistics.of(read_series(data).values)
    given = {"wavelet": "db4", "boundary_mode": "symmetric", "seq_len": 72, "norm_mean": list(scale.mean),
             "norm_std": list(scale.std), "feature_names": list(NAMES)}  # fmt: skip
    assert conversion.config.to_dict() == {**scripts["train"].CONFIG.to_dict(), **given}


def test_coefficients_are_those_of_a_single_window(scripts: dict[str, ModuleType]) -> None:
    values = scripts["three_days"].windows(True)
    found = scripts["train"].to_coefficients(values).numpy()
    assert found.shape == (len(values), sum(scripts["train"].CONFIG.level_lengths), 3)
    expected = np.concatenate(pywt.wavedec(values[5, :, 1], "db4", "symmetric", 3))
    np.testing.assert_allclose(found[5, :, 1], expected, rtol=1e-5, atol=1e-4)


def test_more_steps_fit_better(scripts: dict[str, ModuleType], stem: str) -> None:
    """On the same noise and weather that was held out; the twelve steps against none at all."""
    train = scripts["train"]
    torch.manual_seed(train.SEED)
    models = [train.WaveletDiff(train.CONFIG).eval() for _ in range(2)]
    models[1].load_state_dict(torch.load(f"{stem}.ckpt", weights_only=True)["state_dict"])
    losses = []
    for model in models:
        torch.manual_seed(1)
        with torch.no_grad():
            losses.append(train.coefficient_loss(model, coefficients(scripts, held_out=True)).item())
    assert losses[1] < losses[0]


def test_same_seed_same_weights(scripts: dict[str, ModuleType]) -> None:
    x0 = coefficients(scripts)
    first, again = (scripts["train"].train(x0, 2, 600.0)["state_dict"] for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert scripts["train"].train(x0, 5, 0.0)["global_step"] == 0  # the time bound ends training


def test_steps_below_one_are_refused(
    scripts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        scripts["train"].main([str(tmp_path), "--steps", "0"])
    assert "--steps is at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_scores_tell_good_samples_from_bad(
    scripts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held_out, training = (scripts["three_days"].windows(which) for which in (True, False))
    shuffled = np.random.default_rng(0).permuted(held_out, axis=1)  # the same values, in no order
    table = np.column_stack([np.repeat(np.arange(len(shuffled)), 72), np.tile(np.arange(72), len(shuffled)),
                             shuffled.reshape(-1, 3)])  # fmt: skip
    header = ",".join(["sample", "step", *NAMES])
    np.savetxt(tmp_path / "a.csv", table, delimiter=",", header=header, comments="", encoding="utf-8")
    scripts["check"].main([str(tmp_path / "a.csv")])
    told = capsys.readouterr().out
    found = re.search(r"tells samples from held-out windows with AUC (\S+), training windows with (\S+) \(", told)
    assert found is not None
    assert float(found[1]) > 0.95
    assert 0.3 < float(found[2]) < 0.7
    scale = Statistics.of(read_series(scripts["three_days"].DATA).values)
    assert scripts["check"].nearest(training[:9], training, scale) == 0
    assert scripts["check"].nearest(held_out, training, scale) > 0.3


def test_the_tutorials_show_the_commands_that_are_run(scripts: dict[str, ModuleType]) -> None:
    """But for --force, which `make demo` needs the second time that it runs. A page may repeat a command."""
    docs = EXAMPLES.parent / "docs"
    pages = docs / "tutorial.md", docs / "weather.md", EXAMPLES / "README.md"
    text = "".join(page.read_text(encoding="utf-8") for page in pages).replace("\\\n", "").replace(" --force", "")
    shown = [" ".join(line.split()) for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE)]
    stories = [step for story in ("CNN", "WEATHER", "DIGITS") for step in getattr(scripts["demo"], story)]
    run = [command.replace(" --force", "") for _, command in stories]
    assert [command for command in dict.fromkeys(shown) if command in run] == run


def test_a_command_that_fails_ends_the_demonstration(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path.parent)  # and back after `cd`
    steps = [("Goes.", f"cd {tmp_path.name}"), ("Fails.", "python -c 'open(\"here\", \"w\"); raise SystemExit(3)'"),
             ("Never runs.", "python -c 1")]  # fmt: skip
    monkeypatch.setitem(scripts["demo"].STORIES, "digits", steps)
    with pytest.raises(SystemExit) as ended:
        scripts["demo"].main(["digits"])
    assert ended.value.code == 3
    out = capsys.readouterr().out
    assert "this command ended with exit code 3" in out
    assert "Never runs" not in out
    assert (tmp_path / "here").exists()
