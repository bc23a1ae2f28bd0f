"""`wdport encode`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from wdport.cli.codec import CodecRun, CodingRequest, coder_of, open_coded, read_coded
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import model_inputs
from wdport.cli.requests import verb
from wdport.errors import UsageError
from wdport.files.target import file_target
from wdport.options import Operand, Option

LARGEST = 2.0
"""Values beyond it are of another scale, such as 0 to 255; a little more than 1 is what resizing makes."""


@dataclass(frozen=True, kw_only=True)
class EncodeRequest(CodingRequest):
    """The command's arguments and options."""

    model: Annotated[str, Operand(files="converted")]
    video: Annotated[Path, Operand(files=(".npy",))]
    output: Annotated[
        Path | None,
        Option("NAME.npz with latents (the mean) and logvar.  [default: VIDEO.latents.npz beside it]", files=(".npz",)),
    ] = None  # fmt: skip
    normalised: Annotated[bool, Option("Normalise the latents, as diffusion models take them.")] = False


@verb("encode", EncodeRequest)
def command(request: EncodeRequest) -> int:
    """Encode a VIDEO (B, T, H, W, C) with a converted MODEL, an autoencoder, into latents.

    Floating-point values are from -1 to 1, bytes from 0 to 255.
    """
    import numpy as np

    from wdport.files.sealed_archive import sealed_archive

    video, dtype, normalised = request.video, request.dtype, request.normalised
    inputs = model_inputs(request.model, request.sha256, video=video)
    path = request.output or video.with_name(f"{video.stem}.latents.npz")
    converted, coded = open_coded(request.model, normalised)
    target = file_target(path, (".npz",), inputs, request.force)
    document = require_document(request.json_file, inputs, {"-o": path}, request.force)
    array = read_coded(video, ("video",))
    if array.shape[-1] != coded.channels:
        raise UsageError(
            video, f"has {array.shape[-1]} channels, and the model {coded.channels}", "give them on the last axis"
        )
    if str(array.dtype) == "uint8":
        array = array / 127.5 - 1.0
    elif array.dtype.kind != "f":
        raise UsageError(video, f"holds {array.dtype}", "give floating-point values from -1 to 1, or bytes (uint8)")
    elif (largest := float(np.abs(array).max())) > LARGEST:
        what = f"has values up to {largest:.3g}, and the model takes -1 to 1"
        raise UsageError(video, what, "scale them, or give bytes (uint8)")
    require_jax()
    start_jax()
    started = time.monotonic()
    coder, digest = coder_of(converted, dtype), inputs.sha256("video")
    inputs.end_reading()
    mean, logvar = coder.encode(array.astype("float32"), chunk=request.chunk, normalise=normalised,
                                compute_dtype=request.compute_dtype)  # fmt: skip
    with sealed_archive(target.output) as file:
        np.savez(file, latents=mean, logvar=logvar)
    settings = {
        "values": "float32", "normalised": normalised, "truncated": False, "dtype": dtype,
        "compute_dtype": request.compute_dtype or dtype, "chunk": request.chunk, "fps": None,
    }  # fmt: skip
    seconds = time.monotonic() - started
    ran = CodecRun("encode", converted.path.name, video.name, digest, path, mean.shape, array.shape, settings, seconds)
    give("coded", ran.document, document, ran.text)
    return 0
