"""Every bound of the parity gates, each with its reason. None is ever loosened to make a run pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LOGIC: Final = 1e-10
"""Gate float64 (A), relative L2 error in float64. A correct port agrees to about 1e-15; the weakest logic fault
known (a LayerNorm epsilon of 1e-6 for 1e-5) shows 1e-5."""

LEAK: Final = 1e-5
"""An error between LOGIC and this is reported as a precision leak if the values are ones that float32 holds."""

NUMERICS: Final = 8.0
"""Gate float32 (B): a layer's float32 error may be this many times the reference's own float32 error."""

TRAJECTORY: Final = 1e-10
"""Gate trajectories (E), relative float64 error of the state anywhere along a sampling run; a correct port shows
1e-14."""

GRADIENT: Final = 1e-10
"""Gate gradients (C), relative float64 error of a gradient, by input and by parameter."""

UNIT_ROUNDOFF: Final = 2.0**-24
"""Unit roundoff of float32: the error of storing a result of unit size."""

UNIT_ROUNDOFF_16: Final = 2.0**-8
"""Unit roundoff of bfloat16."""

TABLE_ULP: Final = 2.0
"""Gate constants (A'), units in the last place of float32 between a table of the port and its float64 formula."""

FLOAT32_SHARE: Final = 0.5
"""Share of a float64 tap's values that float32 can hold exactly: near 0 in a true float64 run, near 1
after a cast to float32."""


@dataclass(frozen=True)
class Bound:
    """An upper bound, the quantity that it bounds, and the gates that apply it, in words; "" for all in float64."""

    value: float
    meaning: str
    gates: str = ""

    @property
    def described(self) -> str:
        """The gates and the quantity."""
        return f"{self.gates}: {self.meaning}" if self.gates else self.meaning


BOUNDS: Final[Mapping[str, Bound]] = {
    "logic": Bound(LOGIC, "relative float64 error of outputs and logits; for a layer, of its isolated output, of its "
                   "inputs, and of its output within the network", "float64 (A), fresh (N) and generation (I)"),
    "numerics": Bound(NUMERICS, "float32 error of a layer or an output as a multiple of the reference's own float32 "
                      "error", "float32 (B), sampling network (E'), samplers (H), generation (I) and fresh (N)"),
    "trajectory": Bound(TRAJECTORY, "relative float64 error of a state or a prediction",
                        "trajectories (E), samplers (H) and sampling network (E')"),
    "gradient": Bound(GRADIENT, "relative float64 error of a gradient, and of the optimizer step computed from it",
                      "gradients (C), optimizer (D), resumed (D') and training mode (M)"),
    "table_ulp": Bound(TABLE_ULP, "difference between a constant tensor and its formula, in units in the last place "
                       "of float32", "constants (A')"),
    "float32_share": Bound(FLOAT32_SHARE, "largest permitted share of a float64 layer's values that float32 can "
                           "represent exactly"),
    "leak": Bound(LEAK, "float64 errors between the bound 'logic' and this bound are reported as precision leaks, if "
                  "the layer's values are ones that float32 holds"),
}  # fmt: skip
"""The bounds of the gates that every model has; families add those of their own gates."""


def bounds(family_bounds: Mapping[str, Bound] | None = None) -> dict[str, float]:
    """Every default bound by name, including ``family_bounds``."""
    return {name: bound.value for name, bound in {**BOUNDS, **(family_bounds or {})}.items()}
