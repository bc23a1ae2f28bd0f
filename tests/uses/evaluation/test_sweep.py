"""Settings of a sampler against quality, from Python and from the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wdport
from tests.command import Cli
from wdport.files.json_document import NamedFile
from wdport.models.interface import Decoding
from wdport.uses.data.series import Series
from wdport.uses.evaluation.document import document_of, text_of
from wdport.uses.evaluation.result import Evaluation, Score
from wdport.uses.evaluation.sweep import SamplerSetting, SettingSamples, Sweep, _units_of

SERIES = np.random.default_rng(0).normal([5.0, 0.0], [3.0, 1.0], size=(400, 2))
CONFIG: dict[str, Any] = {
    "model": {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "time_embed_dim": 8},
    "attention": {"use_cross_level_attention": False},
    "dataset": {"seq_len": 16}, "wavelet": {"type": "db2", "levels": 1},
}  # fmt: skip
QUICK = ["correlational", "sliced-wasserstein"]


@pytest.fixture(scope="module")
def model() -> Any:
    return wdport.new_model(CONFIG, SERIES)


def test_every_setting_is_sampled_and_scored(model: Any) -> None:
    """With the samples that `wdport.sample` draws, whatever else is scored."""
    told: list[str] = []
    more = {"other": SERIES[:320].reshape(20, 16, 2)}
    found = wdport.sweep(model, SERIES, ["ddim:5", SamplerSetting("dpm++2m-sde", 5)], 30, metrics=QUICK, repeats=2,
                         seed=3, more=more, report=lambda *each: told.append(each[2]))  # fmt: skip
    assert [(str(each.setting), each.calls) for each in found.drawn] == [("ddim:5", 6), ("dpm++2m-sde:5", 5)]
    assert list(found.evaluation.sets) == ["real", "itself", "ddim:5", "dpm++2m-sde:5", "other"]
    for name in ("ddim", "dpm++2m-sde"):
        own = wdport.sample(model, 30, sampler=name, steps=5, seed=3)
        np.testing.assert_array_equal(found.samples[f"{name}:5"], own.decoded)
    assert told[:3] == ["compiling", "sampling, ddim:5", "sampling, dpm++2m-sde:5"]
    assert found.evaluation.counts == {"real": 20, "itself": 15, "ddim:5": 20, "dpm++2m-sde:5": 20, "other": 20}


def test_the_cheapest_is_as_good_as_the_full_one_in_every_score() -> None:
    def scores(fid: float, correlational: float) -> dict[str, Score]:
        return {"context-fid": Score("context-fid", (fid, fid + 0.1)),
                "correlational": Score("correlational", (correlational, correlational + 0.1))}  # fmt: skip

    sets = {"ddpm": scores(1.0, 1.0), "ddim:50": scores(1.1, 1.1), "ddim:20": scores(0.5, 1.9),
            "heun:9": scores(9.0, 0.1)}  # fmt: skip
    calls = {
        SamplerSetting("ddim", 20): 21,
        SamplerSetting("ddpm"): 1000,
        SamplerSetting("ddim", 50): 51,
        SamplerSetting("heun", 9): 17,
    }
    drawn = [SettingSamples(setting, count, 1.0) for setting, count in calls.items()]
    swept = Sweep(drawn, Evaluation(sets, dict.fromkeys(sets, 9), (8, 2), 2, 0), {})
    assert str(swept.full().setting) == "ddpm"
    assert [swept.as_good(each) for each in drawn] == [
        ["context-fid"], ["context-fid", "correlational"], ["context-fid", "correlational"], ["correlational"]
    ]  # fmt: skip
    assert str(swept.cheapest().setting) == "ddim:50"


def test_data_come_in_the_models_units_and_columns() -> None:
    """By name where both have names; as z-scores for a model without statistics."""
    decoding = Decoding((16, 2), lambda x: x, lambda x: x, (5.0, 0.0), (3.0, 1.0), "data")
    about = SimpleNamespace(decoding=decoding, features=("b", "a"), windowed=None)
    series = Series(SERIES, ("a", "b"))
    assert _units_of(series, about) == (series, (16, 2))  # type: ignore[arg-type]
    about.decoding = replace(about.decoding, mean=(0.0, 0.0), std=(1.0, 1.0))
    scores = (SERIES - SERIES.mean(0)) / SERIES.std(0)
    for given, wanted in ((SERIES, scores), (series, scores[:, ::-1])):
        found: Any = _units_of(given, about)[0]  # type: ignore[arg-type]
        np.testing.assert_allclose(found.values, wanted, rtol=1e-12)
    about.decoding = replace(about.decoding, shape=(2,))
    with pytest.raises(wdport.WdportError, match="has samples that are not series"):
        _units_of(SERIES, about)  # type: ignore[arg-type]


def test_a_setting_that_diverges_is_named_and_the_others_are_scored(model: Any) -> None:
    found = wdport.sweep(model, SERIES, "ddim:eta1e30:5 ddim:5", 10, metrics=QUICK, repeats=1)
    assert list(found.failed) == ["ddim:eta1e+30:5"]
    assert found.failed["ddim:eta1e+30:5"].startswith("have ")
    assert [str(each.setting) for each in found.drawn] == ["ddim:5"]
    real = NamedFile("data.csv", "0" * 64)
    assert document_of("model.keras", real, found.evaluation, found).cheapest is None  # nothing to compare it with
    assert "not scored: ddim:eta1e+30:5, whose samples have" in text_of(found.evaluation, found)
    with pytest.raises(wdport.WdportError, match="sweep: samples of ddim:eta1e"):
        wdport.sweep(model, SERIES, "ddim:eta1e30:5", 10, metrics=QUICK, repeats=1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("rk5:3", "sweep: rk5:3: unknown sampler 'rk5'"),
        ("ddpm:10", "sweep: ddpm:10: ddpm takes all 1000 steps, not 10"),
        ("heun:eta1:5", "sweep: heun:eta1:5: is for ddim and ddim-textbook, not for heun"),
        ("ddim:0", "sweep: ddim:0: "),
        ("ddpm ddpm:1000", "sweep: ddpm and ddpm:1000 are the same"),
        ("ddim:18446744073709551616", "which is not a whole number up to 1000000; write"),
    ],
)
def test_a_setting_that_the_model_has_not_is_refused_before_anything_is_drawn(
    model: Any, settings: str, told: str
) -> None:
    drawn: list[Any] = []
    with pytest.raises(wdport.WdportError, match=told):
        wdport.sweep(model, SERIES, f"ddim:5 {settings}", 5, report=lambda *each: drawn.append(each))
    assert not drawn


def test_the_command_samples_a_model(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    model.save("m.keras")
    np.savetxt("data.csv", SERIES, delimiter=",", header="a,b", comments="")
    words = ["evaluate", "m.keras", "--data", "data.csv", "--sweep", "ddim:10,5", "-n", "20", "--repeats", "2",
             "--metrics", ",".join(QUICK)]  # fmt: skip
    told = cli(*words, "--html", "e.html", "--json", "e.json").out
    assert re.search(r"^ +series +calls +seconds +corr +SW$", told, re.MULTILINE)
    assert re.search(r"^  ddim:10 +20 +11 +\S+ +\S+±\S+", told, re.MULTILINE)
    assert told.endswith("wrote  e.html\n")
    assert re.search(r"^  cheapest setting that is as good as ddim:10 in every score: ddim:", told, re.MULTILINE)
    found = json.loads(Path("e.json").read_text())
    assert [each["network_calls"] for each in found["sets"]] == [None, None, 11, 6]
    assert found["cheapest"] in ("ddim:10", "ddim:5")
    assert Path("e.html").read_text().count("data:image/png;base64,") == 5
