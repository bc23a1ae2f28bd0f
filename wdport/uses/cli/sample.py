"""`wdport sample`."""

from __future__ import annotations

import gc
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np
from numpy.typing import NDArray

from wdport.base.errors import InputError, MachineError, UsageError, printable
from wdport.base.jax_settings import chosen_numerics
from wdport.base.options import DEVICES, JSON, MODEL, OWN_MAPPING, SHA256, Operand, Option
from wdport.base.shared_types import POLICIES
from wdport.base.version import VERSION
from wdport.cli.click_options import arguments, verb
from wdport.cli.console import console, counted, facts, samples_bar, size
from wdport.cli.documents import Destination, give, require_document
from wdport.cli.machine import leave, parse_devices, require_jax, start_jax
from wdport.conversion.load import Converted
from wdport.files.figure import ANIMATED, animate_samples, draw_samples, figure_target, is_point, max_drawn
from wdport.files.inputs import InputFiles
from wdport.files.manifest_seal import file_sha256
from wdport.files.model_target import Target, stem_of
from wdport.files.samples_writer import Blocks, first_samples, samples_target
from wdport.files.series_figure import DataWindows
from wdport.models.interface import FORMER_SAMPLERS, Array, Decoding, Diffused, NotDecoded
from wdport.uses.cli.model_inputs import SAMPLERS, SPACING, model_inputs, open_sampled, stored_variables
from wdport.uses.roles import Sampled

if TYPE_CHECKING:
    from wdport.uses.cli.results import SamplesDocument
    from wdport.uses.sampling import Job, Request
    from wdport.uses.sampling.job import SamplingRun

LABEL_DIGITS = 9

