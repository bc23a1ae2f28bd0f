"""Faults that are not mutants: edits of wdport's own source, each tried by `verify` in an edited copy.

They were written from the port and the description of the model, without sight of the mutants and the gates. The
port, the rebuilt port, the sampler and the file layout all run the edited code, as they would in practice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wdport.errors import InternalError
from wdport.families.faults import Kill
from wdport.families.roles import Edited
from wdport.mapping.strict_yaml import load_yaml

ELSEWHERE = {"sampling": ("E", "E'"), "series": ("F",), "file": ("0",)}
"""Sites that are not layers, and the gates about them, any of which may find the fault."""

PACKAGE = Path(__file__).parents[2]
"""The folder of this package."""

REFUSED = "refused"
"""In place of a gate: the faulty code was refused before a comparison."""


@dataclass(frozen=True)
class Edit:
    """One fault: ``old``, which occurs once in ``file``, is replaced by ``new``. ``sites`` are patterns of the layers
    whose own computation is wrong, "" for the network, or a key of :data:`ELSEWHERE`; ``cause`` is the text of a
    correct diagnosis, "" if it must be silent; ``full`` says that only the full battery can find it, ``outside`` why
    `verify` cannot."""

    name: str
    file: str
    old: str
    new: str
    sites: tuple[str, ...]
    variant: str
    cause: str = ""
    full: bool = False
    outside: str = ""

    def apply(self, tree: Path) -> None:
        """Edit the file below ``tree``."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise InternalError(self.name, f"its text occurs {text.count(self.old)} times in {self.file}", "correct it")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def read_edits(path: Path) -> tuple[Edit, ...]:
    """All edits of a file."""
    rows: list[dict[str, Any]] = load_yaml(path.read_bytes(), path).plain()
    return tuple(
        Edit(row["name"], row["file"], row["old"], row["new"],
             tuple([row["site"]] if isinstance(row["site"], str) else row["site"]),
             row["variant"], row.get("cause", ""), row.get("full", False), row.get("outside", ""))
        for row in rows
    )  # fmt: skip


def run_edits(family: Edited, edits: Sequence[Edit]) -> Iterator[Kill]:
    """Yield the outcome of every edit of code that `verify` runs."""
    with TemporaryDirectory() as made, EditServer(Path(made) / "compiled") as server:
        folder = Path(made)
        files = {name: _files(family, config, folder / f"{name}.pt") for name, config in family.edited().items()}
        for checkpoint, converted, given in files.values():
            server.run(_job(PACKAGE.parent, checkpoint, converted, convert=given))
        for edit in (each for each in edits if not each.outside):
            tree = folder / "tree"
            copy_package(tree)
            edit.apply(tree)
            checkpoint, converted, given = files[edit.variant]
            anew = edit.sites == ("file",)
            target = folder / "anew.keras" if anew else converted
            told = {"full": edit.full}
            yield fate(edit, server.run(_job(tree, checkpoint, target, given if anew else None, told)))
            shutil.rmtree(tree)


def fate(edit: Edit, outcome: dict[str, Any]) -> Kill:
    """The outcome of an edit, from the output of `verify`."""
    gates = dict(outcome.get("gates", ()))
    found = tuple(dict.fromkeys(candidate for _, candidate, _ in outcome.get("faults", ())))
    missing = tuple(outcome.get("missing", ()))
    gate = REFUSED if outcome["error"] else next(iter(gates), "")
    expected = next((ELSEWHERE[site] for site in edit.sites if site in ELSEWHERE), None)
    if expected is not None:
        exact = not found and bool(set(expected) & set(gates))
    else:
        below = tuple(
            f"{site}/*" if site else "*" for site in edit.sites
        )  # a layer that is not run was not called there
        exact = bool(found or missing) and all(map(partial(_fits, edit.sites), found))
        exact = exact and (bool(found) or all(map(partial(_fits, below), missing)))
    told = tuple(dict.fromkeys(text for texts in outcome.get("causes", {}).values() for text in texts))
    return Kill("edits", edit.name, ", ".join(edit.sites) or "the network", gate, gate or "A", found or missing,
                exact or gate == REFUSED, float("nan"), causes=told, sought=bool(gate) and gate != REFUSED,
                facts=edit.cause)  # fmt: skip


def _fits(patterns: Sequence[str], path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _job(
    tree: Path, checkpoint: Path, converted: Path, convert: dict[str, Any] | None, verify: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A job for `edit_server.py`."""
    paths = {
        "tree": tree,
        "checkpoint": checkpoint,
        "converted": converted,
        "result": checkpoint.parent / "result.json",
    }
    return {**{name: str(path) for name, path in paths.items()}, "convert": convert, "export": None, "verify": verify}


def _files(family: Edited, config: Any, path: Path) -> tuple[Path, Path, dict[str, Any]]:
    """A checkpoint of this configuration with random weights, the path for its conversion, and the arguments of
    that."""
    import torch

    tensors = family.random_tensors(config, 0)
    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, path)
    values, statistics = family.given(config), family.statistics(config)
    given: dict[str, Any] = {"values": values}
    if statistics is not None:
        told = path.with_suffix(".norm.json")
        told.write_text(json.dumps({"mean": list(statistics[0]), "std": list(statistics[1])}), encoding="utf-8")
        given["norm_stats"] = str(told)
    return path, path.with_suffix(".keras"), given


def copy_package(tree: Path) -> None:
    """Copy the package and its mapping tables, which are beside it in a source checkout and inside it in a wheel."""
    shutil.copytree(PACKAGE, tree / "wdport", ignore=shutil.ignore_patterns("__pycache__"))
    beside = PACKAGE.parent / "mappings"
    if not (tree / "wdport" / "_mappings").is_dir():
        shutil.copytree(beside, tree / "mappings")


class EditServer:
    """A process that runs jobs; see `edit_server.py`. ``cache`` is the folder of compiled programs."""

    def __init__(self, cache: Path) -> None:
        own = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.01",
               "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        script = str(Path(__file__).with_name("edit_server.py"))
        self._process = subprocess.Popen([sys.executable, "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True,
                                         env={**os.environ, **own})  # fmt: skip

    def __enter__(self) -> EditServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The outcome of one job; a process that dies is a finding, too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        result = Path(job["result"])
        result.unlink(missing_ok=True)
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline() or not result.is_file():
            return {"exit_code": 70, "error": "the process died"}
        outcome: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return outcome
