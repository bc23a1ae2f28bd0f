"""What a parity run found: plain objects first, text and JSON from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from wdport.parity.bounds import LOGIC, NUMERICS

SCHEMA = 1


@dataclass(frozen=True)
class Gate:
    """One gate's outcome. ``compared`` must equal ``expected`` and be positive for it to pass.

    ``worst`` is the largest value found, ``bound`` what it may be at most, ``where`` the tap or table
    that it was found at; ``findings`` are sentences on what failed or deserves notice.
    """

    name: str
    title: str
    passed: bool
    compared: int
    expected: int
    worst: float | None = None
    bound: float | None = None
    where: str = ""
    findings: tuple[str, ...] = ()


@dataclass
class TapResult:
    """One tap: relative float64 errors (fed the reference's input, and through the whole network), and
    float32 errors as multiples of the reference's own."""

    reference: str
    candidate: str
    level: int | None
    isolated: float = 0.0
    cumulative: float = 0.0
    rms_ratio: float = 0.0
    max_ratio: float = 0.0
    bias: float = 0.0
    share32: tuple[float, float] = (0.0, 0.0)

    @property
    def sound(self) -> bool:
        """Whether the layer, fed the reference's own input, is within the bounds of gates A and B."""
        return self.isolated <= LOGIC and max(self.rms_ratio, self.max_ratio) <= NUMERICS


@dataclass(frozen=True)
class LevelResult:
    """One wavelet level of the output: float64 error of its coefficients and of the series made from
    them alone (``None`` where the wavelet is unknown), and its worst feature's float32 ratio."""

    name: str
    coefficients: float
    series: float | None
    ratio: float


@dataclass(frozen=True)
class Verdict:
    """The outcome of :func:`wdport.verify`; true if everything that had to be compared was, and agrees."""

    checkpoint: str
    converted: str
    gates: tuple[Gate, ...]
    taps: tuple[TapResult, ...]
    levels: tuple[LevelResult, ...]
    series: float | None
    assumed: dict[str, Any]
    inputs: tuple[str, ...]
    environment: dict[str, str]
    seconds: float = field(default=0.0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.gates) and all(gate.passed for gate in self.gates)

    @property
    def complete(self) -> bool:
        """Whether everything that had to be compared was."""
        return bool(self.gates) and all(gate.compared == gate.expected > 0 for gate in self.gates)

    @property
    def exit_code(self) -> int:
        """0 equal, 1 different, 6 not everything compared."""
        return 0 if self else (1 if self.complete else 6)

    @property
    def failing(self) -> tuple[TapResult, ...]:
        """Taps that fail when fed the reference's own input, in the order of the computation: each is a
        probable fault, the first of them the one to look at first."""
        return tuple(tap for tap in self.taps if not tap.sound)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinities as text, since JSON has none."""
        facts = {"schema": SCHEMA, "passed": bool(self), "complete": self.complete, "exit_code": self.exit_code}
        return {**facts, **_plain(asdict(self))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value
