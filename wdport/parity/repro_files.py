"""The files that `--repro` writes, by their names; apart from what writes them, which takes a second to import."""

from __future__ import annotations

from typing import Final

DATA: Final = "layer.npz"
SCRIPT: Final = "repro.py"
KINDS: Final = {DATA: "layer", SCRIPT: "script"}
"""What each is among :data:`wdport.files.writable.OURS`."""
