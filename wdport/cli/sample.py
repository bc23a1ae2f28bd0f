"""`wdport sample`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wdport.cli.click_options import arguments, verb
from wdport.cli.console import console
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.model_inputs import model_inputs, open_sampled, stored_variables
from wdport.cli.processes import leave, parse_devices
from wdport.cli.progress import samples_bar
from wdport.cli.sample_request import Files, SampleRequest, SampleResult, condition_of, samples_document, samples_text
from wdport.conversion.load import Converted
from wdport.errors import InputError, InternalError, MachineError, UsageError, printable
from wdport.families.roles import Sampled
from wdport.files.figure import ANIMATED, animate_samples, draw_samples, figure_target, is_point, max_drawn
from wdport.files.inputs import InputFiles
from wdport.files.model_target import Target, stem_of
from wdport.files.outputs import require_apart
from wdport.files.samples_writer import Blocks, first_samples, samples_target
from wdport.files.series_figure import DataWindows
from wdport.jax_settings import chosen_numerics
from wdport.model import Array, Decoding, Diffused, NotDecoded
from wdport.version import VERSION

if TYPE_CHECKING:
    from wdport.sampling import Job, Request


@verb("sample", SampleRequest)
def command(request: SampleRequest) -> int:
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
    target = samples_target(_output(request), inputs, request.force)
    figure = figure_target(Path(request.plot), request.force, inputs) if request.plot else None
    moving = None
    if request.animate:
        moving = figure_target(Path(request.animate), request.force, inputs, "--animate", ANIMATED)
    named = [("-o", target), ("--plot", figure), ("--animate", moving)]
    outputs = {option: output.path for option, output in named if output}
    require_apart(outputs.items(), {})
    document = require_document(request.json_file, inputs, outputs, request.force)
    require_jax()
    try:
        _draw(request, devices, join, Files(inputs, converted, target, figure, moving, document, beside))
    except MachineError as error:
        if type(error).__name__ == "LostProcess":  # its module imports jax
            leave(error)
        raise
    return 0


def _output(request: SampleRequest) -> Path:
    if request.output:
        return Path(request.output)
    path = Path(request.model)
    return path.with_name(f"{stem_of(path)}.samples.npz")


_READ = ("model", "known", "init", "mapping", "condition")

Hashes = dict[str, str | None]
"""Hashes of the files that samples depend on."""


def _draw(request: SampleRequest, devices: int | str | None, join: Callable[[], None], files: Files) -> None:
    """Draw the missing samples, write the files, and report; ``join`` waits for the other processes."""
    with ThreadPoolExecutor(2) as background:  # while jax is imported
        variables = background.submit(stored_variables, files.model)
        hashes = background.submit(_hashes, files.inputs)
        join()
        _write(request, devices, files, variables, hashes)


def _write(
    request: SampleRequest,
    devices: int | str | None,
    files: Files,
    variables: Future[dict[str, Array]],
    hashes: Future[Hashes],
) -> None:
    from wdport.sampling.output import Output, draw_to_file

    gc.freeze()  # tracing creates many objects, and the collector would traverse those of jax repeatedly
    start_jax()  # afterwards: frozen devices are not shut down in order when the process ends
    plan = _request(request, devices, about_of(files.model).features)
    job = _job(request, files.model, variables.result(), plan)
    about = job.sampler.programs.network.about
    output = Output(files.target, _facts(request, job, plan, hashes.result()), request.batch, request.chunk,
                    request.save_every, request.force)  # fmt: skip
    files.inputs.end_reading()
    condition = about.condition
    if request.unconditional and condition is not None and condition.trained and condition.null is None:
        console.note(f"the model was trained with {condition.name} for every sample; "
                     "samples without it are not what it learned")  # fmt: skip
    if request.sampler == "euler" and "probability-flow" in job.sampler.programs.network.process().samplers:
        console.note("euler is the method of diffusers and k-diffusion; its former method is now probability-flow")
    known_values = None if plan.known is None else np.asarray(plan.known)
    ran = draw_to_file(job, output, samples_bar, lambda blocks: _plot(files, blocks, known_values, about))
    if ran is not None:
        _animate(files.moving, job)
        result = SampleResult(request, files, job, ran, known_values)
        give("samples", lambda: samples_document(result), files.document, lambda: samples_text(result))
        if ran.unsound:
            console.warn(f"{ran.unsound} of {job.count} samples have values that are not finite")


def _request(request: SampleRequest, devices: int | str | None, features: Sequence[str]) -> Request:
    """The options as arguments of :func:`wdport.sample`, with files read, whose columns are these features."""
    from wdport.sampling import Request, one_condition, read_init, read_known

    return Request(**arguments(
        Request, request, devices=devices, init=read_init(request.init) if request.init else None,
        known=read_known(request.known, features) if request.known else None,
        **one_condition(**{name: condition_of(name, text) for name, text in request.conditions.items()}),
        called={"init": request.init or "", "labels": "--label", "condition": _option(request)},
    ))  # fmt: skip


def _option(request: SampleRequest) -> str:
    name = next(iter(request.conditions), "condition")
    return "--label" if name == "labels" else f"--{name}"


def _job(request: SampleRequest, converted: Converted, variables: dict[str, Array], plan: Request) -> Job:
    """Plan the request."""
    from wdport.sampling import Programs, plan_job, stored_network

    network = stored_network(converted.family, converted.config, variables, request.dtype)
    states = np.shape(plan.init)[:1] if plan.init is not None else ()
    if request.count and states and states[0] != request.count:
        raise UsageError(request.init or "", f"has {states[0]} states for {request.count} samples", "leave out -n")
    return plan_job(Programs(network), plan)


def _hashes(inputs: InputFiles) -> Hashes:
    return {name: inputs.sha256(name) if name in inputs else None for name in _READ}


def _facts(request: SampleRequest, job: Job, plan: Request, hashes: Hashes) -> dict[str, object]:
    """Everything but the batch size that determines the samples, as JSON values."""
    network = {"dtype": request.dtype}
    settings = {
        **plan.settings,
        "sampler": job.sampler.plan.sampler,
        **{name: request.conditions.get(name) for name in ("labels", "scale", "condition")},
    }
    return {"wdport": VERSION, "n": job.count, **settings, **network, "jax": chosen_numerics(), **hashes}


def _plot(files: Files, blocks: Blocks, known_values: NDArray[np.float64] | None, about: Diffused) -> None:
    if files.figure is None:
        return
    shape, axis = drawn_shape(about)
    values = first_samples(blocks, max_drawn(shape, files.beside is not None))
    draw_samples(files.figure, values, known_values, axis, about.features, files.beside)


def _animate(figure: Target | None, job: Job) -> None:
    if figure is None:
        return
    from wdport.sampling.output import frames_of

    about = job.sampler.programs.network.about
    shape, axis = drawn_shape(about)
    animate_samples(figure, frames_of(job, max_drawn(shape)), axis, about.features)


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
    from wdport.data import read_series

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
    if not isinstance(converted.family, Sampled):  # open_sampled has refused it
        raise InternalError(converted.path, "is not a diffusion model", "report this")
    return converted.family.diffused(converted.config)


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
