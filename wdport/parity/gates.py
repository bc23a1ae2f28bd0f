"""The gates: gathered results in, a passed or failed gate with its worst value and its findings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from wdport.compare.bounds import FLOAT32_SHARE, LEAK, LOGIC, NUMERICS, TABLE_ULP
from wdport.compare.measure import ulps
from wdport.conversion.prepare import Prepared
from wdport.keras_runtime import variables_by_path
from wdport.parity.runner import EAGER, OUTPUT, Runner
from wdport.parity.sides import Weights
from wdport.parity.verdict import Gate, TapResult


def preflight_gate(prepared: Prepared, runner: Runner, unequal: list[str]) -> Gate:
    """Gate 0: everything accounted for, both sides sound, nothing left uncompared.

    ``unequal`` are sentences on variables that the converted file does not hold as it ought to.
    """
    plan, tensors = prepared.plan, prepared.checkpoint.tensors
    findings = list(dict.fromkeys([*runner.findings, *unequal]))
    settled = {name for move in plan.moves for name in move.sources} | {*plan.checks, *plan.drops, *plan.ties}
    findings += [f"{name} is not accounted for" for name in tensors if name not in settled]
    variables = list(variables_by_path(runner.sides.candidates["float32"]))
    if sorted(variables) != sorted(plan.targets):
        findings.append("the plan does not fill every variable exactly once")
    if not runner.sides.reference.evaluating:
        findings.append("the reference is not in evaluation mode")
    if runner.torch_precision != "highest" or runner.jax_precision != "highest":
        findings.append("matrix products do not run at the highest precision on both sides")
    models = runner.sides.candidates.values()
    if runner.sides.reference.framework != "torch" or not all(isinstance(model, keras.Model) for model in models):
        findings.append("reference and candidate are not models of two frameworks")
    tallies = (runner.logic, runner.numerics)
    expected = len(tensors) + len(variables) + sum(tally.expected for tally in tallies)
    compared = len(settled & set(tensors)) + len(set(plan.targets)) + sum(tally.compared for tally in tallies)
    passed = not findings and compared == expected
    told = (*findings, *_conditioned(runner), *_left_out(runner), *_arranged(runner), *runner.sides.reference.notes)
    return Gate("0", "preflight", passed, compared, expected, findings=told)


def _conditioned(runner: Runner) -> list[str]:
    """The layers whose errors in float64 are no larger than what one rounding does to them."""
    found = {tap.reference: tap.conditioned for tap in runner.taps.values() if tap.conditioned}
    if not found:
        return []
    return [
        f"ill-conditioned here: {_several(list(found))}, off by up to {max(found.values()):.1e}, as after one rounding"
    ]


def _left_out(runner: Runner) -> list[str]:
    """The layers that are compared by their parts alone, a sentence for each reason."""
    found = {tap.reference: why for tap, why in runner.left_out.items()}
    return [f"compared by parts alone: {names} ({why})" for why, names in _by_reason(found).items()]


def _arranged(runner: Runner) -> list[str]:
    """The layers whose values are arranged otherwise while everything behind them agrees."""
    told = _by_reason(runner.arranged)
    return [f"inner order differs, outputs equal: {names} ({how})" for how, names in told.items()]


def _by_reason(found: Mapping[str, str]) -> dict[str, str]:
    """The names in few words, by what is said of them."""
    return {why: _several([name for name in found if found[name] == why]) for why in dict.fromkeys(found.values())}


def _several(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def constants_gate(prepared: Prepared, candidate: Any, weights: Weights) -> Gate:
    """Gate A': every constant of the family is a table of the port, held against its float64 formula, or one
    of the file's that was carried unchanged."""
    constants = prepared.constants
    tables = prepared.family.port_tables(candidate)
    distances = {name: ulps(np.asarray(tables[name]), constants[name].values) for name in tables if name in constants}
    findings = [f"{name} is {d:.1f} ulp from its formula" for name, d in distances.items() if not d <= TABLE_ULP]
    findings += [f"{name} of the port is no constant of its family" for name in tables if name not in constants]
    carried = {}
    for move in prepared.plan.moves:
        if move.source in prepared.plan.checks:
            carried[prepared.plan.checks[move.source]] = move
            if move.source in weights.tensors and not np.array_equal(
                weights.tensors[move.source], weights.variables[move.targets[0]]
            ):
                findings.append(f"{move.targets[0]} is not the file's {move.source}")
    missing = [name for name in constants if name not in distances and name not in carried]
    findings += [f"{name} is in no table of the port" for name in missing]
    worst = max(distances, key=lambda name: distances[name], default="")
    count, expected = len(constants) - len(missing), len(constants)
    return Gate("A'", "constants", not findings and count > 0, count, expected, distances.get(worst), TABLE_ULP, worst,
                tuple(findings))  # fmt: skip


