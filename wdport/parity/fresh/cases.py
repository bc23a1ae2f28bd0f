"""The cases of a fresh comparison: inputs, sizes and weights that follow from one seed, drawn at run time."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from wdport.compare.calls import Case
from wdport.conversion.prepare import Prepared
from wdport.model import Array, Signature
from wdport.recorder import Input

SPREAD: Final = 0.25
"""Fresh weights are the checkpoint's, each times a factor from 1 - SPREAD to 1 + SPREAD: signs and zeros remain, and
with them what a layer needs, such as positive variances."""

MIXED: Final = 6.0
"""Samples of a mixed batch have magnitudes from 2**-MIXED to 2**MIXED."""


def draw_seed() -> int:
    """A seed that nobody knows before the run; it determines all inputs."""
    return secrets.randbits(31)


@dataclass(frozen=True, eq=False)
class FreshCase:
    """One input: ``mixed`` gives every sample its own magnitude, ``longer`` other sizes to axes that the port
    leaves open, ``weights`` fresh weights to both sides."""

    case: Case
    mixed: bool = False
    longer: Mapping[str, int] = field(default_factory=dict)
    weights: bool = False

    def __str__(self) -> str:
        scale = "mixed scales" if self.mixed else f"scale x{self.case.scale:.3g}"
        sizes = "".join(f", {axis.lstrip('_')} {size}" for axis, size in self.longer.items())
        return f"batch {self.case.batch}, {scale}{sizes}{', fresh weights' if self.weights else ''}"

    def inputs(self, signature: Signature) -> tuple[Array, ...]:
        """Its inputs in the PyTorch model's layout."""
        case = self.case
        factors = 2.0 ** np.random.default_rng([case.seed, 1]).uniform(-MIXED, MIXED, case.batch)
        return tuple(_drawn(self._sized(spec), case, factors if self.mixed else None) for spec in signature.inputs)

    def _sized(self, spec: Input) -> Input:
        changed = {axis: size for axis, size in self.longer.items() if axis in spec.sizes}
        return replace(spec, sizes={**spec.sizes, **changed}, alone={}) if changed else spec


def fresh_cases(seed: int, signature: Signature, drawn: bool) -> list[FreshCase]:
    """The cases of a seed; ``drawn`` says whether inputs are drawn here, and not by the user's own function."""
    rng = np.random.default_rng([seed, 0])
    small, large = int(rng.integers(2, 5)), int(rng.integers(5, 9))
    scales = 2.0 ** rng.uniform([-1.0, 3.0, -12.0], [1.0, 6.0, -6.0])
    cases = [
        FreshCase(Case(seed, small, 1.0)),
        FreshCase(Case(seed + 1, 1, float(scales[0]))),
        FreshCase(Case(seed + 2, large, float(scales[1]))),
        FreshCase(Case(seed + 3, small, float(scales[2]))),
        FreshCase(Case(seed + 4, small, 1.0), weights=True),
    ]
    if drawn:
        cases.insert(4, FreshCase(Case(seed + 5, small, 1.0), mixed=True))
    if drawn and (longer := _longer(signature, rng)):
        cases.insert(5, FreshCase(Case(seed + 6, small, 1.0), longer=longer))
    return cases


def _longer(signature: Signature, rng: np.random.Generator) -> dict[str, int]:
    """Other sizes of the open axes, each a multiple of what the network needs."""
    fixed = {axis for spec in signature.inputs if spec.draw == "parts" for axis in spec.axes}
    sizes = {axis: size for spec in signature.inputs for axis, size in spec.sizes.items() if axis not in fixed}
    return {axis: sizes[axis] + step * int(rng.integers(1, 4))
            for axis, step in signature.free.items() if axis in sizes}  # fmt: skip


def _drawn(spec: Input, case: Case, factors: Array | None) -> Array:
    values = spec.make(case.seed, case.batch, case.scale)
    if factors is None or spec.draw not in ("normal", "parts"):
        return values
    shape = [case.batch if axis == "b" else 1 for axis in spec.axes]
    return values * factors.reshape(shape)


def fresh_tensors(prepared: Prepared, tensors: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Other float32 values for every tensor that the plan moves into a variable, and for those tied to one."""
    plan = prepared.plan
    moved = [name for move in plan.moves for name in move.sources if name not in plan.checks]
    perturbed = {}
    for name in moved:
        if (array := tensors[name]).dtype.kind == "f":
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            factors = rng.uniform(1.0 - SPREAD, 1.0 + SPREAD, array.shape)
            perturbed[name] = (array.astype(np.float64) * factors).astype(np.float32)
    return perturbed | {name: perturbed[same] for name, same in plan.ties.items() if same in perturbed}
