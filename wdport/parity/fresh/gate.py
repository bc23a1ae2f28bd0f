"""Verify a port that runs alone: a process for the port in each dtype, one for the reference, one for the layers'
comparison.

The gate fresh (N) draws inputs, sizes and weights from one seed, asks the port for its outputs, then the reference, and
compares. The port has ended before the reference gets them, and before a process without confinement runs its code. All
processes start at once, since importing their libraries takes longer than running a small model.

This process runs no code of either model. It joins the gate with those of the layers. What the processes report can
fail a verdict, but never make it pass.
"""

from __future__ import annotations

import os
import secrets
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import inf
from typing import Any, Final

import numpy as np

from wdport.base.errors import IncompleteError, MisfitError, WdportError, error_from
from wdport.base.options import PathText
from wdport.compare.activities import Say
from wdport.compare.calls import Case
from wdport.compare.findings import GATES, OUTPUT, Finding, Gate, Measure, fact, measure, notice
from wdport.compare.gate_bounds import LEAK, LOGIC, NUMERICS, bounds
from wdport.compare.layer_errors import outputs_in_port
from wdport.compare.measure import FLOOR, ErrorPair
from wdport.conversion.prepare import Prepared
from wdport.conversion.values import source_tensors
from wdport.models.interface import Array, Signature
from wdport.parity.file_pair import BothFiles, both_files
from wdport.parity.fresh.confinement import FRAMEWORKS
from wdport.parity.fresh.process import BrokenMessage, Message, Worker, from_json, to_json
from wdport.parity.verdict import TERMS
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_options import Pair, described
from wdport.recording.inputs import Input

SPREAD: Final = 0.25
"""Fresh weights are the checkpoint's, each times a factor from 1 - SPREAD to 1 + SPREAD: signs and zeros remain, and
with them what a layer needs, such as positive variances."""

MIXED: Final = 6.0
"""Samples of a mixed batch have magnitudes from 2**-MIXED to 2**MIXED."""


def draw_seed() -> int:
    """A seed that nobody knows before the run; it determines all inputs."""
    # Not from the time or the process id, which a port could read.
    return secrets.randbits(31)


DTYPES: Final = ("float64", "float32")
MODES: Final = {"plain": "model(x)", "compiled": "compiled"}
"""How the model is called, and the name of it in reports."""


@dataclass(frozen=True, eq=False)
class FreshCase:
    """One input: ``mixed`` gives every sample its own magnitude, ``longer`` other sizes to axes that the port
    leaves open, ``weights`` fresh weights to both sides; ``plain`` are the dtypes in which the port also runs
    uncompiled."""

    case: Case
    mixed: bool = False
    longer: Mapping[str, int] = field(default_factory=dict)
    weights: bool = False
    plain: tuple[str, ...] = DTYPES

    @property
    def runs(self) -> list[tuple[str, str]]:
        """The port's runs: each its dtype, and how the model is called."""
        return [(dtype, mode) for dtype in DTYPES for mode in MODES if mode != "plain" or dtype in self.plain]

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
    """The cases of a seed; ``drawn`` states whether inputs are drawn here, and not by the user's own function.

    A shape that no other case has runs uncompiled in one dtype, since every operation is compiled for it: a single
    sample in one, larger batches in the other.
    """
    rng = np.random.default_rng([seed, 0])
    small, large = int(rng.integers(2, 5)), int(rng.integers(5, 9))
    scales = 2.0 ** rng.uniform([-1.0, 3.0, -12.0], [1.0, 6.0, -6.0])
    one, other = rng.permutation(DTYPES).tolist()
    cases = [
        FreshCase(Case(seed, small, 1.0)),
        FreshCase(Case(seed + 1, 1, float(scales[0])), plain=(one,)),
        FreshCase(Case(seed + 2, large, float(scales[1])), plain=(other,)),
        FreshCase(Case(seed + 3, small, float(scales[2]))),
        FreshCase(Case(seed + 4, small, 1.0), weights=True),
    ]
    if drawn:
        # Before the case with fresh weights, which are not undone.
        cases.insert(4, FreshCase(Case(seed + 5, small, 1.0), mixed=True))
    if drawn and (longer := _longer(signature, rng)):
        cases.insert(5, FreshCase(Case(seed + 6, small, 1.0), longer=longer, plain=(one,)))
    return cases


def _longer(signature: Signature, rng: np.random.Generator) -> dict[str, int]:
    """Other sizes of the open axes, each a multiple of what the network needs."""
    fixed = {axis for spec in signature.inputs if spec.draw == "parts" for axis in spec.axes}
    sizes = {axis: size for spec in signature.inputs for axis, size in spec.sizes.items() if axis not in fixed}
    return {axis: sizes[axis] + step * int(rng.integers(1, 4))
            for axis, step in signature.free.items() if axis in sizes}  # fmt: skip


