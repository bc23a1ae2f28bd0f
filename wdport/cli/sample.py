"""`wdport sample`."""

from __future__ import annotations

import gc
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from wdport.cli.devices import parse_devices
from wdport.cli.options import facts, pad_option, size
from wdport.errors import UsageError
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


@click.command(name="sample")
@click.argument("model")
@click.option(
    "-n", "--count", type=click.IntRange(1), help="Number of samples.  [default: 1, or as many as --init has]"
)
@click.option("--sampler", default="ddpm", show_default=True, help="ddpm or ddim as in the checkpoint's own code; "
              "ddim-textbook, dpm-solver++, heun, euler.")  # fmt: skip
@click.option("--steps", type=int, help="Number of steps, by the checkpoint's rule (50 makes 51).  [default: all]")
@click.option("--eta", type=float, default=0.0, show_default=True, help="Noise of ddim.")
@click.option("--seed", type=int, default=0, show_default=True, help="Settles every sample, whatever the chunk.")
@click.option("--chunk", default="auto", show_default=True, help="Samples that are kept and saved at a time, or auto: "
              "some batches. It settles nothing else.")  # fmt: skip
@click.option("--batch", default="auto", show_default=True, help="Samples per call of the network, or auto: by the "
              "free memory. Another batch may change their last bits.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="NAME.npz (coefficients and series), .npy, .csv or .parquet "
              "(series).  [default: MODEL.samples.npz beside it]")  # fmt: skip
@click.option("--plot", metavar="FILE", help="Draw the first samples into a .png, .svg or .pdf.")
@click.option("--save-every", type=click.IntRange(1), default=1, show_default=True, metavar="K",
              help="Keep finished samples every K chunks, to go on from after an interruption.")  # fmt: skip
@click.option(
    "--known", metavar="FILE", help="A series with NaN where it is unknown (CSV, NPY): the rest is filled in."
)
@click.option("--resample", type=int, metavar="K", help="Take every step K times, so that the rest fits the known.  "
              "[default: 5 with --known]")  # fmt: skip
@click.option("--init", metavar="FILE", help="x_T to start from, (n, C, F) in a .npy file.")
@click.option("--devices", metavar="all|N", help="Divide every batch among all devices, or the first N.  [default: 1]")
@click.option("--distributed", metavar="HOST:PORT,I/N", help="Be process I (0 to N-1) of N that share the samples; "
              "HOST:PORT is the first one's, which writes the file. Or auto, under Slurm and the like.")  # fmt: skip
@click.option("--shard-weights", is_flag=True, help="Divide the weights among the devices of a process, too.")
@click.option("--dtype", type=click.Choice(["float32", "mixed_bfloat16", "bfloat16", "float64"]), default="float32",
              show_default=True, help="Keras dtype policy of the network. States, noise schedule and the way back to "
              "series are float32 with all but float64.")  # fmt: skip
@pad_option
@click.option("--force", is_flag=True, help="Replace an existing output, and begin an interrupted run anew.")
def command(chunk: str, batch: str, **options: Any) -> int:
    """Draw samples from a converted MODEL into a file.

    The same command goes on where an interrupted one stopped.
    """
    wanted = Wanted(chunk=_number("--chunk", chunk), batch=_number("--batch", batch), **options)
    devices, join = parse_devices(wanted.devices, wanted.distributed)
    if wanted.shard_weights and devices is None:
        raise UsageError("--shard-weights", "there is one device alone", "ask for several, or for --devices all")
    # The files are looked at before jax is imported, so that a refusal is instant.
    from wdport.load import open_converted
    from wdport.output.figure import figure_target
    from wdport.output.samples import samples_target

    converted = open_converted(wanted.model)
    target = samples_target(_output(wanted), converted.path, wanted.force)
    figure = figure_target(Path(wanted.plot)) if wanted.plot else None
    with ThreadPoolExecutor(2) as background:  # while jax is imported, and while programs compile
        variables = background.submit(_variables, converted)
        hashes = background.submit(_hashes, wanted)
        join()
        _run(wanted, devices, converted, variables, hashes, target, figure)
    return 0


