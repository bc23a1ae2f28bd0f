"""Run the comparison and the gates of two opened files, and return the verdict.

Gates: preflight, constants, float64 and float32, the last two per layer and per part of the output; the sampling
network; and those of the model's family. The full battery adds bfloat16, gradients, optimizer, training mode and
trajectories, which compares the sampling network in float64 as well. :mod:`wdport.compare.findings` describes each
gate.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import jax

from wdport.base.options import PathText
from wdport.base.version import VERSION
from wdport.compare.activities import Clock, Say, seconds_since, seconds_spent, spent_on
from wdport.compare.calls import CASES, Case
from wdport.compare.candidate import Candidate
from wdport.compare.comparison import Comparison
from wdport.compare.engine import compare
from wdport.compare.findings import GATES, Finding, Gate, notice
from wdport.compare.gate_bounds import bounds
from wdport.compare.gates import float32_gate, float64_gate
from wdport.compare.reference import Reference, translated
from wdport.conversion.load import Converted
from wdport.conversion.prepare import Prepared
from wdport.families.registry import package_of_family
from wdport.families.roles import Family, KeptByKeras, OwnFamily, Referenced
from wdport.families.shipped import HOME
from wdport.models.interface import Array
from wdport.parity.diagnose import probable_causes, stated_float32
from wdport.parity.file_pair import misread, provenance
from wdport.parity.full_battery import FullBattery, gradient_battery, run_full_battery
from wdport.parity.gates_of_uses import NetworkInUse, use_gates
from wdport.parity.model_pair import Sides, Weights, WeightSets, build_sides
from wdport.parity.preflight_gates import constants_gate, preflight_gate
from wdport.parity.repro import write_repro
from wdport.parity.resumed_gate import Resumed, resumed_gate
from wdport.parity.saved_model import rebuilt_otherwise
from wdport.parity.training_mode_gate import TrainingStart, training_mode_gate
from wdport.parity.verdict import ReferenceKind, locate
from wdport.parity.verdict_api import Verdict
from wdport.recording.user_code import split_target


@dataclass(frozen=True)
class Setup:
    """How a comparison runs, for callers that make many of the same checkpoint.

    Attributes:
        eager: run the port step by step instead of compiled.
        brief: stop after the first case that shows a fault.
        network: compare the network only, without the gates of its family and of sampling.
        causes: look for probable causes.
        gradients: compare gradients in evaluation mode, as the full battery does.
        reference: the reference, if it was built before.
        probes: the cases to run; ``None`` for those of the pair.
    """

    eager: bool = False
    brief: bool = False
    network: bool = False
    causes: bool = True
    gradients: bool = False
    reference: Reference | None = None
    probes: Sequence[Case] | None = None


EVERYTHING: Final = Setup()


@dataclass(frozen=True)
class VerifySubject:
    """What is compared: the plan, the converted file and the weights of both.

    Attributes:
        unequal: what is known to differ before anything runs.
        digests: the SHA-256 of the files, by role.
        reference: the reference; ``None`` for the family's own.
        resumed: the optimizer to compare training steps of, if any.
        train: compare both models in training mode, as the full battery does.
        probes: the cases to run.
        started: when the comparison began, of the monotonic clock; ``spent`` are the seconds by activity until then.
    """

    prepared: Prepared
    converted: Converted
    weights: Weights
    unequal: Sequence[Finding]
    digests: Mapping[str, str]
    started: float
    reference: Reference | None = None
    spent: Mapping[str, float] = field(default_factory=seconds_spent)
    resumed: Resumed | None = None
    train: bool = False
    probes: Sequence[Case] = CASES


def run_gates(
    subject: VerifySubject, say: Say, full: bool = False, repro: PathText | None = None, setup: Setup = EVERYTHING
) -> Verdict:
    """Run all gates, with the full battery's if ``full``; ``repro`` is the folder for the first faulty layer."""
    with translated():  # a reference may do in training mode alone what cannot be compared
        return _Run(subject, say, full, setup).verdict(repro)


