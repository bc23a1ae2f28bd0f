"""The request of `wdport sample`, and its report as text and as a document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from wdport.cli.console import facts, size
from wdport.cli.documents import Destination
from wdport.cli.model_inputs import SAMPLERS
from wdport.conversion.load import Converted
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.manifest_seal import file_sha256
from wdport.files.model_target import Target
from wdport.model import FORMER_SAMPLERS, Array, NotDecoded
from wdport.options import DEVICES, JSON, MODEL, OWN_MAPPING, SHA256, Operand, Option
from wdport.shared_types import POLICIES

if TYPE_CHECKING:
    from wdport.cli.results import SamplesDocument
    from wdport.files.series_figure import DataWindows
    from wdport.sampling.devices import DeviceSpread
    from wdport.sampling.job import Job, SamplingRun

LONGEST_LABEL = 9
"""Digits."""


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """The command's argument and options; ``chunk`` and ``batch`` are None if wdport chooses them."""

    model: Annotated[str, Operand(files="converted")]
    count: Annotated[
        int | None,
        Option("Number of samples.  [default: 1, or the length of --init]", names=("-n", "--count"),
               bounds=(1, 1 << 32)),
    ] = None  # fmt: skip
    sampler: Annotated[
        str | None,
        Option("ddpm or ddim as in the checkpoint's own code; ddim-textbook, euler, euler-ancestral, heun, dpm++2m, "
               "dpm++2m-sde, unipc, probability-flow; for a flow: heun, euler, rk4.  [default: ddpm; for a flow, heun]",
               "NAME", choices=SAMPLERS, former_choices=FORMER_SAMPLERS),
    ] = None  # fmt: skip
    steps: Annotated[
        int | None,
        Option(
            "Number of steps, counted as in the checkpoint's own code, where 50 gives 51.  [default: all; 20 for "
            "dpm++2m-sde]"
        ),
    ] = None
    eta: Annotated[float, Option("Noise level of ddim.")] = 0.0
    seed: Annotated[int, Option("Random seed; results do not depend on --chunk.")] = 0
    chunk: Annotated[
        int | None,
        Option(
            "Number of samples to save at a time, or auto: several batches. It does not affect the results.",
            "N|auto",
            default="auto",
        ),
    ] = None
    batch: Annotated[
        int | None,
        Option("Number of samples per network call, or auto: chosen to fit the free memory. It may affect the last "
               "bits of the samples.",
               metavar="N|auto", names=("--batch-size",), former=("--batch",), default="auto"),
    ] = None  # fmt: skip
    output: Annotated[
        str | None,
        Option("NAME.npz (coefficients and series), .npy, .csv or .parquet (series).  [default: MODEL.samples.npz "
               "next to it]", files=(".npz", ".npy", ".csv", ".parquet")),
    ] = None  # fmt: skip
    plot: Annotated[
        str | None, Option("Plot the first samples to a .png, .svg or .pdf.", files=(".png", ".svg", ".pdf"),
                           group="outputs")
    ] = None  # fmt: skip
    data: Annotated[
        str | None,
        Option("With --plot, data (CSV, NPY, ARFF, MAT) whose windows are plotted next to the samples.",
               files="series"),
    ] = None  # fmt: skip
    animate: Annotated[
        str | None, Option("Animate the sampling of the first samples in a .gif.", files=(".gif",))
    ] = None  # fmt: skip
    save_every: Annotated[
        int,
        Option("Save finished samples every N chunks; an interrupted run resumes from them.", "N", group="outputs",
               bounds=(1, 1 << 32)),
    ] = 1  # fmt: skip
    known: Annotated[
        str | None, Option("A series (CSV, NPY) with NaN for unknown values, which are filled in.", files="known")
    ] = None  # fmt: skip
    resample: Annotated[
        int | None,
        Option("Take every step K times, so that filled-in values fit the known ones.  [default: 5 with --known]", "K"),
    ] = None
    labels: Annotated[
        str | None,
        Option("One class for all samples, or several classes that are used in turn; for a class-conditional "
               "model.", "N,N,...",
               names=("--label",)),
    ] = None  # fmt: skip
    scale: Annotated[
        str | None,
        Option("One scale for all samples, several that are used in turn (numbers or .npy), or data to draw scales "
               "from the training data; for a model that takes a scale.", "S,S,...|FILE|data"),
    ] = None  # fmt: skip
    condition: Annotated[
        str | None, Option("Values of a conditioning input of any name, given as for --scale.", "V,V,...|FILE")
    ] = None  # fmt: skip
    unconditional: Annotated[bool, Option("Do not condition a model that can be conditioned.")] = False
    anchor: Annotated[
        float | None,
        Option("Price near which the samples begin, for a model of prices.  [default: drawn from windows of the "
               "training data]", "PRICE"),
    ] = None  # fmt: skip
    transform: Annotated[
        str | None,
        Option("The model's own transform. Its code is run, and samples are in the units of the data.",
               "MODULE:CLASS", group="model"),
    ] = None  # fmt: skip
    guidance: Annotated[
        float | None,
        Option("Strength of classifier-free guidance: above 1, samples follow their condition more closely.", "W"),
    ] = None
    init: Annotated[str | None, Option("x_T to start from, (n, C, F) in an .npy file.", files=(".npy",))] = None
    mapping: Annotated[str | None, OWN_MAPPING] = None
    function: Annotated[str | None, MODEL] = None
    devices: Annotated[str | None, DEVICES] = None
    distributed: Annotated[
        str | None,
        Option("Run as process I (0 to N-1) of N that share the samples; process 0 listens at "
               "HOST:PORT and writes the file. auto reads these values from the environment, such as "
               "Slurm's.", "HOST:PORT,I/N"),
    ] = None  # fmt: skip
    shard_weights: Annotated[bool, Option("Also divide the weights among the devices of a process.")] = False
    dtype: Annotated[
        str,
        Option("Keras dtype policy of the network. States, noise schedule and decoding are float32, "
               "unless the policy is float64.", choices=tuple(POLICIES)),
    ] = "float32"  # fmt: skip
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[
        bool, Option("Replace an existing output or figure (never a link), and parts of another run.")
    ] = False  # fmt: skip

    @property
    def conditions(self) -> dict[str, str]:
        """The options that give a condition, by the name of the input; "condition" is for an input of any name."""
        texts = {"labels": self.labels, "scale": self.scale, "condition": self.condition}
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def condition_file(self) -> str | None:
        """The file of a condition."""
        return next((text for text in self.conditions.values() if text.endswith(".npy")), None)


