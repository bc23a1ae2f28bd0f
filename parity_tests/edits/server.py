"""Run jobs in a process that imports edited copies of the package; see `process.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Server:
    """A process that runs jobs, and in ``folder`` the copy of the package that edits are made in."""

    def __init__(self, folder: Path, name: str) -> None:
        self.tree, self.result = folder / f"tree-{name}", folder / f"result-{name}.json"
        shutil.copytree(ROOT / "wdport", self.tree / "wdport", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "mappings", self.tree / "mappings")
        own = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS":
               "0.01", "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        script = str(Path(__file__).with_name("process.py"))
        self._process = subprocess.Popen([sys.executable, "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True,
                                         env={**os.environ, **own})  # fmt: skip

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The outcome of one job; a process that dies is a finding, too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.result.unlink(missing_ok=True)
        where = {"tree": str(self.tree), "result": str(self.result)}
        self._process.stdin.write(json.dumps({**job, **where}) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline() or not self.result.is_file():
            return {"exit_code": 70, "error": "the process died"}
        outcome: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return outcome
