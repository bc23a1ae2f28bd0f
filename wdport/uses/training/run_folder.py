"""The folder of a training run: its files and no others, and its metrics, as a table and as events for TensorBoard."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from wdport.base.errors import MachineError, UsageError, printable
from wdport.files.atomic import write_text
from wdport.files.locked_folder import LOCK, RUN, RunFolder
from wdport.files.outputs import is_replaceable, is_temporary, require_apart, require_no_leftover, writable

STATES: Final = ("state.npz", "state.orbax")
WRITTEN: Final = ("metrics.csv", "model.keras", "model.ema.keras", "model.best.keras", "model.optimizer.safetensors")
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
        raise UsageError(folder, "is not a folder", "give another name")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    names = {name for name in names if name != LOCK and not is_temporary(name, _TEMPORARY)}
    fix = "move it elsewhere, or give another folder"
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


METRICS: Final = "metrics.csv"
EVENTS: Final = "events"

Rows = Sequence[Mapping[str, float]]


class Events:
    """Writes ``metrics.csv`` after every epoch, and events if ``tensorboard`` is set.

    Raises :class:`MachineError` if tensorboardX is not installed, or writing fails.
    """

    def __init__(self, folder: Path, held: RunFolder | None, tensorboard: bool = False) -> None:
        self.folder, self._held, self._writer = folder, held, None
        if tensorboard and importlib.util.find_spec("tensorboardX") is None:
            raise MachineError("tensorboard", "events need tensorboardX", "install wdport[tensorboard]")
        self._writes_events = tensorboard and held is not None

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def begin(self, rows: Rows) -> None:
        """Continue after these rows: TensorBoard drops later ones of an interrupted run, and the table, which may have
        been changed, is written again."""
        self._write(rows)
        if self._writes_events:
            from tensorboardX import SummaryWriter

            steps = int(rows[-1]["steps"]) if rows else 0
            purge = steps + 1 if rows else None
            # The suffix: a run that resumes within the same second would otherwise write to the file of the first.
            writer: Any = SummaryWriter(str(self.folder / EVENTS), purge_step=purge, filename_suffix=f".{steps}")
            self._writer = writer

    def epoch(self, rows: Rows) -> None:
        """Write the last row."""
        self._write(rows)
        if self._writer is not None:
            last = dict(rows[-1])
            step = int(last.pop("steps"))
            for name, value in last.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def _write(self, rows: Rows) -> None:
        if self._held is None or not rows:
            return
        lines = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
        text = "\n".join(",".join(line) for line in lines)
        write_text(self._held.output(METRICS), f"{text}\n")
