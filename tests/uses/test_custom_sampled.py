"""Generative models of a user's own: the example of points converts, is verified whole, and samples by its table."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import wdport
from tests.command import Cli, Refused
from wdport.base.errors import MisfitError
from wdport.cli.main import main
from wdport.models.interface import Clipping
from wdport.uses.custom_sampled import read_sampling
from wdport.uses.exporting import loader

EXAMPLE = Path(__file__).parents[2] / "examples" / "points"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example's files, and a checkpoint with random weights."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    from net import MLP  # type: ignore[import-not-found, unused-ignore]

    torch.save(MLP().state_dict(), "a.pt")
    yield tmp_path
    for name in ("net", "twin"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize(("process", "code"), [("flow", 0), ("diffusion", 6)])
def test_without_diffusers_only_its_own_process_is_incomplete(
    process: str, code: int, folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    table = ("--mapping", f"{process}.yaml")
    cli("convert", "a.pt", *table)
    said = " ".join(cli("verify", "a.pt", "a.keras", *table, code=code).out.split())
    assert said.startswith("INCOMPLETE" if code else "PASS")
    assert ("diffusers: is not installed" in said) is (code == 6)


@pytest.mark.parametrize("process", [pytest.param("flow", marks=pytest.mark.full), "diffusion"])
def test_the_example(process: str, folder: Path, cli: Cli, refused: Refused) -> None:
    table = ("--mapping", f"{process}.yaml")
    cli("convert", "a.pt", *table)
    said = cli("verify", "a.pt", "a.keras", *table, "--full").out
    assert said.startswith("PASS")
    runs = ["HEUN", "EULER", "RK4"] if process == "flow" else ["DDPM", "DDIM, eta 0", "DDIM, eta 0.5"]
    assert all(f"\n{run}, " in said for run in runs)
    sampler = "heun" if process == "flow" else "ddim"
    for count in ("7", "9"):  # the second run finds other facts
        command = ("sample", "a.keras", *table, "-n", count, "--sampler", sampler, "--steps", "4")
        assert "points" in cli(*command, "-o", f"{count}.npz").out
    with np.load("7.npz") as few, np.load("9.npz") as more:
        assert few.files == ["points"]
        assert few["points"].shape == (7, 2)
        np.testing.assert_allclose(few["points"], more["points"][:7], rtol=1e-5, atol=1e-6)
        wanted = few["points"]
    cli("export", "a.keras", *table, "--what", "sampler", "--sampler", sampler, "--steps", "4")
    states, decoded = loader.load("a.stablehlo")(0, range(7))
    np.testing.assert_allclose(states, wanted, rtol=1e-5, atol=1e-6)
    assert decoded is None
    for model in (wdport.load_model("a.keras", mapping=f"{process}.yaml"), wdport.Port(f"{process}.yaml").load("a.pt")):
        drawn = wdport.sample(model, 7, sampler=sampler, steps=4).points
        np.testing.assert_allclose(drawn, wanted, rtol=1e-5, atol=1e-6)
    made = wdport.export(model, "python.stablehlo", what="sampler", sampler=sampler, steps=4)
    np.testing.assert_array_equal(loader.load(made.path)(0, range(7))[0], states)
    assert wdport.export(model, "network.stablehlo", what="network").facts["what"] == "network"
    with pytest.raises(MisfitError, match="give mapping= with the table"):
        wdport.load_model("a.keras")
    for words in (("sample", "a.keras", "-n", "1"), ("export", "a.keras", "-o", "b.stablehlo")):
        refused(*words, code=4, says="give --mapping with the table")
    os.truncate("a.keras", 70_000)
    refused("sample", "a.keras", *table, "-n", "1", "-o", "c.npz", code=3, says="a.keras")


def test_one_step_of_the_flow_is_the_networks(folder: Path) -> None:
    """By hand, in PyTorch: x + v(x, 0)."""
    from net import MLP  # type: ignore[import-not-found, unused-ignore]

    assert main(["convert", "a.pt", "--mapping", "flow.yaml"]) == 0
    init = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    np.save("init.npy", init)
    words = ["--sampler", "euler", "--steps", "1", "--init", "init.npy", "-o", "b.npy"]
    assert main(["sample", "a.keras", "--mapping", "flow.yaml", *words]) == 0
    model = MLP()
    model.load_state_dict(torch.load("a.pt"))
    with torch.no_grad():
        expected = torch.tensor(init) + model(torch.tensor(init), torch.zeros(5))
    np.testing.assert_allclose(np.load("b.npy"), expected.numpy(), rtol=1e-5, atol=1e-6)


FLOW = {"process": "flow", "shape": [2]}
DIFFUSION = {"process": "diffusion", "shape": 2}
LEVELS = {"process": "noise-levels", "scheduler": "EDMEulerScheduler", "shape": 2}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"shape": [2]}, "process is not diffusion, flow or noise-levels"),
        ({"process": "flow"}, "shape is not a list of whole numbers"),
        ({**FLOW, "shape": [0]}, "shape is not a list of whole numbers"),
        ({**FLOW, "shape": [1 << 13, 1 << 13]}, "has more than"),
        ({**FLOW, "name": "two words"}, "name is not one word"),
        ({**FLOW, "classes": 0}, "classes is not a whole number"),
        ({**FLOW, "classes": 3, "no_class": 3}, "no_class is not one of the classes"),
        ({**FLOW, "no_class": 0}, "no_class is not one of the classes"),
        ({**FLOW, "classes": 3, "condition": {"name": "a"}}, "condition and classes are given together"),
        ({**FLOW, "condition": 3}, "condition is not a mapping"),
        ({**FLOW, "condition": {"name": "a", "nul": 1}}, "condition has no field 'nul'"),
        ({**FLOW, "condition": {"name": "a b"}}, "condition: name is not one word"),
        ({**FLOW, "condition": {"name": "a", "kind": "class"}}, "condition: kind is not positive or real"),
        ({**FLOW, "condition": {"name": "a", "shape": [0]}}, "condition: shape is not a list of whole numbers"),
        ({**FLOW, "condition": {"name": "a", "unconditional": "x"}}, "condition: unconditional is not a number"),
        ({**FLOW, "condition": {"name": "a", "optional": 1}}, "condition: optional is not true or false"),
        ({**FLOW, "path": "curly"}, "path is not one of linear, cosine"),
        ({**FLOW, "target": "speed"}, "target is not one of velocity, noise, sample"),
        ({**FLOW, "time": 0}, "time is not a number"),
        ({**FLOW, 1: 0, "beta_start": 0.1}, "unknown field '1' of a flow"),
        ({**FLOW, "beta_start": 0.1}, "unknown field 'beta_start' of a flow"),
        ({**DIFFUSION, "path": "linear"}, "unknown field 'path' of a diffusion"),
        ({**DIFFUSION, "betas": [0.1]}, "unknown field 'betas' of a diffusion"),
        ({**DIFFUSION, "variance_type": "learned_range"}, "learned_range is supported of a UNet2DModel alone"),
        ({**DIFFUSION, "time": 1000}, "time is not one of step, fraction"),
        ({**DIFFUSION, "beta_schedule": "curly"}, "beta_schedule 'curly' is not supported"),
        ({**DIFFUSION, "num_train_timesteps": 10**9}, "num_train_timesteps is not a whole number from 1 to 100000"),
        ({**LEVELS, "scheduler": "EDMScheduler"}, "scheduler is not one of ScoreSdeVeScheduler, EDMEulerScheduler,"),
        ({**LEVELS, "snr": 0.1}, "unknown field 'snr' of EDMEulerScheduler"),
        ({**LEVELS, "sigma_data": -1.0}, "sigma_data is not a positive number"),
        ({**LEVELS, "final_sigmas_type": "sigma_min"}, "final_sigmas_type 'sigma_min' of EDMEulerScheduler is not"),
    ],
)
def test_what_a_table_may_not_say(document: dict[str, Any], text: str) -> None:
    with pytest.raises(MisfitError) as caught:
        read_sampling(document, "t.yaml")
    assert str(caught.value).startswith("t.yaml: sampling: ")
    assert text in str(caught.value)


@pytest.mark.usefixtures("one_case")
def test_noise_levels(folder: Path) -> None:
    """The samples of EDM are in the units of the data: at the end of a step by hand, in PyTorch."""
    from net import MLP  # type: ignore[import-not-found, unused-ignore]

    diffusers = pytest.importorskip("diffusers", exc_type=ImportError)
    table = yaml.safe_load(Path("flow.yaml").read_text())
    table |= {"sampling": {**LEVELS, "sigma_data": 2.0, "name": "points"}, "inputs": ["x: b 2", "t: b, from -1.5 to 1"]}
    Path("edm.yaml").write_text(yaml.safe_dump(table))
    words = ["--mapping", "edm.yaml"]
    assert main(["convert", "a.pt", *words]) == 0
    assert main(["verify", "a.pt", "a.keras", *words]) == 0
    init = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    np.save("init.npy", init)
    assert main(["sample", "a.keras", *words, "--steps", "1", "--init", "init.npy", "-o", "b.npz"]) == 0
    scheduler = diffusers.EDMEulerScheduler(sigma_data=2.0)
    scheduler.set_timesteps(1)
    model = MLP()
    model.load_state_dict(torch.load("a.pt"))
    x, time = torch.tensor(init) * (80.0**2 + 2.0**2) ** 0.5, scheduler.timesteps[0]
    with torch.no_grad():
        output = model(scheduler.scale_model_input(x, time), time.repeat(5))
        expected = scheduler.step(output, time, x).prev_sample
    with np.load("b.npz") as made:
        assert made.files == ["states", "points"]
        np.testing.assert_allclose(made["points"], expected.numpy(), rtol=1e-4, atol=1e-4)
    assert main(["export", "a.keras", *words, "--what", "sampler", "--steps", "2", "--verify"]) == 0
    np.save("data.npy", 2.0 * init)
    assert main(["train", "data.npy", "--resume", "a.keras", *words, "-o", "run", "--epochs", "1"]) == 0


@pytest.mark.full
def test_the_guide(folder: Path) -> None:
    """Its commands, with less training, and what it writes under ``sampling:``."""
    text = (EXAMPLE.parents[1] / "docs" / "own-sampling.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(found) for found in re.findall(r"```yaml\n(sampling:.*?)```", text, re.DOTALL)]
    tables = [yaml.safe_load(Path(name).read_text()) for name in ("flow.yaml", "diffusion.yaml")]
    assert blocks[0]["sampling"] == tables[0]["sampling"]
    assert {**blocks[1]["sampling"], "name": "points"} == tables[1]["sampling"]
    commands = [line[2:].split() for line in text.splitlines() if line.startswith("$ ") and "moons" in line]
    assert [words[1] for words in commands] == ["train.py", "convert", "verify", "sample", "export"]
    subprocess.run([sys.executable, *commands[0][1:], "--steps", "20"], check=True)
    assert [main(words[1:]) for words in commands[1:]] == [0, 0, 0, 0]
    assert np.load("moons.npz")["points"].shape == (10_000, 2)


def test_what_a_table_may_say() -> None:
    told = read_sampling({**DIFFUSION, "clip_sample": True, "clip_sample_range": 2.0, "classes": 3, "no_class": 2}, "t")
    assert (told.shape, told.name, told.clip) == ((2,), "samples", Clipping(2.0))
    assert told.condition is not None
    assert (told.condition.classes, told.condition.null) == (3, 2)
    condition = {"name": "scale", "kind": "positive", "optional": True}
    scaled = read_sampling({**FLOW, "condition": condition}, "t").condition
    assert scaled is not None
    assert (scaled.name, scaled.kind, scaled.shape) == ("scale", "positive", ())
    assert (scaled.null, scaled.optional) == (None, True)
    assert read_sampling(DIFFUSION, "t").clip is None
    flow = read_sampling({**FLOW, "time": 1000, "target": "sample", "path": "cosine"}, "t").process
    assert flow.plan("euler", 4).times.tolist() == [0.0, 250.0, 500.0, 750.0]