_READ = ("model", "known", "init", "mapping", "condition")
"""Files that samples depend on."""


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """The command's argument and options; ``chunk`` and ``batch`` are None if wdport chooses them."""

    model: Annotated[str, Operand(files="converted")]
    count: Annotated[int | None, Option(
        "Number of samples.  [default: 1, or the length of --init]",
        names=("-n", "--count"), bounds=(1, 1 << 32))] = None  # fmt: skip
    sampler: Annotated[str | None, Option(
        "ddpm or ddim as in the checkpoint's own code; ddim-textbook, euler, euler-ancestral, heun, dpm++2m, "
        "dpm++2m-sde, unipc, probability-flow; for a flow: heun, euler, rk4; for a score model: predictor-corrector; "
        "for a consistency model: consistency.  [default: ddpm; for a flow, heun; for a network on noise levels, the "
        "scheduler's]",
        "NAME", choices=SAMPLERS, former_choices=FORMER_SAMPLERS)] = None  # fmt: skip
    steps: Annotated[int | None, Option(
        "Number of steps, counted as in the checkpoint's own code, where 50 steps of ddim make 51 network calls.  "
        "[default: all; 20 for dpm++2m-sde; 50 for EDM; 1 for a consistency model]")] = None  # fmt: skip
    spacing: Annotated[str | None, SPACING] = None
    eta: Annotated[
        float, Option("Eta of ddim: the noise that each step adds, as a fraction of DDPM's; 0 for none.")
    ] = 0.0
    seed: Annotated[int, Option("Random seed; results do not depend on --chunk.")] = 0
    chunk: Annotated[int | None, Option(
        "Number of samples to save at a time, or auto: several batches. It does not affect the results.",
        "N|auto", word="auto")] = None  # fmt: skip
    batch: Annotated[int | None, Option(
        "Number of samples per network call, or auto: chosen to fit the free memory. It may affect the last bits of "
        "the samples.", "N|auto", names=("--batch-size",), former=("--batch",), word="auto")] = None  # fmt: skip
    output: Annotated[str | None, Option(
        "NAME.npz (coefficients and series), .npy, .csv or .parquet (series).  [default: MODEL.samples.npz next to it]",
        files=(".npz", ".npy", ".csv", ".parquet"))] = None  # fmt: skip
    plot: Annotated[str | None, Option(
        "Plot the first samples to a .png, .svg or .pdf.",
        files=(".png", ".svg", ".pdf"), group="outputs")] = None  # fmt: skip
    data: Annotated[str | None, Option(
        "With --plot, data (CSV, NPY, ARFF, MAT) whose windows are plotted next to the samples.",
        files="series")] = None  # fmt: skip
    animate: Annotated[str | None, Option(
        "Animate the sampling of the first samples in a .gif.", files=(".gif",))] = None  # fmt: skip
    save_every: Annotated[int, Option(
        "Save finished samples every N chunks; an interrupted run resumes from them.",
        "N", group="outputs", bounds=(1, 1 << 32))] = 1  # fmt: skip
    known: Annotated[str | None, Option(
        "A series (CSV, NPY) with NaN for unknown values, which are filled in.", files="known")] = None  # fmt: skip
    resample: Annotated[int | None, Option(
        "Take every step K times, so that filled-in values fit the known ones.  [default: 5 with --known]",
        "K")] = None  # fmt: skip
    labels: Annotated[str | None, Option(
        "One class for all samples, or several classes that are used in turn; for a class-conditional model.",
        "N,N,...", names=("--label",))] = None  # fmt: skip
    scale: Annotated[str | None, Option(
        "For a model that takes a scale: one scale for all samples; several that are used in turn (numbers or .npy); "
        "or 'data', to draw the scales from the training data.", "S,S,...|FILE|data")] = None  # fmt: skip
    condition: Annotated[str | None, Option(
        "Values of another conditioning input, in the same form as for --scale.", "V,V,...|FILE")] = None  # fmt: skip
    unconditional: Annotated[bool, Option("Draw without a condition, even if the model can take one.")] = False
    anchor: Annotated[float | None, Option(
        "Price near which the samples begin, for a model of prices.  [default: drawn from windows of the training "
        "data]", "PRICE")] = None  # fmt: skip
    transform: Annotated[str | None, Option(
        "The model's own transform. Runs its code, and writes samples in the units of the data.",
        "MODULE:CLASS", group="model")] = None  # fmt: skip
    guidance: Annotated[float | None, Option(
        "Strength of classifier-free guidance: above 1, samples follow their condition more closely.",
        "W")] = None  # fmt: skip
    init: Annotated[str | None, Option("x_T to start from, (n, C, F) in an .npy file.", files=(".npy",))] = None
    mapping: Annotated[str | None, OWN_MAPPING] = None
    function: Annotated[str | None, MODEL] = None
    devices: Annotated[str | None, DEVICES] = None
    distributed: Annotated[str | None, Option(
        "Run as process I (0 to N-1) of N that share the samples; process 0 listens on HOST:PORT and writes the file. "
        "With 'auto', the environment states these values, for example under Slurm.",
        "HOST:PORT,I/N")] = None  # fmt: skip
    shard_weights: Annotated[bool, Option("Also divide the weights among the devices of a process.")] = False
    dtype: Annotated[str, Option(
        "Keras dtype policy of the network. States, noise schedule and decoding are float32, unless the policy is "
        "float64.", choices=tuple(POLICIES))] = "float32"  # fmt: skip
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, Option(
        "Replace an existing output or figure (never a symbolic link), and the saved parts of another "
        "run.")] = False  # fmt: skip

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


@verb("sample", SampleRequest)
def command(request: SampleRequest) -> None:
    """Draw samples from a converted MODEL into a file.

    An interrupted run resumes where it stopped: run the same command again.
    """
    devices, join = parse_devices(request.devices, request.distributed, request.shard_weights)
    # Files are checked before jax is imported, so that errors are instant.
    inputs = model_inputs(
        request.model, request.sha256, mapping=request.mapping, known=request.known, init=request.init,
        data=request.data, condition=request.condition_file,
    )  # fmt: skip
    converted = open_sampled(request.model, request.mapping, request.function)
    beside = beside_samples(converted, request.data, request.plot)
    model = Path(request.model)
    path = Path(request.output) if request.output else model.with_name(f"{stem_of(model)}.samples.npz")
    target = samples_target(path, inputs, request.force)
    figure = figure_target(Path(request.plot), request.force, inputs) if request.plot else None
    moving = None
    if request.animate:
        moving = figure_target(Path(request.animate), request.force, inputs, "--animate", ANIMATED)
    drawn = {"--plot": figure.path if figure else None, "--animate": moving.path if moving else None}
    document = require_document(request.json_file, inputs, {"-o": target.path, **drawn}, request.force)
    require_jax()
    files = Files(inputs, converted, target, figure, moving, document, beside)
    try:
        with ThreadPoolExecutor(2) as background:  # while jax is imported
            variables = background.submit(stored_variables, converted)
            hashes = background.submit(
                lambda: {name: inputs.sha256(name) if name in inputs else None for name in _READ}
            )
            join()
            _draw(request, devices, files, variables, hashes)
    except MachineError as error:
        if type(error).__name__ == "LostProcess":  # its module imports jax
            leave(error)
        raise


