"""Compare a checkpoint and its converted file: build both models, run them under probes, and return a verdict.

Gates: preflight, constants, float64 and float32, the last two per layer and per part of the output; the sampling
network; and those of the model's family. The full battery adds bfloat16, gradients, optimiser and trajectories,
which compares the sampling network in float64 as well. :mod:`wdport.compare.glossary` describes each gate.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from wdport.compare.bounds import bounds
from wdport.compare.calls import CASES, Case
from wdport.compare.candidate import Candidate
from wdport.compare.clock import Clock
from wdport.compare.comparison import Comparison
from wdport.compare.engine import Say, compare
from wdport.compare.findings import Finding, Gate
from wdport.compare.gates import float32_gate, float64_gate
from wdport.compare.reference import Reference
from wdport.conversion.load import Converted, open_converted
from wdport.conversion.prepare import PathText, Prepared, Settings, prepare
from wdport.data.statistics import read_statistics
from wdport.errors import MisfitError, UsageError, require_paths
from wdport.families.choice import own_model
from wdport.families.roles import KeptByKeras, Referenced, Sampled
from wdport.files.manifests import file_sha256
from wdport.files.model_files import sha256_at
from wdport.parity.diagnose import probable_causes
from wdport.parity.fresh.api import fresh_verdict
from wdport.parity.full_battery import FullBattery, run_full_battery
from wdport.parity.gates import constants_gate, preflight_gate
from wdport.parity.library import misread
from wdport.parity.pair import Pair
from wdport.parity.provenance import contradictions, provenance
from wdport.parity.recorded import recorded_plan, recorded_weights, unequal_to_recording
from wdport.parity.recording import Replay, open_recording
from wdport.parity.reference import user_reference
from wdport.parity.repro import write_repro
from wdport.parity.resumed_gate import Resumed, ResumedStart, open_resumed
from wdport.parity.sampling_network import SamplingNetwork
from wdport.parity.shown import Verdict
from wdport.parity.sides import (
    Sides,
    Weights,
    WeightSets,
    build_sides,
    converted_weights,
    unequal_variables,
)
from wdport.parity.use.gates import use_gates
from wdport.parity.verdict import ReferenceKind, locate
from wdport.recorder import battery
from wdport.version import VERSION

ORDER = ("0", "A'", "A", "B", "B'", "C", "D", "D'", "E", "E'", "H", "I", "N")
"""The gates in the order of reports; a family's own come last."""


@dataclass(frozen=True)
class Setup:
    """How a comparison runs, for callers that make many of the same checkpoint.

    Attributes:
        eager: run the port step by step instead of compiled.
        brief: stop after the first case that shows a fault.
        network: compare the network only, without the gates of its family and of sampling.
        causes: look for probable causes.
        reference: the reference, if it was built before.
    """

    eager: bool = False
    brief: bool = False
    network: bool = False
    causes: bool = True
    reference: Reference | None = None