def logic_gate(runner: Runner) -> Gate:
    """Gate A: float64, every layer fed the reference's own input, and the whole network."""
    findings = []
    for tap in runner.taps.values():
        for error, how in (
            (tap.inputs, "in what it is fed"),
            (tap.isolated, "fed the reference's input"),
            (tap.cumulative, "within the network"),
        ):
            if not error <= LOGIC:
                kind = "precision leak: " if error <= LEAK else ""
                findings.append(f"{kind}{tap.reference} is off by {error:.1e} {how}")
                break
        for share, side in zip(tap.share32, ("the reference", "the port"), strict=True):
            if share > FLOAT32_SHARE:
                findings.append(f"precision leak: {tap.reference} of {side} holds float32 values")
    worst = max(runner.taps.values(), key=_worst_logic)
    silent = [name for name in runner.taps if name != EAGER and runner.runs[name] < runner.cases]
    findings += [f"{name} was not compared in every case" for name in silent]
    count = len(runner.taps) - len(silent)
    expected = len(runner.aligned) + len(runner.outputs) + (EAGER in runner.taps)
    return Gate("A", "logic, float64", not findings and count == expected, count, expected, _worst_logic(worst), LOGIC,
                worst.reference, tuple(findings))  # fmt: skip


def _worst_logic(tap: TapResult) -> float:
    return max(tap.isolated, tap.inputs, tap.cumulative)


def numerics_gate(runner: Runner) -> Gate:
    """Gate B: float32 errors as multiples of the reference's own, per tap, and per level and feature."""
    for name, pair in runner.errors.items():
        tap = runner.taps[name]
        tap.rms_ratio, tap.max_ratio, tap.bias = pair.rms_ratio, pair.max_ratio, pair.bias
    for name, pair in runner.input_errors.items():
        runner.taps[name].inputs_ratio = max(pair.rms_ratio, pair.max_ratio)
    for name, pair in runner.time_errors.items():
        tap = runner.taps[name]
        tap.rms_ratio, tap.max_ratio = max(tap.rms_ratio, pair.rms_ratio), max(tap.max_ratio, pair.max_ratio)
    ratios = {name: max(runner.taps[name].rms_ratio, runner.taps[name].max_ratio) for name in runner.errors}
    ratios |= {f"{name}, whole network": max(pair.rms_ratio, pair.max_ratio)
               for name, pair in runner.whole_errors.items()}  # fmt: skip
    ratios |= {f"{name} inputs": runner.taps[name].inputs_ratio for name in runner.input_errors}
    if runner.levels is not None:
        for (level, channel), pair in runner.levels.errors.items():
            ratios[f"{OUTPUT} {runner.levels.shape.names[level]} feature {channel}"] = pair.rms_ratio
    findings = [
        f"{name} has {r:.1f} times the reference's float32 error" for name, r in ratios.items() if not r <= NUMERICS
    ]
    worst = max(ratios, key=lambda name: ratios[name])
    count, expected = len(runner.errors), len(runner.aligned) + len(runner.outputs)
    return Gate("B", "numerics, float32", not findings and count == expected, count, expected, ratios[worst], NUMERICS,
                worst, tuple(findings))  # fmt: skip
