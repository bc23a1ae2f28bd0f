"""`wdport sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wdport.cli.devices import parse_devices
from wdport.cli.draw import Files, Wanted, draw
from wdport.cli.failures import leave
from wdport.cli.machine import require_jax
from wdport.cli.options import open_sampled, own_mapping_option, own_model_option, pad_option, sha256_option
from wdport.dtype_policies import POLICIES
from wdport.errors import MachineError, UsageError, printable
from wdport.files.writable import by_name, require_apart, with_manifests


@click.command(name="sample")
@click.argument("model")
@click.option(
    "-n", "--count", type=click.IntRange(1, 1 << 32), help="Number of samples.  [default: 1, or as many as --init has]"
)
@click.option("--sampler", help="ddpm or ddim as in the checkpoint's own code; ddim-textbook, dpm-solver++, heun, "
              "euler; of a flow heun, euler, rk4.  [default: ddpm, of a flow heun]")  # fmt: skip
@click.option("--steps", type=int, help="Number of steps, by the checkpoint's rule (50 makes 51).  [default: all]")
@click.option("--eta", type=float, default=0.0, show_default=True, help="Noise of ddim.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed; results do not depend on --chunk.")
@click.option("--chunk", default="auto", show_default=True, help="Samples that are kept and saved at a time, or auto: "
              "some batches. Results do not depend on it.")  # fmt: skip
@click.option("--batch", default="auto", show_default=True, help="Samples per call of the network, or auto: by the "
              "free memory. Another batch may change their last bits.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="NAME.npz (coefficients and series), .npy, .csv or .parquet "
              "(series).  [default: MODEL.samples.npz beside it]")  # fmt: skip
@click.option("--plot", metavar="FILE", help="Draw the first samples into a .png, .svg or .pdf.")
@click.option("--animate", metavar="FILE", help="Draw how the first samples come to be into a .gif.")
@click.option("--save-every", type=click.IntRange(1), default=1, show_default=True, metavar="K",
              help="Keep finished samples every K chunks, to go on from after an interruption.")  # fmt: skip
@click.option(
    "--known", metavar="FILE", help="A series with NaN where it is unknown (CSV, NPY): the rest is filled in."
)
@click.option("--resample", type=int, metavar="K", help="Take every step K times, so that the rest fits the known.  "
              "[default: 5 with --known]")  # fmt: skip
@click.option("--label", "labels", metavar="N,N,...", help="The class of every sample, or several in turn, of a model "
              "that knows classes.")  # fmt: skip
@click.option("--guidance", type=float, metavar="W", help="Classifier-free guidance: above 1, samples follow their "
              "label more.")  # fmt: skip
@click.option("--init", metavar="FILE", help="x_T to start from, (n, C, F) in a .npy file.")
@own_mapping_option
@own_model_option
@click.option("--devices", metavar="all|N", help="Divide every batch among all devices, or the first N.  [default: 1]")
@click.option("--distributed", metavar="HOST:PORT,I/N", help="Be process I (0 to N-1) of N that share the samples; "
              "HOST:PORT is the first one's, which writes the file. Or auto, under Slurm and the like.")  # fmt: skip
@click.option("--shard-weights", is_flag=True, help="Divide the weights among the devices of a process, too.")
@click.option("--dtype", type=click.Choice(list(POLICIES)), default="float32", show_default=True, help="Keras dtype "
              "policy of the network. States, noise schedule and the way back to series are float32 with all but "
              "float64.")  # fmt: skip
@pad_option
@sha256_option
@click.option(
    "--force", is_flag=True, help="Replace an existing output or figure (never a link), and parts of another run."
)
def command(chunk: str, batch: str, sha256: str | None, **options: Any) -> int:
    """Draw samples from a converted MODEL into a file.

    The same command goes on where an interrupted one stopped.
    """
    wanted = Wanted(chunk=_number("--chunk", chunk), batch=_number("--batch", batch), **options)
    devices, join = parse_devices(wanted.devices, wanted.distributed)
    if wanted.shard_weights and devices is None:
        raise UsageError("--shard-weights", "there is one device alone", "ask for several, or for --devices all")
    # The files are looked at before jax is imported, so that a refusal is instant.
    from wdport.checkpoint.known import require_sha256
    from wdport.files.figure import ANIMATED, figure_target
    from wdport.files.samples import samples_target

    require_sha256(wanted.model, sha256)
    converted = open_sampled(wanted.model, wanted.mapping, wanted.function)
    inputs = with_manifests(
        by_name(model=wanted.model, mapping=wanted.mapping, known=wanted.known, init=wanted.init), ["model"]
    )
    target = samples_target(_output(wanted), inputs, wanted.force)
    figure = figure_target(Path(wanted.plot), wanted.force, inputs) if wanted.plot else None
    moving = None
    if wanted.animate:
        moving = figure_target(Path(wanted.animate), wanted.force, inputs, "--animate", ANIMATED)
    named = [("-o", target), ("--plot", figure), ("--animate", moving)]
    require_apart([(option, each.path) for option, each in named if each], {})
    require_jax()
    try:
        draw(wanted, devices, join, Files(converted, target, figure, moving))
    except MachineError as error:
        if type(error).__name__ == "LostProcess":  # its module brings in jax
            leave(error)
        raise
    return 0


_DIGITS = 18
"""More samples than 64 bits count are none."""


def _number(option: str, text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise UsageError(option, f"{printable(text, 40)!r} is no number of samples", "give 1 or more, or auto")
    return int(text)


def _output(wanted: Wanted) -> Path:
    if wanted.output:
        return Path(wanted.output)
    from wdport.files.target import stem_of

    path = Path(wanted.model)
    return path.with_name(f"{stem_of(path)}.samples.npz")
