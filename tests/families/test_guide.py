"""The guide for a model of one's own, executed as it stands, and with the mistakes that it warns of."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.families.toys.nets import randomised
from wdport.cli.main import main

GUIDE = Path(__file__).parents[2] / "docs" / "own-model.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's files in the current folder, and a checkpoint with random weights."""
    found = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in found] == ["net.py", "twins.py", "onet.yaml"]
    for name, text in found:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("net", "twins"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import net  # type: ignore[import-not-found]

    torch.save(randomised(net.build()).state_dict(), "onet.pt")
    yield tmp_path
    for name in ("net", "twins"):
        sys.modules.pop(name, None)


def commands() -> list[list[str]]:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    return [line[2:].split()[1:] for line in lines if line.startswith("$ ") and "onet" in line]


def test_the_guide(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [words[0] for words in commands()] == ["convert", "verify", "inspect", "record", "verify"]
    assert [main(words) for words in commands()] == [0, 0, 0, 0, 0]
    printed = capsys.readouterr().out
    assert "PASS  onet.keras computes what onet.pt computes" in printed
    assert "your own, built by twins:build" in printed
    assert "PASS  onet.keras computes what onet.npz computes" in printed
    rows = [line for line in Path("onet.yaml").read_text().splitlines() if line.startswith("  - ")]
    assert len(rows) <= 6


def test_the_outline_is_as_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = GUIDE.read_text(encoding="utf-8").partition("$ wdport map outline")[2].partition("\n```")[0]
    command, _, told = block.partition("\n")
    assert main(["map", "outline", *shlex.split(command)]) == 0
    shown = capsys.readouterr().out
    for text in (told, shown):
        assert text.count("  run     float64, batch 4; torch ") == 1
    assert kept(told) == kept(shown)


def kept(text: str) -> list[str]:
    """Without the releases that it was made with."""
    return [line for line in text.splitlines() if not line.startswith("  run ")]


def test_in_python(project: Path) -> None:
    (snippet,) = re.findall(r"```python\n(import wdport\n.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    made: dict[str, Any] = {}
    exec(snippet, made)
    assert made["verdict"]
    assert made["verdict"].gates
    assert made["verdict"].taps
    assert not made["verdict"].faults
    assert made["conversion"].output == Path("copy.keras")
    image = np.random.default_rng(0).standard_normal((2, 3, 48, 48)).astype(np.float32)
    import net

    module = net.build()
    module.load_state_dict(torch.load("onet.pt"))
    wanted = module.eval()(torch.from_numpy(image))
    found = made["model"](np.moveaxis(image, 1, -1), training=False)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-3, atol=1e-4)


MISTAKES = {
    "the textbook's flatten": (
        "onet.yaml",
        '"w h c -> h w c"',
        '"c h w -> h w c"',
        "dense5",
        'flatten "w h c -> h w c" agrees where "c h w -> h w c" does not',
    ),
    "a pooling that rounds up": (
        "twins.py",
        '(64, 3, 3, "valid")',
        '(64, 3, 3, "same")',
        "pool2",
        "padding same has 11 windows from -1 of 21 where the reference (padding 0, ceil_mode True) has 10 windows",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(project: Path, capsys: pytest.CaptureFixture[str], mistake: str) -> None:
    file, before, after, site, cause = MISTAKES[mistake]
    text = Path(file).read_text()
    assert before in text
    Path(file).write_text(text.replace(before, after))
    assert [main(words) for words in commands()[:2]] == [0, 1]
    assert "1 faulty layer" in (printed := capsys.readouterr().out)
    assert site in printed.partition("1 faulty layer")[2].splitlines()[1]
    assert cause in " ".join(printed.split())
    assert cause in GUIDE.read_text(encoding="utf-8")


def test_a_shape_that_does_not_fit_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pooling that rounds down leaves a smaller image, so the table's sizes are wrong before anything is run; which
    pooling it is, the settings of both models say."""
    text = Path("twins.py").read_text()
    Path("twins.py").write_text(text.replace('(32, 3, 3, "same")', '(32, 3, 3, "valid")'))
    assert main(commands()[0]) == 4
    told = capsys.readouterr().err
    assert "dense5.weight does not fit line 9" in told
    printed = GUIDE.read_text(encoding="utf-8").partition("it is one line:")[2].split("```")[1].removeprefix("text")
    assert " ".join(printed.split()) == " ".join(told.split())
    assert not Path("onet.keras").exists()