class _Run:
    """One run: the sides, the gates so far, and what else the verdict states."""

    def __init__(self, subject: VerifySubject, say: Say, full: bool, setup: Setup) -> None:
        self.subject, self.say, self.full, self.setup = subject, say, full, setup
        self.prepared, self.converted, self.weights = subject.prepared, subject.converted, subject.weights
        self.clock = Clock()
        unequal = self._unequal()
        with spent_on("building models"):
            self.sides = build_sides(self.prepared, self.weights, subject.reference)
        # Before the gates, which change the weights that this remembers.
        trained = subject.resumed is not None or subject.train or full
        start = TrainingStart(self.prepared, self.converted, self.sides) if trained else None
        self.clock.add("0", time.monotonic() - subject.started)
        self.sets = WeightSets(self.prepared, self.sides, self.weights)
        self.in_use = None if setup.network else self._network_in_use()
        self.comparison = self._compare()
        with spent_on("comparing"):
            unequal += rebuilt_otherwise(self.converted, self.sides.candidates, self._inputs)
            unequal += other_code(self.prepared.family)
        self.gates = self._gates(unequal)
        self.more = self._full_battery()
        self.gates += [float64_gate(self.comparison), float32_gate(self.comparison), *self.more.gates]
        if start is not None and subject.resumed is not None:
            say("training steps from the optimizer's state")
            with self.clock.gate("D'"):
                self.gates.append(resumed_gate(start, subject.resumed))
        if start is not None and (subject.train or full):
            say("training mode")
            with self.clock.gate("M"):
                self.gates.append(training_mode_gate(start))
        if self.in_use is not None:
            self.gates += [self.in_use.gate(self.more.trajectories), *([self.more.path] if self.more.path else [])]

    def _inputs(self) -> list[tuple[Array, ...]]:
        """The port's inputs of every case."""
        comparison = self.comparison
        cases = map(comparison.reference.inputs, comparison.probes)
        return list(map(comparison.signature.in_port, cases))

    def _unequal(self) -> list[Finding]:
        converted, variables, digests = self.converted, self.weights.variables, self.subject.digests
        findings = [*self.subject.unequal,
                    *provenance(converted, variables, digests["converted"], digests.get("checkpoint"),
                                self.subject.prepared.table.sha256)]  # fmt: skip
        if self.full and not isinstance(converted.family, KeptByKeras):
            self.say("reading the converted file by its own library")
            findings += misread(converted, variables)
        return findings

    def _network_in_use(self) -> NetworkInUse | None:
        family, config = self.prepared.family, self.prepared.config
        return use_gates().network(family, config, self.sides.candidates, self.full)

    def _compare(self) -> Comparison:
        prepared, family = self.prepared, self.prepared.family
        candidate = Candidate(self.sides.candidates, prepared.table, family.signature(prepared.config),
                              family.features(prepared.config), self.sets.use, self.setup.eager)  # fmt: skip
        return compare(self.sides.reference, candidate, self.subject.probes, companion=self.in_use, clock=self.clock,
                       brief=self.setup.brief, say=self.say)  # fmt: skip

    def _gates(self, unequal: Sequence[Finding]) -> list[Gate]:
        """The gates of the default run whose results the full battery does not add to."""
        prepared = self.prepared
        gates = [preflight_gate(prepared, self.comparison, unequal)]
        if prepared.constants:
            with self.clock.gate("A'"):
                gates.append(constants_gate(prepared, self.sides.candidates["float32"], self.weights))
        if self.setup.network:
            return gates
        before = time.monotonic()
        family_gates = prepared.family.gates(prepared.config)
        for gate in family_gates[:1]:  # several would be made at once
            self.clock.add(gate.name, time.monotonic() - before)
        self.say("samplers and generation")
        in_use = use_gates().gates(prepared, self.comparison, self.in_use is not None, self.full)
        return [*gates, *family_gates, *in_use]

    def _full_battery(self) -> FullBattery:
        if not self.full:
            return gradient_battery(self.prepared, self.comparison) if self.setup.gradients else FullBattery()
        if self.comparison.evidence is None:  # otherwise they are needed to look for causes
            self.sets.forget()
        return run_full_battery(self.prepared, self.comparison, self.in_use, self.say)

    def _causes(self, repro: PathText | None) -> dict[str, tuple[str, ...]]:
        """Probable causes of the first faults; the first faulty layer is written to ``repro``."""
        evidence, prepared = self.comparison.evidence, self.prepared
        if not self.setup.causes or (evidence is None and not self.comparison.as_stated):
            return {}
        self.say("looking for probable causes")
        faults = locate(tuple(self.comparison.taps.values()))
        if evidence is None:
            return {fault.candidate: (cause,) for fault, cause in stated_float32(self.comparison, faults).items()}
        weights = self.sets.of(evidence.random_biases)
        causes = probable_causes(prepared, self.comparison, weights, faults)
        if repro is not None and faults:
            write_repro(repro, prepared.family, prepared.config, weights.float64, faults[0], evidence)
        return causes

    def verdict(self, repro: PathText | None) -> Verdict:
        """The verdict; ``repro`` is the folder for the first faulty layer."""
        with spent_on("looking for causes"):
            causes = self._causes(repro)
        prepared, converted, comparison = self.prepared, self.converted, self.comparison
        parts, reference = comparison.parts, self.sides.reference
        kind, code = reference_of(prepared, self.sides)
        places = {letter: place for place, letter in enumerate(GATES)}  # a family's own gates come last
        return Verdict(
            checkpoint=str(prepared.checkpoint.path),
            converted=str(converted.path),
            gates=tuple(sorted(self.clock.timed(self.gates), key=lambda gate: places.get(gate.name, len(places)))),
            taps=tuple(comparison.taps.values()),
            settings=comparison.alignment.settings,
            causes=causes,
            parts=self.more.parts(parts.results(comparison.single)) if parts is not None else (),
            decoded=parts.decoded_error if parts is not None else None,
            words=comparison.signature.words,
            assumed=converted.assumed,
            reference=f"{reference.code}, recorded" if reference.recorded else reference.code,
            reference_kind=kind,
            reference_code=code,
            rounded_to=", ".join(sorted(set(converted.rounded.values()))),
            inputs=tuple(case.describe() for case in comparison.probes),
            environment=_environment(comparison),
            bounds=bounds(prepared.family.bounds),
            rests_on=dict(prepared.family.rests_on),
            overlays=parts.overlays if parts is not None else (),
            trajectories=self.more.trajectories,
            variables=self.more.variables,
            digests=dict(self.subject.digests),
            started=begun(self.subject.started),
            left_out=comparison.alignment.not_compared,
            seconds=time.monotonic() - self.subject.started,
            times=seconds_since(self.subject.spent),
        )