def verify(
    checkpoint: PathText,
    converted: PathText,
    *,
    mapping: PathText | None = None,
    key: str | None = None,
    reference: str | None = None,
    full: bool = False,
    repro: PathText | None = None,
    say: Say | None = None,
    model: str | None = None,
    inputs: Sequence[str] = (),
    config: PathText | None = None,
    values: Mapping[str, str] | None = None,
    norm_stats: PathText | None = None,
    resume: PathText | None = None,
    schedule: str | None = None,
    seed: int = 0,
    cases: int = 0,
    fresh: bool = False,
) -> Verdict:
    """Run a converted model and its checkpoint, and compare them layer by layer.

    Args:
        checkpoint: the PyTorch file that was converted.
        converted: the file that :func:`wdport.convert` wrote.
        mapping: the mapping table, if you used your own.
        key: dotted key of the state_dict, if the file holds more than one.
        reference: ``module:factory`` of your own PyTorch model, in place of wdport's; see :mod:`wdport.recorder`.
        full: also run bfloat16, gradients, optimiser and trajectories, and the port eagerly as well as compiled.
        repro: a folder for the first faulty layer, if there is one, and a script that runs only that layer.
        say: called with a short message at every step, for a progress display.
        model: ``module:function`` of your own Keras model, if the table does not name it.
        inputs: the inputs of your own model, such as "x: b 3 48 48", if the table does not state them.
        config: the training configuration, to compare that of the converted file with; needed if it was given at the
            conversion and Keras has saved the file since. The same holds for ``values`` and ``norm_stats``, see
            :func:`wdport.convert`.
        values: single values of the configuration as text.
        norm_stats: mean and standard deviation per feature.
        resume: the optimizer's file from ``convert(..., with_optimizer=True)``: five training steps are compared from
            its state.
        schedule: ``module:class`` of the learning-rate schedule in the checkpoint, if its fields do not show which of
            PyTorch's classes it is of; needs ``resume``.
        seed: of the inputs; the same seed draws the same inputs.
        cases: number of additional random inputs.
        fresh: also compare whole outputs on inputs and weights drawn at run time, with the port alone in a process
            without PyTorch. No code of either model runs in this process then.

    Returns:
        A verdict, which is true if the two are equal.

    Raises:
        WdportError: a file is bad, the two do not belong together, torch is missing, or something could
            not be compared.
    """
    files = {"mapping": mapping, "config": config, "norm_stats": norm_stats, "resume": resume}
    require_paths(*files, checkpoint=checkpoint, converted=converted, **files)
    pair = Pair(converted, checkpoint, mapping=mapping, model=model, inputs=tuple(inputs), reference=reference,
                config=config, values=tuple((values or {}).items()), norm_stats=norm_stats, key=key,
                full=full, resume=resume is not None, schedule=schedule, seed=seed, cases=cases,
                fresh=fresh)  # fmt: skip
    pair.require_consistent()
    return compare_files(pair, say, repro, Path(resume) if resume is not None else None)


def compare_files(
    pair: Pair,
    say: Say | None = None,
    repro: PathText | None = None,
    resume: Path | None = None,
    setup: Setup = Setup(),
) -> Verdict:
    """What :func:`verify` does for a ``pair`` with a checkpoint; ``resume`` is the optimizer's file."""
    assert pair.checkpoint is not None
    if pair.fresh:
        return fresh_verdict(pair, say, repro, resume)
    started = time.monotonic()
    say = say or (lambda _: None)
    own = pair.own
    opened = open_converted(pair.converted, own)
    known = asdict(opened.config)
    settings = Settings(mapping=pair.mapping, key=pair.key, known=known, model=pair.model, reference=pair.reference,
                        inputs=pair.inputs, own=own)  # fmt: skip
    statistics = read_statistics(pair.norm_stats) if pair.norm_stats else None
    given = Settings(pair.config, dict(pair.values), statistics=statistics)
    with _prepared(pair.checkpoint, settings, opened) as prepared:
        if prepared.family.name != opened.family.name:
            what = f"is a {opened.family.name}, the checkpoint a {prepared.family.name}"
            raise MisfitError(opened.path, what, "give the file that this checkpoint was converted to")
        say("reading both files")
        weights = converted_weights(prepared, opened)
        digests = {"checkpoint": prepared.checkpoint.file_sha256(), "converted": sha256_at(opened.path)}
        unequal = [*unequal_variables(prepared, weights, opened.rounded), *contradictions(prepared, opened, own, given)]
        say("building four models")
        named = pair.reference or (own.reference if own is not None else None)
        if own is not None and not named:
            fix = "add `torch: MODULE:FUNCTION` to the table, or give --reference"
            raise UsageError(own.table.path, "does not name the PyTorch model to compare with", fix)
        reference = setup.reference
        if named:
            reference = user_reference(named, prepared, pair.key, weights.tensors if opened.rounded else None)
        trained = open_resumed(prepared, resume, pair.schedule) if resume is not None else None
        return _verify(
            prepared,
            opened,
            weights,
            unequal,
            digests,
            reference,
            say,
            started,
            pair.full,
            repro,
            trained,
            setup,
            battery(pair.seed, pair.cases),
        )


@contextmanager
def _prepared(checkpoint: PathText, settings: Settings, opened: Converted) -> Iterator[Prepared]:
    """The checkpoint and its plan; if they do not fit and the file was made from another checkpoint, says so."""
    with ExitStack() as stack:
        try:
            prepared = stack.enter_context(prepare(checkpoint, settings))
        except MisfitError as error:
            source, file = opened.account.source if opened.account else None, Path(checkpoint)
            if source is None or not file.is_file() or file_sha256(file) == source.sha256:
                raise
            what = f"was converted from {source.name} (SHA-256 {source.sha256[:16]}), not from {file.name}"
            raise MisfitError(opened.path, what, "give that checkpoint, or the file that this one became") from error
        yield prepared


