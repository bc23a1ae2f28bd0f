"""One rule for links as outputs, for every verb and every file: a symbolic link is refused, a hard link is cut."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wdport
from tests.command import Cli
from tests.make import SETTINGS, make_state, save
from wdport.cli.main import main
from wdport.files.report_formats import FORMATS

OUTPUTS: dict[str, tuple[list[str], str]] = {
    "convert -o": (["convert", "a.ckpt"], "x.keras"),
    "convert -o (weights)": (["convert", "a.ckpt"], "x.weights.h5"),
    "convert -o (safetensors)": (["convert", "a.ckpt"], "x.safetensors"),
    "sample -o": (["sample", "a.keras"], "x.npz"),
    "sample --plot": (["sample", "a.keras"], "x.png"),
    "record -o": (["record", "tests.user_model:small", "a.ckpt"], "x.npz"),
    "export -o": (["export", "a.keras"], "x.stablehlo"),
    **{f"verify {option}": (["verify", "a.ckpt", "a.keras"], "x") for option in map("--{}".format, FORMATS)},
    "verify --baseline": (["verify", "a.ckpt", "a.keras", "--update-baseline"], "x"),
    "selftest --json": (["selftest"], "x"),
}
LINKS = [*((verb, "other") for verb in OUTPUTS),
         *(("convert -o", leads_to) for leads_to in ("nowhere/other", "missing", "itself", "folder"))]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    wdport.convert(save(folder / "a.ckpt", make_state()), folder / "a.keras", values=SETTINGS)
    (folder / "other").write_text("mine")
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize(("verb", "leads_to"), LINKS)
def test_a_symbolic_link_is_refused(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, leads_to: str
) -> None:
    """Wherever it leads, ``--force`` or not; nothing is made at its other end."""
    monkeypatch.chdir(made)
    words, name = OUTPUTS[verb]
    option = verb.split()[1]
    link = made / name
    link.symlink_to(name if leads_to == "itself" else leads_to)
    try:
        before = sorted(os.listdir(made))
        assert main([*words, option, name, "--force"]) == 2
        said = "is a directory" if leads_to == "folder" else "is a symbolic link; give the name of a file with"
        assert capsys.readouterr().err.startswith(f"error: {name}: {said}")
        assert sorted(os.listdir(made)) == before
        assert (made / "other").read_text() == "mine"
    finally:
        link.unlink()


def test_the_manifest_is_no_link_either(made: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(made)
    Path("y.keras.wdport.json").symlink_to("other")
    shown = cli("convert", "a.ckpt", "-o", "y.keras", "--force", code=2)
    assert shown.err.startswith("error: y.keras.wdport.json: is a symbolic link")
    assert not Path("y.keras").exists()
    Path("y.keras.wdport.json").unlink()


def test_a_hard_link_keeps_what_it_had(made: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"old")
    os.link(tmp_path / "kept", tmp_path / "x.keras")
    wdport.convert(made / "a.ckpt", tmp_path / "x.keras", values=SETTINGS, force=True)
    assert (tmp_path / "kept").read_bytes() == b"old"
    assert (tmp_path / "x.keras").stat().st_size > 1000


def test_devices(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A model cannot go into a device; a report can, and a full one is said."""
    from tests.parity.test_reports import passing
    from wdport.parity.reports import write_reports

    (made / "full.keras").symlink_to("/dev/full")
    for name in ("/dev/full", made / "full.keras"):
        assert main(["convert", str(made / "a.ckpt"), "-o", str(name), "--force"]) == 2
    (made / "full.keras").unlink()
    assert "is not a regular file" in capsys.readouterr().err
    with pytest.raises(wdport.WdportError, match=r"/dev/full: could not be written \(No space left.*free some space"):
        write_reports(passing(), json="/dev/full")


UNREADABLE = """
import os, sys
from wdport.cli.main import main
os.setgid(65534)
os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can make a folder that it then may not look into")
@pytest.mark.parametrize(("name", "code", "said"), [
    ("closed/x.keras", 5, "its folder cannot be accessed"), ("linked.keras", 2, "is a symbolic link"),
    ("looped/x.keras", 5, "its folder cannot be accessed"),
])  # fmt: skip
def test_folders_that_cannot_be_looked_into(made: Path, tmp_path: Path, name: str, code: int, said: str) -> None:
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_mode & 0o001 == 0:
            pytest.skip(f"{folder} is closed to others")
    (tmp_path / "a.ckpt").write_bytes((made / "a.ckpt").read_bytes())
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "linked.keras").symlink_to("closed/x.keras")
    (tmp_path / "looped").symlink_to("looped")
    command = [sys.executable, "-c", UNREADABLE, "convert", str(tmp_path / "a.ckpt"), "-o", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert len(done.stderr.splitlines()) == 1
