"""The user's settings for storing variables: their dtype, the memory limit, and the size of shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wdport.conversion.prepare import Prepared
from wdport.conversion.rounding import STORED
from wdport.errors import UsageError
from wdport.files import npz_file
from wdport.files.target import FOLDER, KERAS, ORBAX, Target

SHARD_SIZE: Final = 5_000_000_000
"""Default bytes per shard, as in Hugging Face's libraries."""

_SIZE: Final = re.compile(r"(\d{1,15})\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_UNITS: Final = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
                 "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}  # fmt: skip


@dataclass(frozen=True)
class Storage:
    """``dtype`` is one of :data:`wdport.conversion.rounding.STORED`; sizes are bytes, None for the defaults."""

    dtype: str = "float32"
    max_memory: int | None = None
    max_shard_size: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in STORED:
            raise UsageError("--dtype", f"unknown dtype {self.dtype!r}", f"use one of {', '.join(STORED)}")

    def streams(self, target: Target) -> bool:
        """Return whether the conversion runs in bounded memory; raises ``UsageError`` if the format does not support
        the settings."""
        asked = {"--dtype": self.dtype != "float32", "--max-memory": self.max_memory is not None}
        if target.format in KERAS and any(asked.values()):
            option = next(name for name, requested in asked.items() if requested)
            what = f"works with .safetensors, .npz and folders, not with .{target.format}"
            raise UsageError(option, what, "end the name that `-o` gives in .safetensors, or in / for a folder")
        if target.format == "npz" and self.dtype not in npz_file.DTYPES:
            raise UsageError("--dtype", f"numpy has no {self.dtype}", "write a .safetensors file or a folder")
        if target.format == ORBAX and self.max_memory is not None:
            what = "does not work with an Orbax checkpoint, which is written at once"
            raise UsageError("--max-memory", what, "write a folder of safetensors shards")
        if target.format != FOLDER and self.max_shard_size is not None:
            raise UsageError("--max-shard-size", "requires a folder", "end the name that `-o` gives in /")
        # These formats have only a writer in pieces, whatever the settings are.
        return target.format in (FOLDER, ORBAX, "npz") or any(asked.values())

    def dtypes(self, prepared: Prepared) -> Mapping[str, str]:
        """Return the dtype of every variable: a table that is checked against its formula stays float32, since 16 bits
        ruin it."""
        tables = {target for move in prepared.plan.moves if any(name in prepared.plan.checks for name in move.sources)
                  for target in move.targets}  # fmt: skip
        return {name: "float32" if name in tables else self.dtype for name in prepared.variables}


def parse_size(option: str, text: str | None) -> int | None:
    """Parse ``512MiB`` or ``5GB`` to bytes; raises :class:`UsageError`."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if not match or not int(match[1]):
        raise UsageError(option, f"invalid size {text!r}", "write for example 512MiB or 5GB")
    return int(match[1]) * _UNITS[match[2] or ""]
