"""`wdport encode`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wdport.cli.click_options import verb
from wdport.cli.codec import CodingRequest, Work, run_coding
from wdport.errors import UsageError
from wdport.files.model_target import Target, file_target
from wdport.options import Operand, Option

if TYPE_CHECKING:
    from wdport.model import Array, Coded

LARGEST = 2.0
"""Values beyond it are of another scale, such as 0 to 255; a little more than 1 is what resizing makes."""


@dataclass(frozen=True, kw_only=True)
class EncodeRequest(CodingRequest):
    """The command's arguments and options."""

    model: Annotated[str, Operand(files="converted")]
    video: Annotated[Path, Operand(files=(".npy", ".npz", ".gif", ".mp4"))]
    output: Annotated[
        Path | None,
        Option("NAME.npz with latents (the mean) and logvar.  [default: VIDEO.latents.npz next to it]",
               files=(".npz",)),
    ] = None  # fmt: skip
    normalised: Annotated[bool, Option("Normalize the latents, as diffusion models expect.")] = False


@verb("encode", EncodeRequest)
def command(request: EncodeRequest) -> int:
    """Encode a VIDEO with a converted MODEL, an autoencoder, into latents.

    VIDEO is an array (B, T, H, W, C) of floating-point values from -1 to 1 or of bytes from 0 to 255, a .gif or .mp4
    file, or a folder of .png images, one for each frame.
    """
    import numpy as np

    from wdport.files.sealed_archive import sealed_archive

    def plan(array: Array, coded: Coded, target: Target) -> tuple[Work, dict[str, Any]]:
        if array.shape[-1] != coded.channels:
            what = f"has {array.shape[-1]} channels, and the model {coded.channels}"
            raise UsageError(video, what, "give them on the last axis")
        if str(array.dtype) == "uint8":
            array = array / 127.5 - 1.0
        elif array.dtype.kind != "f":
            raise UsageError(video, f"holds {array.dtype}", "give floating-point values from -1 to 1, or bytes (uint8)")
        elif (largest := float(np.abs(array).max())) > LARGEST:
            what = f"has values up to {largest:.3g}, and the model takes -1 to 1"
            raise UsageError(video, what, "scale them, or give bytes (uint8)")

        def encode(coder: Any) -> tuple[Sequence[int], Sequence[int]]:
            mean, logvar = coder.encode(array.astype("float32"), chunk=request.chunk, normalise=request.normalised,
                                        compute_dtype=request.compute_dtype)  # fmt: skip
            with sealed_archive(target.output) as file:
                np.savez(file, latents=mean, logvar=logvar)
            return mean.shape, array.shape

        return encode, {"values": "float32", "truncated": False, "fps": None}

    video = request.video
    path = request.output or video.with_name(f"{video.stem}.latents.npz")
    return run_coding(request, "encode", video, ("video",), partial(file_target, path, (".npz",)), plan)