def _draw(
    request: SampleRequest, devices: int | str | None, files: Files, variables: Future[dict[str, Array]],
    hashes: Future[dict[str, str | None]],
) -> None:  # fmt: skip
    """Draw the missing samples, write the files, and report."""
    from wdport.uses.sampling import Programs, plan_job, stored_network
    from wdport.uses.sampling.output import Output, draw_to_file, frames_of

    gc.freeze()  # tracing creates many objects, and the collector would traverse those of jax repeatedly
    start_jax()  # afterwards: frozen devices are not shut down in order when the process ends
    family, config = files.model.family, files.model.config
    plan = _request(request, devices, about_of(files.model))
    network = stored_network(family, config, variables.result(), request.dtype)
    states = np.shape(plan.init)[:1] if plan.init is not None else ()
    if request.count and states and states[0] != request.count:
        raise UsageError(request.init or "", f"has {states[0]} states for {request.count} samples", "leave out -n")
    job = plan_job(Programs(network), plan)
    about, condition = network.about, network.about.condition
    determined_by = {
        "wdport": VERSION, "n": job.count, **plan.settings, "sampler": job.sampler.plan.sampler,
        **{name: request.conditions.get(name) for name in ("labels", "scale", "condition")},
        "dtype": request.dtype, "jax": chosen_numerics(), **hashes.result(),
    }  # fmt: skip
    output = Output(files.target, determined_by, request.batch, request.chunk, request.save_every, request.force)
    files.inputs.end_reading()
    if request.unconditional and condition is not None and condition.trained and condition.null is None:
        console.note(f"the model was trained with {condition.name} for every sample; "
                     "samples without it are not what it learned")  # fmt: skip
    if request.sampler == "euler" and "probability-flow" in network.process().samplers:
        console.note("euler is the method of diffusers and k-diffusion; its former method is now probability-flow")
    known_values = None if plan.known is None else np.asarray(plan.known)
    ran = draw_to_file(job, output, samples_bar, lambda blocks: _plot(files, blocks, known_values, about))
    if ran is None:
        return
    if files.moving is not None:
        shape, axis = drawn_shape(about)
        animate_samples(files.moving, frames_of(job, max_drawn(shape)), axis, about.features)
    content = _document(request, files, job, ran, known_values)
    path = files.target.path
    give("samples", lambda: replace(content, output=replace(content.output, sha256=file_sha256(path))), files.document,
         lambda: _text(request, files, job, content))  # fmt: skip
    if ran.unsound:
        console.warn(f"{ran.unsound} of {job.count} samples have values that are not finite")


def _request(request: SampleRequest, devices: int | str | None, about: Diffused) -> Request:
    """The options as arguments of :func:`wdport.sample`, with files read, whose columns are the model's features."""
    from wdport.uses.sampling import Request, one_condition, read_init, read_known

    name, axes = next(iter(request.conditions), "condition"), len(getattr(about.decoding, "shape", (1, 1)))
    return Request(**arguments(
        Request, request, devices=devices, init=read_init(request.init) if request.init else None,
        known=read_known(request.known, about.features, axes) if request.known else None,
        **one_condition(**{name: condition_of(name, text) for name, text in request.conditions.items()}),
        called={"init": request.init or "", "labels": "--label",
                "condition": "--label" if name == "labels" else f"--{name}"},
    ))  # fmt: skip


