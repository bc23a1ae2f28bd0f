"""`wdport decode`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wdport.cli.click_options import verb
from wdport.cli.codec import LATENTS, CodingRequest, Work, run_coding
from wdport.errors import UsageError
from wdport.options import Operand, Option

if TYPE_CHECKING:
    from wdport.files.model_target import Target
    from wdport.model import Array, Coded

FPS = 16.0
"""Frames per second of Wan's own videos."""


@dataclass(frozen=True, kw_only=True)
class DecodeRequest(CodingRequest):
    """The command's arguments and options."""

    model: Annotated[str, Operand(files="converted")]
    latents: Annotated[Path, Operand(files=LATENTS)]
    output: Annotated[
        Path | None,
        Option("NAME.npy, .gif or .mp4.  [default: LATENTS.video.npy next to them]", files=(".npy", ".gif", ".mp4")),
    ] = None  # fmt: skip
    output_dtype: Annotated[
        str | None,
        Option("Values of an .npy file: from -1 to 1, or bytes.  [default: float32; .gif and .mp4 are bytes]",
               choices=("float32", "uint8"), group="outputs"),
    ] = None  # fmt: skip
    truncate: Annotated[
        bool,
        Option(
            "Convert to bytes by truncation (half a level too dark on average) instead of rounding.",
            group="outputs",
        ),
    ] = False
    normalised: Annotated[bool, Option("The latents are normalized, as returned by diffusion models.")] = False
    fps: Annotated[float | None, Option("Frames per second of a .gif or .mp4.  [default: 16]", group="outputs")] = None


@verb("decode", DecodeRequest)
def command(request: DecodeRequest) -> int:
    """Decode LATENTS (B, t, h, w, z) with a converted MODEL, an autoencoder, into a video.

    Frames are written as they are decoded, so memory does not depend on their number.
    """
    from wdport.files.animation import BYTES, require_frames, video_target, write_video

    latents = request.latents
    path = request.output or latents.with_name(f"{latents.stem}.video.npy")
    played = path.suffix in BYTES
    _require_fitting(played, request)

    def plan(array: Array, coded: Coded, target: Target) -> tuple[Work, dict[str, Any]]:
        if array.shape[-1] != coded.latent_channels:
            what = f"has {array.shape[-1]} channels, and the model {coded.latent_channels}"
            raise UsageError(latents, what, "give its latents, channels last")
        if array.dtype.kind != "f":
            raise UsageError(latents, f"holds {array.dtype}", "give floating-point latents")
        shape = coded.video(array.shape)
        require_frames(target.path, shape)
        values, fps = "uint8" if played else request.output_dtype or "float32", request.fps or FPS

        def decode(coder: Any) -> tuple[Sequence[int], Sequence[int]]:
            parts = coder.decode_in_parts(
                array.astype("float32"), chunk=request.chunk, output=values, normalised=request.normalised,
                truncate=request.truncate, compute_dtype=request.compute_dtype,
            )  # fmt: skip
            write_video(target, shape, parts, fps)
            return array.shape, shape

        return decode, {"values": values, "truncated": request.truncate, "fps": fps if played else None}

    return run_coding(request, "decode", latents, ("latents", "mean"), partial(video_target, path), plan)


def _require_fitting(played: bool, request: DecodeRequest) -> None:
    """Raise :class:`UsageError` for options that contradict each other."""
    fps = request.fps
    if played and request.output_dtype == "float32":
        raise UsageError("--output-dtype", "a .gif or .mp4 holds bytes", "leave it out, or write a .npy file")
    if request.truncate and not played and request.output_dtype != "uint8":
        raise UsageError("--truncate", "is for bytes", "add --output-dtype uint8")
    if fps is not None and not played:
        raise UsageError("--fps", "a .npy file has no frames per second", "leave it out")
    if fps is not None and not 0.1 <= fps <= 1000:
        raise UsageError("--fps", f"{fps:g} frames per second", "give a number from 0.1 to 1000")
