"""The command line as a user sees it: output, exit codes, one line per refusal, nothing heavy imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wdport
from tests.command import Cli
from tests.make import SET, SETTINGS, make_state, save
from wdport.cli.convert import _text
from wdport.cli.execute import VERBS
from wdport.cli.main import main


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tmp_path / "small.ckpt", make_state())


def test_help_lists_every_verb(cli: Cli) -> None:
    shown = cli("--help").out
    assert all(verb in shown for verb in VERBS)
    for verb in VERBS:
        assert f"wdport {verb} [OPTIONS]" in cli(verb, "--help").out


def test_convert_says_what_it_did(checkpoint: Path, cli: Cli) -> None:
    shown = cli("convert", checkpoint, *SET)
    assert "num_heads 2 (flag)" in shown.out
    assert "prediction_target=noise" in shown.out.split("assumed")[-1]
    assert "small.keras (" in shown.out
    assert shown.err == ""


def test_convert_json_is_the_manifest(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(checkpoint), "--json", *SET]) == 0
    manifest = json.loads(Path(f"{checkpoint.with_suffix('.keras')}.wdport.json").read_text())
    told = json.loads(capsys.readouterr().out)
    assert list(told)[:2] == ["schema", "kind"]
    assert (told.pop("schema"), told.pop("kind"), told.pop("values")) == (1, "conversion", [])
    assert told.pop("optimizer") is None
    assert told == manifest


@pytest.mark.parametrize("words", [[], ["convert"], ["transform"], ["convert", "a.ckpt", "--fast"]])
def test_any_click_will_do(words: list[str], monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """Click 8.1 has fewer kinds of errors, and other exit codes."""
    monkeypatch.delattr("click.exceptions.NoArgsIsHelpError", raising=False)
    shown = cli(*words, code=2)
    assert (shown.out.startswith("Usage: wdport [OPTIONS] COMMAND"), shown.err.startswith("error: ")) == (
        (True, False) if not words else (False, True)
    )


def test_what_is_printed_cannot_fail(checkpoint: Path) -> None:
    """The model is in place by then: another family may lack any value, and any value may be unknown."""
    manifest = wdport.convert(checkpoint, values=SETTINGS).manifest
    whole = manifest["config"]
    configs = [{}, {name: {"value": None, "origin": "assumed"} for name in whole}]
    configs += [{name: row for name, row in whole.items() if name != absent}
                for absent in ("level_lengths", "norm_mean", "num_heads")]  # fmt: skip
    source = {**manifest["source"], "name": "\udcff\x1b.ckpt", "prefixes": None}
    shown = {"level_lengths": "groups", "num_heads": "num_heads", "nothing": "nothing"}
    for config in configs:
        said = _text({**manifest, "source": source, "config": config, "assumed": {"wavelet": None}}, "a.keras", shown)
        assert said.startswith("\\udcff\\x1b.ckpt: waveletdiff, official layout\n")
        assert re.search(r"\n  wrote +a\.keras \(", said)


def test_all_misfits_on_stdout(tmp_path: Path, cli: Cli) -> None:
    state = make_state()
    gone = ["time_embedding.mlp.0.bias", "time_embedding.mlp.2.bias", "level_transformers.0.output_proj.bias"]
    path = save(tmp_path / "a.ckpt", {name: t for name, t in state.items() if name not in gone})
    shown = cli("convert", path, *SET, code=4)
    assert all(name in shown.out for name in gone)
    assert shown.err.count("\n") == 1


def test_inspect(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(checkpoint)]) == 0
    assert "waveletdiff, official layout" in capsys.readouterr().out
    main(["convert", str(checkpoint), *SET])
    capsys.readouterr()
    assert main(["inspect", str(checkpoint.with_suffix(".keras")), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["num_heads"] == {"value": 2, "origin": "flag"}
    assert found["tensors"]["level_0/input_proj/kernel"]["shape"] == [3, 32]
    assert main(["inspect", str(checkpoint), "--tensors"]) == 0
    assert re.search(r"beta_all +float32 \(1001,\)", capsys.readouterr().out)


def test_inspect_of_the_folder_here(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    assert checkpoint.parent == tmp_path
    monkeypatch.chdir(tmp_path)
    assert tmp_path.name in cli("inspect", ".").out.splitlines()[0]


def test_inspect_of_an_unknown_model(tmp_path: Path, cli: Cli) -> None:
    import torch

    torch.save({"fc.weight": torch.zeros(3, 2)}, tmp_path / "other.pt")
    assert "not recognised" in cli("inspect", tmp_path / "other.pt").out


HEAVY = """
import json, sys
import pywt  # which imports scipy before 1.9
first = {*sys.modules}
from wdport.cli.main import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    found = [name for name in ("torch", "keras", "jax", "tensorflow", "scipy", "matplotlib")
             if name in {*sys.modules} - first]
    print("\\n@", json.dumps([words, code, found]))
"""


def test_nothing_heavy_is_imported(checkpoint: Path) -> None:
    """By what needs no model to run: conversions, and every refusal."""
    name, model, text = str(checkpoint), str(checkpoint.with_suffix(".keras")), str(checkpoint.with_suffix(".txt"))
    expected = [
        (["--help"], 0), (["convert", name, *SET], 0), (["inspect", name], 0), (["convert", "nope.pt"], 3),
        (["verify", name, model, "--json", name], 2), (["sample", model, "-o", model], 2),
        (["sample", model, "-o", text], 2), (["export", model, "-o", text], 2), (["record", "a:b", "nope.ckpt"], 3),
        (["selftest", "--json", name], 2),
    ]  # fmt: skip
    command = [sys.executable, "-c", HEAVY, json.dumps([words for words, _ in expected])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("@ ")]
    assert told == [[words, code, []] for words, code in expected]


def test_files_of_the_current_folder_replace_no_module(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('replaced')")
    save(tmp_path / "a.pt", make_state())
    done = subprocess.run([sys.executable, "-m", "wdport", "inspect", "a.pt"], cwd=tmp_path,
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