def _drawn(spec: Input, case: Case, factors: Array | None) -> Array:
    values = spec.make(case.seed, case.batch, case.scale)
    if factors is None or spec.draw not in ("normal", "parts") or "b" not in spec.axes:
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
            # By name: Python's `hash` of text differs in every process.
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            factors = rng.uniform(1.0 - SPREAD, 1.0 + SPREAD, array.shape)
            perturbed[name] = (array.astype(np.float64) * factors).astype(np.float32)
    return perturbed | {name: perturbed[same] for name, same in plan.ties.items() if same in perturbed}


@dataclass(frozen=True)
class Answered:
    """What the port answered in one run: outputs with their names, or why there are none."""

    outputs: tuple[Array, ...] = ()
    names: tuple[str, ...] = ()
    failure: str = ""


class PortAlone:
    """The port's process of one ``dtype``. Whatever it sends, only arrays and the names of outputs are taken from it.

    ``failure`` states why it does not answer, "" if it does. ``enforced`` is what the kernel enforces, which it
    reports before it imports the port.
    """

    def __init__(self, dtype: str, worker: Worker) -> None:
        self.dtype, self._worker = dtype, worker
        self.failure = ""
        self.enforced: tuple[str, ...] = ()
        self.input_shapes: list[list[int | None]] = []
        try:
            facts: Mapping[str, Any] = worker.answer().facts
            self.enforced = tuple(map(str, facts.get("enforced") or ()))
            opened: Mapping[str, Any] = worker.ask({"do": "open"}).facts
            self.failure = _failure(opened)
            self.input_shapes = [[None if size is None else int(size) for size in shape]
                                 for shape in opened.get("inputs") or ()]  # fmt: skip
        except BrokenMessage as error:
            self.failure = f"its process gives {error}"
        except (TypeError, ValueError):
            self.failure = "its process gives no shapes of its inputs"

    def use(self, names: Sequence[str], arrays: Sequence[Array]) -> None:
        """Give it weights; until then it has those of the converted file."""
        if not self.failure:
            try:
                self.failure = _failure(self._worker.ask({"do": "use", "names": list(names)}, arrays).facts)
            except BrokenMessage as error:
                self.failure = f"its process gives {error}"

    def run(self, mode: str, inputs: Sequence[Array]) -> Answered:
        if self.failure:
            return Answered(failure=self.failure)
        try:
            return _answered(self._worker.ask({"do": "run", "how": mode}, inputs))
        except BrokenMessage as error:
            return Answered(failure=f"its process gives {error}")


def _failure(facts: Mapping[str, Any]) -> str:
    # The port's process chooses this text, which may be of any length.
    return f"it raises {str(facts['failure'])[:300]}" if facts.get("failure") is not None else ""


def _answered(message: Message) -> Answered:
    failure, names = _failure(message.facts), message.facts.get("names")
    if failure or not message.arrays:
        return Answered(failure=failure or "it returns no array")
    output_names = tuple(map(str, names)) if isinstance(names, list) else ()
    # Names that do not distinguish the outputs are ignored, and position counts.
    return Answered(message.arrays, output_names if len(set(output_names)) == len(message.arrays) else ())


def hidden_paths(files: Collection[object]) -> list[str]:
    """What the port's process cannot read: these files of the reference, and PyTorch."""
    paths = [os.path.abspath(str(file)) for file in files]
    for spec in filter(None, map(find_spec, FRAMEWORKS)):
        paths += spec.submodule_search_locations or ()
    return paths


