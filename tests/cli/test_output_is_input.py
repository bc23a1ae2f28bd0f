"""No verb writes to a file that it reads: every output option against every input, as the commands declare them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import click
import pytest

from tests.cli.files import make_files
from tests.cli.verbs import VERBS
from tests.make import SET
from wdport.cli.completion import FOLDERS, FilePath
from wdport.cli.main import main
from wdport.files.inputs import Snapshot
from wdport.files.report_formats import FORMATS

OUTPUTS = {"output", "json_file", "html_file", "markdown_file", "plot", "animate", *FORMATS}
"""Parameters that name a file to write; every other one of type ``File`` names a file to read."""

WORDS = {
    "convert": ["a.ckpt"],
    "verify": ["a.ckpt", "a.keras"],
    "record": ["tests.user_model:small", "a.ckpt"],
    "train": ["d.csv", "--config", "c.yaml", "-o", "run"],
    "sample": ["a.keras", "-n", "1"],
    "evaluate": ["s.npz", "--data", "d.csv"],
    "generate": ["m.keras", "--text", "a text"],
    "encode": ["v.keras", "video.npy"],
    "decode": ["v.keras", "latents.npz"],
    "export": ["a.keras"],
    "inspect": ["a.ckpt"],
    "port": ["tests.user_model:small", "--checkpoint", "a.ckpt"],
    "map outline": ["a.ckpt", "--mapping", "t.yaml"],
    "map suggest": ["--keras-model", "tests.user_model:small", "--checkpoint", "a.ckpt"],
    "map check": ["t.yaml", "a.ckpt"],
    "map diff": ["a.keras", "a.ckpt"],
    "map explain": ["alpha", "a.keras"],
    "selftest": ["--quick"],
}
SUFFIXES = {"json_file": ".json", "html_file": ".html", "markdown_file": ".md", "plot": ".png", "animate": ".gif",
            **{name: made.suffixes[0] for name, made in FORMATS.items()}}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_files(tmp_path_factory.mktemp("files"))


def cases() -> list[tuple[str, str, str]]:
    """Verb, output option and input: the name of an option, or a file among the words."""
    found = []
    for verb, command in VERBS.items():
        files = [each for each in command.params if isinstance(each.type, FilePath)]
        outputs = [max(each.opts, key=len) for each in files if each.name in OUTPUTS]
        read = (each for each in files if each.name not in OUTPUTS and each.type.endings != FOLDERS)
        inputs = [max(each.opts, key=len) for each in read if isinstance(each, click.Option)]
        words = [word for word in WORDS.get(verb, ()) if "." in word and ":" not in word]
        found += [(verb, output, source) for output in outputs for source in (*words, *inputs)]
    return found


def suffix_of(verb: str, option: str) -> str:
    command = VERBS[verb]
    parameter = next(each for each in command.params if option in each.opts)
    fallback = {"generate": ".txt", "decode": ".npy", "encode": ".npz", "map suggest": ".yaml"}.get(verb, ".npz")
    assert isinstance(parameter.type, FilePath)
    return SUFFIXES.get(str(parameter.name)) or (*parameter.type.endings, fallback)[0]


def digests(folder: Path) -> dict[str, str]:
    """Of all files but the aliases."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("alias"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_verb_with_files_is_tried() -> None:
    verbs = {verb for verb, command in VERBS.items() if any(isinstance(each.type, FilePath) for each in command.params)}
    assert verbs == set(WORDS)


@pytest.mark.parametrize("verb", WORDS)
def test_an_input_is_never_written(
    verb: str, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, a symbolic link or a hard link, whatever else is wrong with the command, and with --force."""
    monkeypatch.chdir(made)
    forced = ["--force"] if any("--force" in each.opts for each in VERBS[verb].params) else []
    (made / "other.json").write_text("{}")
    before, refused = digests(made), 0
    for _, option, source in [case for case in cases() if case[0] == verb]:
        words = list(WORDS[verb])
        if source.startswith("--") and source not in words:
            words += [source, "d.csv" if source == "--data" else "other.json"]
        file = words[words.index(source) + 1] if source.startswith("--") else source
        alias = Path(f"alias{suffix_of(verb, option)}")
        for link in (None, os.symlink, os.link):
            if link is not None:
                link(file, alias)
            output = file if link is None else str(alias)
            code = main([*verb.split(), *words, option, output, *forced])
            said = capsys.readouterr().err
            alias.unlink(missing_ok=True)
            assert 2 <= code < 70, (option, source, said)
            assert digests(made) == before, (option, source)
            line = rf"error: {re.escape(output)}: is an input \([\w' ]+\); give another name with (?:{option}|-o)\n"
            refused += bool(re.match(line, said))
            assert re.match(line, said) or "is an input" not in said
    assert refused or verb == "selftest"


CHANGING = {
    "convert": ["a.ckpt", "-o", "x.keras", *SET],
    "sample": ["a.keras", "-n", "1", "--sampler", "ddim", "--steps", "1", "-o", "x.npz"],
    "train": ["d.csv", "--config", "c.yaml", "-o", "x", "--json", "x.json"],
    "evaluate": ["s.npz", "--data", "d.csv", "--metrics", "sliced-wasserstein", "--repeats", "1", "--json", "x.json"],
    "generate": ["m.keras", "--prompt-ids", "ids.json", "-o", "x.json"],
    "encode": ["v.keras", "video.npy", "-o", "x.npz"],
    "decode": ["v.keras", "latents.npz", "-o", "x.npy"],
    "export": ["a.keras", "-o", "x.stablehlo"],
    "verify": ["a.ckpt", "a.keras"],
    "inspect": ["a.keras"],
}  # fmt: skip
"""Commands that state a digest of an input, or write a file of its content."""


@pytest.mark.parametrize("verb", CHANGING)
def test_an_input_that_changes_meanwhile(
    verb: str, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written, and no digest is stated, of a file that is another one than the command began with."""
    monkeypatch.chdir(made)
    real, before = Snapshot.__init__, set(os.listdir(made))

    def late(snapshot: Snapshot, path: Path) -> None:
        real(snapshot, path)
        if path.is_file():
            os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000_000))

    monkeypatch.setattr(Snapshot, "__init__", late)
    code = main([verb, *CHANGING[verb]])
    said = capsys.readouterr()
    assert (code, said.out) == (3, ""), said.err
    assert "was changed while it was read" in said.err
    assert set(os.listdir(made)) - before <= {"x"}
    assert not (made / "x" / "model.keras").exists()
