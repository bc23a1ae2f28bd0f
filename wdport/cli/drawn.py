"""The options of `wdport sample`, and its report as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wdport.cli.documents import Destination
from wdport.cli.options import facts, size
from wdport.conversion.load import Converted
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.manifests import file_sha256
from wdport.files.target import Target
from wdport.model import NotDecoded

if TYPE_CHECKING:  # they import jax, and the first one is not needed for errors
    from wdport.files.series_figure import Beside
    from wdport.sampling.devices import Spread
    from wdport.sampling.job import Job
    from wdport.sampling.ran import Ran


@dataclass(frozen=True)
class Wanted:
    """The command line, unchanged."""

    model: str
    count: int | None
    sampler: str | None
    steps: int | None
    eta: float
    seed: int
    chunk: int | None
    batch: int | None
    output: str | None
    plot: str | None
    data: str | None
    animate: str | None
    save_every: int
    known: str | None
    init: str | None
    resample: int | None
    labels: str | None
    scale: str | None
    condition: str | None
    unconditional: bool
    anchor: float | None
    transform: str | None
    mapping: str | None
    function: str | None
    guidance: float | None
    devices: str | None
    distributed: str | None
    shard_weights: bool
    pad_widths: int
    dtype: str
    force: bool

    @property
    def conditions(self) -> dict[str, str]:
        """The options that give a condition, by the name of the input; "condition" is for an input of any name."""
        found = {"labels": self.labels, "scale": self.scale, "condition": self.condition}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def condition_file(self) -> str | None:
        """The file of a condition."""
        return next((text for text in self.conditions.values() if text.endswith(".npy")), None)


@dataclass(frozen=True)
class Files:
    """The files to read, the model among them, and those to write, all checked; ``document`` is the file of --json,
    ``beside`` the data that a figure shows beside the samples."""

    inputs: InputFiles
    model: Converted
    target: Target
    figure: Target | None
    moving: Target | None = None
    document: Destination = None
    beside: Beside | None = None


@dataclass(frozen=True)
class Told:
    """A finished run and its options; ``known`` are the values of --known."""

    wanted: Wanted
    files: Files
    job: Job
    ran: Ran
    known: NDArray[np.float64] | None


def samples_text(told: Told) -> str:
    """A short text summary."""
    wanted, job, ran, known = told.wanted, told.job, told.ran, told.known
    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding, state = sampler.plan, about.decoding, about.state.name
    eta = f", eta {plan.eta:g}" if plan.eta else ""
    if isinstance(decoding, NotDecoded):
        decoded = f"none: {decoding.reason}"
    else:
        decoded = f"{ran.shapes[about.decoded.name]}, {job.units}"
    given = "" if known is None else f"{np.isfinite(known).sum()} of {known.size} values, from {wanted.known}"
    rows = [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}, seed {sampler.seed}"),
        ("cheaper", _cheaper(told)),
        (about.decoded.name, decoded),
        (state, ran.shapes[state]),
        ("known", given),
        *((name, f"{text}, in turn" if "," in text else text) for name, text in _condition(told).items()),
        ("computes in", "" if wanted.dtype == "float32" else wanted.dtype),
        ("devices", _devices(sampler.spread)),
        ("batches", f"of {sampler.batch(min(ran.batch, job.count))}; {_rate(told)}"),
        ("wrote", f"{told.files.target.path} ({size(ran.size)})"),
        ("drew", ", ".join(map(str, _figures(told.files)))),
    ]
    count = f"{job.count} sample{'' if job.count == 1 else 's'}"
    return f"{printable(told.files.model.path.name, None)}: {count}\n{facts(rows)}"


def samples_document(told: Told) -> dict[str, object]:
    """The same as JSON; seconds are those of this run, ``rate`` the samples per second without compiling."""
    wanted, job, ran, known = told.wanted, told.job, told.ran, told.known
    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding = sampler.plan, about.decoding
    decoded = not isinstance(decoding, NotDecoded)
    spread = sampler.spread
    return {
        "model": told.files.model.path.name,
        "output": {
            "name": told.files.target.path.name,
            "sha256": file_sha256(told.files.target.path),
            "bytes": ran.size,
            "arrays": {name: list(shape) for name, shape in ran.shapes.items()},
        },
        "features": list(about.features),
        "figures": [path.name for path in _figures(told.files)],
        "count": job.count,
        "already": ran.already,
        "not_finite": ran.unsound,
        "sampler": plan.sampler,
        "network_calls": len(plan.steps),
        "eta": plan.eta,
        "seed": sampler.seed,
        "dtype": wanted.dtype,
        "units": job.units or None,
        "not_decoded": None if decoded else getattr(decoding, "reason", ""),
        "known": None if known is None else {"values": int(np.isfinite(known).sum()), "of": known.size},
        "labels": wanted.labels,
        "condition": _condition(told) or None,
        "batch": sampler.batch(min(ran.batch, job.count)),
        "devices": 1 if spread is None else spread.count,
        "processes": 1 if spread is None else spread.processes,
        "seconds": ran.seconds,
        "compiling_seconds": ran.compiling,
        "rate": ran.rate,
    }


def _condition(told: Told) -> dict[str, str]:
    """The condition as given, by the name of the network's input."""
    wanted = told.job.sampler.programs.network.about.condition
    if wanted is None:
        return {}
    given = "none" if told.job.condition is None and told.wanted.unconditional else ""
    text = next(iter(told.wanted.conditions.values()), given)
    return {wanted.name: text} if text else {}


def _cheaper(told: Told) -> str:
    """The sampler of few steps, where the default one was drawn with."""
    process = told.job.sampler.programs.network.process()
    if told.wanted.sampler is not None or told.wanted.steps is not None or process.few is None:
        return ""
    sampler, steps = process.few
    try:
        calls = len(process.plan(sampler, steps).steps)
    except UsageError:  # a process of few steps, or a sampler that its schedule does not allow
        return ""
    if calls >= len(told.job.sampler.plan.steps):
        return ""
    return f"--sampler {sampler} --steps {steps}: {calls} calls; wdport evaluate --sweep compares the samples"


def _figures(files: Files) -> list[Path]:
    return [each.path for each in (files.figure, files.moving) if each]


def _rate(told: Told) -> str:
    """The number of samples drawn, and how fast; the time of compiling, done once per run, is shown separately."""
    ran, drawn = told.ran, told.job.count - told.ran.already
    there = f"; {ran.already} were there already" if ran.already else ""
    if ran.rate is None:
        return f"{drawn} drawn in {ran.seconds:.1f} s, most of it compiling{there}"
    took = f"{ran.seconds:.1f} s, of which {ran.compiling:.1f} s compiling"
    return f"{drawn} drawn in {took}; {ran.rate:.3g} samples/s{there}"


def _devices(spread: Spread | None) -> str:
    if spread is None or spread.count == 1:
        return ""
    return f"{spread.count}" + (f", of {spread.processes} processes" if spread.processes > 1 else "")
