"""The folder of a training run: which files it has, and that it has no others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wdport.errors import UsageError, printable
from wdport.files.run_folder import LOCK, RUN, RunFolder
from wdport.files.temporary import is_temporary
from wdport.files.writable import is_replaceable, require_apart, require_no_leftover, writable

STATES: Final = ("state.npz", "state.orbax")
WRITTEN: Final = ("metrics.csv", "model.keras", "model.ema.keras", "model.optimizer.safetensors")
FILES: Final = (*STATES, "events", *WRITTEN)
"""The files and folders of a run."""

_KINDS: Final = {".csv": "metrics", ".keras": "archive", ".npz": "archive"}

_FILES: Final = re.compile("|".join(map(re.escape, FILES)))
_TEMPORARY: Final = re.compile("|".join(map(re.escape, (RUN, *FILES))))


@contextmanager
def run_folder(folder: Path, first: bool) -> Iterator[RunFolder | None]:
    """Make the folder of a run and hold it; None in all processes but the ``first``. Raises as
    :func:`require_run_folder` does, and :class:`MachineError` if another process holds it."""
    if not first:
        yield None
        return
    require_run_folder(folder)
    with RunFolder(folder, _FILES, "the state", private=False) as held:
        yield held


def require_run_folder(folder: Path, inputs: Mapping[str, Path] | None = None) -> None:
    """Refuse a folder that has anything but a run, or in which a file of a run cannot be written or is an input.

    Raises :class:`UsageError` or :class:`MachineError`.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(folder, "is not a folder", "give another name with `-o`")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    names = {name for name in names if name != LOCK and not is_temporary(name, _TEMPORARY)}
    fix = "give another folder with `-o`"
    if others := sorted(names - {RUN, *FILES}):
        raise UsageError(folder, f"has {printable(others[0], 40)}, which is not of a run", fix)
    require_no_leftover(folder, _TEMPORARY, inputs or {})
    for name in (*WRITTEN, STATES[0], RUN):
        path = folder / name
        require_apart([("-o", path)], inputs or {})
        if name in names:
            writable(path, inputs)
            if RUN in names and path.suffix in _KINDS and not is_replaceable(path, _KINDS[path.suffix]):
                raise UsageError(path, "is not a file that wdport train writes", "move it to another folder")
    if names and RUN not in names:
        raise UsageError(folder, f"has {min(names)}, and no run of wdport train ({RUN})", fix)
