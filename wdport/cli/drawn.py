"""The options of `wdport sample`, and its report as text and as a document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from wdport.cli.documents import Destination
from wdport.cli.options import SAMPLERS, facts, size
from wdport.conversion.load import Converted
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.manifests import file_sha256
from wdport.files.target import Target
from wdport.model import NotDecoded
from wdport.options import DEVICES, JSON, MODEL, OWN_MAPPING, PAD_WIDTHS, SHA256, Option

if TYPE_CHECKING:  # they import jax, and the first two are not needed for errors
    from wdport.cli.results import SamplesDocument
    from wdport.files.series_figure import Beside
    from wdport.sampling.devices import Spread
    from wdport.sampling.job import Job
    from wdport.sampling.ran import Ran


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The command's argument and options; ``chunk`` and ``batch`` are None if wdport chooses them."""

    model: str
    count: Annotated[
        int | None,
        Option("Number of samples.  [default: 1, or the length of --init]", names=("-n", "--count"),
               bounds=(1, 1 << 32)),
    ] = None  # fmt: skip
    sampler: Annotated[
        str | None,
        Option("ddpm or ddim as in the checkpoint's own code; ddim-textbook, dpm-solver++, sde-dpm-solver++, heun, "
               "euler; for a flow heun, euler, rk4.  [default: ddpm, for a flow heun]", "NAME", choices=SAMPLERS),
    ] = None  # fmt: skip
    steps: Annotated[
        int | None,
        Option("Number of steps, by the checkpoint's rule (50 gives 51).  [default: all; 20 of sde-dpm-solver++]"),
    ] = None
    eta: Annotated[float, Option("Noise level of ddim.")] = 0.0
    seed: Annotated[int, Option("Random seed; results do not depend on --chunk.")] = 0
    chunk: Annotated[
        int | None,
        Option("Samples saved at a time, or auto: several batches. Results do not depend on it.", default="auto"),
    ] = None
    batch: Annotated[
        int | None,
        Option("Samples per call of the network, or auto: from the free memory. The batch size may change their last "
               "bits.", default="auto"),
    ] = None  # fmt: skip
    output: Annotated[
        str | None,
        Option("NAME.npz (coefficients and series), .npy, .csv or .parquet (series).  [default: MODEL.samples.npz "
               "beside it]", "FILE", names=("-o", "--output"), files=(".npz", ".npy", ".csv", ".parquet")),
    ] = None  # fmt: skip
    plot: Annotated[
        str | None,
        Option("Plot the first samples to a .png, .svg or .pdf.", "FILE", files=(".png", ".svg", ".pdf")),
    ] = None
    data: Annotated[
        str | None,
        Option("With --plot, data (CSV, NPY, ARFF, MAT) of which windows are drawn beside the samples.", "FILE",
               files="series"),
    ] = None  # fmt: skip
    animate: Annotated[
        str | None, Option("Animate the sampling of the first samples in a .gif.", "FILE", files=(".gif",))
    ] = None
    save_every: Annotated[
        int,
        Option("Save finished samples every K chunks; an interrupted run resumes from them.", "K",
               bounds=(1, 1 << 32)),
    ] = 1  # fmt: skip
    known: Annotated[
        str | None,
        Option("A series with NaN for unknown values (CSV, NPY), which are filled in.", "FILE", files="known"),
    ] = None
    resample: Annotated[
        int | None,
        Option("Take every step K times, so that filled-in values fit the known ones.  [default: 5 with --known]", "K"),
    ] = None
    labels: Annotated[
        str | None,
        Option("Class of all samples, or several classes, cycled; for a class-conditional model.", "N,N,...",
               names=("--label",)),
    ] = None  # fmt: skip
    scale: Annotated[
        str | None,
        Option("Scale of all samples, or several scales, cycled (numbers or .npy), or drawn from those of the training "
               "data; for a model that takes one.", "S,S,...|FILE|data"),
    ] = None  # fmt: skip
    condition: Annotated[
        str | None, Option("The same for a conditioning input of any name.", "V,V,...|FILE")
    ] = None  # fmt: skip
    unconditional: Annotated[bool, Option("Call a model without the condition that it can take.")] = False
    anchor: Annotated[
        float | None,
        Option("Price that samples begin near, for a model of prices.  [default: those of windows of the training "
               "data]", "PRICE"),
    ] = None  # fmt: skip
    transform: Annotated[
        str | None,
        Option("The model's own transform, whose code is then run: samples come in the units of the data.",
               "MODULE:CLASS"),
    ] = None  # fmt: skip
    guidance: Annotated[
        float | None,
        Option("Scale of classifier-free guidance: above 1, samples follow their condition more closely.", "W"),
    ] = None
    init: Annotated[
        str | None, Option("x_T to start from, (n, C, F) in a .npy file.", "FILE", files=(".npy",))
    ] = None  # fmt: skip
    mapping: Annotated[str | None, OWN_MAPPING] = None
    function: Annotated[str | None, MODEL] = None
    devices: Annotated[str | None, DEVICES] = None
    distributed: Annotated[
        str | None,
        Option("Run as process I (0 to N-1) of N that share the samples; process 0 listens at HOST:PORT and writes the "
               "file. Or auto, as under Slurm.", "HOST:PORT,I/N"),
    ] = None  # fmt: skip
    shard_weights: Annotated[bool, Option("Also divide the weights among the devices of a process.")] = False
    dtype: Annotated[
        str,
        Option("Keras dtype policy of the network. States, noise schedule and decoding are float32 with all but "
               "float64.", choices=tuple(POLICIES)),
    ] = "float32"  # fmt: skip
    pad_widths: Annotated[int, PAD_WIDTHS] = 1
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[
        bool, Option("Replace an existing output or figure (never a link), and parts of another run.")
    ] = False  # fmt: skip

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


def samples_document(told: Told) -> SamplesDocument:
    """The same as a document; seconds are those of this run, ``rate`` the samples per second without compiling."""
    from wdport.cli.results import KnownValues, SamplesDocument, SamplesFile

    wanted, job, ran, known = told.wanted, told.job, told.ran, told.known
    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding = sampler.plan, about.decoding
    decoded = not isinstance(decoding, NotDecoded)
    spread, path = sampler.spread, told.files.target.path
    return SamplesDocument(
        model=told.files.model.path.name,
        output=SamplesFile(path.name, file_sha256(path), ran.size, ran.shapes),
        features=about.features,
        figures=[path.name for path in _figures(told.files)],
        count=job.count,
        already=ran.already,
        not_finite=ran.unsound,
        sampler=plan.sampler,
        network_calls=len(plan.steps),
        eta=plan.eta,
        seed=sampler.seed,
        dtype=wanted.dtype,
        units=job.units or None,
        not_decoded=None if decoded else getattr(decoding, "reason", ""),
        known=None if known is None else KnownValues(int(np.isfinite(known).sum()), known.size),
        labels=wanted.labels,
        condition=_condition(told) or None,
        batch=sampler.batch(min(ran.batch, job.count)),
        devices=1 if spread is None else spread.count,
        processes=1 if spread is None else spread.processes,
        seconds=ran.seconds,
        compiling_seconds=ran.compiling,
        rate=ran.rate,
    )


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
