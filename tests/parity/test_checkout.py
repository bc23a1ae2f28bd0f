"""Where the self-test looks for all known faults: next to the package, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from parity_tests.faults import FAMILIES, fault_set
from tests.command import Cli
from tests.parity.test_selftest_result import KILLED
from wdport.parity.selftest import checkout, inject, run
from wdport.parity.training_faults import CANARY_FAULTS

EVIL = "from pathlib import Path\nPath('imported').touch()\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as if it were in ``site``, a self-test of one fault, and a stranger's folder as the current one."""
    stranger = tmp_path / "stranger"
    (stranger / "parity_tests" / "faults").mkdir(parents=True)
    for name in ("pyproject.toml", "parity_tests/__init__.py", "parity_tests/faults/__init__.py"):
        (stranger / name).write_text("" if name.endswith("toml") else EVIL)
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(checkout, "ROOT", tmp_path / "site")
    monkeypatch.setattr(run, "quick_faults", lambda _: iter((KILLED,)))
    monkeypatch.chdir(stranger)
    return stranger


def test_a_checkout_has_all_faults() -> None:
    every = checkout.all_faults()
    assert every is not None
    assert every.FAMILIES == FAMILIES


def test_an_installation_tries_the_canarys_and_says_so(installed: Path, tmp_path: Path, cli: Cli) -> None:
    files = [tmp_path / "out.json", tmp_path / "out.md"]
    note, summary = cli("selftest", "--json", files[0], "--markdown", files[1]).out.splitlines()[-2:]
    said = "to try all, run make selftest in a checkout"
    assert note.startswith(f"only the canary's faults, which are installed; {said} of")
    assert all(said in file.read_text() for file in files)
    assert summary.startswith("PASS  1 of 1 faults killed")
    assert "checkout" not in cli("selftest", "--quick").out
    shown = cli("selftest", "--family", "unet2d", code=2)
    assert "only the canary's faults are installed; run make selftest in a checkout" in shown.err
    assert not (installed / "imported").exists()


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has not imported ``parity_tests``."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "parity_tests"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "parity_tests"]:
        del sys.modules[name]


@pytest.mark.usefixtures("forgotten")
def test_it_is_imported_from_next_to_the_package(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the current folder comes first in the path, as under ``python -m``."""
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(checkout, "ROOT", Path(run.__file__).parents[3])
    every: Any = checkout.all_faults()
    assert Path(every.__file__).is_relative_to(checkout.ROOT / "parity_tests")
    assert not (installed / "imported").exists()


def test_another_package_of_this_name_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = ModuleType("parity_tests")
    other.__file__ = str(tmp_path / "parity_tests" / "__init__.py")
    monkeypatch.setitem(sys.modules, "parity_tests", other)
    assert checkout.all_faults() is None


def test_the_canary_has_at_most_twenty_faults_and_all_have_these() -> None:
    canary, everything = inject.find_canary(), fault_set("waveletdiff")
    names = [mutant.name for mutant in canary.mutants(canary.smallest)]
    around_and_sampler = 2
    assert len(names) + around_and_sampler + len(CANARY_FAULTS) <= 20
    assert set(names) <= {mutant.name for mutant in everything.mutants(canary.smallest)}