def reference_of(prepared: Prepared, sides: Sides) -> tuple[ReferenceKind, str]:
    """Whose code the reference is, and the name of that code."""
    if sides.reference.recorded:
        return "recording", sides.reference.code
    if sides.reference.code:
        return "own", sides.reference.code
    if isinstance(prepared.family, Referenced):
        return "library", prepared.family.library_of(prepared.config)
    if package := package_of_family(prepared.family.name):
        return "package", package
    return "wdport", f"{HOME}.{prepared.family.name}"


def other_code(family: Family) -> Iterator[Finding]:
    """Notices on files beside the mapping table that are not the user's code that runs, though of its name: Python
    finds the module in the current folder, or in the environment."""
    if not isinstance(family, OwnFamily):
        return
    folder = Path(family.table.path).parent
    for target in filter(None, (family.model, family.reference)):
        name = split_target(target)[0]
        beside, used = folder / f"{name.replace('.', '/')}.py", getattr(sys.modules.get(name), "__file__", None)
        if used and beside.is_file() and beside.read_bytes() != Path(used).read_bytes():
            here, path = Path.cwd(), Path(used)
            path = path.relative_to(here) if path.is_relative_to(here) else path
            yield notice(f"the code of {target} is {path}, not {beside}, which is beside the mapping table")


def begun(started: float) -> str:
    """Convert a reading of the monotonic clock, in seconds, to a date and time in UTC, such as 2026-11-22T18:05:00Z."""
    # The monotonic clock has no date, so the start is as far back from now as it has advanced.
    now = datetime.now(UTC).timestamp() - (time.monotonic() - started)
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _environment(comparison: Comparison) -> dict[str, str]:
    packages = {name: version(name) for name in ("keras", "jax", "numpy")}
    versions = {"wdport": VERSION, **packages, "device": str(jax.devices()[0]), "jax_matmul": comparison.precision[1]}
    return {"python": platform.python_version(), **versions, **comparison.reference.environment}