def verify_recording(
    converted: PathText,
    recording: PathText,
    *,
    mapping: PathText | None = None,
    repro: PathText | None = None,
    say: Say | None = None,
    model: str | None = None,
    inputs: Sequence[str] = (),
) -> Verdict:
    """Compare a converted model with a recording of its PyTorch model; needs neither torch nor the checkpoint.

    Args:
        converted: the file that :func:`wdport.convert` wrote.
        recording: the file that `wdport record` wrote.
        mapping: the mapping table, if you used your own.
        repro: a folder for the first faulty layer, as for :func:`verify`.
        say: called with a short message at every step, for a progress display.
        model: as for :func:`verify`.
        inputs: as for :func:`verify`.

    Returns:
        A verdict, which is true if the two are equal.

    Raises:
        WdportError: a file is bad, the two do not belong together, or something could not be compared.
    """
    require_paths("mapping", converted=converted, recording=recording, mapping=mapping)
    started = time.monotonic()
    say = say or (lambda _: None)
    opened = open_converted(converted, own_model(mapping, model, None, inputs))
    if opened.rounded:
        what = f"was rounded to {', '.join(sorted(set(opened.rounded.values())))}, and the recording is not"
        raise MisfitError(opened.path, what, "verify it against the checkpoint, or a float32 conversion")
    say("reading both files")
    with open_recording(Path(recording)) as recorded:
        prepared = recorded_plan(recorded, opened, mapping)
        weights = recorded_weights(prepared, recorded, opened)
        unequal = unequal_to_recording(prepared, recorded, weights)
        digests = {"recording": file_sha256(Path(recording)), "converted": sha256_at(opened.path)}
        return _verify(prepared, opened, weights, unequal, digests, Replay(recorded), say, started, repro=repro)


def verify_pair(pair: Pair, say: Say | None = None, repro: PathText | None = None) -> Verdict:
    """Return the verdict of :func:`verify`, or of :func:`verify_recording`; raises what they raise."""
    if pair.checkpoint is None:
        return verify_recording(pair.converted, str(pair.against), mapping=pair.mapping, model=pair.model,
                                inputs=pair.inputs, repro=repro, say=say)  # fmt: skip
    return verify(pair.checkpoint, pair.converted, mapping=pair.mapping, key=pair.key, reference=pair.reference,
                  full=pair.full, repro=repro, say=say, model=pair.model, inputs=pair.inputs, config=pair.config,
                  values=dict(pair.values), norm_stats=pair.norm_stats, resume=pair.optimizer, schedule=pair.schedule,
                  seed=pair.seed, cases=pair.cases, fresh=pair.fresh)  # fmt: skip


