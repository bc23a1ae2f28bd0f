"""Gate C: one float64 backward pass of both sides from one random cotangent; errors by tap, level and variable out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import jax
import numpy as np

from wdport.conversion.prepare import Prepared
from wdport.model import Array, Levels
from wdport.parity.bounds import GRADIENT
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.measure import ScaledErrors, like, relative_l2
from wdport.parity.taps import Tap
from wdport.parity.verdict import Gate
from wdport.rules import apply_rule


@dataclass(frozen=True)
class GradientErrors:
    """Relative float64 errors: by tap (the reference's name), by level of the first input, by variable."""

    taps: dict[str, float]
    levels: list[float]
    inputs: list[float]
    variables: dict[str, float]
    gate: Gate


def gradient_gate(
    prepared: Prepared, module: Any, probe: GradientProbe, taps: Sequence[Tap], seed: int, batch: int
) -> GradientErrors:
    """Compare the gradients of ``module`` (PyTorch, float64) and of the probed model, weights as they are."""
    from wdport.parity.torch_gradients import torch_gradients  # torch may be absent where a recording is replayed

    family, config = prepared.family, prepared.config
    inputs = family.make_inputs(config, seed, batch, 1.0)
    shape = family.levels(config)
    cotangent = np.random.default_rng([seed, 1]).standard_normal(inputs[0].shape)
    names = {name for name, _ in module.named_modules()}
    seen = [tap for tap in taps if tap.reference in names]
    theirs = torch_gradients(module, inputs, cotangent, [tap.reference for tap in seen])
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        _, by_input, by_tap, by_weight = probe(inputs, cotangent)
    ours = dict(zip((v.path for v in probe.model.trainable_variables), by_weight, strict=True))
    found = GradientErrors(
        {t.reference: _tap(by_tap.get(t.candidate, []), theirs.taps.get(t.reference, [])) for t in seen},
        _by_level(shape, by_input[0], theirs.inputs[0]),
        [relative_l2(a, b) for a, b in zip(by_input, theirs.inputs, strict=True)],
        variable_errors(prepared, ours, theirs.parameters),
        Gate("C", "gradients, float64", False, 0, 0),
    )
    return _judged(found, list(ours), shape)


def variable_errors(prepared: Prepared, ours: Mapping[str, Any], theirs: Mapping[str, Array]) -> dict[str, float]:
    """Errors by variable of gradients that the reference has by parameter."""
    errors = ScaledErrors()
    for move in prepared.plan.moves:
        if move.source in theirs:
            made = apply_rule(move.rule, [theirs[move.source]], move.sizes)
            for name, array in zip(move.targets, made, strict=True):
                if name in ours:
                    errors.add(name, np.asarray(ours[name]), array)
    return errors.relative()


def _tap(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The largest error over a tap's outputs; infinite where count or shapes differ."""
    try:
        return max(relative_l2(like(a, b), b) for a, b in zip(ours, theirs, strict=True))
    except ValueError:
        return inf


def _by_level(shape: Levels, ours: Array, theirs: Array) -> list[float]:
    return [relative_l2(ours[:, part], theirs[:, part]) for part in shape.slices]


def _judged(found: GradientErrors, variables: Sequence[str], shape: Levels) -> GradientErrors:
    """The gate: every tap, level and trainable variable compared, each within the bound."""
    errors = {f"by {name}": error for name, error in found.taps.items()}
    errors |= {f"by input {at}": error for at, error in enumerate(found.inputs)}
    errors |= {f"by input of {name}": error for name, error in zip(shape.names, found.levels, strict=True)}
    errors |= {f"by {name}": error for name, error in found.variables.items()}
    findings = [f"the gradient {name} is off by {error:.1e}" for name, error in errors.items() if not error <= GRADIENT]
    missing = [name for name in variables if name not in found.variables]
    findings += [f"the gradient by {name} was not compared" for name in missing]
    worst = max(errors, key=lambda name: errors[name])
    count, expected = len(errors), len(errors) + len(missing)
    gate = Gate("C", "gradients, float64", not findings and count > 0, count, expected, errors[worst], GRADIENT, worst,
                tuple(findings))  # fmt: skip
    return GradientErrors(found.taps, found.levels, found.inputs, found.variables, gate)
