"""`wdport map suggest` on every pair and on twins with seeded faults, which `verify` and the settings find too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.families.quick import few_cases
from wdport.base.errors import WdportError
from wdport.cli.main import main
from wdport.compare.setting_values import SettingsReport
from wdport.conversion.check import settings_report
from wdport.conversion.prepare import Settings

from .corpus import PAIRS, Pair
from .faults import edited, locate
from .names import HOW, How
from .nets.goldens import GOLDEN
from .running import checkpoint, randomise
from .scoring import score
from .seeded import FAULTS, HARMLESS, Fault

FEW = {("onet", "honest"), ("fused", "misleading")}
FEW_FAULTS = {"a pooling that does not round up, and leaves another size", "no scale in attention", "no shortcut"}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")


@pytest.mark.parametrize(
    ("name", "names"),
    [pytest.param(name, names, marks=() if (name, names) in FEW else pytest.mark.full)
     for name in PAIRS for names in HOW],
)  # fmt: skip
def test_it_finds_the_table_and_proves_it(name: str, names: How) -> None:
    if PAIRS[name].golden and not (GOLDEN / PAIRS[name].golden).exists():
        pytest.skip("the golden checkpoints are not here")
    found = score(name, names)
    assert found.code == 0, found.note
    assert not found.wrong
    assert found.error <= 1e-10


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if fault.name in FEW_FAULTS else pytest.mark.full) for fault in (*FAULTS, *HARMLESS)],
    ids=lambda fault: fault.name.replace(" ", "_"),
)
def test_it_names_the_place_of_a_fault(fault: Fault) -> None:
    found = locate(fault)
    assert found.named, (found.first, found.causes)
    if fault.name in FEW_FAULTS:
        assert found.cause, found.causes


@pytest.mark.full
def test_most_causes_are_named() -> None:
    settable = [fault for fault in FAULTS if fault.words]
    named = sum(locate(fault).cause for fault in settable)
    assert named >= 0.75 * len(settable)


OWN = {"an activation as a layer of its own"}
"""Edits after which the truth, which says what is fused, is no truth."""

QUICK = ("resnet", "vit", "unet")


def told(pair: Pair, model: str) -> SettingsReport:
    try:
        return settings_report(pair.truth, Settings(model=model, reference=pair.reference("honest")))
    except (WdportError, ModuleNotFoundError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name, pair in PAIRS.items()
    if not pair.golden
])  # fmt: skip
def test_a_right_twin_differs_in_nothing(name: str) -> None:
    report = told(PAIRS[name], PAIRS[name].model)
    assert [(each.candidate, each.text) for each in report.of("differs")] == []
    assert report.unread == ()


@pytest.mark.full
@pytest.mark.parametrize("fault", [each for each in HARMLESS if each.name not in OWN], ids=lambda each: each.name)
def test_a_harmless_edit_differs_in_nothing(fault: object) -> None:
    pair = PAIRS[fault.pair]  # type: ignore[attr-defined]
    with edited(fault) as model:  # type: ignore[arg-type]
        assert told(pair, model).of("differs") == []


EXCHANGED = Fault("exchanged outputs", "vae", '"mean": mean, "logvar": logvar', '"mean": logvar, "logvar": mean')
EDITS = {fault.name: fault for fault in (*FAULTS, *HARMLESS, EXCHANGED)}
PLACES = {
    "another momentum": "",
    "a simple RNN with ReLU": "plain -> plain",
    "Keras's own slope of a leaky ReLU": "the network itself, in what it feeds conv2",
    "exchanged outputs": "the network itself",
    "a sum for a difference": "the network itself, in what it feeds out",
    "Keras's own epsilon in batch norms": "bn1 -> batch_normalization",
    "max pooling that pads at the end alone": "the network itself, in what it feeds layer1.0.conv1",
    "no causal mask": "decoder.0.attn -> decoder/0/attention",
    "softmax over queries": "the network itself, in what it feeds layers.0.attention.o_proj",
    "another epsilon in a norm by hand": "h.0.ln_1 -> blocks/0/norms/attention",
    "GELU exact where PyTorch's is by tanh": "the network itself, in what it feeds tags",
}
"""How the report begins on the first faulty layer; nothing for an edit that changes no value."""

LONG = tuple(PLACES)[5:]
"""`make parity` makes these, too."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import twins from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("twin", None)


def converted(fault: Fault) -> list[str]:
    """Convert random weights into the edited twin; the command that verifies it."""
    pair = PAIRS[fault.pair]
    source = pair.twin.read_text()
    assert source.count(fault.before) == 1
    Path("twin.py").write_text(source.replace(fault.before, fault.after))
    checkpoint(randomise(pair.build_torch(), 3), Path("model.pt"))
    told = ["model.weights.h5", "--mapping", str(pair.truth), "--keras-model", "twin:build"]
    assert main(["convert", "model.pt", "-o", *told]) == 0
    return ["verify", "model.pt", *told, "--json", "verdict.json"]


@pytest.mark.parametrize(
    "edit", [pytest.param(each, marks=pytest.mark.full) if each in LONG else each for each in PLACES]
)
def test_an_edit_of_the_source_is_found(project: Path, capsys: pytest.CaptureFixture[str], edit: str) -> None:
    words, place = converted(EDITS[edit]), PLACES[edit]
    with few_cases():  # the first shows each of them
        assert main(words) == bool(place)
    out = capsys.readouterr().out
    faulty = out.partition("all other layers' outputs replaced by the reference's:\n")[2]
    assert faulty.strip().startswith(place)
    assert bool(faulty) == bool(place)
    if not place:
        assert "PASS  model.weights.h5 computes what model.pt computes" in out
        taps = json.loads(Path("verdict.json").read_text())["taps"]
        assert len(taps) > 3
        assert all(max(tap["isolated"], tap["cumulative"]) < 1e-12 for tap in taps)


@pytest.mark.full
def test_the_first_faulty_layer_runs_alone(project: Path) -> None:
    """`--repro` writes a script that makes the same error, and none once the twin is mended."""
    fault = EDITS["Keras's own epsilon in batch norms"]
    with few_cases():
        assert main([*converted(fault), "--repro", "alone"]) == 1
    wrong = _script(project / "alone")
    (project / "twin.py").write_text(PAIRS[fault.pair].twin.read_text())
    mended = _script(project / "alone")
    assert wrong["now"] == pytest.approx(wrong["then"])
    assert mended["now"] < 1e-12 < 1e-5 < mended["then"]


def _script(folder: Path) -> dict[str, float]:
    """What the script prints of its one output, run as a user would, from anywhere."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, folder / "repro.py"], cwd="/", capture_output=True, text=True, check=True,
                          env=environment)  # fmt: skip
    words = done.stdout.split()
    return {"now": float(words[1]), "then": float(words[3])}