@dataclass(frozen=True)
class Files:
    """The files to read, the model among them, and those to write, all checked; ``document`` is the file of --json,
    ``beside`` the data that a figure shows next to the samples."""

    inputs: InputFiles
    model: Converted
    target: Target
    figure: Target | None
    moving: Target | None = None
    document: Destination = None
    beside: DataWindows | None = None


@dataclass(frozen=True)
class SampleResult:
    """A finished run and its request; ``known`` are the values of --known."""

    request: SampleRequest
    files: Files
    job: Job
    ran: SamplingRun
    known_values: NDArray[np.float64] | None


def samples_text(result: SampleResult) -> str:
    """A short text summary."""
    request, job, ran, values = result.request, result.job, result.ran, result.known_values
    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding, state = sampler.plan, about.decoding, about.state.name
    eta = f", eta {plan.eta:g}" if plan.eta else ""
    if isinstance(decoding, NotDecoded):
        decoded = f"none: {decoding.reason}"
    else:
        decoded = f"{ran.shapes[about.decoded.name]}, {job.units}"
    known_text = "" if values is None else f"{np.isfinite(values).sum()} of {values.size} values, from {request.known}"
    rows = [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}, seed {sampler.seed}"),
        ("cheaper", _cheaper(result)),
        (about.decoded.name, decoded),
        (state, ran.shapes[state]),
        ("known", known_text),
        *((name, f"{text}, in turn" if "," in text else text) for name, text in _condition(result).items()),
        ("computes in", "" if request.dtype == "float32" else request.dtype),
        ("devices", _devices(sampler.spread)),
        ("batches", f"of {sampler.batch(min(ran.batch, job.count))}; {_rate(result)}"),
        ("wrote", f"{result.files.target.path} ({size(ran.size)})"),
        ("drew", ", ".join(map(str, _figures(result.files)))),
    ]
    count = f"{job.count} sample{'' if job.count == 1 else 's'}"
    return f"{printable(result.files.model.path.name, None)}: {count}\n{facts(rows)}"


