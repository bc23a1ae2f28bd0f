"""`wdport decode`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import click

from wdport.cli.coding import (
    LATENTS,
    Ran,
    chunk_option,
    coder_of,
    compute_option,
    dtype_option,
    force_option,
    open_coded,
    read_coded,
)
from wdport.cli.completion import File
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import MODEL, sha256_option
from wdport.cli.verb import OneOf, Verb
from wdport.errors import UsageError
from wdport.files.inputs import InputFiles

FPS = 16.0
"""Frames per second of Wan's own videos."""


@click.command(name="decode", cls=Verb)
@click.argument("model", type=MODEL)
@click.argument("latents", type=File(LATENTS))
@click.option("-o", "--output", metavar="FILE", type=File([".npy", ".gif", ".mp4"]),
              help="NAME.npy, .gif or .mp4.  [default: LATENTS.video.npy beside them]")  # fmt: skip
@click.option("--output-dtype", type=OneOf(["float32", "uint8"]), help="Values of a .npy file: from -1 to 1, or bytes."
              "  [default: float32; .gif and .mp4 are bytes]")  # fmt: skip
@click.option("--truncate", is_flag=True, help="Make bytes by dropping the fraction (half a level too dark on average) "
              "instead of rounding.")  # fmt: skip
@click.option("--normalised", is_flag=True, help="The latents are normalised, as diffusion models return them.")
@click.option("--fps", type=float, help="Frames per second of a .gif or .mp4.  [default: 16]")
@chunk_option
@dtype_option
@compute_option
@sha256_option
@json_option
@force_option
def command(
    model: str,
    latents: str,
    output: str | None,
    output_dtype: str | None,
    truncate: bool,
    normalised: bool,
    fps: float | None,
    chunk: int,
    dtype: str,
    compute_dtype: str | None,
    sha256: str | None,
    json_file: str | None,
    force: bool,
) -> int:
    """Decode LATENTS (B, t, h, w, z) with a converted MODEL, an autoencoder, into a video.

    Frames are written as they are decoded, so memory does not depend on their number.
    """
    from wdport.checkpoint.known import require_sha256
    from wdport.files.video import BYTES, require_frames, video_target, write_video

    given = Path(latents)
    path = Path(output) if output else given.with_name(f"{given.stem}.video.npy")
    played = path.suffix in BYTES
    _require_fitting(played, output_dtype, truncate, fps)
    inputs = InputFiles(model=model, latents=latents).with_manifests("model")
    inputs.check(partial(require_sha256, model, sha256))
    converted, coded = open_coded(model, normalised)
    target = video_target(path, inputs, force)
    document = require_document(json_file, inputs, {"-o": target.path}, force)
    array = read_coded(given, ("latents", "mean"))
    if array.shape[-1] != coded.latent_channels:
        what = f"has {array.shape[-1]} channels, and the model {coded.latent_channels}"
        raise UsageError(given, what, "give its latents, channels last")
    if array.dtype.kind != "f":
        raise UsageError(given, f"holds {array.dtype}", "give floating-point latents")
    shape = coded.video(array.shape)
    require_frames(target.path, shape)
    require_jax()
    start_jax()
    started = time.monotonic()
    values = "uint8" if played else output_dtype or "float32"
    coder, digest = coder_of(converted, dtype), inputs.sha256("latents")
    inputs.end_reading()
    parts = coder.decode_in_parts(
        array.astype("float32"), chunk=chunk, output=values, normalised=normalised, truncate=truncate,
        compute_dtype=compute_dtype,
    )  # fmt: skip
    write_video(target, shape, parts, fps or FPS)
    settings = {
        "values": values, "normalised": normalised, "truncated": truncate, "dtype": dtype,
        "compute_dtype": compute_dtype or dtype, "chunk": chunk, "fps": (fps or FPS) if played else None,
    }  # fmt: skip
    seconds = time.monotonic() - started
    ran = Ran("decode", converted.path.name, given.name, digest, target.path, array.shape, shape, settings, seconds)
    give("coded", ran.document, document, ran.text)
    return 0


def _require_fitting(played: bool, output_dtype: str | None, truncate: bool, fps: float | None) -> None:
    """Raise :class:`UsageError` for options that contradict each other."""
    if played and output_dtype == "float32":
        raise UsageError("--output-dtype", "a .gif or .mp4 holds bytes", "leave it out, or write a .npy file")
    if truncate and not played and output_dtype != "uint8":
        raise UsageError("--truncate", "is for bytes", "add --output-dtype uint8")
    if fps is not None and not played:
        raise UsageError("--fps", "a .npy file has no frames per second", "leave it out")
    if fps is not None and not 0.1 <= fps <= 1000:
        raise UsageError("--fps", f"{fps:g} frames per second", "give a number from 0.1 to 1000")
