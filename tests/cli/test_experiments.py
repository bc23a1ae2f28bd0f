"""Experiments of the public training script on the command line: forms, conditions, units, and wrong uses."""

from __future__ import annotations

import csv
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import yaml

import wdport
from tests.command import Cli
from tests.families.quick import few_cases, network_verdict
from tests.make import TINY, TWO_LEVELS, TWO_LEVELS_SET, make_state, save
from tests.uses.data.test_transforms import prices
from wdport.base.errors import UsageError
from wdport.checkpoint import open_checkpoint
from wdport.cli.main import main
from wdport.conversion import prepare
from wdport.conversion.load import open_converted
from wdport.uses.data.samples_reader import read_samples
from wdport.uses.waveletdiff.config import Config

SCALED = Config(**{**TINY.to_dict(), "qk_norm": True, "features": 5, "scale_embedding": True})
CONFIG: dict[str, Any] = {
    "attention": {"use_cross_level_attention": False},
    "compile": {"backend": "inductor", "dynamic": False, "enabled": False, "fullgraph": False, "mode": "default"},
    "data": {"data_dir": "../data", "normalize_data": True}, "dataset": {"name": "stocks", "seq_len": 24},
    "energy": {"weight": 0.0}, "evaluation": {"num_samples": 20000},
    "model": {"dropout": 0.1, "embed_dim": 16, "num_heads": 2, "num_layers": 1, "prediction_target": "noise",
              "time_embed_dim": 8},
    "noise": {"schedule": "exponential", "beta_start": 1e-4, "beta_end": 0.02, "gamma": None, "prior": "gaussian"},
    "optimizer": {"lr": 2e-4, "scheduler_type": "onecycle", "warmup_epochs": 50, "amsgrad": False},
    "paths": {"output_dir": "../outputs"}, "performance": {"matmul_precision": "medium", "precision": "32"},
    "sampling": {"ddim_eta": 0.0, "ddim_steps": None, "method": "ddpm"}, "loss": {"anything": 1},
    "training": {"batch_size": 256, "epochs": 8, "log_every_n_epochs": 1, "save_model": True},
    "wavelet": {"levels": 1, "type": "db2"}, "conditioning": {"enabled": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment's folder, its archive, its data, and models that were converted from it."""
    folder = tmp_path_factory.mktemp("experiment")
    run = folder / "stocks"
    run.mkdir()
    save(run / "checkpoint.ckpt", make_state(SCALED))
    (run / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    with tarfile.open(folder / "stocks.tar.gz", "w:gz") as archive:
        archive.add(run, "stocks")
    series = prices(70)
    rows = [",".join(map(repr, row)) for row in series.values.tolist()]
    (folder / "prices.csv").write_text("\n".join(["Open,High,Low,Close,Volume", *rows]) + "\n")
    (folder / "other.csv").write_text("\n".join(["a,b,c,d,e", *rows]) + "\n")
    plain = {name: tensor for name, tensor in make_state(SCALED).items() if "scale_embedding" not in name}
    save(folder / "plain.ckpt", plain)
    untrained = make_state(SCALED)
    for at in (0, 2):
        untrained[f"scale_embedding.mlp.{at}.bias"].zero_()
    save(folder / "untrained.ckpt", untrained)
    both = {"state_dict": make_state(TWO_LEVELS), "ema_state_dict": make_state(TWO_LEVELS, seed=1)}
    torch.save(both, folder / "both.ckpt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["convert", "stocks", "-o", "scaled.keras", "-q"]) == 0
        data = ["--data", "prices.csv", "--transform", "ohlc-atr"]
        assert main(["convert", "stocks.tar.gz", "-o", "prices.keras", *data, "-q"]) == 0
        given = ["--config", "stocks/config.yaml", "-q"]
        assert main(["convert", "plain.ckpt", *given]) == 0
        assert main(["convert", "untrained.ckpt", *given]) == 0
    np.save(folder / "negative.npy", np.array([-1.0]))
    np.save(folder / "matrix.npy", np.ones((2, 2)))
    half = np.where(np.arange(24)[:, None] < 12, series.values[-24:], np.nan)
    np.save(folder / "half.npy", half)
    np.save(folder / "negative known.npy", np.where(np.arange(24)[:, None] == 3, -half, half))
    return folder


@pytest.fixture(autouse=True)
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def test_the_archive_is_the_folder(place: Path) -> None:
    one, other = (open_converted(place / name) for name in ("scaled.keras", "prices.keras"))
    assert one.digests == other.digests
    assert one.config.num_heads == 2
    assert (one.config.conditioning, other.config.conditioning) == (None, "scale")
    assert open_converted(place / "untrained.keras").config.conditioning == "none"


def test_convert_says_what_it_read_and_what_the_model_takes(cli: Cli, tmp_path: Path) -> None:
    said = cli("convert", "stocks", "-o", tmp_path / "a.keras")
    assert "configuration from config.yaml next to the checkpoint" in said.out
    assert "takes a condition: scale" in said.out
    assert said.err == ""
    save(tmp_path / "official.ckpt", make_state(Config(**{**SCALED.to_dict(), "num_heads": 8, "qk_norm": False})))
    warned = cli("convert", tmp_path / "official.ckpt").err
    assert warned.startswith("warning: assumed, since neither file nor configuration states them: num_heads=8 (with")
    assert warned.count("\n") == 1


def test_the_configuration_next_to_a_checkpoint_is_read_once() -> None:
    with patch.object(prepare, "load_yaml", wraps=prepare.load_yaml) as read, open_checkpoint(Path("stocks")) as opened:
        prepare.prepared_from(opened, prepare.Settings())
    assert read.call_count == 1


@pytest.mark.parametrize("given", [{"scale": [0.5, 2.0]}, {"scale": "data", "anchor": 50.0}, {"unconditional": True}])
def test_python_draws_the_same(given: dict[str, Any], tmp_path: Path) -> None:
    words: list[str] = []
    for name, value in given.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words += [f"--{name}"] if value is True else [f"--{name}", text]
    command = ["sample", "prices.keras", "-n", "3", "--sampler", "ddim", "--steps", "4", *words, "-q"]
    assert main([*command, "-o", str(tmp_path / "a.npz")]) == 0
    made = wdport.sample(wdport.load_model("prices.keras"), 3, sampler="ddim", steps=4, **given)
    with np.load(tmp_path / "a.npz") as file:
        assert file["series"].tobytes() == made.series.tobytes()


def test_samples_of_prices(place: Path, tmp_path: Path, cli: Cli) -> None:
    """Prices begin at the anchor, and all their parts are possible."""
    few = ["sample", "prices.keras", "-n", "5", "--sampler", "ddim", "--steps", "4"]
    files = ["-o", str(tmp_path / "a.csv"), "--plot", str(tmp_path / "a.png")]
    said = cli(*few, "--scale", "data", "--anchor", "100", *files).out
    assert "in the units of the data, by ohlc-atr" in said
    assert "scale         data" in said
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["sample", "step", "open", "high", "low", "close", "volume"]
    for row in rows:
        first, high, low, last, volume = (float(row[name]) for name in ("open", "high", "low", "close", "volume"))
        assert low <= min(first, last) <= max(first, last) <= high
        assert volume >= 0
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_known_prices_are_kept(tmp_path: Path) -> None:
    """Columns are found by name, also in another order; samples begin at the known price, and have known volumes."""
    values = prices(70).values[-24:]
    for name, order in (("a", (0, 1, 2, 3, 4)), ("b", (4, 2, 0, 3, 1))):
        rows = [[repr(float(values[step, at])) if step < 9 else "" for at in order] for step in range(24)]
        head = [("Open", "High", "Low", "Close", "Volume")[at] for at in order]
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(row) for row in [head, *rows]) + "\n")
        command = ["sample", "prices.keras", "-n", "3", "--scale", "2", "--sampler", "ddim", "--steps", "4", "-q"]
        files = ["--known", str(tmp_path / f"{name}.csv"), "-o", str(tmp_path / f"{name}.npz")]
        assert main([*command, "--resample", "2", *files, "--plot", str(tmp_path / f"{name}.png")]) == 0
    made, other = (np.load(tmp_path / f"{name}.npz")["series"] for name in ("a", "b"))
    assert np.array_equal(made, other)
    assert np.array_equal(made[:, :9], np.broadcast_to(values[:9].astype(np.float32), (3, 9, 5)))
    assert np.ptp(made[:, 9:, 0], axis=0).min() > 0
    assert (made[:, 9:, 2] <= made[:, 9:, [0, 3]].min(axis=2)).all()
    half = np.where(np.arange(24)[:, None] < 9, values, np.nan)
    model = wdport.load_model("prices.keras")
    python = wdport.sample(model, 3, scale=2.0, sampler="ddim", steps=4, resample=2, known=half)
    assert python.series is not None
    assert np.array_equal(python.series, made)
    np.testing.assert_allclose(wdport.sample(model, 2, scale=2.0, sampler="ddim", steps=4, known=half * 2).series[:, 0],
                               np.broadcast_to(2 * values[0].astype(np.float32), (2, 5)))  # fmt: skip
    half[3, 0] = np.nan
    with pytest.raises(UsageError, match="known: 4 values of step 3 determine 1 of its window's"):
        wdport.sample(model, 3, scale=2.0, known=half)


def test_samples_say_what_they_were_drawn_with(tmp_path: Path) -> None:
    """The scale of every sample, the window that gives its anchor, and the names of the features."""
    path = str(tmp_path / "s.npz")
    command = ["sample", "prices.keras", "-n", "5", "--scale", "data", "--sampler", "ddim", "--steps", "4", "-o", path]
    assert main([*command, "-q", "--plot", str(tmp_path / "s.png"), "--data", "prices.csv"]) == 0
    statistics = open_converted("prices.keras").config.statistics
    with np.load(path) as made:
        np.testing.assert_array_equal(made["scale"], statistics.arrays["atr_pcts"][made["window"]])
        assert made["features"].tolist() == ["open", "high", "low", "close", "volume"]
        python = wdport.sample(wdport.load_model("prices.keras"), 5, scale="data", sampler="ddim", steps=4)
        assert {name: array.tolist() for name, array in python.given.items()} == {
            name: made[name].tolist() for name in ("scale", "window")
        }
    assert read_samples(path).features == ("open", "high", "low", "close", "volume")


def test_verify_compares_with_and_without_the_scale_and_the_statistics_of_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of other data are found; without data the report says that they are not compared."""
    series = prices(70, seed=9)
    rows = [",".join(map(repr, row)) for row in series.values.tolist()]
    (tmp_path / "more.csv").write_text("\n".join(["Open,High,Low,Close,Volume", *rows]) + "\n")
    with few_cases():
        verdict = wdport.verify("stocks.tar.gz", "prices.keras")
    assert verdict.exit_code == 0
    unchecked = "the statistics of windows are as the file states; --data"
    assert unchecked in verdict.summary()
    assert {"scale_embedding", "scale_embedding.mlp.0", "time_embedding"} <= {each.reference for each in verdict.taps}
    drawn = {each.subject for gate in verdict.gates if gate.name == "H" for each in gate.measures}
    assert {"scale (ddim)", "no scale (ddim)"} <= drawn
    verdict = network_verdict("stocks.tar.gz", "prices.keras", data="prices.csv", transform="ohlc-atr")
    assert verdict.exit_code == 0
    assert unchecked not in verdict.summary()
    command = ["verify", "stocks.tar.gz", "prices.keras", "--data", str(tmp_path / "more.csv")]
    with few_cases():
        assert main([*command, "--transform", "ohlc-atr"]) == 1
    told = capsys.readouterr().out
    assert "window_statistics is 28;anchors=28" in told
    assert max(map(len, told.splitlines())) < 800


def test_stored_tables_come_back(tmp_path: Path) -> None:
    """Tables that the model holds are not computed again."""
    assert main(["export", "scaled.keras", "--to", "torch", "-o", str(tmp_path / "a.pt"), "--verify", "-q"]) == 0
    held, back = torch.load("stocks/checkpoint.ckpt"), torch.load(tmp_path / "a.pt")
    held = held.get("state_dict", held)
    for name in ("alpha_bar_all", "beta_all", "alpha_all"):
        assert torch.equal(held[name], back[name])


def test_a_recording_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy("both.ckpt", folder / "checkpoint.ckpt")
    command = ["record", "tests.user_model:two_levels", str(folder), "-o", str(tmp_path / "r.npz"), "-q"]
    assert main([*command, "--weights", "ema"]) == 0


def test_an_interrupted_run_goes_on_with_its_own_windows(tmp_path: Path) -> None:
    """Samples in chunks, and one by one, are those of one run."""
    base = ["sample", "prices.keras", "--scale", "data", "--sampler", "ddim", "--steps", "4", "--batch-size", "2", "-q"]
    assert main([*base, "-n", "6", "-o", str(tmp_path / "whole.npz")]) == 0
    assert main([*base, "-n", "6", "--chunk", "1", "-o", str(tmp_path / "parts.npz")]) == 0
    assert main([*base, "-n", "4", "-o", str(tmp_path / "few.npz")]) == 0
    whole, parts, few = (np.load(tmp_path / f"{name}.npz")["series"] for name in ("whole", "parts", "few"))
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole[:4], few)


def test_an_exported_sampler_takes_the_scale(tmp_path: Path) -> None:
    from wdport.uses.exporting.loader import load

    artifact = str(tmp_path / "s.stablehlo")
    few = ["--sampler", "ddim", "--steps", "4"]
    assert main(["export", "scaled.keras", "--what", "sampler", *few, "-o", artifact]) == 0
    sampler = load(artifact)
    assert sampler.facts["condition"] == {"name": "scale", "kind": "positive", "shape": []}
    states, _ = sampler(7, range(3), [0.5, 2.0, 8.0])
    given = ["-n", "3", "--seed", "7", "--scale", "0.5,2,8", *few, "-q"]
    command = ["sample", "scaled.keras", *given, "-o", str(tmp_path / "s.npz")]
    assert main(command) == 0
    np.testing.assert_allclose(np.load(tmp_path / "s.npz")["coefficients"], states, rtol=2e-4, atol=2e-4)


def test_the_choice_of_weights_is_known_later(tmp_path: Path) -> None:
    for weights in ("ema", "raw"):
        out = str(tmp_path / f"{weights}.keras")
        assert main(["convert", "both.ckpt", "-o", out, "--weights", weights, *TWO_LEVELS_SET, "-q"]) == 0
    assert network_verdict("both.ckpt", str(tmp_path / "ema.keras")).exit_code == 0
    one, other = (open_converted(tmp_path / f"{name}.keras") for name in ("ema", "raw"))
    assert one.digests != other.digests


SAMPLE = ["sample", "scaled.keras", "-n", "4", "-o", "x.npz"]
PRICES = ["sample", "prices.keras", "-n", "4", "-o", "x.npz"]
CONVERT = ["convert", "stocks", "-o", "x.keras"]
TRAIN = ["train", "prices.csv", "-o", "run", "--resume"]
WRONG: list[tuple[list[str], str]] = [
    (SAMPLE, "--unconditional"),
    ([*SAMPLE, "--scale", "-1"], "-1 is not positive"),
    ([*SAMPLE, "--scale", "0"], "0 is not positive"),
    ([*SAMPLE, "--scale", "nan"], "not finite"),
    ([*SAMPLE, "--scale", "1e-46"], "1e-46 is 0 in float32"),
    ([*SAMPLE, "--scale", "1e9"], "at most 1e+06"),
    ([*SAMPLE, "--scale", "1,2,3,4,5"], "5 values for 4 samples"),
    ([*SAMPLE, "--scale", "much"], "invalid value 'much'"),
    ([*SAMPLE, "--scale", "missing.npy"], "no such file"),
    ([*SAMPLE, "--scale", "negative.npy"], "-1 is not positive"),
    ([*SAMPLE, "--scale", "matrix.npy"], "has shape (2, 2)"),
    ([*SAMPLE, "--scale", "data"], "does not hold scale of its training data"),
    ([*SAMPLE, "--scale", "1", "--unconditional"], "scale is given"),
    ([*SAMPLE, "--scale", "1", "--label", "1"], "are given together"),
    ([*SAMPLE, "--label", "1"], "the model has no classes"),
    ([*SAMPLE, "--scale", "1", "--guidance", "2"], "was not trained for classifier-free guidance"),
    ([*SAMPLE, "--scale", "1", "--anchor", "100"], "holds no statistics of windows"),
    ([*PRICES, "--scale", "1", "--anchor", "-5"], "is not a price that samples begin near"),
    ([*PRICES, "--scale", "1", "--anchor", "1e39"], "is not a price that samples begin near"),
    ([*PRICES, "--scale", "1", "--transform", "os:getcwd"], "the model's is ohlc-atr"),
    ([*PRICES, "--scale", "1", "--known", "prices.csv"], "has shape (70, 5)"),
    ([*PRICES, "--scale", "1", "--known", "other.csv"], "has no column of numbers called open, and has a, b, c, d, e"),
    ([*PRICES, "--scale", "1,2", "--known", "half.npy"], "has several values, and the known values are in the units"),
    ([*PRICES, "--scale", "1", "--known", "half.npy", "--anchor", "7"], "the known values begin at"),
    ([*PRICES, "--scale", "1", "--known", "negative known.npy"], "a price is not positive"),
    (["sample", "plain.keras", "--scale", "1", "-o", "x.npz"], "the model takes no scale"),
    (["sample", "plain.keras", "--unconditional", "-o", "x.npz"], "the model takes no condition"),
    (["sample", "untrained.keras", "--scale", "1", "-o", "x.npz"], "was trained without this condition"),
    ([*CONVERT, "--data", "prices.csv"], "add --transform ohlc-atr"),
    ([*CONVERT, "--transform", "ohlc-atr"], "needs data or their statistics"),
    ([*CONVERT, "--data", "prices.csv", "--transform", "ohlc"], "is not a transform"),
    ([*CONVERT, "--data", "other.csv", "--transform", "ohlc-atr"], "has a, b, c, d, e; give the columns open, high"),
    ([*CONVERT, "--data", "prices.csv", "--transform", "os:getcwd"], "__init__ raises TypeError"),
    ([*CONVERT, "--weights", "ema"], "has no ema weights"),
    (["convert", "both.ckpt", "-o", "x.keras", "--weights", "ema", "--key", "state_dict"], "is given twice"),
    (["record", "tests.user_model:small", "both.ckpt", "-o", "x.npz"], "choose with --key 'ema' or 'raw'"),
    (["record", "tests.user_model:small", "stocks.tar.gz", "-o", "x.npz"], "is an archive, which torch does not read"),
    (["verify", "stocks", "prices.keras", "--data", "other.csv", "--transform", "ohlc-atr"], "has a, b, c, d, e"),
    (["convert", "both.ckpt", "-o", "x.keras"], "choose with --key 'ema' or 'raw'"),
    ([*TRAIN, "stocks"], "add --transform ohlc-atr"),
    ([*TRAIN, "scaled.keras"], "the model takes a condition with every state: scale"),
    ([*TRAIN, "scaled.keras", "--condition", "negative.npy"], "has shape (1,)"),
    ([*TRAIN, "prices.keras", "--transform", "zscore"], "the model's is ohlc-atr"),
    ([*TRAIN, "prices.keras", "--recipe", "public", "--clip", "2"], "is part of the public recipe"),
    ([*TRAIN, "prices.keras", "--weights", "ema"], "is for a checkpoint"),
    ([*TRAIN, "prices.keras", "--no-config"], "--no-config: is for a checkpoint"),
    (["evaluate", "samples.npz", "--data", "prices.csv", "--scale", "1"], "is for a model"),
]


@pytest.mark.parametrize(("command", "said"), WRONG, ids=[" ".join(command[:1] + command[2:]) for command, _ in WRONG])
def test_a_wrong_use_gets_one_line(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    before = sorted(path.name for path in place.iterdir())
    code = main([*command, "-q"])
    error = capsys.readouterr().err
    assert code in (1, 2, 3, 4)
    assert said in error
    assert error.count("\n") == 1 or code == 1
    assert sorted(path.name for path in place.iterdir() if path.name != "run") == before


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("noise", "prior", "student_t", "noise.prior"),
        ("noise", "betas", [0.1], "noise.betas: no such setting"),
        ("model", "num_head", 2, "did you mean model.num_heads"),
        ("training", "num_heads", 2, "move it to its section, as model.num_heads"),
        ("optimizer", "weight_decya", 1e-5, "did you mean optimizer.weight_decay"),
        ("conditioning", "mode", "film", "conditioning.mode: no such setting"),
    ],
)
def test_a_configuration_that_is_not_understood(
    section: str, key: str, value: Any, said: str, tmp_path: Path, cli: Cli
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({**CONFIG, section: {**CONFIG[section], key: value}}))
    assert said in cli("convert", "plain.ckpt", "--config", config, "-o", tmp_path / "x.keras", code=4).err


@pytest.mark.parametrize(("command", "file"), [
    (["convert", "stocks", "-o", "new.keras"], "stocks/config.yaml"),
    (["convert", "stocks", "-o", "new.keras"], "stocks/checkpoint.ckpt"),
    (["convert", "stocks/checkpoint.ckpt", "-o", "new.keras"], "stocks/config.yaml"),
    (["convert", "stocks.tar.gz", "-o", "new.keras"], "stocks.tar.gz"),
    (["verify", "stocks", "scaled.keras"], "stocks/checkpoint.ckpt"),
    (["train", "prices.csv", "--resume", "stocks", "--transform", "ohlc-atr", "-o", "run"], "stocks/config.yaml"),
])  # fmt: skip
def test_no_part_of_an_experiment_is_an_output(command: list[str], file: str, place: Path, cli: Cli) -> None:
    before = (place / file).read_bytes()
    assert "is an input" in cli(*command, "--json", file, "--force", code=2).err
    assert (place / file).read_bytes() == before
    assert not (place / "new.keras").exists()


@pytest.mark.parametrize(("text", "code"), [("- a list\n", 0), ("experiment: {seed: 1}\n", 0), ("a: &anchor 1\n", 3)])
def test_another_program_s_config_is_not_taken_for_a_configuration(
    text: str, code: int, tmp_path: Path, cli: Cli
) -> None:
    save(tmp_path / "a.ckpt", make_state(replace(TWO_LEVELS, features=5)))
    (tmp_path / "config.yaml").write_text(text)
    checkpoint = str(tmp_path / "a.ckpt")
    assert ("--no-config" in cli("convert", checkpoint, code=code).err) is (code == 3)
    if not text.startswith("-"):  # the two that are let through are read in the same way
        trained = ["train", "prices.csv", "--resume", checkpoint, "--epochs", "1", "--batch-size", "32"]
        cli(*trained, "-o", tmp_path / "run", code=code)
