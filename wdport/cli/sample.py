"""`wdport sample`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from wdport.cli.beside import beside_samples
from wdport.cli.completion import KNOWN, SERIES, File
from wdport.cli.devices import parse_devices
from wdport.cli.documents import json_option, require_document
from wdport.cli.draw import draw
from wdport.cli.drawn import Files, Wanted
from wdport.cli.failures import leave
from wdport.cli.machine import require_jax
from wdport.cli.options import (
    MODEL,
    SAMPLERS,
    open_sampled,
    own_mapping_option,
    own_model_option,
    pad_option,
    sha256_option,
)
from wdport.cli.verb import OneOf, Verb, Whole
from wdport.dtype_policies import POLICIES
from wdport.errors import MachineError, UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.writable import require_apart


@click.command(name="sample", cls=Verb)
@click.argument("model", type=MODEL)
@click.option("-n", "--count", type=Whole(1, 1 << 32), help="Number of samples.  [default: 1, or the length of --init]")
@click.option("--sampler", type=OneOf(SAMPLERS), metavar="NAME", help="ddpm or ddim as in the checkpoint's own code; "
              "ddim-textbook, dpm-solver++, sde-dpm-solver++, heun, euler; for a flow heun, euler, rk4.  "
              "[default: ddpm, for a flow heun]")  # fmt: skip
@click.option("--steps", type=int, help="Number of steps, by the checkpoint's rule (50 gives 51).  [default: all; 20 "
              "of sde-dpm-solver++]")  # fmt: skip
@click.option("--eta", type=float, default=0.0, show_default=True, help="Noise level of ddim.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed; results do not depend on --chunk.")
@click.option("--chunk", default="auto", show_default=True, help="Samples saved at a time, or auto: several "
              "batches. Results do not depend on it.")  # fmt: skip
@click.option("--batch", default="auto", show_default=True, help="Samples per call of the network, or auto: from the "
              "free memory. The batch size may change their last bits.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=File([".npz", ".npy", ".csv", ".parquet"]),
              help="NAME.npz (coefficients and series), .npy, .csv or .parquet (series).  "
              "[default: MODEL.samples.npz beside it]")  # fmt: skip
@click.option(
    "--plot",
    metavar="FILE",
    type=File([".png", ".svg", ".pdf"]),
    help="Plot the first samples to a .png, .svg or .pdf.",
)
@click.option("--data", metavar="FILE", type=File(SERIES), help="With --plot, data (CSV, NPY, ARFF, MAT) of which "
              "windows are drawn beside the samples.")  # fmt: skip
@click.option(
    "--animate", metavar="FILE", type=File([".gif"]), help="Animate the sampling of the first samples in a .gif."
)
@click.option("--save-every", type=Whole(1, 1 << 32), default=1, show_default=True, metavar="K",
              help="Save finished samples every K chunks; an interrupted run resumes from them.")  # fmt: skip
@click.option(
    "--known",
    metavar="FILE",
    type=File(KNOWN),
    help="A series with NaN for unknown values (CSV, NPY), which are filled in.",
)
@click.option("--resample", type=int, metavar="K", help="Take every step K times, so that filled-in values fit the "
              "known ones.  [default: 5 with --known]")  # fmt: skip
@click.option("--label", "labels", metavar="N,N,...", help="Class of all samples, or several classes, cycled; for a "
              "class-conditional model.")  # fmt: skip
@click.option("--scale", metavar="S,S,...|FILE|data", help="Scale of all samples, or several scales, cycled (numbers "
              "or .npy), or drawn from those of the training data; for a model that takes one.")  # fmt: skip
@click.option("--condition", metavar="V,V,...|FILE", help="The same for a conditioning input of any name.")
@click.option("--unconditional", is_flag=True, help="Call a model without the condition that it can take.")
@click.option("--anchor", type=float, metavar="PRICE", help="Price that samples begin near, for a model of prices.  "
              "[default: those of windows of the training data]")  # fmt: skip
@click.option("--transform", metavar="MODULE:CLASS", help="The model's own transform, whose code is then run: "
              "samples come in the units of the data.")  # fmt: skip
@click.option("--guidance", type=float, metavar="W", help="Scale of classifier-free guidance: above 1, samples "
              "follow their condition more closely.")  # fmt: skip
@click.option("--init", metavar="FILE", type=File([".npy"]), help="x_T to start from, (n, C, F) in a .npy file.")
@own_mapping_option
@own_model_option
@click.option("--devices", metavar="all|N", help="Divide every batch among all devices, or the first N.  [default: 1]")
@click.option("--distributed", metavar="HOST:PORT,I/N", help="Run as process I (0 to N-1) of N that share the "
              "samples; process 0 listens at HOST:PORT and writes the file. Or auto, as under Slurm.")  # fmt: skip
@click.option("--shard-weights", is_flag=True, help="Also divide the weights among the devices of a process.")
@click.option("--dtype", type=OneOf(POLICIES), default="float32", show_default=True, help="Keras dtype policy "
              "of the network. States, noise schedule and decoding are float32 with all but float64.")  # fmt: skip
@pad_option
@sha256_option
@json_option
@click.option(
    "--force", is_flag=True, help="Replace an existing output or figure (never a link), and parts of another run."
)
def command(chunk: str, batch: str, sha256: str | None, json_file: str | None, **options: Any) -> int:
    """Draw samples from a converted MODEL into a file.

    An interrupted run resumes where it stopped: run the same command again.
    """
    wanted = Wanted(chunk=_number("--chunk", chunk), batch=_number("--batch", batch), **options)
    devices, join = parse_devices(wanted.devices, wanted.distributed)
    if wanted.shard_weights and devices is None:
        raise UsageError("--shard-weights", "needs several devices", "add --devices all")
    # Files are checked before jax is imported, so that errors are instant.
    from wdport.checkpoint.known import require_sha256
    from wdport.files.figure import ANIMATED, figure_target
    from wdport.files.samples import samples_target

    inputs = InputFiles(
        model=wanted.model, mapping=wanted.mapping, known=wanted.known, init=wanted.init, data=wanted.data,
        condition=wanted.condition_file,
    )  # fmt: skip
    inputs.with_manifests("model").check(partial(require_sha256, wanted.model, sha256))
    converted = open_sampled(wanted.model, wanted.mapping, wanted.function)
    beside = beside_samples(converted, wanted.data, wanted.plot)
    target = samples_target(_output(wanted), inputs, wanted.force)
    figure = figure_target(Path(wanted.plot), wanted.force, inputs) if wanted.plot else None
    moving = None
    if wanted.animate:
        moving = figure_target(Path(wanted.animate), wanted.force, inputs, "--animate", ANIMATED)
    named = [("-o", target), ("--plot", figure), ("--animate", moving)]
    outputs = {option: each.path for option, each in named if each}
    require_apart(outputs.items(), {})
    document = require_document(json_file, inputs, outputs, wanted.force)
    require_jax()
    try:
        draw(wanted, devices, join, Files(inputs, converted, target, figure, moving, document, beside))
    except MachineError as error:
        if type(error).__name__ == "LostProcess":  # its module imports jax
            leave(error)
        raise
    return 0


_DIGITS = 18
"""Sample counts fit into 64 bits."""


def _number(option: str, text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise UsageError(option, f"invalid value {printable(text, 40)!r}", "give a whole number of at least 1, or auto")
    return int(text)


def _output(wanted: Wanted) -> Path:
    if wanted.output:
        return Path(wanted.output)
    from wdport.files.target import stem_of

    path = Path(wanted.model)
    return path.with_name(f"{stem_of(path)}.samples.npz")
