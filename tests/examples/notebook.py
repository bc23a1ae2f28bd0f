"""Runs ``examples/verify.ipynb`` from its first cell to its last: `make notebook` renews its outputs.

The kernel is this Python, in a copy of the examples, so that no path of a machine gets into the outputs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "verify.ipynb"
TIMEOUT = 600
"""Seconds for one cell."""


def executed(folder: Path) -> Any:
    """The notebook with new outputs, run in ``folder``; raises ``CellExecutionError`` where a cell does."""
    import nbformat
    from nbclient import NotebookClient

    shutil.copytree(EXAMPLES / "points", folder / "points")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "IPYTHONDIR": str(folder)})
    return notebook


def main() -> None:
    """Write the outputs into the notebook, without what tells when and by what it was run."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(Path(folder))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, NOTEBOOK)
    sys.stdout.write(f"{NOTEBOOK.name}: {len(notebook.cells)} cells\n")


if __name__ == "__main__":
    main()
