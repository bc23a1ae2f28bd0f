"""`wdport sample`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from wdport.cli.beside import beside_samples
from wdport.cli.devices import parse_devices
from wdport.cli.documents import require_document
from wdport.cli.draw import draw
from wdport.cli.drawn import Files, Wanted
from wdport.cli.failures import leave
from wdport.cli.machine import require_jax
from wdport.cli.options import MODEL, open_sampled
from wdport.cli.requests import request_of, request_options
from wdport.cli.verb import Verb
from wdport.errors import MachineError, UsageError, printable
from wdport.files.inputs import InputFiles
from wdport.files.writable import require_apart


@click.command(name="sample", cls=Verb)
@click.argument("model", type=MODEL)
@request_options(Wanted)
def command(model: str, **options: Any) -> int:
    """Draw samples from a converted MODEL into a file.

    An interrupted run resumes where it stopped: run the same command again.
    """
    chunk, batch = _number("--chunk", options["chunk"]), _number("--batch", options["batch"])
    wanted = request_of(Wanted, options, model=model, chunk=chunk, batch=batch)
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
    inputs.with_manifests("model").check(partial(require_sha256, wanted.model, wanted.sha256))
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
    document = require_document(wanted.json_file, inputs, outputs, wanted.force)
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
