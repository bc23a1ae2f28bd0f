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
from tests.command import Cli, Refused
from tests.make import SET, SETTINGS, make_state, save
from tests.parity.test_reports import failing, passing
from wdport.cli.main import main
from wdport.files.outputs import OURS, is_replaceable
from wdport.files.report_formats import FORMATS
from wdport.parity.policy.baseline import make_baseline, write_baseline
from wdport.parity.reports import rendered, write_reports
from wdport.parity.repro import _SCRIPT
from wdport.parity.selftest.result import SelftestResult
from wdport.parity.selftest.text import render_markdown as render_selftest
from wdport.parity.verify_options import REPRO_ARRAYS, REPRO_KINDS, REPRO_SCRIPT

TEXTS = ("config.yaml", "data.txt", "run.npz")


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
REPORTS = [f"--{name}" for name in FORMATS]


def test_another_spelling_of_a_path(folder: Path, cli: Cli) -> None:
    (folder / "sub").mkdir()
    shown = cli(*VERIFY, "--json", "sub/../a.ckpt", "--markdown", "a.keras", code=2)
    assert shown.err == "error: sub/../a.ckpt: is an input (checkpoint); give another name with --json\n"
    shown = cli(*VERIFY, "--markdown", "a.keras.wdport.json", "--force", code=2)
    assert "is an input (converted's manifest); give another name with --markdown" in shown.err


def test_a_manifest_does_not_replace_an_input(folder: Path, cli: Cli) -> None:
    shutil.copy("config.yaml", "b.keras.wdport.json")
    shown = cli("convert", "a.ckpt", "-o", "b.keras", "--config", "b.keras.wdport.json", "--force", code=2)
    assert "b.keras.wdport.json: is an input (config)" in shown.err
    assert "exists already and is not a manifest of wdport" in cli("convert", "a.ckpt", "-o", "b.keras", code=2).err
    assert not Path("b.keras").exists()
    assert Path("b.keras.wdport.json").read_text() == "this is config.yaml"


def test_a_shard_is_an_input(folder: Path, cli: Cli) -> None:
    from safetensors.torch import save_file

    names = sorted(state := make_state())
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: state[name] for name in held}, folder / file)
    index = {name: file for file, held in parts.items() for name in held}
    Path("all.index.json").write_text(json.dumps({"weight_map": index}))
    before = Path("two.safetensors").read_bytes()
    shown = cli("convert", "all.index.json", "-o", "two.safetensors", "--force", code=2)
    assert "two.safetensors: is an input (shard 2); give another name with -o" in shown.err
    shown = cli("verify", "all.index.json", "a.keras", "--json", "one.safetensors", "--force", code=2)
    assert "one.safetensors: is an input (shard 1); give another name with --json" in shown.err
    assert Path("two.safetensors").read_bytes() == before


TWICE: list[tuple[list[str], str]] = [
    ([*VERIFY, "--json", "new", "--markdown", "./new"], "error: new: is also an output (--json); give another"),
    ([*VERIFY, "--json", "new", "--baseline", "new", "--update-baseline"], "new: is also an output (--json)"),
    (["selftest", "--json", "new", "--markdown", "new"], "new: is also an output (--json); give another"),
    (["sample", "a.keras", "-o", "link.npz", "--plot", "new.svg"], "link.npz: is a symbolic link; give the name of a"),
]


@pytest.mark.parametrize(("words", "said"), TWICE, ids=[" ".join(words[:1] + words[-2:]) for words, _ in TWICE])
def test_two_outputs_are_two_files(folder: Path, words: list[str], said: str, cli: Cli) -> None:
    Path("link.npz").symlink_to(folder / "new.svg")
    assert said in cli(*words, "--force", code=2).err
    Path("link.npz").unlink()


@pytest.mark.parametrize("option", [*REPORTS, "--baseline"])
def test_a_foreign_file_is_not_replaced_unasked(folder: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--update-baseline"] if option == "--baseline" else []
    assert main([*VERIFY, option, "data.txt", *more]) == 2
    kind = {"--html": "an html"}.get(option, f"a {option[2:]}")
    said = f"data.txt: exists already and is not {kind} file of wdport; give another name with {option}, or --force"
    assert said in capsys.readouterr().err


def test_the_files_of_a_layer(folder: Path, cli: Cli) -> None:
    shown = cli(*VERIFY, "--repro", "data.txt", code=2)
    assert "data.txt: is not a directory; give another name with --repro" in shown.err
    Path("sub").mkdir()
    shutil.copy("run.npz", "sub/layer.npz")
    shown = cli(*VERIFY, "--repro", "sub", code=2)
    assert "sub/layer.npz: exists already and is not a layer file of wdport" in shown.err
    shown = cli(*VERIFY[:2], "a.keras", "--mapping", "sub/layer.npz", "--repro", "sub", "--force", code=2)
    assert "sub/layer.npz: is an input (mapping)" in shown.err


def test_a_step_summary_is_no_input(folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "a.ckpt")
    assert cli(*VERIFY, code=2).err == "error: a.ckpt: is an input (checkpoint); give another name\n"


def test_the_users_own_code_is_an_input(folder: Path, cli: Cli) -> None:
    Path("net.py").write_text("def build(): ...")
    shown = cli(*VERIFY, "--reference", "net:build", "--markdown", "net.py", "--force", code=2)
    assert "net.py: is an input (reference)" in shown.err


def test_our_own_reports_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """Of every kind, whatever the verdict; and none is taken for another kind."""
    file, selftest = tmp_path / "file", SelftestResult(())
    for verdict in (passing(), failing()):
        for kind in FORMATS:
            file.write_text(rendered(kind, verdict), encoding="utf-8")
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


def test_a_refused_run_leaves_no_report_of_an_earlier_one(tmp_path: Path, refused: Refused) -> None:
    files = {f"--{name}": tmp_path / f"new{made.suffixes[0]}" for name, made in FORMATS.items()}
    write_reports(passing(), **{option[2:]: file for option, file in files.items()})
    baseline = tmp_path / "base.json"
    baseline.write_text('{"schema": 1, "taps": {')
    words = [word for option, file in files.items() for word in (f"{option}", str(file))]
    command = ("verify", tmp_path / "none.ckpt", tmp_path / "none.keras", *words)
    for more, code, says in (
        (("--baseline", baseline, "--update-baseline"), 3, "no such file"),
        (("--polcy", "p.toml"), 2, "did you mean --policy"),
        (("more.keras",), 2, "unexpected argument"),
        (("--update-baseline",), 2, "needs a baseline"),
    ):
        write_reports(passing(), **{option[2:]: file for option, file in files.items()})
        refused(*command, *more, code=code, says=says)
        assert [path.name for path in tmp_path.iterdir()] == ["base.json"], says
    write_reports(passing(), **{option[2:]: file for option, file in files.items()})
    main(["verify", "--help", *words])
    assert len(list(tmp_path.iterdir())) == 1 + len(FORMATS)
    files["--markdown"].write_text("mine")
    refused(*command, "--force", code=3, says="no such file")
    assert files["--markdown"].read_text() == "mine"


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
