"""Return the windows (n, N, F) of a series (T, F), as a read-only view without a copy."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from wdport.errors import UsageError
from wdport.model import Array


def sliding_windows(values: ArrayLike, length: int, stride: int = 1) -> Array:
    """Return the windows of ``length`` steps that begin at steps 0, ``stride``, 2 ``stride``, ... of ``values`` (T, F).

    The result is (n, length, F) with n = (T - length) // stride + 1, a read-only view of ``values``; an incomplete last
    window is dropped. Raises :class:`UsageError` if no window fits or a number is below 1.
    """
    table = np.asarray(values)
    if table.ndim != 2:
        raise UsageError("values", f"have shape {table.shape}", "give (time steps, features)")
    for name, number in (("length", length), ("stride", stride)):
        if number < 1:
            raise UsageError(name, f"is {number}", "give 1 or more")
    if length > len(table):
        what = f"of {length} steps does not fit into a series of {len(table)}"
        raise UsageError("window", what, "use a shorter window or a longer series")
    windows = sliding_window_view(table, length, axis=0)  # (T - length + 1, F, length)
    return windows[::stride].transpose(0, 2, 1)
