"""`wdport.evaluate` and `wdport evaluate`: sets, floor, seeds, files, messages."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import wdport
from tests.command import Cli, Refused
from wdport.base.errors import UsageError
from wdport.families.registry import find_family, known_model
from wdport.uses.data.samples_reader import SeriesSet
from wdport.uses.data.series import Series
from wdport.uses.evaluation import metrics
from wdport.uses.evaluation.api import _fitting, real_windows
from wdport.uses.evaluation.distances import Scaling, frechet_distance
from wdport.uses.evaluation.figures import autocorrelation, page_of
from wdport.uses.evaluation.result import Evaluation, Score, apart
from wdport.uses.evaluation.sweep import SamplerSetting, listed, parse_settings

QUICK = ["correlational", "dtw-js", "sliced-wasserstein"]
"""Metrics without training."""


def walk(steps: int = 600, features: int = 2) -> np.ndarray:
    """A stationary autoregression (T, F)."""
    noise = np.random.default_rng(0).normal(size=(steps, features))
    found = np.zeros((steps, features))
    for at in range(1, steps):
        found[at] = 0.8 * found[at - 1] + noise[at]
    return found + 5.0


def taken(count: int, length: int = 8) -> np.ndarray:
    """Windows of another part of the same process."""
    whole = walk(4000)[1000:]
    return np.stack([whole[at : at + length] for at in np.random.default_rng(1).integers(0, 2900, count)])


@pytest.mark.full
def test_all_scores_tell_a_wrong_process_from_the_right_one() -> None:
    """White noise of the same mean and spread has another course in time, but the same correlation of features."""
    noise = np.random.default_rng(2).normal(5.0, walk().std(), (200, 8, 2))
    found = wdport.evaluate({"right": taken(200), "wrong": noise}, walk(), repeats=2)
    assert list(found.sets) == ["real", "itself", "right", "wrong"]
    assert found.counts == {"real": 200, "itself": 100, "right": 200, "wrong": 200}
    for metric in ("context-fid", "discriminative", "predictive", "dtw-js", "sliced-wasserstein"):
        assert found["wrong"][metric].mean > found["right"][metric].mean, metric
    for metric in ("context-fid", "sliced-wasserstein"):
        assert not found.within_floor("wrong", metric), metric
    other = wdport.evaluate(taken(200)[1::2], taken(200)[::2], metrics=["sliced-wasserstein"], repeats=1)
    assert found["itself"]["sliced-wasserstein"].mean == pytest.approx(
        other["samples"]["sliced-wasserstein"].mean, rel=0.2)  # the directions differ  # fmt: skip
    for score in found["right"].values():
        assert len(score.values) == 2
        assert np.isfinite(score.values).all()


def test_a_seed_determines_all_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "discriminative_scores", partial(metrics.discriminative_scores, steps=100))

    def scores(seed: int) -> list[tuple[float, ...]]:
        found = wdport.evaluate(taken(60), walk(), metrics=["dtw-js", "discriminative"], repeats=1, seed=seed)
        return [each.values for scores in found.sets.values() for each in scores.values()]

    first = scores(3)
    assert scores(3) == first
    assert sum(a != b for a, b in zip(scores(4), first, strict=True)) >= 3  # of 6; accuracies are whole numbers


def test_the_floors_windows_share_no_step() -> None:
    steps = np.arange(500.0)[:, None]
    real = real_windows(steps, 8, 1)
    one, other = (set(each.ravel().tolist()) for each in real.floor)
    assert len(real.windows) == 493
    assert not one & other
    assert len(one) + len(other) > 0.9 * 500
    assert {len(each) for each in real_windows(steps[:33], 8, 1).floor} == {25, 0}  # there is no second block
    given = real_windows(np.array(real.windows), 8, 1)
    assert all(np.array_equal(a, b) for a, b in zip(given.floor, real.floor, strict=True))


def test_without_two_blocks_there_is_no_floor() -> None:
    found = wdport.evaluate(taken(20), walk(33), metrics=QUICK, repeats=1)
    assert set(found.sets) == {"itself", "samples"}
    assert found.within_floor("samples", "dtw-js") is None


def test_one_feature_has_no_correlations() -> None:
    assert {metric.name for metric in _fitting(None, (24, 1))} == metrics.METRICS.keys() - {"correlational"}
    with pytest.raises(UsageError, match="correlational compares pairs of features, and these series have 1"):
        wdport.evaluate(taken(20)[..., :1], walk()[:, :1], metrics="correlational", repeats=1)


def test_a_given_encoder_is_used_as_it_is(tmp_path: Path) -> None:
    """Against the Keras model itself and the distance of its embeddings."""
    family: Any = find_family("ts2vec", "test")
    model = family.build(family.load_config({"input_dims": 2, "hidden_dims": 8, "output_dims": 6, "depth": 3}))
    for variable in model.weights:
        variable.assign(np.random.default_rng(len(variable.path)).normal(size=variable.shape) * 0.3)
    samples, windows = taken(40), np.array(real_windows(walk(), 8, 2).windows)[:40]
    found = wdport.evaluate(samples, windows, metrics=["context-fid"], repeats=1, encoder=model)
    scale = Scaling.of(windows)
    wanted = frechet_distance(*(np.asarray(model(scale(each).astype("float32"))[1]) for each in (windows, samples)))
    assert found["samples"]["context-fid"].mean == pytest.approx(wanted, rel=1e-3)
    assert known_model(model) is not None


@pytest.mark.parametrize(
    ("samples", "settings", "told"),
    [
        (np.zeros((9, 8)), {}, r"samples: have shape \(9, 8\); give series"),
        ([1.0], {}, r"samples: have shape \(1,\)"),
        ([[[1.0]], [[1.0], [2.0]]], {}, "samples: are not an array of real numbers"),
        (np.full((9, 8, 2), 1e50), {}, r"samples: have values of \S+e\+49 times the range of the data; leave"),
        (np.ma.masked_equal(np.eye(9, 16).reshape(9, 8, 2), 1.0), {}, "samples: have NaN or infinite values in 9 of 9"),
        (np.full((9, 8, 2), np.nan), {}, "samples: have NaN or infinite values in 9 of 9"),
        (np.zeros((9, 8, 3)), {}, "data: has 2 columns of numbers, and 3 are needed"),
        (np.zeros((9, 700, 2)), {}, "data: has 600 steps, and a sample 700"),
        (np.zeros((4, 8, 2)), {}, "samples: are 4 with 593 real windows; give at least 5 of both"),
        (np.zeros((9, 8, 2)), {"metrics": ["fid"]}, "unknown metric 'fid'; use context-fid"),
        (np.zeros((9, 8, 2)), {"metrics": []}, "metrics: are empty"),
        (np.zeros((9, 8, 2)), {"repeats": 0}, "repeats: invalid value 0; give a whole number from 1"),
        (np.zeros((9, 8, 2)), {"seed": -1}, "seed: invalid value -1; give a whole number from 0"),
        ({"real": np.zeros((9, 8, 2))}, {}, "have a set 'real', the name of a floor"),
        ({}, {}, "have no set"),
        (np.zeros((9, 1, 2)), {}, "metrics: context-fid needs series of 2 steps, and these have 1; name the others"),
        (np.zeros((9, 20, 1)), {"metrics": ["predictive"]}, "predictive needs series of 21 steps, and these have 20"),
        ({"a": np.zeros((9, 8, 2)), "b": np.zeros((9, 7, 2))}, {}, "b: have length and features"),
        (
            {"a": SeriesSet(np.zeros((9, 8, 2)), ("a", "b")), "b": SeriesSet(np.zeros((9, 8, 2)), ("a", "c"), "b")},
            {},
            "b: have the features a, c, others a, b",
        ),
        (np.zeros((9, 8, 2)), {"encoder": "a model"}, "encoder: does not encode series"),
    ],
)
def test_what_does_not_fit_is_refused(samples: Any, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(wdport.WdportError, match=told):
        wdport.evaluate(samples, walk(), **settings)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "data: are not an array of real numbers"),
        (np.full((40, 2), np.nan), "data: have NaN or infinite values"),
        (np.zeros((9, 9, 2)), r"data: have shape \(9, 9, 2\), and the samples \(n, 8, 2\)"),
        (Series(walk(), ("a", "c")), "data: has no column of numbers called b, and has a, c; give the columns a, b"),
    ],
)
def test_data_that_do_not_fit_are_refused(data: Any, told: str) -> None:
    with pytest.raises(wdport.WdportError, match=told):
        wdport.evaluate(SeriesSet(np.zeros((9, 8, 2)), ("a", "b")), data)


def test_columns_are_found_by_name() -> None:
    """In the data and among the sets; an unnamed set has the order of the first."""
    series, other = taken(30), taken(40)[::-1]
    sets = {"a": SeriesSet(series, ("a", "b")), "b": SeriesSet(other[..., ::-1], ("b", "a")), "c": other}
    wanted = wdport.evaluate({"a": series, "b": other, "c": other}, walk(), metrics=QUICK, repeats=1)
    turned = np.column_stack([walk()[:, 1], np.arange(600.0), walk()[:, 0]])
    found = wdport.evaluate(sets, Series(turned, ("b", "more", "a")), metrics=QUICK, repeats=1)
    assert found.features == ("a", "b")
    for name in sets:
        assert {each.mean for each in found[name].values()} == {each.mean for each in wanted[name].values()}


def test_a_set_scores_the_same_beside_others_under_any_name() -> None:
    """All sets are compared at the size of the smallest, with the same real windows."""
    one, other = taken(60), taken(100)
    alone = wdport.evaluate({"one": one}, walk(), metrics=QUICK, repeats=2)
    both = wdport.evaluate({"other": other, "one": one, "again": one}, walk(), metrics=QUICK, repeats=2)
    assert both.counts == {"real": 60, "itself": 50, "other": 60, "one": 60, "again": 60}
    assert both["one"] == alone["one"] == both["again"]
    assert both["real"] == alone["real"]


def test_every_kind_of_array_is_read() -> None:
    series = taken(12).astype(np.float32)
    wanted = wdport.evaluate(series, walk(), metrics=QUICK, repeats=1)["samples"]
    for given in (jnp.asarray(series), torch.tensor(series), series.tolist()):
        assert wdport.evaluate(given, walk().tolist(), metrics=" dtw-js,correlational, sliced-wasserstein ",
                               repeats=np.int64(1))["samples"] == wanted  # fmt: skip
    with pytest.raises(wdport.WdportError, match="are not an array of real numbers"):
        wdport.evaluate(torch.tensor(series, requires_grad=True), walk())


def test_settings_are_parsed() -> None:
    found = parse_settings("ddpm:1000 ddim:20,50  ddim-textbook:eta1:50 heun")
    wanted = [
        SamplerSetting("ddpm", 1000),
        SamplerSetting("ddim", 20),
        SamplerSetting("ddim", 50),
        SamplerSetting("ddim-textbook", 50, 1.0),
    ]
    assert found == [*wanted, SamplerSetting("heun")]
    found += [SamplerSetting("ddim-textbook", 9, 1 / 3), SamplerSetting("ddim-textbook", 9, 1 / 3, "karras")]
    assert parse_settings(" ".join(map(str, found))) == listed(["ddpm:1000", *found[1:]], "") == found
    assert listed(None, "ddpm") == [SamplerSetting("ddpm")]
    for text in ("", "ddim:20,20", "ddim:a", "ddim:1:2", ":5", "ddim:etax:3", "ddim:-1", "ddim:1.5", "ddim:etanan"):
        with pytest.raises(wdport.WdportError, match="sweep"):
            parse_settings(text)


def test_apart_needs_more_than_two_deviations() -> None:
    assert apart(Score("m", (1.0, 1.2)), Score("m", (0.0, 0.2)))
    assert not apart(Score("m", (0.0, 1.0)), Score("m", (0.0, 0.2)))
    assert not apart(Score("m", (0.0, 0.2)), Score("m", (1.0, 1.2)))


def test_autocorrelation_is_numpys() -> None:
    series = taken(30)
    found = autocorrelation(series, 4)
    flat = series - series.mean((0, 1))
    for lag in range(4):
        for feature in range(2):
            pairs = flat[:, lag:, feature] * flat[:, : 8 - lag, feature]
            assert found[lag, feature] == pytest.approx(pairs.mean() / flat[..., feature].var(), rel=1e-12)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savetxt("data.csv", walk(), delimiter=",", header="a,b", comments="")
    np.savetxt("other.csv", walk(), delimiter=",", header="a,c", comments="")
    series = taken(40).astype(np.float32)
    np.save("s.npy", series)
    np.savez("s.npz", coefficients=np.zeros((40, 9, 2)), series=series)
    rows = [f"{i},{t},{a!r},{b!r}" for i, each in enumerate(series.tolist()) for t, (a, b) in enumerate(each)]
    Path("s.csv").write_text("\n".join(["sample,step,a,b", *rows, ""]))


@pytest.mark.usefixtures("files")
def test_the_command_reads_every_format_and_writes_all(cli: Cli) -> None:
    words = ["--data", "data.csv", "--metrics", ",".join(QUICK), "--repeats", "2"]
    found = [json.loads(cli("evaluate", name, *words, "--json").out) for name in ("s.npy", "s.npz", "s.csv")]
    assert found[0]["sets"] == found[1]["sets"] == found[2]["sets"]
    assert [each["name"] for each in found[0]["sets"]] == ["real", "itself", "samples"]
    assert found[0]["features"] == ["a", "b"]
    assert (found[0]["kind"], found[0]["cheapest"], found[0]["windows"]) == ("evaluation", None, 593)
    told = cli("evaluate", "s.npy", *words, "--other-samples", "s.npz", "--html", "e.html").out
    assert re.search(r"^ +real +itself +samples +against$", told, re.MULTILINE)
    assert re.search(r"^  series +40 +20 +40 +40$", told, re.MULTILINE)
    assert re.search(r"^  DTW-JS +\d\S+ ± \S+ ", told, re.MULTILINE)
    assert told.endswith("wrote  e.html\n")
    np.save("windows.npy", real_windows("data.csv", 8, 2).windows)
    assert json.loads(cli("evaluate", "s.csv", "--data", "windows.npy", *words[2:], "--json").out)["windows"] == 593
    page = Path("e.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "Sliced Wasserstein" in page
    cli("evaluate", "s.npy", *words, "--html", "e.html")  # its own page may be replaced


def test_a_hostile_name_is_text_on_the_page() -> None:
    hostile = "<script>alert(1)</script>\"'&\x1b[31m"
    scores = {name: {"dtw-js": Score("dtw-js", (0.5, 1.0))} for name in ("real", hostile)}
    found = Evaluation(scores, {"real": 20, hostile: 20}, (8, 2), 2, 0, ("a", "b"), taken(40))
    page = page_of(found, {hostile: taken(40)}, hostile)
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;\\x1b[31m"
    assert page.count(escaped) == 3  # the title, the headline, the row
    assert "<script" not in page
    assert "\x1b" not in page


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["s.npy"], 2, "--data is missing"),
        (["s.npy", "--data", "data.csv", "-n", "9"], 2, "--count: is for a model"),
        (["s.npy", "--data", "data.csv", "--metrics", "fid"], 2, "unknown metric 'fid'"),
        (["s.npy", "--data", "none.csv"], 3, "no such file"),
        (["none.npy", "--data", "data.csv"], 3, "no such file"),
        (["data.csv", "--data", "data.csv"], 3, "has no first column named sample"),
        (["s.npy", "--data", "data.csv", "--html", "data.csv"], 2, "data.csv"),
        (["s.csv", "--data", "other.csv"], 2, "other.csv: has no column of numbers called b"),
        (["s.npy", "--data", "data.csv", "--encoder", "s.npz"], 3, "s.npz"),
    ],
)
def test_wrong_commands_get_one_line(words: list[str], code: int, told: str, refused: Refused) -> None:
    refused("evaluate", *words, code=code, says=told)
