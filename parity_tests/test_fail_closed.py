"""Nothing that was not compared passes, and nothing that is loosened passes unseen: each with its exit code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
import yaml

import wdport
from tests.make import SETTINGS, TWO_LEVELS, TWO_LEVELS_SETTINGS, make_state, save
from wdport.cli.main import main
from wdport.compare.findings import Gate
from wdport.parity import policy_verdict as gated
from wdport.parity.verdict import Verdict

TAP = "{torch: mlp.0, keras: mlp/hidden}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = save(tmp_path_factory.mktemp("closed") / "small.ckpt", make_state())
    return str(path), str(wdport.convert(path, path.with_suffix(".weights.h5"), values=SETTINGS).output)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "table.yaml"
    shutil.copy(Path(__file__).parents[1] / "tests" / "mapping" / "format1" / "waveletdiff.yaml", file)
    return file


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_tap_renamed_on_the_torch_side(pair: tuple[str, str], table: Path, capsys: Any) -> None:
    _replace(table, TAP, "{torch: mlp.zero, keras: mlp/hidden}")
    assert main(["verify", *pair, "--mapping", str(table)]) == 6
    assert "mlp.zero" in capsys.readouterr().err


def test_a_tap_renamed_on_the_keras_side(pair: tuple[str, str], table: Path, capsys: Any) -> None:
    _replace(table, TAP, "{torch: mlp.0, keras: mlp/hiden}")
    assert main(["verify", *pair, "--mapping", str(table)]) == 6
    assert "has no such layer" in capsys.readouterr().err


def test_no_taps(pair: tuple[str, str], table: Path, capsys: Any) -> None:
    document = yaml.safe_load(table.read_text(encoding="utf-8"))
    key = next(key for key, value in document.items() if isinstance(value, list) and "tensors" in value[0])
    sections = [section for section in document[key] if "tensors" in section]
    document[key] = [{k: v for k, v in section.items() if k != "taps"} for section in sections]
    table.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    assert main(["verify", *pair, "--mapping", str(table)]) == 6
    assert "no taps" in capsys.readouterr().err


def test_the_reference_compared_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from wdport.parity import model_pair as sides

    class Twin:
        framework = "keras"

        def __init__(self, live: Any) -> None:
            self.live = live

        def __getattr__(self, name: str) -> Any:
            return getattr(self.live, name)

    family_reference = sides.family_reference
    monkeypatch.setattr(sides, "family_reference", lambda *arguments: Twin(family_reference(*arguments)))
    path = save(tmp_path / "two.ckpt", make_state(TWO_LEVELS))
    output = wdport.convert(path, values=TWO_LEVELS_SETTINGS).output
    assert main(["verify", str(path), str(output)]) == 1
    assert "two frameworks" in " ".join(capsys.readouterr().out.split())


def test_zero_comparisons() -> None:
    """A verdict over nothing, or with a gate over nothing, is incomplete."""
    nothing = Verdict("a", "b", (), (), (), None, {}, (), {})
    assert nothing.exit_code == 6
    assert replace(nothing, gates=(Gate("A", "logic", 0, 0),)).exit_code == 6
    assert replace(nothing, gates=(Gate("A", "logic", 3, 4),)).exit_code == 6


@pytest.mark.full
def test_an_expired_bound_fails(pair: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    policy = tmp_path / "parity.toml"
    policy.write_text('[bounds]\nlogic = { value = 1e-9, reason = "r", expires = 2020-01-01 }\n')
    assert main(["verify", *pair, "--policy", str(policy), "--no-canary"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "expired on 2020-01-01" in shown


@pytest.mark.full
def test_a_bound_that_no_longer_finds_known_faults(pair: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    policy = tmp_path / "parity.toml"
    policy.write_text('[bounds]\nlogic = { value = 0.1, reason = "r", expires = 2999-01-01 }\n')
    assert main(["verify", *pair, "--policy", str(policy)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "FAIL known faults (S)" in shown
    assert "too loose" in shown
    assert "loosened to 0.1" in shown


@pytest.mark.full
def test_known_faults_come_first(pair: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    """A tightened bound is no reason to fail, and the known faults are found under it."""
    policy = tmp_path / "parity.toml"
    policy.write_text("[bounds]\nlogic = { value = 1e-11 }\n")
    assert main(["verify", *pair, "--policy", str(policy)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ok known faults (S)" in shown
    assert "tightened to 1e-11" in shown


@pytest.mark.full
def test_a_baseline_is_made_and_held(pair: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    baseline = tmp_path / "parity-baseline.json"
    rest = ["--baseline", str(baseline), "--no-canary"]
    assert main(["verify", *pair, *rest, "--update-baseline"]) == 0
    assert main(["verify", *pair, *rest]) == 0
    document = json.loads(baseline.read_text())
    name = next(name for name, entry in document["taps"].items() if entry["isolated"] < 1e-13)
    document["taps"][name]["isolated"] = 1e-11
    baseline.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["verify", *pair, *rest]) == 1
    assert f"{name}: isolated is" in " ".join(capsys.readouterr().out.split())
    document["taps"].pop(name)
    baseline.write_text(json.dumps(document))
    assert main(["verify", *pair, *rest]) == 1
    assert f"{name} is not in the baseline" in " ".join(capsys.readouterr().out.split())


def test_a_recording_has_no_model_to_run(capsys: Any) -> None:
    assert main(["verify", "b.keras", "--against", "r.npz", "--full"]) == 2
    assert "needs the PyTorch model to run" in capsys.readouterr().err


@pytest.mark.full
def test_a_faulty_layer_on_its_own(pair: tuple[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.weights.h5"
    broken.write_bytes(Path(pair[1]).read_bytes())
    with h5py.File(broken, "r+") as file:
        kernel = file["level_1/block_0/attention/out/vars/0"]
        heads, head, width = kernel.shape
        kernel[...] = kernel[()].reshape(width, width).T.reshape(heads, head, width)
    assert main(["verify", pair[0], str(broken), "--repro", str(tmp_path / "repro")]) == 1
    done = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path / "repro", capture_output=True, text=True, check=True
    )
    _, now, _, then, *_ = done.stdout.split()
    assert float(now) > 0.1
    assert abs(float(now) / float(then) - 1) < 1e-10


def test_terms_without_anything() -> None:
    assert not gated.Terms().any