def _plot(files: Files, blocks: Blocks, known_values: NDArray[np.float64] | None, about: Diffused) -> None:
    if files.figure is None:
        return
    shape, axis = drawn_shape(about)
    values = first_samples(blocks, max_drawn(shape, files.beside is not None))
    draw_samples(files.figure, values, known_values, axis, about.features, files.beside)


def drawn_shape(about: Diffused) -> tuple[tuple[int, ...], str]:
    """The shape of a drawn sample, and the name of its axis."""
    decoding = about.decoding
    if isinstance(decoding, NotDecoded):
        return about.shape, about.state.axis
    return decoding.shape, about.decoded.axis


def beside_samples(converted: Converted, data: str | None, plot: str | None) -> DataWindows | None:
    """Consecutive windows of ``data``, each as long as a sample; None without data.

    A table of points has one window per row. Columns are found by the model's feature names if both have names.
    Raises :class:`UsageError` if samples of the model cannot be compared with data, and :class:`InputError` for data
    that does not match the model.
    """
    if data is None:
        return None
    if plot is None:
        raise UsageError("--data", "has no effect without a figure", "add --plot FILE")
    from wdport.uses.data import read_series

    about = about_of(converted)
    shape, _ = drawn_shape(about)
    _require_comparable(about, shape)
    point = is_point(shape)
    features = shape[-1] if point or len(shape) > 1 else 1
    values = read_series(data).fitted(about.features, features, data).values
    length = 1 if point else shape[0]
    if len(values) < length:
        what = f"has {len(values)} rows, and a sample has {length}"
        raise InputError(data, what, "give data at least as long as a sample")
    count = len(values) // length
    return DataWindows(printable(Path(data).name), values[: count * length].reshape(count, *shape))


def about_of(converted: Converted) -> Diffused:
    family = cast(Sampled, converted.family)  # open_sampled has refused others
    return family.diffused(converted.config)


def _require_comparable(about: Diffused, shape: tuple[int, ...]) -> None:
    """Raise :class:`UsageError` if samples are not series in the units of the data."""
    decoding, fix = about.decoding, "leave --data out"
    if isinstance(decoding, NotDecoded) and not decoding.data:
        raise UsageError("--data", decoding.what, decoding.fix)
    if len(shape) > 2:
        raise UsageError("--data", f"samples have shape {shape}, and data files hold series", fix)
    standard = isinstance(decoding, Decoding) and set(decoding.mean) == {0.0} and set(decoding.std) == {1.0}
    if standard and about.windowed is None:
        what = "the model's series are in z-score units, not in units of the data"
        raise UsageError("--data", what, "convert with --data or --norm-stats, or leave it out")


def _document(
    request: SampleRequest, files: Files, job: Job, ran: SamplingRun, known_values: NDArray[np.float64] | None
) -> SamplesDocument:
    """What was drawn, without the hash of the file; seconds are those of this run."""
    from wdport.uses.cli.results import KnownValues, SamplesDocument, SamplesFile

    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding, spread = sampler.plan, about.decoding, sampler.spread
    count = 0 if known_values is None else int(np.isfinite(known_values).sum())
    return SamplesDocument(
        model=files.model.path.name,
        output=SamplesFile(files.target.path.name, "", ran.size, ran.shapes),
        features=about.features,
        figures=[figure.path.name for figure in (files.figure, files.moving) if figure],
        count=job.count,
        already=ran.already,
        not_finite=ran.unsound,
        sampler=plan.sampler,
        network_calls=len(plan.steps),
        eta=plan.eta,
        spacing=plan.spacing,
        seed=sampler.seed,
        dtype=request.dtype,
        units=job.units or None,
        not_decoded=decoding.reason if isinstance(decoding, NotDecoded) else None,
        known=None if known_values is None else KnownValues(count, known_values.size),
        labels=request.labels,
        condition=_condition(request, job) or None,
        batch=sampler.batch(min(ran.batch, job.count)),
        devices=1 if spread is None else spread.count,
        processes=1 if spread is None else spread.processes,
        seconds=ran.seconds,
        compiling_seconds=ran.compiling,
        rate=ran.rate,
    )