def samples_document(result: SampleResult) -> SamplesDocument:
    """The same as a document; seconds are those of this run, ``rate`` the samples per second without compiling."""
    from wdport.cli.results import KnownValues, SamplesDocument, SamplesFile

    request, job, ran, values = result.request, result.job, result.ran, result.known_values
    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding = sampler.plan, about.decoding
    decoded = not isinstance(decoding, NotDecoded)
    spread, path = sampler.spread, result.files.target.path
    return SamplesDocument(
        model=result.files.model.path.name,
        output=SamplesFile(path.name, file_sha256(path), ran.size, ran.shapes),
        features=about.features,
        figures=[path.name for path in _figures(result.files)],
        count=job.count,
        already=ran.already,
        not_finite=ran.unsound,
        sampler=plan.sampler,
        network_calls=len(plan.steps),
        eta=plan.eta,
        seed=sampler.seed,
        dtype=request.dtype,
        units=job.units or None,
        not_decoded=None if decoded else getattr(decoding, "reason", ""),
        known=None if values is None else KnownValues(int(np.isfinite(values).sum()), values.size),
        labels=request.labels,
        condition=_condition(result) or None,
        batch=sampler.batch(min(ran.batch, job.count)),
        devices=1 if spread is None else spread.count,
        processes=1 if spread is None else spread.processes,
        seconds=ran.seconds,
        compiling_seconds=ran.compiling,
        rate=ran.rate,
    )


def _condition(result: SampleResult) -> dict[str, str]:
    """The condition as given, by the name of the network's input."""
    condition = result.job.sampler.programs.network.about.condition
    if condition is None:
        return {}
    fallback = "none" if result.job.condition is None and result.request.unconditional else ""
    text = next(iter(result.request.conditions.values()), fallback)
    return {condition.name: text} if text else {}


def _cheaper(result: SampleResult) -> str:
    """The sampler of few steps, where the default one was drawn with."""
    process = result.job.sampler.programs.network.process()
    if result.request.sampler is not None or result.request.steps is not None or process.few is None:
        return ""
    sampler, steps = process.few
    try:
        calls = len(process.plan(sampler, steps).steps)
    except UsageError:  # a process of few steps, or a sampler that its schedule does not allow
        return ""
    if calls >= len(result.job.sampler.plan.steps):
        return ""
    return f"--sampler {sampler} --steps {steps}: {calls} calls; wdport evaluate --sweep compares the samples"


def _figures(files: Files) -> list[Path]:
    return [figure.path for figure in (files.figure, files.moving) if figure]


def _rate(result: SampleResult) -> str:
    """The number of samples drawn, and how fast; the time of compiling, done once per run, is shown separately."""
    ran, drawn = result.ran, result.job.count - result.ran.already
    there = f"; {ran.already} were there already" if ran.already else ""
    if ran.rate is None:
        return f"{drawn} drawn in {ran.seconds:.1f} s, most of it compiling{there}"
    took = f"{ran.seconds:.1f} s, of which {ran.compiling:.1f} s compiling"
    return f"{drawn} drawn in {took}; {ran.rate:.3g} samples/s{there}"


def _devices(spread: DeviceSpread | None) -> str:
    if spread is None or spread.count == 1:
        return ""
    return f"{spread.count}" + (f", of {spread.processes} processes" if spread.processes > 1 else "")


def condition_of(name: str, text: str) -> list[int] | list[float] | Array | str:
    """The values of --label, --scale or --condition."""
    if name == "labels":
        return _labels(text)
    from wdport.sampling import read_init

    if text == "data":
        return text
    if text.endswith(".npy"):
        return read_init(text)
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        what = f"invalid value {printable(text, 40)!r}"
        raise UsageError(f"--{name}", what, "give a number, several: 0.6,2.5, a .npy file, or data") from None


def _labels(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) <= LONGEST_LABEL for part in parts):
        raise UsageError("--label", f"invalid label {printable(text, 40)!r}", "give a whole number, or several: 0,1,2")
    return [int(part) for part in parts]
