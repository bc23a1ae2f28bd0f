"""The gate fresh (N): ask the port for its outputs, then the reference, and compare them here.

The port has ended before the reference computes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import numpy as np

from wdport.compare.bounds import LEAK, LOGIC, NUMERICS
from wdport.compare.errors import outputs_in_port
from wdport.compare.findings import OUTPUT, Finding, Gate, Measure, fact, measure, notice
from wdport.compare.glossary import GATES
from wdport.compare.layouts import axes
from wdport.compare.measure import FLOOR, ErrorPair
from wdport.errors import IncompleteError, MisfitError, error_from
from wdport.model import Array, Signature
from wdport.parity.fresh.answers import RUNS, Answered
from wdport.parity.fresh.cases import FreshCase
from wdport.parity.fresh.messages import BrokenMessage, Message
from wdport.parity.fresh.process import Worker

WORDS: Final = {"plain": "model(x)", "compiled": "compiled"}


@dataclass(frozen=True)
class Truth:
    """The reference's outputs in one case: in float64, in float32, and in float64 from the inputs of float32."""

    exact: tuple[Array, ...]
    single: tuple[Array, ...]
    truth: tuple[Array, ...]
    names: tuple[str, ...]


def ask_reference(reference: Worker, facts: Mapping[str, object], arrays: Sequence[Array] = ()) -> Message:
    """One answer of the reference; raises the error that it reports."""
    try:
        message = reference.ask(facts, arrays)
    except BrokenMessage as error:
        what = f"the process of the reference ended ({error})"
        raise IncompleteError("verify", what, "correct the PyTorch code that ended it") from None
    if isinstance(reported := message.facts.get("error"), list):
        raise error_from(reported)
    return message