def _number(option: str, text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise UsageError(option, f"{text!r} is no number of samples", "give 1 or more, or auto")
    return int(text)


def _output(wanted: Wanted) -> Path:
    if wanted.output:
        return Path(wanted.output)
    from wdport.output.target import FORMATS

    path = Path(wanted.model)
    stem = next(path.name.removesuffix(suffix) for suffix in FORMATS if path.name.endswith(suffix))
    return path.with_name(f"{stem}.samples.npz")


def _variables(converted: Any) -> dict[str, Any]:
    from wdport.output.files import read_variables

    return dict(read_variables(converted.path, converted.variables))


def _hashes(wanted: Wanted) -> dict[str, str | None]:
    files = (("model", wanted.model), ("known", wanted.known), ("init", wanted.init))
    return {name: path and _sha256(path) for name, path in files}


def _run(
    wanted: Wanted,
    devices: Any,
    converted: Any,
    variables: Future[dict[str, Any]],
    hashes: Future[dict[str, str | None]],
    target: Any,
    figure: Any,
) -> None:
    from wdport.output.parts import Parts
    from wdport.output.samples import write_samples
    from wdport.sampling import agreed, check_same, fill_parts, read_known

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
    with Parts(target.path, {**same, "batch": batch}, settled, anew=wanted.force) as parts:
        already, batch = agreed(sampler, parts.done, parts.facts["batch"])
        with _bar(count, already) as done, _kept(parts, count):
            fill_parts(sampler, parts, count, batch, wanted.chunk, wanted.save_every, init, done)
        seconds = time.monotonic() - started
        written = write_samples(target, count, parts.blocks)
        first = next(parts.blocks())
        _draw(figure, first, known)
        parts.remove()
    rate = f"{count - already} drawn in {seconds:.1f} s, {(count - already) / max(seconds, 1e-9):.3g} samples/s"
    there = f"; {already} were there already" if already else ""
    shapes = {name: (count, *values.shape[1:]) for name, values in first.items()}
    more = [
        ("known", "" if known is None else f"{_finite(known)} of {known.size} values, from {wanted.known}"),
        ("computes in", "" if wanted.dtype == "float32" else wanted.dtype),
        ("devices", _devices(sampler.spread)),
        ("batches", f"of {sampler.batch(min(batch, count))}; {rate}" + there),
        ("wrote", f"{target.path} ({size(written)})"),
        ("drew", figure and figure.path),
    ]
    click.echo(_text(converted, sampler, shapes, more))


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


def _draw(figure: Any, block: dict[str, Any], known: Any) -> None:
    if figure is None:
        return
    from wdport.output.figure import draw_samples

    place = "time step" if "series" in block else "coefficient"
    draw_samples(figure, block.get("series", block["coefficients"]), known, place)


def _finite(values: Any) -> int:
    return sum(value == value for value in values.ravel().tolist())


def _facts(wanted: Wanted, count: int, hashes: dict[str, str | None]) -> dict[str, Any]:
    """Everything that decides the samples but the batch, as JSON values."""
    same = ("sampler", "steps", "eta", "seed", "resample", "dtype")
    return {"wdport": VERSION, "n": count, **{name: getattr(wanted, name) for name in same}, **hashes}


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _kept(parts: Any, count: int) -> Iterator[None]:
    """Say at an interruption what is there."""
    try:
        yield
    except KeyboardInterrupt:
        if not parts.done:
            parts.remove()
            raise
        told = f"interrupted; {parts.done} of {count} samples are kept, the same command goes on from there"
        raise KeyboardInterrupt(told) from None


@contextmanager
def _bar(count: int, already: int) -> Iterator[Callable[[float], None] | None]:
    """A bar of samples on standard error, with samples per second; ``None`` where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("sampling"), BarColumn(), TextColumn("{task.fields[told]}"), TimeRemainingColumn())
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sampling", total=count, completed=already, told=f"{already}/{count}")

        def update(done: float) -> None:
            rate = (done - already) / max(time.monotonic() - started, 1e-9)
            bar.update(task, completed=done, told=f"{int(done)}/{count}, {rate:.3g} samples/s")

        yield update


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
