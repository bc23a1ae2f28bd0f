"""Every bound of the parity gates, each with its reason. None is ever loosened to make a run pass."""

from __future__ import annotations

from typing import Final

LOGIC: Final = 1e-10
"""Gate A, relative L2 error in float64. A correct port agrees to about 1e-15; the weakest logic fault
known (a LayerNorm epsilon of 1e-6 for 1e-5) shows 1e-5."""

LEAK: Final = 1e-5
"""Between LOGIC and this the error is called a precision leak: something computes in float32."""

NUMERICS: Final = 8.0
"""Gate B: a layer's float32 error may be this many times the reference's own float32 error."""

TRAJECTORY: Final = 1e-10
"""Gate E, relative float64 error of the state anywhere along a sampling run; a correct port shows 1e-14."""

GRADIENT: Final = 1e-10
"""Gate C, relative float64 error of a gradient, by input and by parameter."""

UNIT_ROUNDOFF: Final = 2.0**-24
"""Of float32: the least error that a result of unit size has by being stored at all."""

UNIT_ROUNDOFF_16: Final = 2.0**-8
"""The same of bfloat16."""

WAVELET: Final = 1e-12
"""Gate F, relative float64 error per level against PyWavelets; measured 2e-15 over seven boundary modes."""

WAVELET_EXTRAPOLATED: Final = 1e-10
"""The same for smooth and antireflect, whose extensions grow beyond the signal; measured 7e-14."""

TABLE_ULP: Final = 2.0
"""Gate A', units in the last place of float32 between a table of the port and its float64 formula."""

FLOAT32_SHARE: Final = 0.5
"""Share of a float64 tap's values that float32 can hold exactly: near 0 in a true float64 run, near 1
behind a cast to float32."""


def bounds() -> dict[str, float]:
    """Every bound in force, by its name in lower case."""
    names = ("LOGIC", "NUMERICS", "TRAJECTORY", "GRADIENT", "WAVELET", "WAVELET_EXTRAPOLATED", "TABLE_ULP",
             "FLOAT32_SHARE", "LEAK")  # fmt: skip
    return {name.lower(): globals()[name] for name in names}
