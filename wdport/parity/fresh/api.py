"""Verify a port that runs alone: a process for the port, one for the reference, one for the layers' comparison.

This process runs no code of either model. It draws the inputs, compares the outputs, and joins the gate fresh (N) with
the gates of the layers. What the processes report can fail a verdict, but never make it pass.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from wdport.compare.calls import Case
from wdport.compare.findings import GATES, Gate, fact
from wdport.compare.gate_bounds import bounds
from wdport.errors import IncompleteError, WdportError
from wdport.model import Array
from wdport.options import PathText
from wdport.parity.file_pair import BothFiles, both_files
from wdport.parity.fresh.gate import (
    RUNS,
    WORDS,
    Answered,
    FreshCase,
    FreshGate,
    PortAlone,
    ask_reference,
    confinement_notice,
    draw_seed,
    fresh_cases,
    fresh_tensors,
    hidden_paths,
)
from wdport.parity.fresh.messages import from_json, to_json
from wdport.parity.fresh.process import Worker
from wdport.parity.model_pair import source_tensors
from wdport.parity.verdict import TERMS
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_request import Pair, described

Say = Callable[[str], None]
FRESH: Final = "N"
HOWS: Final = tuple(WORDS)
REQUIRED: Final = ("0", "A", "B")
"""Gates that every comparison of layers has."""


def fresh_verdict(pair: Pair, say: Say | None, repro: PathText | None, resume: PathText | None) -> Verdict:
    """The verdict of :func:`wdport.verify` on a ``pair``, and the gate fresh (N); ``resume`` is the optimizer's file.

    Raises what :func:`wdport.verify` raises.
    """
    started, say = time.monotonic(), say or (lambda _: None)
    paths = {name: None if path is None else os.fspath(path) for name, path in (("repro", repro), ("resume", resume))}
    arguments = {"pair": to_json(replace(pair, fresh=False)), **paths}
    try:
        with both_files(pair, described(pair.converted, pair.own)) as files:
            gate, words = fresh_gate(files, say)
            # Read by this process, which runs no code of a model.
            facts = _facts(files)
    except WdportError:
        compare_layers(arguments, say)  # which reports more about a pair that does not fit
        raise
    verdict = compare_layers(arguments, say)
    # A process that ran the port's code may have been changed by it: gates that are decided here are not taken from it.
    gates = [layer_gate for layer_gate in verdict.gates if layer_gate.name not in (FRESH, *TERMS)]
    if lacking := [name for name in REQUIRED if name not in {layer_gate.name for layer_gate in gates}]:
        what = f"the process that compares the layers gave no gate {', '.join(lacking)}"
        raise IncompleteError("verify", what, "correct the code of the model that ended it")
    return replace(verdict, gates=(*gates, gate), inputs=(*verdict.inputs, *words),
                   seconds=time.monotonic() - started, **facts)  # fmt: skip


def compare_layers(arguments: Mapping[str, object], say: Say) -> Verdict:
    """The verdict of :func:`wdport.verify` in a separate process; raises what it raises."""
    with Worker("layers", arguments) as worker:
        document = worker.result(say).facts.get("verdict")
    try:
        return from_json(Verdict, document)
    except (TypeError, ValueError) as error:
        what = f"the process that compares the layers gave no verdict ({error})"
        raise IncompleteError("verify", what, "correct the code of the model that it ran") from None


def fresh_gate(files: BothFiles, say: Say) -> tuple[Gate, list[str]]:
    """The gate fresh (N), and its cases in words."""
    started, seed = time.monotonic(), draw_seed()
    say(f"fresh inputs of seed {seed}")
    with Worker("reference", {"pair": to_json(files.pair)}) as reference:
        run = _FreshRun(files, reference, seed)
        # The port answers all questions before the reference computes, and ends: it cannot learn the right answers.
        with Worker("port", _port_arguments(files), hidden_paths(_reference_files(files))) as worker:
            port = PortAlone(worker)
            if port.failure:
                return GATES[FRESH].gate(1, 1, facts=(fact(f"the port alone: {port.failure}"),)), run.words
            run.ask_port(port)
        gate = run.compare(say)
    return replace(gate, seconds=round(time.monotonic() - started, 3)), run.words


class _FreshRun:
    """One seed's cases, with the port's answers."""

    def __init__(self, files: BothFiles, reference: Worker, seed: int) -> None:
        self._files, self._reference, self._seed = files, reference, seed
        self._tensors = source_tensors(files.prepared, files.converted)
        self._fresh = fresh_tensors(files.prepared, self._tensors, seed)
        self._cases: dict[FreshCase, tuple[Array, ...]] = {}
        self._answers: dict[tuple[FreshCase, str, str], Answered] = {}
        self._notices: list[str] = []

    @property
    def words(self) -> list[str]:
        """The seed and the cases, for a report."""
        return [f"fresh: seed {self._seed}", *(f"fresh: {case}" for case in self._cases)]

    def ask_port(self, port: PortAlone) -> None:
        """Run the port in every case, in both dtypes."""
        prepared = self._files.prepared
        if self._files.user_family is not None and port.input_shapes:
            self._files.user_family.assume_inputs(port.input_shapes)
        self._signature = prepared.family.signature(prepared.config)
        drawn = not self._own_inputs(Case(self._seed, 2, 1.0))
        for case in fresh_cases(self._seed, self._signature, drawn):
            self._cases[case] = case.inputs(self._signature) if drawn else self._own_inputs(case.case)
        for dtype in ("float64", "float32"):
            for weights in (False, True):
                self._give_weights(port, dtype, weights)
                for case in (case for case in self._cases if case.weights is weights):
                    inputs = self._signature.in_port(self._cases[case])
                    for mode in HOWS:
                        self._answers[case, dtype, mode] = port.run(dtype, mode, inputs)
        self._notices.append(confinement_notice(port.enforced))

    def _give_weights(self, port: PortAlone, dtype: str, weights: bool) -> None:
        """What the plan makes of the tensors; the float32 port keeps those of the converted file until it gets
        others."""
        if dtype == "float64" or weights:
            tensors = {**self._tensors, **self._fresh} if weights else self._tensors
            variables = dict(self._files.prepared.plan.apply(lambda name: tensors[name], dtype == "float32"))
            port.use(dtype, list(variables), [np.ascontiguousarray(array) for array in variables.values()])

    def _own_inputs(self, case: Case) -> tuple[Array, ...]:
        """Inputs of the user's own function; none if there is no such function."""
        facts = {"do": "inputs", "seed": case.seed, "batch": case.batch, "scale": case.scale}
        return ask_reference(self._reference, facts).arrays

    def compare(self, say: Say) -> Gate:
        """The reference in every case, and the gate."""
        gate = FreshGate(self._reference, self._files.target, self._signature)
        for case in sorted(self._cases, key=lambda case: case.weights):
            if case.weights and not self._reference_takes_weights():
                continue
            say(f"fresh inputs: {case}")
            answers = {run: self._answers[case, *run] for run in RUNS}
            gate.compare(case, self._cases[case], answers)
        return gate.gate(self._notices)

    def _reference_takes_weights(self) -> bool:
        answer = ask_reference(self._reference, {"do": "use", "names": list(self._fresh)}, list(self._fresh.values()))
        if answer.facts.get("missing"):
            self._notices.append("no fresh weights: the reference has other names for them than the checkpoint")
        return not answer.facts.get("missing")


def _port_arguments(files: BothFiles) -> dict[str, object]:
    """What the port's process receives: the arguments of :func:`wdport.load_model`."""
    path, pair = {"path": os.path.abspath(files.converted.path)}, files.pair
    if files.user_family is None:
        return {**path}
    return {**path, "mapping": os.path.abspath(str(pair.mapping)), "model": pair.model, "inputs": list(pair.inputs)}


def _reference_files(files: BothFiles) -> list[object]:
    checkpoint = files.prepared.checkpoint
    return [*(() if checkpoint.path.is_dir() else (checkpoint.path,)), *checkpoint.files.values()]


def _facts(files: BothFiles) -> dict[str, Any]:
    """What a verdict states about both files and its bounds, determined here."""
    prepared, converted = files.prepared, files.converted
    return {
        "checkpoint": str(prepared.checkpoint.path),
        "converted": str(converted.path),
        "digests": files.digests,
        "bounds": bounds(prepared.family.bounds),
        "rests_on": dict(prepared.family.rests_on),
        "assumed": converted.assumed,
    }
