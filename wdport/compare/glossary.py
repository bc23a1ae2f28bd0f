"""The gates by name and what each one compares, for every report and for the documentation.

A gate has a letter, used in JSON, policies and test ids, and a name, used in all text for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wdport.compare.findings import Finding, Gate, Measure


@dataclass(frozen=True)
class Term:
    """One gate: its letter, its name, and one sentence on what it compares."""

    letter: str
    name: str
    meaning: str

    def __str__(self) -> str:
        return f"{self.name} ({self.letter})"

    def gate(
        self,
        compared: int,
        expected: int,
        measures: tuple[Measure, ...] = (),
        facts: tuple[Finding, ...] = (),
    ) -> Gate:
        """An outcome of this gate; arguments as those of :class:`~wdport.compare.findings.Gate`."""
        return Gate(self.letter, self.name, compared, expected, measures, facts, self.meaning)


_TERMS: Final = (
    Term("0", "preflight", "every tensor and variable is accounted for, both models run, and every layer is compared"),
    Term("A'", "constants", "tables that are recomputed, not copied, equal their float64 formulas"),
    Term("A", "float64", "every layer fed the reference's inputs, and the whole network, agree in float64"),
    Term("B", "float32", "the port's float32 errors are no larger than a few times PyTorch's own"),
    Term("B'", "bfloat16", "the same under a mixed bfloat16 policy, beside PyTorch's autocast"),
    Term("C", "gradients", "gradients by layers, inputs and weights agree in float64"),
    Term("D", "optimiser", "losses, gradients, moments and weights agree over optimiser steps, in float64"),
    Term("D'", "resumed", "from the checkpoint's optimiser, the port takes the steps that PyTorch takes, in float64"),
    Term("E", "trajectories", "every state of a sampling run with the same noise agrees in float64"),
    Term("E'", "sampling network", "the network as samplers run it agrees with the model, in float32 and float64"),
    Term("H", "samplers", "what samplers draw, with labels, guidance and known values, is what plain loops draw"),
    Term("I", "generation", "the program that completes texts agrees with a plain loop over the reference"),
    Term("X", "artefact", "every program of an exported file, run without wdport, computes what the model computes"),
    Term("T", "tensors", "every tensor of an exported checkpoint is the checkpoint's, bit for bit"),
    Term("N", "fresh", "whole outputs agree on inputs and weights drawn at run time, the port alone in its process"),
    Term("S", "known faults", "known faults injected into a small model are all found, under the bounds in force"),
    Term("P", "policy", "the policy's own entries are valid: none has expired, none is unnecessary"),
    Term("R", "baseline", "no layer's error has become larger or smaller than in the recorded run"),
)

GATES: Final[Mapping[str, Term]] = {term.letter: term for term in _TERMS}
"""By letter, in the order of reports. Families add their own, which come last."""


def label(letter: str) -> str:
    """A gate's name and letter, such as ``float64 (A)``; only the letter for a family's own."""
    return str(GATES[letter]) if letter in GATES else letter


def letter_of(text: str) -> str | None:
    """The letter of the gate with this letter or name; ``None`` if there is none."""
    return next((term.letter for term in _TERMS if text in (term.letter, term.name)), None)