def confinement_notice(enforced: Sequence[str]) -> str:
    """How the port's process was confined, as a sentence."""
    by = f"by {' and '.join(enforced)} and Python's audit hooks" if enforced else "by Python's audit hooks alone"
    return f"the port ran without PyTorch, the reference's files, other programs and network, {by}"


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
            # A reference need not accept other sizes than those of its table; on its usual ones it must run.
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
        for run in case.runs:
            self.expected += 1
            self._compare(case, run, inputs, answers[run], truth)

    def _compare(
        self, case: FreshCase, run: tuple[str, str], inputs: tuple[Array, ...], answer: Answered, truth: Truth
    ) -> None:
        """Compare one run of the port; every output by itself."""
        part = f", {case}, {run[0]}, {MODES[run[1]]}"
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
                # _explained runs the reference again, so it is called last.
                if not error <= LOGIC and error <= self._explained(inputs, exact, index, answer, truth):
                    text = f"ill-conditioned: {name}{part}, off by {error:.1e}, as after one rounding"
                    self.facts.append(notice(text))
                    error = 0.0
                self.measures.append(measure(name, "error", error, "logic", part))
            else:
                pair = ErrorPair()
                pair.add(port, sides[1][index], sides[2][index])
                if not pair.ratio <= NUMERICS:
                    pair.allow_values(self._moves(inputs, "float32", answer, truth)[index])
                self.measures.append(measure(name, "float32", pair.ratio, "numerics", part))

    def _fail(self, name: str, part: str, why: str) -> None:
        """An output that cannot be compared fails the gate, with the first run of each reason."""
        self._failures.setdefault((name, why), []).append(part.removeprefix(", "))

    def _in_port(self, outputs: Sequence[Array], names: Sequence[str], answer: Answered) -> tuple[Array, ...]:
        """Outputs of the reference in the port's order and layout; raises ``ValueError`` if they do not fit."""
        return outputs_in_port(tuple(outputs), names, answer.outputs, answer.names, self.signature)

    def _moves(self, inputs: tuple[Array, ...], dtype: str, answer: Answered, truth: Truth) -> tuple[Array, ...]:
        """How far the reference's outputs move under one rounding, in the port's layout."""
        spread = ask_reference(self.reference, {"do": "spread", "dtype": dtype}, inputs).arrays
        return self._in_port(spread, truth.names, answer)

    def _explained(self, inputs: tuple[Array, ...], output: Array, index: int, answer: Answered, truth: Truth) -> float:
        """The error of one output that one rounding explains, as float64 (A) does."""
        moves = self._moves(inputs, "float64", answer, truth)[index]
        return min(NUMERICS * sample_error(output + moves, output), LEAK)

    def gate(self, notices: Sequence[str]) -> Gate:
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
        # A sample that is zero on both sides would otherwise be 0 / 0.
        relative = np.where(errors == 0.0, 0.0, errors / np.maximum(sizes, floor))
    return float(np.max(relative, initial=0.0)) if np.isfinite(relative).all() else inf


def _unfit(ours: Array, theirs: Array, dtype: str) -> str:
    """Why an array of the port cannot be compared; "" if it can."""
    # Integers may have any width: PyTorch has int64, JAX without x64 int32.
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


REQUIRED: Final = ("0", "A", "B")
"""Gates that every comparison of layers has."""


def fresh_verdict(pair: Pair, say: Say | None, repro: PathText | None, resume: PathText | None) -> Verdict:
    """The verdict of :func:`wdport.verify` on a ``pair``, and the gate fresh (N); ``resume`` is the optimizer's file.

    Raises what :func:`wdport.verify` raises.
    """
    started, say = time.monotonic(), say or (lambda _: None)
    paths = {name: None if path is None else os.fspath(path) for name, path in (("repro", repro), ("resume", resume))}
    arguments = {"pair": to_json(replace(pair, fresh=False)), **paths}
    with Worker("layers", arguments) as layers:
        try:
            with both_files(pair, described(pair.converted, pair.own)) as files:
                gate, words = fresh_gate(files, say)
                # Read by this process, which runs no code of a model.
                facts = _facts(files)
        except WdportError:
            compare_layers(layers, say)  # which reports more about a pair that does not fit
            raise
        verdict = compare_layers(layers, say)
    # A process that ran the port's code may have been changed by it: gates that are decided here are not taken from it.
    gates = [layer_gate for layer_gate in verdict.gates if layer_gate.name not in ("N", *TERMS)]
    if lacking := [name for name in REQUIRED if name not in {layer_gate.name for layer_gate in gates}]:
        what = f"the process that compares the layers gave no gate {', '.join(lacking)}"
        raise IncompleteError("verify", what, "correct the code of the model that ended it")
    return replace(verdict, gates=(*gates, gate), inputs=(*verdict.inputs, *words),
                   seconds=time.monotonic() - started, **facts)  # fmt: skip


def compare_layers(worker: Worker, say: Say) -> Verdict:
    """The verdict of :func:`wdport.verify` in the process of the ``worker``; raises what it raises."""
    worker.begin()
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
    checkpoint = files.prepared.checkpoint
    hidden = hidden_paths([*([] if checkpoint.path.is_dir() else [checkpoint.path]), *checkpoint.files.values()])
    with Worker("reference", {"pair": to_json(files.pair)}) as reference:
        # The port answers all questions before the reference gets them, and ends: it cannot learn the right answers.
        with ExitStack() as confined:
            # Both start before either is waited for.
            workers = [confined.enter_context(Worker("port", _port_arguments(files, dtype), hidden))
                       for dtype in DTYPES]  # fmt: skip
            run = _FreshRun(files, reference, seed)
            ports = list(map(PortAlone, DTYPES, workers))
            if failure := next((port.failure for port in ports if port.failure), ""):
                return GATES["N"].gate(1, 1, facts=(fact(f"the port alone: {failure}"),)), run.words
            run.ask_ports(ports)
        gate = run.compare(say)
    return replace(gate, seconds=round(time.monotonic() - started, 3)), run.words


