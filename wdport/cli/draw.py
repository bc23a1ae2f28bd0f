"""The command line of `wdport sample` in; samples in a file, and what is to be said of them, out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from wdport.cli.options import facts, size
from wdport.cli.progress import samples_bar
from wdport.compile_cache import use_compile_cache
from wdport.errors import UsageError
from wdport.files.writable import require_writable
from wdport.version import VERSION


@dataclass(frozen=True)
class Wanted:
    """The command line, as it is."""

    model: str
    count: int | None
    sampler: str
    steps: int | None
    eta: float
    seed: int
    chunk: int | None
    batch: int | None
    output: str | None
    plot: str | None
    save_every: int
    known: str | None
    init: str | None
    resample: int | None
    devices: str | None
    distributed: str | None
    shard_weights: bool
    pad_widths: int
    dtype: str
    force: bool


def draw(wanted: Wanted, devices: Any, join: Callable[[], None], converted: Any, target: Any, figure: Any) -> None:
    """Draw what is missing, write ``target`` and ``figure``, and say so; ``join`` waits for the other processes."""
    with ThreadPoolExecutor(2) as background:  # while jax is imported
        variables = background.submit(_variables, converted)
        hashes = background.submit(_hashes, wanted)
        join()
        _draw(wanted, devices, converted, variables, hashes, target, figure)


def _draw(
    wanted: Wanted,
    devices: Any,
    converted: Any,
    variables: Future[dict[str, Any]],
    hashes: Future[dict[str, str | None]],
    target: Any,
    figure: Any,
) -> None:
    from wdport.files.samples import write_samples
    from wdport.sampling import agreed, announced, check_same, fill_parts, read_known
    from wdport.sampling.parts import Parts

    use_compile_cache()
    gc.freeze()  # tracing makes many objects, and the collector would go through jax's own again and again
    known = read_known(wanted.known) if wanted.known else None
    sampler, init = _sampler(wanted, converted, variables.result(), devices, known)
    count = wanted.count or (1 if init is None else len(init))
    if init is not None and len(init) != count:
        raise UsageError(wanted.init or "", f"has {len(init)} states for {count} samples", "leave out -n")
    batch = wanted.batch or sampler.auto_batch(converted.config, count)
    same = _facts(wanted, count, hashes.result())
    check_same(sampler, {**same, "batch": wanted.batch})
    if sampler.spread and sampler.spread.process:
        already, batch = agreed(sampler, 0, batch)
        fill_parts(sampler, None, count, batch, init=init, start=already)
        return
    settled = () if wanted.batch else ("batch",)
    started = time.monotonic()
    with announced(sampler):
        parts = Parts(target.path, {**same, "batch": batch}, settled, anew=wanted.force)
    with parts, _kept(parts, count):
        with announced(sampler):
            require_writable(target.path, force=wanted.force)  # another run may have ended since it was asked
        already, batch = agreed(sampler, parts.done, parts.facts["batch"])
        with samples_bar(count, already) as done:
            fill_parts(sampler, parts, count, batch, wanted.chunk, wanted.save_every, init, done)
        seconds = time.monotonic() - started
        shapes = {name: (count, *values.shape[1:]) for name, values in next(parts.blocks()).items()}
        _plot(figure, parts.blocks, known, "time step" if "series" in shapes else "coefficient")
        written = write_samples(target, count, parts.blocks)
        parts.remove()
    rate = f"{count - already} drawn in {seconds:.1f} s, {(count - already) / max(seconds, 1e-9):.3g} samples/s"
    there = f"; {already} were there already" if already else ""
    more = [
        ("known", "" if known is None else f"{_finite(known)} of {known.size} values, from {wanted.known}"),
        ("computes in", "" if wanted.dtype == "float32" else wanted.dtype),
        ("devices", _devices(sampler.spread)),
        ("batches", f"of {sampler.batch(min(batch, count))}; {rate}" + there),
        ("wrote", f"{target.path} ({size(written)})"),
        ("drew", figure and figure.path),
    ]
    click.echo(_text(converted, sampler, shapes, more))


def _variables(converted: Any) -> dict[str, Any]:
    from wdport.files.model_files import read_variables

    return dict(read_variables(converted.path, converted.variables))


def _hashes(wanted: Wanted) -> dict[str, str | None]:
    files = (("model", wanted.model), ("known", wanted.known), ("init", wanted.init))
    return {name: path and _hash(path) for name, path in files}


def _hash(path: str) -> str:
    """Of a regular file: another may have no end."""
    from wdport.data.files import data_file
    from wdport.files.model_files import file_sha256

    with data_file(path) as file:
        return file_sha256(file)


def _sampler(wanted: Wanted, converted: Any, variables: Any, devices: Any, known: Any) -> tuple[Any, Any]:
    """The sampler, made of the file itself, since Keras takes a second to import; and x_T if it is given."""
    from wdport import sampling

    config = converted.config
    network = sampling.stored_network(converted.family, config, variables, wanted.dtype, wanted.pad_widths)
    if known is not None:
        network = sampling.with_known(network, config, known)
    times = sampling.resampling(wanted.resample, known is not None)
    plan = sampling.plan_of(network, wanted.sampler, wanted.steps, wanted.eta, times)
    init = sampling.read_init(wanted.init, network.shape) if wanted.init else None
    spread = sampling.spread_over(devices, wanted.shard_weights)
    return sampling.Sampler(sampling.Programs(network), plan, wanted.seed, spread), init


def _devices(spread: Any) -> str:
    if spread is None or spread.count == 1:
        return ""
    return f"{spread.count}" + (f", of {spread.processes} processes" if spread.processes > 1 else "")


def _plot(figure: Any, blocks: Callable[[], Iterator[dict[str, Any]]], known: Any, place: str) -> None:
    if figure is None:
        return
    from wdport.files.figure import LINES, draw_samples
    from wdport.files.samples import first_samples

    draw_samples(figure, first_samples(blocks, LINES), known, place)


def _finite(values: Any) -> int:
    return sum(value == value for value in values.ravel().tolist())


def _facts(wanted: Wanted, count: int, hashes: dict[str, str | None]) -> dict[str, Any]:
    """Everything that decides the samples but the batch, as JSON values."""
    same = ("sampler", "steps", "eta", "seed", "resample", "dtype", "pad_widths", "shard_weights")
    return {"wdport": VERSION, "n": count, **{name: getattr(wanted, name) for name in same}, **hashes}


@contextmanager
def _kept(parts: Any, count: int) -> Iterator[None]:
    """Say at an interruption what is there; leave nothing where nothing is."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        if not parts.done:
            parts.remove()
            raise
        told = f"interrupted; {parts.done} of {count} samples are kept, the same command goes on from there"
        raise type(interruption)(told) from None
    except BaseException:
        if not parts.done:
            parts.remove()
        raise


def _text(converted: Any, sampler: Any, shapes: dict[str, tuple[int, ...]], more: list[tuple[str, Any]]) -> str:
    plan = sampler.plan
    eta = f", eta {plan.eta:g}" if plan.eta else ""
    units = "in the units of the data" if converted.config.norm_mean else "in z-score units"
    rows = [
        ("sampler", f"{plan.sampler}, {len(plan.steps)} network calls{eta}, seed {sampler.seed}"),
        ("series", f"{shapes['series']}, {units}" if "series" in shapes else "none: the wavelet is not known"),
        ("coefficients", shapes["coefficients"]),
        *more,
    ]
    return f"{converted.path.name}: {shapes['coefficients'][0]} samples\n{facts(rows)}"
