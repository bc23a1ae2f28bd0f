"""`wdport map` as a user sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import wdport
from tests.command import Cli
from tests.families.test_custom import files
from tests.families.test_recorded import run_each_without
from tests.make import SET, make_state, save
from wdport.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["map", *map(str, arguments)])
    shown = capsys.readouterr()
    assert (shown.err == "") is (code == 0)
    return code, "\n".join(" ".join(line.split()) for line in shown.out.splitlines())


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = files(tmp_path, "gru")
    assert said(capsys, "check", table)[1].startswith(f"PASS {table} is sound, as far as the table alone shows\n")
    code, text = said(capsys, "check", table, checkpoint, "--rows")
    assert code == 0
    assert "line 8 1 head.bias -> head/bias" in text
    assert text.startswith(f"PASS {table} is sound\n")
    table.write_text(table.read_text().replace("head, keras", "heat, keras"))
    code, text = said(capsys, "check", table, checkpoint)
    assert code == 4
    assert text.startswith(f"FAIL {table} is not sound: 4 faults, 0 warnings\n")
    assert "no row claims head.bias" in text
    assert main(["map", "check", str(table), str(checkpoint), "-q"]) == 4
    line = f"{table} is not sound: 4 faults, 0 warnings"
    told = line.replace(" is", ": is")
    assert capsys.readouterr() == (f"FAIL  {line}\n", f"error: {told}; correct the table\n")
    assert "line 8 of the table (heat) matches nothing" in text
    code, text = said(capsys, "check", table, checkpoint, "--json")
    found = json.loads(text)
    assert (code, found["sound"], sorted(found["coverage"]["unclaimed"])) == (
        4,
        False,
        ["head.bias", "head.parametrizations.weight.original0", "head.parametrizations.weight.original1"],
    )


def test_strict_makes_warnings_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, table = files(tmp_path, "gru")
    table.write_text(table.read_text() + "tied:\n  - {torch: a, same_as: b}\n")
    code, text = said(capsys, "check", table)
    assert code == 0
    assert "line 10: a is tied to b, which no row claims" in text
    assert said(capsys, "check", table, "--warnings-as-faults")[0] == 4


def test_check_of_a_shipped_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = save(tmp_path / "ck.ckpt", make_state())
    code, text = said(capsys, "check", "mappings/waveletdiff.yaml", checkpoint, *SET)
    assert code == 0
    assert "0 dropped, 0 tied" in text
    code, text = said(capsys, "check", "mappings/waveletdiff-qknorm.yaml", checkpoint, *SET)
    assert code == 4


def test_check_of_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = files(tmp_path, "image", "image_epsilon")
    code, text = said(capsys, "check", table, "--settings")
    assert code == 0
    assert "settings: 39 compared at 6 layers\nbn: epsilon (eps) 0.001 where the reference has 1e-05\n" in text
    assert "read only in training\nbn: momentum 0.99 where" in text
    right = ("--keras-model", "tests.families.toys.twins:image", "--reference", "tests.families.toys.nets:image")
    assert "settings: 39 compared at 6 layers; none differ" in said(capsys, "check", table, "--settings", *right)[1]
    told = json.loads(said(capsys, "check", table, checkpoint, *right, "--settings", "--json")[1])["settings"]
    assert [each["level"] for each in told["found"]] == ["training"]
    assert main(["map", "check", str(table), "--reference", "a:b"]) == 2
    assert main(["map", "check", str(table), "--settings", "--reference", "tests.families.toys.bad_nets:raises"]) == 4
    assert "ValueError: out of order" in capsys.readouterr().err


def test_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, table = files(tmp_path, "lstm")
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    code, text = said(capsys, "explain", "head.weight", output)
    assert code == 0
    assert "to head/kernel float32" in text
    assert "rule out in -> in out (linear)" in text
    assert "table my.yaml, line 8" in text
    found = json.loads(said(capsys, "explain", "head.weight", output, "--json")[1])
    assert found["routes"][0]["inverse"] == "in out -> out in"
    assert "torch: head" in table.read_text().splitlines()[found["routes"][0]["line"] - 1]
    assert main(["map", "explain", "head.wait", str(checkpoint), "--mapping", str(table)]) == 2
    assert "did you mean head.weight" in capsys.readouterr().err


def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = make_state()
    a = save(tmp_path / "a.ckpt", state)
    state["time_embedding.mlp.9.weight"] = state.pop("time_embedding.mlp.0.weight")
    state["beta_all"] = state["beta_all"].double()
    b = save(tmp_path / "b.ckpt", state)
    code, text = said(capsys, "diff", a, b)
    assert code == 0
    assert "beta_all: float32 -> float64" in text
    assert "time_embedding.mlp.0.weight -> time_embedding.mlp.9.weight" in text
    found = json.loads(said(capsys, "diff", a, b, "--json")[1])
    assert (found["same"], found["alike"], found["only_a"]) == (False, len(state) - 2, {})
    assert said(capsys, "diff", a, a)[1].endswith(
        "\nno difference in names, shapes and dtypes; values are not compared"
    )
    state["beta_all"] = state["beta_all"][:10]
    c = save(tmp_path / os.fsdecode(b"c\x1b[31m\xff.ckpt"), state)
    assert said(capsys, "diff", b, c)[1].startswith(f"A {b}\nB {tmp_path}/c\\x1b[31m\\udcff.ckpt\n")
    found = json.loads(said(capsys, "diff", b, c, "--json")[1])
    assert found["changed"] == {"beta_all": {"shape": [[1001], [10]]}}
    assert main(["inspect", str(c)]) == 0
    assert capsys.readouterr().out.startswith("c\\x1b[31m\\udcff.ckpt\n")
    assert main(["inspect", str(c), "--json"]) == 0
    shown = capsys.readouterr().out
    assert (json.loads(shown)["file"], "\\ud" in shown.replace("\\\\ud", "")) == ("c\x1b[31m\\udcff.ckpt", False)


def test_nothing_of_the_users_is_imported_without_a_model(tmp_path: Path) -> None:
    checkpoint, table = files(tmp_path, "gru")
    output = wdport.convert(checkpoint, tmp_path / "out.keras", mapping=table).output
    commands = (["check", table, checkpoint], ["explain", "head.bias", output], ["diff", checkpoint, checkpoint])
    given = [["map", *map(str, words)] for words in commands]
    told = run_each_without("keras jax torch tests.families.toys.twins", *given)
    assert [(code, error) for code, _, error in told] == [(0, "")] * 3


def test_no_verb_is_a_request_for_help(cli: Cli) -> None:
    shown = cli("map", code=2)
    assert shown.out.startswith("Usage: wdport map ")
    assert shown.err == ""
