"""Names of the files that `--repro` writes; separate from the writer, which takes a second to import."""

from __future__ import annotations

from typing import Final

DATA: Final = "layer.npz"
SCRIPT: Final = "repro.py"
KINDS: Final = {DATA: "layer", SCRIPT: "script"}
"""The kind of each file in :data:`wdport.files.writable.OURS`."""
