"""Acceptance rules in use elsewhere, for comparison: each decides whether two float32 outputs are close enough.

Each compares the whole network's output with fixed tolerances; none knows how much of a difference is rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from wdport.model import Array

Accept = Callable[[Array, Array], bool]


def _close(rtol: float, atol: float) -> Accept:
    return lambda port, reference: bool(np.allclose(port, reference, rtol=rtol, atol=atol))


def _cosine(port: Array, reference: Array) -> bool:
    a, b = (side.astype(np.float64).ravel() for side in (port, reference))
    return bool(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) > 0.997)


RULES: Final[dict[str, Accept]] = {
    "numpy allclose, its defaults": _close(1e-5, 1e-8),
    "assert_close, 1e-5 rules": _close(1.3e-6, 1e-5),
    "atol 1e-3": _close(0.0, 1e-3),
    "cosine > 0.997": _cosine,
    "atol 0.025, rtol 20, inputs of ones": _close(20.0, 0.025),
}

ON_ONES: Final = frozenset({"atol 0.025, rtol 20, inputs of ones"})
"""Rules that are applied to the outputs for inputs of ones."""


def rejected_by(outputs: Callable[[bool], tuple[Array, Array]]) -> tuple[str, ...]:
    """The rules that reject the port's float32 output; ``outputs`` returns it and the reference's, for inputs of ones
    if its argument is true."""
    sides = {ones: outputs(ones) for ones in (False, True)}
    return tuple(name for name, accept in RULES.items() if not _accepted(accept, *sides[name in ON_ONES]))


def _accepted(accept: Accept, port: Array, reference: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return port.shape == reference.shape and accept(port, reference)