def _verify(
    prepared: Prepared,
    converted: Converted,
    weights: Weights,
    unequal: list[Finding],
    digests: dict[str, str],
    reference: Reference | None,
    say: Say,
    started: float,
    full: bool = False,
    repro: PathText | None = None,
    resumed: Resumed | None = None,
    setup: Setup = Setup(),
    probes: Sequence[Case] = CASES,
) -> Verdict:
    unequal = [*unequal, *provenance(converted, weights.variables, digests["converted"], digests.get("checkpoint"))]
    if full and not isinstance(converted.family, KeptByKeras):
        say("reading the converted file by its own library")
        unequal = [*unequal, *misread(converted, weights.variables)]
    sides = build_sides(prepared, weights, reference)
    start = ResumedStart(prepared, converted, sides) if resumed is not None else None
    clock = Clock()
    clock.add("0", time.monotonic() - started)
    sets = WeightSets(prepared, sides, weights)
    sampling = None if setup.network else _sampling_network(prepared, sides, full)
    candidate = Candidate(sides.candidates, prepared.table, prepared.family.signature(prepared.config),
                          prepared.family.features(prepared.config), sets.use, setup.eager)  # fmt: skip
    comparison = compare(
        sides.reference, candidate, probes, companion=sampling, clock=clock, brief=setup.brief, say=say
    )
    gates = [preflight_gate(prepared, comparison, unequal)]
    if prepared.constants:
        with clock.gate("A'"):
            gates.append(constants_gate(prepared, sides.candidates["float32"], weights))
    if not setup.network:
        before = time.monotonic()
        own = prepared.family.gates(prepared.config)
        for gate in own[:1]:  # several would be made at once
            clock.add(gate.name, time.monotonic() - before)
        gates += own
        say("samplers and generation")
        gates += use_gates(prepared, comparison, sampling is not None, full)
    if full and comparison.evidence is None:  # otherwise they are needed to look for causes
        sets.forget()
    more = run_full_battery(prepared, comparison, sampling, say) if full else FullBattery()
    gates += [float64_gate(comparison), float32_gate(comparison), *more.gates]
    if resumed is not None and start is not None:
        say("training steps from the optimizer's state")
        with clock.gate("D'"):
            gates.append(start.gate(resumed))
    if sampling is not None:
        gates += [sampling.gate(more.trajectories), *([more.path] if more.path else [])]
    taps, (kind, code) = tuple(comparison.taps.values()), reference_of(prepared, sides)
    found: dict[str, tuple[str, ...]] = {}
    if comparison.evidence is not None and setup.causes:
        say("looking for probable causes")
        faults = locate(taps)
        seen = sets.of(comparison.evidence.random_biases)
        found = probable_causes(prepared, comparison, seen, faults)
        if repro is not None and faults:
            write_repro(repro, prepared.family, prepared.config, seen.variables, faults[0], comparison.evidence)
    parts = comparison.parts
    return Verdict(
        checkpoint=str(prepared.checkpoint.path),
        converted=str(converted.path),
        gates=tuple(sorted(clock.timed(gates), key=_place)),
        taps=taps,
        settings=comparison.alignment.settings,
        causes=found,
        parts=more.parts(parts.results()) if parts is not None else (),
        decoded=parts.decoded_error if parts is not None else None,
        words=comparison.signature.words,
        assumed=_assumed(converted),
        reference=sides.reference.told,
        reference_kind=kind,
        reference_code=code,
        rounded_to=", ".join(sorted(set(converted.rounded.values()))),
        inputs=tuple(case.describe() for case in comparison.probes[: comparison.cases]),
        environment=_environment(comparison),
        bounds=bounds(prepared.family.bounds),
        rests_on=dict(prepared.family.rests_on),
        overlays=parts.overlays if parts is not None else (),
        trajectories=more.trajectories,
        variables=more.variables,
        digests=digests,
        started=begun(started),
        left_out=comparison.alignment.not_compared,
        seconds=time.monotonic() - started,
    )


def _sampling_network(prepared: Prepared, sides: Sides, full: bool) -> SamplingNetwork | None:
    """The network that samplers run, if the model is sampled from."""
    family, config = prepared.family, prepared.config
    if not isinstance(family, Sampled) or family.unsampled(config):
        return None
    return SamplingNetwork(family, config, sides.candidates, full)


def reference_of(prepared: Prepared, sides: Sides) -> tuple[ReferenceKind, str]:
    """Whose code the reference is, and the name of that code."""
    if not sides.references:
        return "recording", sides.reference.told.removesuffix(", recorded")
    if sides.reference.told:
        return "own", sides.reference.told
    if isinstance(prepared.family, Referenced) and (library := prepared.family.library_of(prepared.config)):
        return "library", library
    return "wdport", f"wdport.families.{prepared.family.name}"


def begun(started: float) -> str:
    """Convert a reading of the monotonic clock, in seconds, to a date and time in UTC, such as 2026-11-22T18:05:00Z."""
    now = datetime.now(UTC).timestamp() - (time.monotonic() - started)
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _place(gate: Gate) -> int:
    return ORDER.index(gate.name) if gate.name in ORDER else len(ORDER)


def _assumed(converted: Converted) -> dict[str, Any]:
    return {name: getattr(converted.config, name) for name, origin in converted.origins.items() if origin == "assumed"}


def _environment(comparison: Comparison) -> dict[str, str]:
    packages = {name: version(name) for name in ("keras", "jax", "numpy")}
    own = {"wdport": VERSION, **packages, "device": str(jax.devices()[0]), "jax_matmul": comparison.precision[1]}
    return {"python": platform.python_version(), **own, **comparison.reference.environment}
