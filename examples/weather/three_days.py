"""The weather at Newark airport in windows of three days from midnight; every fourth week is held out of training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wdport.uses.data import read_series

DATA = Path(__file__).with_name("newark.csv")
DAY, DAYS = 24, 3
SEQ_LEN = DAYS * DAY
CYCLE, HELD_OUT = 28, 21
"""Of every 28 days, those from the 22nd on are held out."""


def windows(held_out: bool) -> NDArray[np.float64]:
    """The windows (n, 72, 3), in the units of the data, of the held-out weeks or of the others."""
    values = read_series(DATA).values
    chosen = [
        day
        for day in range(len(values) // DAY - DAYS + 1)
        if all(((day + i) % CYCLE >= HELD_OUT) == held_out for i in range(DAYS))
    ]
    return np.stack([values[day * DAY : day * DAY + SEQ_LEN] for day in chosen])
