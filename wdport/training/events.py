"""The metrics of a run, as a table and as events for TensorBoard; the first process, which has the folder
held, writes them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from wdport.errors import MachineError
from wdport.files.atomic import write_text
from wdport.files.run_folder import RunFolder

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
        """Go on after these rows: TensorBoard forgets later ones of an interrupted run."""
        if self._writes_events:
            from tensorboardX import SummaryWriter

            steps = int(rows[-1]["steps"]) if rows else 0
            purge = steps + 1 if rows else None
            writer: Any = SummaryWriter(str(self.folder / EVENTS), purge_step=purge, filename_suffix=f".{steps}")
            self._writer = writer

    def epoch(self, rows: Rows) -> None:
        """Write the last row."""
        if self._held is None:
            return
        lines = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
        text = "\n".join(",".join(line) for line in lines)
        write_text(self._held.output(METRICS), f"{text}\n")
        if self._writer is not None:
            last = dict(rows[-1])
            step = int(last.pop("steps"))
            for name, value in last.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
