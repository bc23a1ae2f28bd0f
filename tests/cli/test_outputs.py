"""No verb destroys an input, another of its outputs, or, unless told to, a file that wdport did not write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import wdport
from tests.make import SET, SETTINGS, make_state, save
from tests.parity.test_reports import failing, passing
from wdport.cli.main import main
from wdport.files.outputs import OURS, is_replaceable, is_same_file
from wdport.parity.policy.baseline import make_baseline, write_baseline
from wdport.parity.reports import render_html, render_json, render_junit, render_markdown, write_reports
from wdport.parity.repro import _SCRIPT
from wdport.parity.selftest.result import SelftestResult
from wdport.parity.selftest.text import render_markdown as render_selftest
from wdport.parity.verify_options import REPRO_ARRAYS, REPRO_KINDS, REPRO_SCRIPT

TEXTS = ("stats.json", "table.yaml", "config.yaml", "data.csv", "parity.toml", "base.json", "run.npz", "init.npy")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    checkpoint = save(folder / "a.ckpt", make_state())
    wdport.convert(checkpoint, folder / "a.keras", values=SETTINGS)
    for name in TEXTS:
        (folder / name).write_text(f"this is {name}")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every input; all of them must be the same afterwards."""
    for file in made.iterdir():
        shutil.copy(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    yield tmp_path
    assert {file: file.read_bytes() for file in before} == before


VERIFY = ["verify", "a.ckpt", "a.keras"]
REPORTS = ["--json", "--html", "--junit", "--markdown"]
INPUTS: list[tuple[list[str], str, str, str]] = [
    *((VERIFY, option, "a.ckpt", "checkpoint") for option in REPORTS),
    (VERIFY, "--json", "a.keras", "converted"),
    (VERIFY, "--markdown", "a.keras.wdport.json", "converted's manifest"),
    ([*VERIFY, "--mapping", "table.yaml"], "--html", "table.yaml", "mapping"),
    ([*VERIFY, "--policy", "parity.toml"], "--junit", "parity.toml", "policy"),
    ([*VERIFY, "--baseline", "base.json"], "--json", "base.json", "baseline"),
    ([*VERIFY, "--update-baseline"], "--baseline", "a.ckpt", "checkpoint"),
    (["verify", "a.keras", "--against", "run.npz"], "--json", "run.npz", "against"),
    (["convert", "a.ckpt", "--config", "config.yaml"], "-o", "a.keras", "config"),
    (["convert", "a.ckpt", "--mapping", "table.yaml"], "-o", "a.keras", "mapping"),
    (["convert", "a.ckpt", "--norm-stats", "stats.json"], "-o", "a.keras", "norm_stats"),
    (["convert", "a.ckpt", "--data", "data.csv"], "-o", "a.keras", "data"),
    (["convert", "a.ckpt"], "-o", "a.ckpt", "checkpoint"),
    (["sample", "a.keras", "--known", "data.csv"], "-o", "data.csv", "known"),
    (["sample", "a.keras", "--init", "init.npy"], "-o", "init.npy", "init"),
    (["sample", "a.keras"], "-o", "a.keras", "model"),
    (["sample", "a.keras"], "--plot", "a.keras", "model"),
    (["sample", "a.keras", "--known", "data.csv"], "--plot", "data.csv", "known"),
    (["export", "a.keras"], "-o", "a.keras", "model"),
    (["record", "tests.user_model:small", "a.ckpt"], "-o", "a.ckpt", "checkpoint"),
]
ENDS = {"convert": ".keras", "sample-o": ".npz", "sample--plot": ".svg", "export": ".stablehlo", "record": ".npz"}


@pytest.mark.parametrize("link", ["symbolic", "hard"])
@pytest.mark.parametrize("given", INPUTS, ids=lambda given: " ".join([*given[0][:1], *given[1:3]]))
def test_an_input_is_no_output(
    folder: Path, link: str, given: tuple[list[str], str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By a link, whose name ends as the verb wants it; ``--force`` does not change that."""
    words, option, name, what = given
    if name == "a.keras" and what in ("config", "mapping", "norm_stats", "data"):
        name = words[-1]
    end = ENDS.get(words[0]) or ENDS.get(words[0] + option, "")
    other = folder / f"other{end}"
    if link == "symbolic":
        other.symlink_to(folder / name)
    else:
        os.link(folder / name, other)
    assert main([*words, option, str(other), "--force"]) == 2
    assert capsys.readouterr().err == f"error: {other}: is an input ({what}); give another name with {option}\n"
    assert is_same_file(other, folder / name)


def test_another_spelling_of_a_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub").mkdir()
    assert main([*VERIFY, "--json", "sub/../a.ckpt", "--markdown", "a.keras"]) == 2
    assert capsys.readouterr().err == "error: sub/../a.ckpt: is an input (checkpoint); give another name with --json\n"


def test_a_manifest_does_not_replace_an_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy("config.yaml", "b.keras.wdport.json")
    assert main(["convert", "a.ckpt", "-o", "b.keras", "--config", "b.keras.wdport.json", "--force"]) == 2
    assert "b.keras.wdport.json: is an input (config)" in capsys.readouterr().err
    assert main(["convert", "a.ckpt", "-o", "b.keras"]) == 2
    assert "exists already and is not a manifest of wdport" in capsys.readouterr().err
    assert not Path("b.keras").exists()
    assert Path("b.keras.wdport.json").read_text() == "this is config.yaml"


def test_a_shard_is_an_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import save_file

    names = sorted(state := make_state())
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: state[name] for name in held}, folder / file)
    index = {name: file for file, held in parts.items() for name in held}
    Path("all.index.json").write_text(json.dumps({"weight_map": index}))
    before = Path("two.safetensors").read_bytes()
    assert main(["convert", "all.index.json", "-o", "two.safetensors", "--force"]) == 2
    assert "two.safetensors: is an input (shard 2); give another name with -o" in capsys.readouterr().err
    assert main(["verify", "all.index.json", "a.keras", "--json", "one.safetensors", "--force"]) == 2
    assert "one.safetensors: is an input (shard 1); give another name with --json" in capsys.readouterr().err
    assert Path("two.safetensors").read_bytes() == before


TWICE: list[tuple[list[str], str]] = [
    ([*VERIFY, "--json", "new", "--markdown", "./new"], "error: new: is also an output (--json); give another"),
    ([*VERIFY, "--json", "new", "--baseline", "new", "--update-baseline"], "new: is also an output (--json)"),
    (["selftest", "--json", "new", "--markdown", "new"], "new: is also an output (--json); give another"),
    (["sample", "a.keras", "-o", "link.npz", "--plot", "new.svg"], "link.npz: is a symbolic link; give the name of a"),
]


@pytest.mark.parametrize(("words", "said"), TWICE, ids=[" ".join(words[:1] + words[-2:]) for words, _ in TWICE])
def test_two_outputs_are_two_files(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link.npz").symlink_to(folder / "new.svg")
    assert main([*words, "--force"]) == 2
    assert said in capsys.readouterr().err
    Path("link.npz").unlink()


@pytest.mark.parametrize("option", [*REPORTS, "--baseline"])
def test_a_foreign_file_is_not_replaced_unasked(folder: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--update-baseline"] if option == "--baseline" else []
    assert main([*VERIFY, option, "data.csv", *more]) == 2
    kind = {"--html": "an html"}.get(option, f"a {option[2:]}")
    said = f"data.csv: exists already and is not {kind} file of wdport; give another name with {option}, or --force"
    assert said in capsys.readouterr().err


def test_the_files_of_a_layer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VERIFY, "--repro", "data.csv"]) == 2
    assert "data.csv: is not a directory; give another name with --repro" in capsys.readouterr().err
    Path("sub").mkdir()
    shutil.copy("run.npz", "sub/layer.npz")
    assert main([*VERIFY, "--repro", "sub"]) == 2
    assert "sub/layer.npz: exists already and is not a layer file of wdport" in capsys.readouterr().err
    assert main([*VERIFY[:2], "a.keras", "--mapping", "sub/layer.npz", "--repro", "sub", "--force"]) == 2
    assert "sub/layer.npz: is an input (mapping)" in capsys.readouterr().err


def test_a_step_summary_is_no_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "a.ckpt")
    assert main(VERIFY) == 2
    assert capsys.readouterr().err == "error: a.ckpt: is an input (checkpoint); give another name\n"


def test_the_users_own_code_is_an_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text("def build(): ...")
    assert main([*VERIFY, "--reference", "net:build", "--markdown", "net.py", "--force"]) == 2
    assert "net.py: is an input (reference)" in capsys.readouterr().err


def test_our_own_reports_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """Of every kind, whatever the verdict; and none is taken for another kind."""
    file, selftest = tmp_path / "file", SelftestResult(())
    for verdict in (passing(), failing()):
        texts = {"json": render_json(verdict), "html": render_html(verdict), "junit": render_junit(verdict),
                 "markdown": render_markdown(verdict)}  # fmt: skip
        for kind, text in texts.items():
            file.write_text(text, encoding="utf-8")
            assert [each for each in OURS if is_replaceable(file, each)] == [kind]
    file.write_text(json.dumps(selftest.to_json(), indent=1))
    assert is_replaceable(file, "json")
    file.write_text(render_selftest(selftest))
    assert is_replaceable(file, "markdown")
    write_baseline(file, make_baseline(passing()), force=True)
    assert is_replaceable(file, "baseline")
    file.write_text(_SCRIPT)
    assert is_replaceable(file, REPRO_KINDS[REPRO_SCRIPT])
    with file.open("wb") as opened:
        np.savez(opened, facts=np.array("{}"), weight=np.ones(3))
    assert is_replaceable(file, REPRO_KINDS[REPRO_ARRAYS])
    file.write_text("")
    assert all(is_replaceable(file, kind) for kind in OURS)
    assert not is_replaceable(file, None)


def test_reports_from_python(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(wdport.WdportError, match=r"exists already and is not a markdown file of wdport; .*force=True"):
        write_reports(passing(), json=tmp_path / "new.json", markdown=tmp_path / "notes.md")
    with pytest.raises(wdport.WdportError, match="is also an output"):
        write_reports(passing(), json=tmp_path / "new.json", markdown=tmp_path / "new.json")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"]
    write_reports(passing(), markdown=tmp_path / "notes.md", force=True)
    write_reports(failing(), markdown=tmp_path / "notes.md")
    assert (tmp_path / "notes.md").read_text().startswith("## FAIL")


def test_standard_output_is_added_to_wherever_it_leads(tmp_path: Path) -> None:
    """A shell's ``>> log``: what is there stays."""
    code = ("from pathlib import Path; from wdport.files.atomic import write_text; "
            "from wdport.files.outputs import writable; print('one', flush=True);"
            "write_text(writable(Path('/dev/stdout'), streams=True), 'two\\n'); print('three')")  # fmt: skip
    log = tmp_path / "log"
    log.write_text("zero\n")
    with log.open("a") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert log.read_text() == "zero\none\ntwo\nthree\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a umask")
def test_no_other_user_may_write_to_what_a_library_writes(folder: Path) -> None:
    """An Orbax folder, by the command itself, since it sets the mask of its process."""
    pytest.importorskip("orbax.checkpoint")
    words = ["convert", "a.ckpt", "-o", "x.orbax", *SET]
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-m", "wdport", *words], check=True, umask=0, capture_output=True,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])})  # fmt: skip
    files = [path for path in (folder / "x.orbax").rglob("*") if not path.is_symlink()]
    assert len(files) > 4
    assert [path for path in files if path.stat().st_mode & 0o022] == []
