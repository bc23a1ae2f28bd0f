"""The command line of `wdport sample` in; samples in a file, and what is to be said of them, out."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray

from wdport.cli.machine import start_jax
from wdport.cli.options import facts, size, stored_variables
from wdport.cli.progress import samples_bar
from wdport.conversion.load import Converted
from wdport.errors import UsageError, printable
from wdport.files.samples import Blocks, first_samples
from wdport.files.target import Target
from wdport.model import Array, Diffused, NotDecoded
from wdport.version import VERSION

if TYPE_CHECKING:  # they bring in jax
    from wdport.sampling import Job, Request
    from wdport.sampling.devices import Spread
    from wdport.sampling.output import Ran

LONGEST_LABEL = 9
"""Digits."""

Hashes = dict[str, str | None]
"""Of the files that samples depend on."""


@dataclass(frozen=True)
class Wanted:
    """The command line, as it is."""

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
    animate: str | None
    save_every: int
    known: str | None
    init: str | None
    resample: int | None
    labels: str | None
    mapping: str | None
    function: str | None
    guidance: float | None
    devices: str | None
    distributed: str | None
    shard_weights: bool
    pad_widths: int
    dtype: str
    force: bool


@dataclass(frozen=True)
class Files:
    """The model that is read, and the files that are written, all of them known to be possible."""

    model: Converted
    target: Target
    figure: Target | None
    moving: Target | None = None


def draw(wanted: Wanted, devices: int | str | None, join: Callable[[], None], files: Files) -> None:
    """Draw what is missing, write the files, and say so; ``join`` waits for the other processes."""
    with ThreadPoolExecutor(2) as background:  # while jax is imported
        variables = background.submit(stored_variables, files.model)
        hashes = background.submit(_hashes, wanted)
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

    gc.freeze()  # tracing makes many objects, and the collector would go through jax's own again and again
    start_jax()  # after that: devices that are frozen are not taken down in order when the process ends
    request = _request(wanted, devices)
    job = _job(wanted, files.model, variables.result(), request)
    about = job.sampler.programs.network.about
    output = Output(files.target, _facts(wanted, job, request, hashes.result()), wanted.batch, wanted.chunk,
                    wanted.save_every, wanted.force)  # fmt: skip
    known = None if request.known is None else np.asarray(request.known)
    ran = draw_to_file(job, output, samples_bar, lambda blocks: _plot(files.figure, blocks, known, about))
    if ran is not None:
        _animate(files.moving, job)
        click.echo(_text(wanted, files, job, ran, known))
        if ran.unsound:
            said = f"warning: {ran.unsound} of {job.count} samples hold values that are not finite"
            click.echo(said, err=True)


def _request(wanted: Wanted, devices: int | str | None) -> Request:
    """The options as :func:`wdport.sample` has them, files read."""
    from wdport.sampling import Request, read_init, read_known

    return Request(
        count=wanted.count, sampler=wanted.sampler, steps=wanted.steps, eta=wanted.eta, seed=wanted.seed,
        init=read_init(wanted.init) if wanted.init else None,
        known=read_known(wanted.known) if wanted.known else None,
        resample=wanted.resample, devices=devices, shard_weights=wanted.shard_weights, batch=wanted.batch,
        labels=_labels(wanted.labels), guidance=wanted.guidance,
        called={"init": wanted.init or "", "labels": "--label"},
    )  # fmt: skip


def _labels(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) <= LONGEST_LABEL for part in parts):
        raise UsageError("--label", f"{printable(text, 40)!r} is no label", "give a whole number, or several: 0,1,2")
    return [int(part) for part in parts]


def _job(wanted: Wanted, converted: Converted, variables: dict[str, Array], request: Request) -> Job:
    """The request planned for the file itself, since Keras takes a second to import."""
    from wdport.sampling import Programs, plan_job, stored_network

    network = stored_network(converted.family, converted.config, variables, wanted.dtype, wanted.pad_widths)
    states = np.shape(request.init)[:1] if request.init is not None else ()
    if wanted.count and states and states[0] != wanted.count:
        raise UsageError(wanted.init or "", f"has {states[0]} states for {wanted.count} samples", "leave out -n")
    return plan_job(Programs(network), request)


def _hashes(wanted: Wanted) -> Hashes:
    files = (("model", wanted.model), ("known", wanted.known), ("init", wanted.init), ("mapping", wanted.mapping))
    return {name: path and _hash(path) for name, path in files}


def _hash(path: str) -> str:
    """Of a regular file, since another may have no end, or of a converted folder."""
    from wdport.data.files import data_file
    from wdport.files.manifests import file_sha256
    from wdport.files.model_files import sha256_at
    from wdport.files.target import format_at

    if Path(path).is_dir() and format_at(Path(path)):
        return sha256_at(Path(path))
    with data_file(path) as file:
        return file_sha256(file)


def _facts(wanted: Wanted, job: Job, request: Request, hashes: Hashes) -> dict[str, object]:
    """Everything that determines the samples but the batch, as JSON values."""
    network = {"dtype": wanted.dtype, "pad_widths": wanted.pad_widths}
    settings = {**request.settings, "sampler": job.sampler.plan.sampler, "labels": wanted.labels}
    return {"wdport": VERSION, "n": job.count, **settings, **network, **hashes}


def _plot(figure: Target | None, blocks: Blocks, known: NDArray[np.float64] | None, about: Diffused) -> None:
    if figure is None:
        return
    from wdport.files.figure import draw_samples, drawn_at_most

    shape, axis = _drawn(about)
    draw_samples(figure, first_samples(blocks, drawn_at_most(shape)), known, axis)


def _animate(figure: Target | None, job: Job) -> None:
    if figure is None:
        return
    from wdport.files.figure import animate_samples, drawn_at_most
    from wdport.sampling.frames import frames_of

    shape, axis = _drawn(job.sampler.programs.network.about)
    animate_samples(figure, frames_of(job, drawn_at_most(shape)), axis)


def _drawn(about: Diffused) -> tuple[tuple[int, ...], str]:
    """The shape of a sample that is drawn, and what its axis is called."""
    decoding = about.decoding
    if isinstance(decoding, NotDecoded):
        return about.shape, about.state.axis
    return decoding.shape, about.decoded.axis


def _text(wanted: Wanted, files: Files, job: Job, ran: Ran, known: NDArray[np.float64] | None) -> str:
    sampler, about = job.sampler, job.sampler.programs.network.about
    plan, decoding, state = sampler.plan, about.decoding, about.state.name
    eta = f", eta {plan.eta:g}" if plan.eta else ""
    if isinstance(decoding, NotDecoded):
        decoded = f"none: {decoding.reason}"
    else:
        decoded = f"{ran.shapes[about.decoded.name]}, {decoding.units}"
    given = "" if known is None else f"{np.isfinite(known).sum()} of {known.size} values, from {wanted.known}"
    drawn = job.count - ran.already
    rate = f"{drawn} drawn in {ran.seconds:.1f} s, {drawn / max(ran.seconds, 1e-9):.3g} samples/s"
    there = f"; {ran.already} were there already" if ran.already else ""
    rows = [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}, seed {sampler.seed}"),
        (about.decoded.name, decoded),
        (state, ran.shapes[state]),
        ("known", given),
        ("labels", wanted.labels and f"{wanted.labels}, in turn" if "," in (wanted.labels or "") else wanted.labels),
        ("computes in", "" if wanted.dtype == "float32" else wanted.dtype),
        ("devices", _devices(sampler.spread)),
        ("batches", f"of {sampler.batch(min(ran.batch, job.count))}; {rate}" + there),
        ("wrote", f"{files.target.path} ({size(ran.size)})"),
        ("drew", ", ".join(str(each.path) for each in (files.figure, files.moving) if each)),
    ]
    return f"{files.model.path.name}: {job.count} samples\n{facts(rows)}"


def _devices(spread: Spread | None) -> str:
    if spread is None or spread.count == 1:
        return ""
    return f"{spread.count}" + (f", of {spread.processes} processes" if spread.processes > 1 else "")
