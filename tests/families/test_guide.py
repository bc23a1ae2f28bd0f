"""The guide for a model of one's own, with the mistakes that it warns of; tests/docs executes it as it stands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tests.families.quick import few_cases
from tests.families.toys.nets import randomised
from wdport.cli.main import main

GUIDE = Path(__file__).parents[2] / "docs" / "own-model.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guide's files in the current folder, and a checkpoint with random weights."""
    found = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in found] == ["net.py", "twins.py", "onet.yaml"]
    for name, text in found:
        (tmp_path / name).write_text(f"# {name}\n{text}", encoding="utf-8")
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
    return [line[2:].split()[1:] for line in lines if line.startswith("$ wdport ") and "onet" in line]


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
        "padding 'same' gives 11 windows over 21 positions, starting at -1; the reference (padding 0, ceil_mode True) "
        "gives 10, starting at 0",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(project: Path, capsys: pytest.CaptureFixture[str], mistake: str) -> None:
    file, before, after, site, cause = MISTAKES[mistake]
    text = Path(file).read_text()
    assert before in text
    Path(file).write_text(text.replace(before, after))
    convert, verify = commands()[:2]
    assert main(convert) == 0
    with few_cases():
        assert main(verify) == 1
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
    assert "dense5.weight does not fit line 10" in told
    printed = (
        GUIDE.read_text(encoding="utf-8").partition("the message is one line:")[2].split("```")[1].removeprefix("text")
    )
    assert " ".join(printed.split()) == " ".join(told.split())
    assert not Path("onet.keras").exists()