def _text(request: SampleRequest, files: Files, job: Job, drawn: SamplesDocument) -> str:
    """A short text summary."""
    about, arrays = job.sampler.programs.network.about, drawn.output.arrays
    state, decoded = about.state.name, about.decoded.name
    eta = f", eta {drawn.eta:g}" if drawn.eta else ""
    spacing = f", {drawn.spacing} spacing" if drawn.spacing else ""
    processes = f", of {drawn.processes} processes" if drawn.processes > 1 else ""
    rows = [
        ("sampler", f"{drawn.sampler}, {drawn.network_calls} network calls{spacing}{eta}, seed {drawn.seed}"),
        ("cheaper", _cheaper(request, job)),
        (decoded, f"{arrays[decoded]}, {job.units}" if drawn.not_decoded is None else f"none: {drawn.not_decoded}"),
        (state, arrays[state]),
        ("known", drawn.known and f"{drawn.known.values} of {drawn.known.of} values, from {request.known}"),
        *((name, f"{text}, in turn" if "," in text else text) for name, text in (drawn.condition or {}).items()),
        ("computes in", "" if drawn.dtype == "float32" else drawn.dtype),
        ("devices", f"{drawn.devices}{processes}" if drawn.devices > 1 else ""),
        ("batches", f"of {drawn.batch}; {_rate(drawn)}"),
        ("wrote", f"{files.target.path} ({size(drawn.output.bytes)})"),
        ("drew", ", ".join(str(figure.path) for figure in (files.figure, files.moving) if figure)),
    ]
    return f"{printable(drawn.model, None)}: {counted(drawn.count, 'sample')}\n{facts(rows)}"


def _condition(request: SampleRequest, job: Job) -> dict[str, str]:
    """The condition as given, by the name of the network's input."""
    condition = job.sampler.programs.network.about.condition
    if condition is None:
        return {}
    fallback = "none" if job.condition is None and request.unconditional else ""
    text = next(iter(request.conditions.values()), fallback)
    return {condition.name: text} if text else {}


def _cheaper(request: SampleRequest, job: Job) -> str:
    """The sampler of few steps, where the default one was drawn with."""
    process = job.sampler.programs.network.process()
    if request.sampler is not None or request.steps is not None or process.few is None:
        return ""
    sampler, steps = process.few
    try:
        calls = len(process.plan(sampler, steps).steps)
    except UsageError:  # a process of few steps, or a sampler that its schedule does not allow
        return ""
    if calls >= len(job.sampler.plan.steps):
        return ""
    return f"--sampler {sampler} --steps {steps}: {calls} calls; wdport evaluate --sweep compares the samples"


def _rate(drawn: SamplesDocument) -> str:
    """The number of samples drawn, and how fast; the time of compiling, done once per run, is shown separately."""
    count = drawn.count - drawn.already
    there = f"; {drawn.already} were there already" if drawn.already else ""
    if drawn.rate is None:
        return f"{count} drawn in {drawn.seconds:.1f} s, most of it compiling{there}"
    took = f"{drawn.seconds:.1f} s, of which {drawn.compiling_seconds:.1f} s compiling"
    return f"{count} drawn in {took}; {drawn.rate:.3g} samples/s{there}"


def condition_of(name: str, text: str) -> list[int] | list[float] | Array | str:
    """The values of --label, --scale or --condition."""
    if name == "labels":
        labels = text.split(",")
        if not all(label.isascii() and label.isdecimal() and len(label) <= LABEL_DIGITS for label in labels):
            what = f"invalid label {printable(text, 40)!r}"
            raise UsageError("--label", what, "give a whole number, or several: 0,1,2")
        return [int(label) for label in labels]
    from wdport.uses.sampling import read_init

    if text == "data":
        return text
    if text.endswith(".npy"):
        return read_init(text)
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        what = f"invalid value {printable(text, 40)!r}"
        raise UsageError(f"--{name}", what, "give a number, several: 0.6,2.5, a .npy file, or data") from None
