"""--json means the same on every verb: a document on standard output, or in the file that it names."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.cli.verbs import VERBS
from tests.command import Cli
from tests.make import SET, make_state, save
from wdport.cli.execute import group
from wdport.cli.main import main
from wdport.files.json_document import SCHEMAS, document

# The words after the verb, and the file that --json is given; "-" is standard output.
RULE: dict[str, tuple[str, str]] = {
    "inspect --json a.ckpt": ("a.ckpt", "-"),
    "inspect a.ckpt --json": ("a.ckpt", "-"),
    "inspect a.ckpt --json out.json": ("a.ckpt", "out.json"),
    "inspect a.ckpt --json out": ("a.ckpt", "out"),
    "inspect --json out a.ckpt": ("a.ckpt", "out"),
    "inspect --json a.safetensors.index.json": ("a.safetensors.index.json", "-"),
    "inspect --json=out.json a.ckpt": ("a.ckpt", "out.json"),
    "inspect a.ckpt --json -": ("a.ckpt", "-"),
    "inspect a.ckpt --json --tensors": ("a.ckpt", "-"),
    "inspect --key model --json a.ckpt": ("a.ckpt", "-"),
    "inspect --json -- a.ckpt": ("a.ckpt", "-"),
    "verify a.ckpt a.keras --json": ("a.ckpt a.keras", "-"),
    "verify --json a.ckpt a.keras": ("a.ckpt a.keras", "-"),
    "verify a.ckpt --json a.keras": ("a.ckpt a.keras", "-"),
    "verify a.ckpt a.keras --json out.json": ("a.ckpt a.keras", "out.json"),
    "verify --json out.json a.ckpt a.keras": ("a.ckpt a.keras", "out.json"),
    "verify --json out a.ckpt a.keras": ("a.ckpt a.keras", "out"),
    "verify a.ckpt --json out a.keras": ("a.ckpt a.keras", "out"),
    "verify --json a.keras --against run.npz": ("a.keras", "-"),
    "verify --json out a.keras --against run.npz": ("a.keras", "out"),
    "verify a.keras --against=run.npz --json out": ("a.keras", "out"),
    "convert a.ckpt --json": ("a.ckpt", "-"),
    "convert a.ckpt -oout.npz --json out.json": ("a.ckpt", "out.json"),
    "convert a.ckpt -o out.npz --json out.json --force": ("a.ckpt", "out.json"),
    "record --json m:build a.ckpt": ("m:build a.ckpt", "-"),
    "record m:build a.ckpt --json out": ("m:build a.ckpt", "out"),
    "record --json a.ckpt --mapping t.yaml": ("a.ckpt", "-"),
    "record --json out.json a.ckpt --mapping t.yaml": ("a.ckpt", "out.json"),
    "sample a.keras -n 2 --json": ("a.keras", "-"),
    "sample --json a.keras -n 2": ("a.keras", "-"),
    "export a.keras --json out.json": ("a.keras", "out.json"),
    "selftest --json": ("", "-"),
    "selftest --json out --quick": ("", "out"),
    "map check --json table.yaml": ("table.yaml", "-"),
    "map check --json table.yaml a.ckpt": ("table.yaml a.ckpt", "-"),
    "map check --json out.json table.yaml": ("table.yaml", "out.json"),
    "map check table.yaml --json out.json": ("table.yaml", "out.json"),
    "map check table.yaml a.ckpt --json out": ("table.yaml a.ckpt", "out"),
    "map diff a b --json": ("a b", "-"),
    "map explain name --json a.keras": ("name a.keras", "-"),
    "map outline --reference m:build --json out.json": ("", "out.json"),
    "map suggest --keras-model m:build --json": ("", "-"),
}


def parsed(line: str) -> tuple[str, str | None]:
    """What click makes of a command line: its arguments in order, and --json."""
    words, command = line.split(), group.get_command(click.Context(group), line.split()[0])
    rest = words[1:]
    if isinstance(command, click.Group):
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
    assert isinstance(command, click.Command)
    with command.make_context(words[0], rest) as context:
        names = [each.name for each in command.params if isinstance(each, click.Argument)]
        values = [context.params[name] for name in names if name and context.params[name] is not None]
        shown = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
        return " ".join(shown), context.params["json_file"]


@pytest.mark.parametrize("line", RULE)
def test_the_rule(line: str) -> None:
    assert parsed(line) == RULE[line]


def test_every_verb_has_it() -> None:
    for name, command in VERBS.items():
        options = {option for each in command.params for option in each.opts}
        assert {"--json", "--quiet", "-q", "--verbose", "-v"} <= options, name


def test_without_it_nothing_changes() -> None:
    assert parsed("convert a.ckpt --set x=1 -o --json.keras") == ("a.ckpt", None)
    assert parsed("convert a.ckpt -o --json") == ("a.ckpt", None)
    assert parsed("convert -o --json --json out.json -- a.ckpt") == ("a.ckpt", "out.json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a.ckpt", make_state())
    return tmp_path


def only_json(capsys: pytest.CaptureFixture[str], kind: str) -> dict[str, object]:
    """Standard output, which is one document of this kind and nothing else."""
    shown = capsys.readouterr()
    found: dict[str, object] = json.loads(shown.out)
    assert list(found)[:2] == ["schema", "kind"]
    assert (found["schema"], found["kind"]) == (SCHEMAS[kind], kind)
    return found


def test_standard_output_is_the_documents(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "a.ckpt", "--json", *SET]) == 0
    assert only_json(capsys, "conversion")["tensors"]
    assert main(["inspect", "--json", "a.keras"]) == 0
    assert only_json(capsys, "inspection")["file"] == "a.keras"
    assert main(["map", "explain", "--json", "level_0/input_proj/kernel", "a.keras"]) == 0
    assert only_json(capsys, "explanation")["routes"]
    assert main(["map", "diff", "a.keras", "a.keras", "--json"]) == 0
    assert only_json(capsys, "difference")["same"] is True
    assert main(["export", "a.keras", "--to", "torch", "--json", "/dev/stdout"]) == 0
    assert only_json(capsys, "export")["to"] == "torch"


def test_a_file_gets_it_beside_the_text(folder: Path, cli: Cli) -> None:
    assert cli("inspect", "a.ckpt", "--json", "out.json").out.startswith("a.ckpt\n  kind ")
    assert json.loads(Path("out.json").read_text())["kind"] == "inspection"
    cli("map", "diff", "a.ckpt", "a.ckpt", "--json", "out.json")
    assert json.loads(Path("out.json").read_text())["kind"] == "difference"


BAD: dict[str, tuple[list[str], str]] = {
    "the output": (["convert", "a.ckpt", "-o", "x.npz", "--json", "x.npz"], "is also an output (-o)"),
    "the output by default": (["convert", "a.ckpt", "--json", "a.keras"], "a.keras: is also an output (-o)"),
    "the manifest": (["convert", "a.ckpt", "--json", "a.keras.wdport.json"], "is also an output (the manifest)"),
    "another file": (["inspect", "a.ckpt", "--json", "notes.json"], "exists already and is not JSON of wdport"),
    "nothing": (["inspect", "a.ckpt", "--json", ""], "error: --json: is empty; give a file\n"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_it_may_not_replace(folder: Path, name: str, cli: Cli) -> None:
    Path("notes.json").write_text('{"mine": 1}')
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    words, said = BAD[name]
    assert said in cli(*words, code=2).err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_faults_do_not_mix_with_it(folder: Path, cli: Cli) -> None:
    """They are a document of their own."""
    import torch

    from tests.bad.ground import ground

    torch.save({"lstm.weight_ih_l0": torch.zeros(28, 5), "other": torch.zeros(2)}, "b.pt")
    table = str(ground() / "own.yaml")
    shown = cli("convert", "b.pt", "--mapping", table, "--json", code=4)
    told = json.loads(shown.out)
    assert shown.err == f"error: {told['error']}\n"
    assert (told["kind"], told["code"], len(told["faults"]) > 1) == ("faults", 4, True)
    assert all("missing" in fault or "match" in fault or "other" in fault for fault in told["faults"]), told


def test_what_json_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    made = document("check", {"a": float("inf"), "b": (1, 2.5, None, True), "c": {3: Path("x")}})
    assert made == {"schema": 1, "kind": "check", "a": "inf", "b": [1, 2.5, None, True], "c": {"3": "x"}}
