"""`wdport encode`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import click

from wdport.cli.coding import (
    VIDEOS,
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
from wdport.cli.verb import Verb
from wdport.errors import UsageError
from wdport.files.inputs import InputFiles
from wdport.files.target import file_target

LARGEST = 2.0
"""Values beyond it are of another scale, such as 0 to 255; a little more than 1 is what resizing makes."""


@click.command(name="encode", cls=Verb)
@click.argument("model", type=MODEL)
@click.argument("video", type=File(VIDEOS))
@click.option("-o", "--output", metavar="FILE", type=File([".npz"]),
              help="NAME.npz with latents (the mean) and logvar.  [default: VIDEO.latents.npz beside it]")  # fmt: skip
@click.option("--normalised", is_flag=True, help="Normalise the latents, as diffusion models take them.")
@chunk_option
@dtype_option
@compute_option
@sha256_option
@json_option
@force_option
def command(
    model: str,
    video: str,
    output: str | None,
    normalised: bool,
    chunk: int,
    dtype: str,
    compute_dtype: str | None,
    sha256: str | None,
    json_file: str | None,
    force: bool,
) -> int:
    """Encode a VIDEO (B, T, H, W, C) with a converted MODEL, an autoencoder, into latents.

    Floating-point values are from -1 to 1, bytes from 0 to 255.
    """
    import numpy as np

    from wdport.checkpoint.known import require_sha256
    from wdport.files.sealed_archive import sealed_archive

    inputs = InputFiles(model=model, video=video).with_manifests("model")
    inputs.check(partial(require_sha256, model, sha256))
    given = Path(video)
    path = Path(output) if output else given.with_name(f"{given.stem}.latents.npz")
    converted, coded = open_coded(model, normalised)
    target = file_target(path, (".npz",), inputs, force)
    document = require_document(json_file, inputs, {"-o": path}, force)
    array = read_coded(given, ("video",))
    if array.shape[-1] != coded.channels:
        raise UsageError(
            given, f"has {array.shape[-1]} channels, and the model {coded.channels}", "give them on the last axis"
        )
    if str(array.dtype) == "uint8":
        array = array / 127.5 - 1.0
    elif array.dtype.kind != "f":
        raise UsageError(given, f"holds {array.dtype}", "give floating-point values from -1 to 1, or bytes (uint8)")
    elif (largest := float(np.abs(array).max())) > LARGEST:
        what = f"has values up to {largest:.3g}, and the model takes -1 to 1"
        raise UsageError(given, what, "scale them, or give bytes (uint8)")
    require_jax()
    start_jax()
    started = time.monotonic()
    coder, digest = coder_of(converted, dtype), inputs.sha256("video")
    inputs.end_reading()
    mean, logvar = coder.encode(array.astype("float32"), chunk=chunk, normalise=normalised, compute_dtype=compute_dtype)
    with sealed_archive(target.output) as file:
        np.savez(file, latents=mean, logvar=logvar)
    settings = {
        "values": "float32", "normalised": normalised, "truncated": False, "dtype": dtype,
        "compute_dtype": compute_dtype or dtype, "chunk": chunk, "fps": None,
    }  # fmt: skip
    seconds = time.monotonic() - started
    ran = Ran("encode", converted.path.name, given.name, digest, path, mean.shape, array.shape, settings, seconds)
    give("coded", ran.document, document, ran.text)
    return 0
