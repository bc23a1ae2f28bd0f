"""Compare a checkpoint and its converted file: build both models, run them under probes, and return a verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from wdport.compare.run_cases import Say
from wdport.conversion.load import open_converted
from wdport.conversion.prepare import Settings
from wdport.data.units import read_units
from wdport.errors import MisfitError, require_paths, require_values
from wdport.families.registry import own_model
from wdport.files.inputs import Snapshot
from wdport.options import PathText
from wdport.parity.compare_recording import recorded_plan, recorded_weights, unequal_to_recording
from wdport.parity.file_pair import both_files, contradictions
from wdport.parity.fresh.gate import fresh_verdict
from wdport.parity.model_pair import converted_weights, unequal_variables, user_reference
from wdport.parity.recording import Replay, open_recording
from wdport.parity.resumed_gate import open_resumed
from wdport.parity.run_gates import EVERYTHING, Setup, VerifySubject, run_gates
from wdport.parity.verdict_api import Verdict
from wdport.parity.verify_options import require_repro
from wdport.parity.verify_request import Pair
from wdport.recorder import battery


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
    data: PathText | None = None,
    transform: str | None = None,
    resume: PathText | None = None,
    schedule: str | None = None,
    train: bool = False,
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
        reference: ``module:function`` that builds your own PyTorch model, in place of wdport's; see
            :mod:`wdport.recorder`.
        full: also compare bfloat16, gradients, optimizer steps and trajectories, and run the port both eagerly and
            compiled.
        repro: a folder for the first faulty layer, if there is one, and a script that runs only that layer.
        say: called with a short message at every step, for a progress display.
        model: ``module:function`` that builds your own Keras model, if the table does not name it.
        inputs: the inputs of your own model, such as "x: b 3 48 48", if the table does not state them.
        config: the training configuration to compare with that of the converted file; needed if it was passed to the
            conversion and Keras has saved the file since. The same applies to ``values`` and ``norm_stats``, see
            :func:`wdport.convert`.
        values: individual configuration values as text.
        norm_stats: mean and standard deviation per feature.
        data: the training data, from which the mean and standard deviation per feature are computed or, for some
            transforms, the statistics of every window.
        transform: how windows were made from the data.
        resume: the optimizer's file from ``convert(..., with_optimizer=True)``: five training steps from its state are
            compared.
        schedule: ``module:class`` of the learning-rate schedule in the checkpoint, if its fields do not show which
            PyTorch class it belongs to; requires ``resume``.
        train: also compare losses, gradients and running statistics of both models in training mode, and which weights
            are trained.
        seed: seed for the random inputs; the same seed produces the same inputs.
        cases: number of additional random inputs.
        fresh: also compare whole outputs on inputs and weights drawn at run time, with the port alone in a process
            without PyTorch. In that case, neither model's code runs in the calling process.

    Returns:
        A verdict, which is true if the two models agree. Its ``complete`` is False if something could not be compared.

    Raises:
        WdportError: a file is invalid, the checkpoint and the converted file do not belong together, torch is missing,
            or the comparison cannot run at all, for example because the mapping table names a layer that the model
            lacks.
    """
    files = {"mapping": mapping, "config": config, "norm_stats": norm_stats, "data": data, "resume": resume}
    require_paths(*files, checkpoint=checkpoint, converted=converted, **files)
    require_values(values)
    pair = Pair(converted, checkpoint, mapping=mapping, model=model, inputs=tuple(inputs), reference=reference,
                config=config, values=tuple((values or {}).items()), norm_stats=norm_stats, data=data,
                transform=transform, key=key, full=full, resume=resume is not None, schedule=schedule,
                train=train, seed=seed, cases=cases, fresh=fresh)  # fmt: skip
    pair.require_consistent()
    require_repro(repro)
    return compare_files(pair, say, repro, Path(resume) if resume is not None else None)


def compare_files(
    pair: Pair, say: Say | None = None, repro: PathText | None = None, resume: Path | None = None,
    setup: Setup = EVERYTHING,
) -> Verdict:  # fmt: skip
    """What :func:`verify` does for a ``pair`` with a checkpoint; ``resume`` is the optimizer's file."""
    if pair.fresh:
        return fresh_verdict(pair, say, repro, resume)
    started, say, user_family = time.monotonic(), say or (lambda _: None), pair.own
    units = read_units(pair.norm_stats, pair.data, pair.transform)
    settings = Settings(pair.config, dict(pair.values), units=None if units is None else units.flags())
    with both_files(pair, user_family) as files:
        prepared, opened = files.prepared, files.converted
        say("reading both files")
        weights = converted_weights(prepared, opened)
        unequal = [
            *unequal_variables(prepared, weights, opened.rounded),
            *contradictions(prepared, opened, user_family, settings),
        ]
        say("building four models")
        reference = setup.reference
        if files.target:
            reference = user_reference(files.target, prepared, pair.key, weights.tensors if opened.rounded else None)
        resumed = open_resumed(prepared, resume, pair.schedule) if resume is not None else None
        probes = battery(pair.seed, pair.cases)
        subject = VerifySubject(prepared, opened, weights, unequal, files.digests, started, reference, resumed,
                                pair.train, probes)  # fmt: skip
        return run_gates(subject, say, pair.full, repro, setup)


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
        A verdict, which is true if the two models agree. Its ``complete`` is False if something could not be compared.

    Raises:
        WdportError: a file is invalid, the recording and the converted file do not belong together, or the comparison
            cannot run at all, for example because the recording lacks an input.
    """
    require_paths("mapping", converted=converted, recording=recording, mapping=mapping)
    started = time.monotonic()
    say = say or (lambda _: None)
    # The snapshot is of the recording before it is read: no hash is reported if it changes later.
    opened, snapshot = open_converted(converted, own_model(mapping, model, None, inputs)), Snapshot(Path(recording))
    if opened.rounded:
        what = f"was rounded to {', '.join(sorted(set(opened.rounded.values())))}, and the recording is not"
        raise MisfitError(opened.path, what, "verify it against the checkpoint, or a float32 conversion")
    say("reading both files")
    with open_recording(Path(recording)) as recorded:
        prepared = recorded_plan(recorded, opened, mapping)
        weights = recorded_weights(prepared, recorded, opened)
        unequal = unequal_to_recording(prepared, recorded, weights)
        digests = {"recording": snapshot.sha256, "converted": opened.snapshot.sha256}
        subject = VerifySubject(prepared, opened, weights, unequal, digests, started, Replay(recorded))
        return run_gates(subject, say, repro=repro)


def verify_pair(pair: Pair, say: Say | None = None, repro: PathText | None = None) -> Verdict:
    """Return the verdict of :func:`verify`, or of :func:`verify_recording`; raises what they raise."""
    if pair.checkpoint is None:
        return verify_recording(pair.converted, str(pair.against), mapping=pair.mapping, model=pair.model,
                                inputs=pair.inputs, repro=repro, say=say)  # fmt: skip
    return compare_files(pair, say, repro, pair.optimizer)
