"""How deep the package is to read: its longest chain of imports, its circles, its largest room; and which libraries are
not imported before they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import grimp
import numpy as np
import pytest

PACKAGE = Path(__file__).parents[1] / "wdport"

LONGEST = 20
"""Modules in the longest chain of imports, where the recorder counts as one; it may only become smaller."""

RECORDER, LONGEST_THERE = "wdport.recording", 9
"""A folder that is copied and read by itself; nothing in it imports another room."""

LARGEST = 1 / 4
"""Share of the package's lines that one room may have."""


@pytest.fixture(scope="module")
def imports() -> dict[str, list[str]]:
    """What each module imports, within functions and for its types as well; without the public API, which names every
    room and which none imports."""
    graph = grimp.build_graph("wdport", cache_dir=None)
    assert graph.find_modules_that_directly_import("wdport") == set()
    return {name: sorted(graph.find_modules_directly_imported_by(name)) for name in sorted(graph.modules - {"wdport"})}


def circle(imports: dict[str, list[str]]) -> list[str]:
    """Modules of which each imports the next, and the last the first; empty where there is no circle."""
    left = {name: set(imported) for name, imported in imports.items()}
    while leaves := {name for name, imported in left.items() if not imported}:
        left = {name: imported - leaves for name, imported in left.items() if imported}
    path = [next(iter(left))] if left else []
    while path and path[-1] not in path[:-1]:
        path.append(min(left[path[-1]]))
    return path[path.index(path[-1]) : -1] if path else []


def longest_chain(imports: dict[str, list[str]]) -> list[str]:
    """Modules of which each imports the next; there must be no circle."""

    @cache
    def below(name: str) -> list[str]:
        return [name, *max(map(below, imports[name]), key=len, default=[])]

    return max(map(below, imports), key=len)


def room_of(path: Path) -> str:
    house, *rooms = path.relative_to(PACKAGE).parts
    return f"{house}/{rooms[0]}" if house == "uses" else house


def test_no_modules_import_each_other(imports: dict[str, list[str]]) -> None:
    assert not circle(imports), " -> ".join(circle(imports))


def test_no_chain_of_imports_is_longer_than_known(imports: dict[str, list[str]]) -> None:
    assert not circle(imports), "a circle has no longest chain"
    inside = {name: imported for name, imported in imports.items() if name.startswith(RECORDER)}
    assert all(name.startswith(RECORDER) for imported in inside.values() for name in imported)
    joined = {name: [RECORDER if each in inside else each for each in imported] for name, imported in imports.items()}
    for tree, most in ((inside, LONGEST_THERE), ({**joined, RECORDER: []}, LONGEST)):
        chain = longest_chain(tree)
        assert len(chain) <= most, " -> ".join(chain)


def test_no_room_has_more_than_a_quarter_of_the_lines() -> None:
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        lines[room_of(path)] += len(path.read_text(encoding="utf-8").splitlines())
    share = {room: count / lines.total() for room, count in lines.items()}
    assert {room: round(each, 3) for room, each in share.items() if each > LARGEST} == {}


def test_chains_and_circles_are_found() -> None:
    tree = {"a": ["b", "c"], "b": ["d"], "c": [], "d": ["c"]}
    assert (longest_chain(tree), circle(tree)) == (["a", "b", "d", "c"], [])
    assert sorted(circle(tree | {"c": ["b"]})) == ["b", "c", "d"]
    assert circle(tree | {"c": ["c"]}) == ["c"]


HEAVY = "torch keras jax scipy h5py"
"""What takes a second to import."""

LIGHT = {
    "import wdport.checkpoint": f"{HEAVY} numpy yaml ml_dtypes safetensors",  # a refusal is not kept waiting
    "import pytest_wdport": f"{HEAVY} numpy yaml",  # pytest imports it wherever it is installed
    "import wdport.parity.pair_verdict": "torch keras",  # the command that gates CI
    "from wdport.uses.data import read_series; read_series('series.npy')": "torch keras jax scipy",
}
"""What is run, and the libraries that it does not import; `tests/cli/test_cli.py` has the same for commands."""


@pytest.mark.parametrize("code", LIGHT)
def test_nothing_heavy_is_imported(code: str, tmp_path: Path) -> None:
    np.save(tmp_path / "series.npy", np.zeros((3, 2)))
    shown = (
        f"{code}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}} & {set(LIGHT[code].split())})"
    )
    search = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", shown], cwd=tmp_path, env=search, capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["dropout", pytest.param("norms", marks=pytest.mark.full)])
def test_layers_can_be_imported_before_keras(name: str) -> None:
    """Keras imports the ports as soon as it is imported, and these import the layers."""
    subprocess.run([sys.executable, "-c", f"import wdport.nets.{name}"], check=True, cwd=PACKAGE.parent)
