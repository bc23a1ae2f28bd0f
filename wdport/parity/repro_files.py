"""Names of the files that `--repro` writes; separate from the writer, which takes a second to import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from wdport.files.writable import writable

DATA: Final = "layer.npz"
SCRIPT: Final = "repro.py"
KINDS: Final = {DATA: "layer", SCRIPT: "script"}
"""The kind of each file in :data:`wdport.files.writable.OURS`."""


def require_repro(folder: str | os.PathLike[str] | None) -> None:
    """Refuse a folder in which another file than an older one of these has one of their names."""
    for name, kind in KINDS.items():
        if folder is not None and os.path.lexists(path := Path(folder, name)):
            writable(path, force=False, option=None, kind=kind)
