"""Run `wdport sample`: draw samples into a file and report on them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wdport.cli.beside import about_of, drawn_shape
from wdport.cli.console import console
from wdport.cli.documents import give
from wdport.cli.drawn import Files, Told, Wanted, samples_document, samples_text
from wdport.cli.machine import start_jax
from wdport.cli.options import stored_variables
from wdport.cli.progress import samples_bar
from wdport.conversion.load import Converted
from wdport.errors import UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.samples import Blocks, first_samples
from wdport.files.target import Target
from wdport.jax_settings import chosen_numerics
from wdport.model import Array, Diffused
from wdport.version import VERSION

if TYPE_CHECKING:  # they bring in jax
    from wdport.sampling import Job, Request

LONGEST_LABEL = 9
"""Digits."""

_READ = ("model", "known", "init", "mapping", "condition")

Hashes = dict[str, str | None]
"""Hashes of the files that samples depend on."""


def draw(wanted: Wanted, devices: int | str | None, join: Callable[[], None], files: Files) -> None:
    """Draw the missing samples, write the files, and report; ``join`` waits for the other processes."""
    with ThreadPoolExecutor(2) as background:  # while jax is imported
        variables = background.submit(stored_variables, files.model)
        hashes = background.submit(_hashes, files.inputs)
        join()
        _draw(wanted, devices, files, variables, hashes)


def _draw(
    wanted: Wanted,
    devices: int | str | None,
    files: Files,
    variables: Future[dict[str, Array]],
    hashes: Future[Hashes],
) -> None:
    from wdport.sampling.output import Output, draw_to_file

    gc.freeze()  # tracing creates many objects, and the collector would traverse those of jax repeatedly
    start_jax()  # afterwards: frozen devices are not shut down in order when the process ends
    request = _request(wanted, devices, about_of(files.model).features)
    job = _job(wanted, files.model, variables.result(), request)
    about = job.sampler.programs.network.about
    output = Output(files.target, _facts(wanted, job, request, hashes.result()), wanted.batch, wanted.chunk,
                    wanted.save_every, wanted.force)  # fmt: skip
    files.inputs.end_reading()
    taken = about.condition
    if wanted.unconditional and taken is not None and taken.trained and taken.null is None:
        console.note(f"the model was trained with {taken.name} for every sample; samples without it are not what it "
                     "learned")  # fmt: skip
    known = None if request.known is None else np.asarray(request.known)
    ran = draw_to_file(job, output, samples_bar, lambda blocks: _plot(files, blocks, known, about))
    if ran is not None:
        _animate(files.moving, job)
        told = Told(wanted, files, job, ran, known)
        give("samples", lambda: samples_document(told), files.document, lambda: samples_text(told))
        if ran.unsound:
            console.warn(f"{ran.unsound} of {job.count} samples have values that are not finite")


def _request(wanted: Wanted, devices: int | str | None, features: Sequence[str]) -> Request:
    """The options as arguments of :func:`wdport.sample`, with files read, whose columns are these features."""
    from wdport.sampling import Request, one_condition, read_init, read_known

    return Request(
        count=wanted.count, sampler=wanted.sampler, steps=wanted.steps, eta=wanted.eta, seed=wanted.seed,
        init=read_init(wanted.init) if wanted.init else None,
        known=read_known(wanted.known, features) if wanted.known else None,
        resample=wanted.resample, devices=devices, shard_weights=wanted.shard_weights, batch=wanted.batch,
        **one_condition(**{name: condition_of(name, text) for name, text in wanted.conditions.items()}),
        unconditional=wanted.unconditional, anchor=wanted.anchor, transform=wanted.transform, guidance=wanted.guidance,
        called={"init": wanted.init or "", "labels": "--label", "condition": _option(wanted)},
    )  # fmt: skip


def _option(wanted: Wanted) -> str:
    name = next(iter(wanted.conditions), "condition")
    return "--label" if name == "labels" else f"--{name}"


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


def _job(wanted: Wanted, converted: Converted, variables: dict[str, Array], request: Request) -> Job:
    """Plan the request from the file itself, since importing Keras takes a second."""
    from wdport.sampling import Programs, plan_job, stored_network

    network = stored_network(converted.family, converted.config, variables, wanted.dtype, wanted.pad_widths)
    states = np.shape(request.init)[:1] if request.init is not None else ()
    if wanted.count and states and states[0] != wanted.count:
        raise UsageError(wanted.init or "", f"has {states[0]} states for {wanted.count} samples", "leave out -n")
    return plan_job(Programs(network), request)


def _hashes(inputs: InputFiles) -> Hashes:
    return {name: inputs.sha256(name) if name in inputs else None for name in _READ}


def _facts(wanted: Wanted, job: Job, request: Request, hashes: Hashes) -> dict[str, object]:
    """Everything but the batch size that determines the samples, as JSON values."""
    network = {"dtype": wanted.dtype, "pad_widths": wanted.pad_widths}
    settings = {
        **request.settings,
        "sampler": job.sampler.plan.sampler,
        **{name: wanted.conditions.get(name) for name in ("labels", "scale", "condition")},
    }
    return {"wdport": VERSION, "n": job.count, **settings, **network, "jax": chosen_numerics(), **hashes}


def _plot(files: Files, blocks: Blocks, known: NDArray[np.float64] | None, about: Diffused) -> None:
    if files.figure is None:
        return
    from wdport.files.figure import draw_samples, drawn_at_most

    shape, axis = drawn_shape(about)
    values = first_samples(blocks, drawn_at_most(shape, files.beside is not None))
    draw_samples(files.figure, values, known, axis, about.features, files.beside)


def _animate(figure: Target | None, job: Job) -> None:
    if figure is None:
        return
    from wdport.files.figure import animate_samples, drawn_at_most
    from wdport.sampling.frames import frames_of

    about = job.sampler.programs.network.about
    shape, axis = drawn_shape(about)
    animate_samples(figure, frames_of(job, drawn_at_most(shape)), axis, about.features)