class _FreshRun:
    """One seed's cases, with the port's answers."""

    def __init__(self, files: BothFiles, reference: Worker, seed: int) -> None:
        self._files, self._reference, self._seed = files, reference, seed
        self._tensors = source_tensors(files.prepared, files.converted.rounded, files.converted.path)
        self._fresh = fresh_tensors(files.prepared, self._tensors, seed)
        self._cases: dict[FreshCase, tuple[Array, ...]] = {}
        self._answers: dict[tuple[FreshCase, str, str], Answered] = {}
        self._notices: list[str] = []

    @property
    def words(self) -> list[str]:
        return [f"fresh: seed {self._seed}", *(f"fresh: {case}" for case in self._cases)]

    def ask_ports(self, ports: Sequence[PortAlone]) -> None:
        """Ask the port in each dtype for its outputs in every case."""
        prepared, shapes = self._files.prepared, ports[0].input_shapes
        if self._files.user_family is not None and shapes:
            self._files.user_family.assume_inputs(shapes)
        self._signature = prepared.family.signature(prepared.config)
        stated: Mapping[str, Any] = ask_reference(self._reference, {"do": "masks"}).facts
        if masks := stated["masks"]:  # none if the user's own function makes the inputs
            masked = (replace(spec, hides=hides, right=right)
                      for spec, (hides, right) in zip(self._signature.inputs, masks, strict=True))  # fmt: skip
            self._signature = replace(self._signature, inputs=tuple(masked))
        drawn = not self._own_inputs(Case(self._seed, 2, 1.0))
        for case in fresh_cases(self._seed, self._signature, drawn):
            self._cases[case] = case.inputs(self._signature) if drawn else self._own_inputs(case.case)
        with ThreadPoolExecutor(len(ports)) as pool:
            for answers in pool.map(self._ask, ports):
                self._answers |= answers
        self._notices.append(confinement_notice(ports[0].enforced))

    def _ask(self, port: PortAlone) -> dict[tuple[FreshCase, str, str], Answered]:
        """The port's answers, by case, dtype and mode."""
        answers: dict[tuple[FreshCase, str, str], Answered] = {}
        for weights in (False, True):
            self._give_weights(port, weights)
            for case in (case for case in self._cases if case.weights is weights):
                inputs = self._signature.in_port(self._cases[case])
                answers |= {(case, *run): port.run(run[1], inputs) for run in case.runs if run[0] == port.dtype}
        return answers

    def _give_weights(self, port: PortAlone, weights: bool) -> None:
        """What the plan makes of the tensors; the float32 port keeps those of the converted file until it gets
        others."""
        if port.dtype == "float64" or weights:
            tensors = {**self._tensors, **self._fresh} if weights else self._tensors
            variables = dict(self._files.prepared.plan.apply(lambda name: tensors[name], port.dtype == "float32"))
            port.use(list(variables), [np.ascontiguousarray(array) for array in variables.values()])

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
            answers = {run: self._answers[case, *run] for run in case.runs}
            gate.compare(case, self._cases[case], answers)
        return gate.gate(self._notices)

    def _reference_takes_weights(self) -> bool:
        question = {"do": "use", "names": list(self._fresh)}
        missing = ask_reference(self._reference, question, list(self._fresh.values())).facts.get("missing")
        if missing:
            self._notices.append("no fresh weights: the reference has other names for them than the checkpoint")
        return not missing


def _port_arguments(files: BothFiles, dtype: str) -> dict[str, object]:
    """What the port's process receives: the arguments of :func:`wdport.load_model`."""
    pair, arguments = files.pair, dict[str, object](path=os.path.abspath(files.converted.path), dtype=dtype)
    if files.user_family is not None:
        arguments |= {"mapping": os.path.abspath(str(pair.mapping)), "model": pair.model, "inputs": list(pair.inputs)}
    return arguments


def _facts(files: BothFiles) -> dict[str, Any]:
    """What a verdict states about both files and its bounds, determined here."""
    prepared, converted = files.prepared, files.converted
    paths = {"checkpoint": str(prepared.checkpoint.path), "converted": str(converted.path)}
    return {**paths, "digests": files.digests, "bounds": bounds(prepared.family.bounds),
            "rests_on": dict(prepared.family.rests_on), "assumed": converted.assumed}  # fmt: skip