@dataclass
class FreshGate:
    """Compares the port's answers with the reference's, case by case."""

    reference: Worker
    target: str
    signature: Signature
    measures: list[Measure] = field(default_factory=list)
    facts: list[Finding] = field(default_factory=list)
    _failures: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    compared: int = 0
    expected: int = 0

    def compare(self, case: FreshCase, inputs: tuple[Array, ...], answers: Mapping[tuple[str, str], Answered]) -> None:
        """Compare one case; the reference has its weights already."""
        message = ask_reference(self.reference, {"do": "run"}, inputs)
        if "failure" in message.facts:
            why = str(message.facts["failure"])
            if not case.longer:
                what = f"running it raises {why}"
                raise MisfitError(self.target or "the reference", what, "correct the module, or its inputs")
            self.facts.append(notice(f"left out: {case}, since the reference raises {why}"[:300]))
            return
        facts: Mapping[str, Any] = message.facts
        count = int(facts["count"])
        parts = [message.arrays[start : start + count] for start in (0, count, 2 * count)]
        truth = Truth(parts[0], parts[1], parts[2], tuple(facts["names"]))
        if not all(np.isfinite(array).all() for part in parts for array in part):
            self.facts.append(notice(f"left out: {case}, where the reference has values that are not finite"))
            return
        for run in RUNS:
            self.expected += 1
            self._compare(case, run, inputs, answers[run], truth)

    def _compare(
        self, case: FreshCase, run: tuple[str, str], inputs: tuple[Array, ...], answer: Answered, truth: Truth
    ) -> None:
        """Compare one run of the port; every output by itself."""
        part = f", {case}, {run[0]}, {WORDS[run[1]]}"
        self.compared += 1
        try:
            sides = [self._in_port(side, truth.names, answer) for side in (truth.exact, truth.single, truth.truth)]
            failure = answer.failure
        except ValueError as misfit:
            failure = answer.failure or f"it returns {misfit}"
        if failure:
            self._fail(OUTPUT, part, failure)
            return
        for index, name in enumerate(_names(answer, truth)):
            port, exact = answer.outputs[index], sides[0][index]
            if unfit := _unfit(port, exact, run[0]):
                self._fail(name, part, unfit)
            elif run[0] == "float64":
                error = sample_error(port, exact)
                if not error <= LOGIC and error <= self._explained(inputs, exact, index, answer, truth):
                    text = f"ill-conditioned: {name}{part}, off by {error:.1e}, as after one rounding"
                    self.facts.append(notice(text))
                    error = 0.0
                self.measures.append(measure(name, "error", error, "logic", part))
            else:
                pair = ErrorPair()
                pair.add(port, sides[1][index], sides[2][index])
                if not max(pair.rms_ratio, pair.max_ratio) <= NUMERICS:
                    moves = self._moves(inputs, "float32", answer, truth)[index]
                    pair.allow(float(np.sum(moves**2)), float(np.max(moves, initial=0.0)))
                ratio = max(pair.rms_ratio, pair.max_ratio)
                self.measures.append(measure(name, "float32", ratio, "numerics", part))

    def _fail(self, name: str, part: str, why: str) -> None:
        """An output that cannot be compared fails the gate, with the first run of each reason."""
        self._failures.setdefault((name, why), []).append(part.removeprefix(", "))

    def _in_port(self, outputs: Sequence[Array], names: Sequence[str], answer: Answered) -> tuple[Array, ...]:
        """Outputs of the reference in the port's order and layout; raises ``ValueError`` if they do not fit."""
        rules = [axes(text) for text in self.signature.axes]
        return outputs_in_port(tuple(outputs), names, answer.outputs, answer.names, rules)

    def _moves(self, inputs: tuple[Array, ...], dtype: str, answer: Answered, truth: Truth) -> tuple[Array, ...]:
        """How far the reference's outputs move under one rounding, in the port's layout."""
        spread = ask_reference(self.reference, {"do": "spread", "dtype": dtype}, inputs).arrays
        return self._in_port(spread, truth.names, answer)

    def _explained(self, inputs: tuple[Array, ...], output: Array, index: int, answer: Answered, truth: Truth) -> float:
        """The error of one output that one rounding explains, as float64 (A) does."""
        moves = self._moves(inputs, "float64", answer, truth)[index]
        return min(NUMERICS * sample_error(output + moves, output), LEAK)

    def gate(self, notices: Sequence[str]) -> Gate:
        """The outcome of all cases."""
        failures = [fact(f"{name}: {why} ({len(runs)} of {self.compared} runs, first {runs[0]})", name)
                    for (name, why), runs in self._failures.items()]  # fmt: skip
        facts = (*failures, *self.facts, *map(notice, notices))
        return GATES["N"].gate(self.compared, max(self.expected, 1), tuple(self.measures), facts)


def sample_error(candidate: Array, reference: Array) -> float:
    """The largest relative L2 error of a sample; one that is almost zero compared with the others is
    relative to :data:`wdport.compare.measure.FLOOR` times their size, so that no larger sample hides its error."""
    count = len(reference) if reference.ndim else 1
    sides = [np.asarray(side, np.float64).reshape(count, -1) for side in (candidate, reference)]
    sizes = np.linalg.norm(sides[1], axis=1)
    floor = FLOOR * float(np.sqrt(np.mean(sizes**2))) if count else 0.0
    errors = np.linalg.norm(sides[0] - sides[1], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(errors == 0.0, 0.0, errors / np.maximum(sizes, floor))
    return float(np.max(relative, initial=0.0)) if np.isfinite(relative).all() else inf


def _unfit(ours: Array, theirs: Array, dtype: str) -> str:
    """Why an array of the port cannot be compared; "" if it can."""
    expected = dtype if theirs.dtype.kind == "f" else theirs.dtype.kind
    if expected not in (str(ours.dtype), ours.dtype.kind):
        return f"it returns {ours.dtype} in {dtype}"
    if ours.shape != theirs.shape:
        return f"it returns shape {ours.shape} where the reference has {theirs.shape}"
    return "" if np.isfinite(ours).all() else "it returns values that are not finite"


def _names(answer: Answered, truth: Truth) -> list[str]:
    count = len(answer.outputs)
    if count == 1:
        return [OUTPUT]
    candidates = (names for names in (answer.names, truth.names) if len(names) == count and all(names))
    return [f"{OUTPUT}.{name}" for name in next(candidates, range(count))]
