"""`wdport encode` and `wdport decode`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wdport.base.errors import InputError, UsageError
from wdport.base.options import FORCE_OUTPUT, JSON, SHA256, Interval, Operand, Option
from wdport.checkpoint.faults import Fault
from wdport.cli.click_options import verb
from wdport.cli.console import facts, size
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.files.inputs import InputFiles
from wdport.files.json_document import NamedFile, output_file
from wdport.files.model_target import Target, file_target
from wdport.files.sealed_archive import sealed_archive
from wdport.models.interface import LARGEST_PIXEL
from wdport.uses.cli.model_inputs import model_inputs

if TYPE_CHECKING:
    from wdport.models.interface import Array, Coded
    from wdport.uses.cli.results import CodedDocument

DTYPES = ("float32", "bfloat16")
LATENTS = (".npz", ".npy")

FPS = 16.0
"""Frames per second of Wan's own videos."""

Work = Callable[[Any], tuple[Sequence[int], Sequence[int]]]
"""Writes the output with a coder, and returns the shapes of the latents and of the video."""


@dataclass(frozen=True, kw_only=True)
class CodingRequest:
    """The options of both verbs."""

    model: str
    normalised: bool = False
    chunk: Annotated[int, Option(
        "Process N latent frames at a time. N affects memory use, and affects results only by rounding.",
        "N", bounds=(1, 1 << 16))] = 1  # fmt: skip
    dtype: Annotated[str, Option("Dtype of the weights.", choices=DTYPES)] = "float32"
    compute_dtype: Annotated[str | None, Option(
        "Dtype of the activations.  [default: --dtype]", choices=DTYPES, group="model")] = None  # fmt: skip
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE_OUTPUT] = False


@dataclass(frozen=True, kw_only=True)
class EncodeRequest(CodingRequest):
    """The command's arguments and options."""

    model: Annotated[str, Operand(files="converted")]
    video: Annotated[Path, Operand(files=(".npy", ".npz", ".gif", ".mp4"))]
    output: Annotated[Path | None, Option(
        "NAME.npz with latents (the mean) and logvar.  [default: VIDEO.latents.npz next to VIDEO]",
        files=(".npz",))] = None  # fmt: skip
    normalised: Annotated[bool, Option("Normalize the latents, as diffusion models expect.")] = False


@dataclass(frozen=True, kw_only=True)
class DecodeRequest(CodingRequest):
    """The command's arguments and options."""

    model: Annotated[str, Operand(files="converted")]
    latents: Annotated[Path, Operand(files=LATENTS)]
    output: Annotated[Path | None, Option(
        "NAME.npy, .gif or .mp4.  [default: LATENTS.video.npy next to LATENTS]",
        files=(".npy", ".gif", ".mp4"))] = None  # fmt: skip
    output_dtype: Annotated[str | None, Option(
        "Values in an .npy file: float32 from -1 to 1, or bytes (uint8).  [default: float32; .gif and .mp4 files "
        "contain bytes]",
        choices=("float32", "uint8"), group="outputs")] = None  # fmt: skip
    truncate: Annotated[bool, Option(
        "Convert to bytes by truncation (half a level too dark on average) instead of rounding.",
        group="outputs")] = False  # fmt: skip
    normalised: Annotated[bool, Option("The latents are normalized, as returned by diffusion models.")] = False
    fps: Annotated[float | None, Option(
        "Frames per second of a .gif or .mp4.  [default: 16]",
        group="outputs", bounds=Interval(0.1, 1000))] = None  # fmt: skip


@verb("encode", EncodeRequest)
def encode(request: EncodeRequest) -> None:
    """Encode a VIDEO into latents with a converted MODEL, an autoencoder.

    VIDEO is an array (B, T, H, W, C) of floating-point values from -1 to 1 or of bytes from 0 to 255, a .gif or .mp4
    file, or a folder of .png images, one for each frame.
    """

    def plan(array: Array, coded: Coded, target: Target) -> tuple[Work, dict[str, Any]]:
        if array.shape[-1] != coded.channels:
            what = f"has {array.shape[-1]} channels, and the model {coded.channels}"
            raise UsageError(video, what, "give them on the last axis")
        if str(array.dtype) == "uint8":
            array = array / 127.5 - 1.0
        elif array.dtype.kind != "f":
            raise UsageError(video, f"holds {array.dtype}", "give floating-point values from -1 to 1, or bytes (uint8)")
        elif (largest := float(np.abs(array).max())) > LARGEST_PIXEL:
            what = f"has values up to {largest:.3g}, and the model takes -1 to 1"
            raise UsageError(video, what, "scale them, or give bytes (uint8)")

        def work(coder: Any) -> tuple[Sequence[int], Sequence[int]]:
            mean, logvar = coder.encode(array.astype("float32"), chunk=request.chunk, normalise=request.normalised,
                                        compute_dtype=request.compute_dtype)  # fmt: skip
            with sealed_archive(target.output) as file:
                np.savez(file, latents=mean, logvar=logvar)
            return mean.shape, array.shape

        return work, {"values": "float32", "truncated": False, "fps": None}

    video = request.video
    path = request.output or video.with_name(f"{video.stem}.latents.npz")
    _run(request, "encode", video, ("video",), partial(file_target, path, (".npz",)), plan)


@verb("decode", DecodeRequest)
def decode(request: DecodeRequest) -> None:
    """Decode LATENTS (B, t, h, w, z) into a video with a converted MODEL, an autoencoder.

    Frames are written as they are decoded, so memory use does not depend on the number of frames.
    """
    from wdport.files.animation import BYTES, gif_speed, require_frames, video_target, write_video

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

        def work(coder: Any) -> tuple[Sequence[int], Sequence[int]]:
            parts = coder.decode_in_parts(
                array.astype("float32"), chunk=request.chunk, output=values, normalised=request.normalised,
                truncate=request.truncate, compute_dtype=request.compute_dtype,
            )  # fmt: skip
            write_video(target, shape, parts, fps)
            return array.shape, shape

        speed = round(gif_speed(fps), 3) if target.format == "gif" else fps
        return work, {"values": values, "truncated": request.truncate, "fps": speed if played else None}

    _run(request, "decode", latents, ("latents", "mean"), partial(video_target, path), plan)


def _require_fitting(played: bool, request: DecodeRequest) -> None:
    """Raise :class:`UsageError` for options that contradict each other."""
    if played and request.output_dtype == "float32":
        raise UsageError("--output-dtype", "a .gif or .mp4 holds bytes", "leave it out, or write a .npy file")
    if request.truncate and not played and request.output_dtype != "uint8":
        raise UsageError("--truncate", "is for bytes", "add --output-dtype uint8")
    if request.fps is not None and not played:
        raise UsageError("--fps", "a .npy file has no frames per second", "leave it out")


def _run(
    request: CodingRequest, direction: Literal["encode", "decode"], source: Path, names: tuple[str, ...],
    target_of: Callable[[InputFiles, bool], Target],
    plan: Callable[[Array, Coded, Target], tuple[Work, Mapping[str, Any]]],
) -> None:  # fmt: skip
    """Check the files, run the autoencoder, and give the result.

    Args:
        request: the options.
        direction: the verb.
        source: the file that is read, and ``names``, those of its array: see :func:`read_coded`.
        target_of: checks the output.
        plan: checks the array, and returns the work and the fields of the document that only this verb knows.
    """
    from wdport.conversion.load import load_model, open_converted
    from wdport.uses.cli.results import CodedDocument
    from wdport.uses.roles import Autoencoder

    inputs = model_inputs(request.model, request.sha256, **{names[0]: source})
    converted = open_converted(request.model)
    family: Any = converted.family
    if not isinstance(family, Autoencoder):
        what = f"a {family.name} model encodes and decodes no videos"
        raise UsageError(converted.path, what, "give a converted autoencoder; wdport.load_model runs this one")
    coded = family.coded(converted.config)
    if request.normalised and not coded.normalises:
        what = "the model's config.json has no mean and deviation for every channel of its latents"
        raise UsageError("--normalised", what, "leave it out")
    target = target_of(inputs, request.force)
    document = require_document(request.json_file, inputs, {"-o": target.path}, request.force)
    work, settings = plan(read_coded(source, names), coded, target)
    require_jax()
    start_jax()
    started = time.monotonic()
    coder, digest = family.coder(load_model(converted.path, request.dtype)), inputs.sha256(names[0])
    inputs.end_reading()
    try:
        latents, video = work(coder)
    except UsageError as error:  # of the array, which has the name of an argument in Python
        raise UsageError(source if error.where == names[0] else error.where, error.what, error.fix) from None
    seconds, path = time.monotonic() - started, target.path
    result = CodedDocument(
        model=converted.path.name, direction=direction, input=NamedFile(source.name, digest), output=output_file(path),
        latents=latents, video=video, normalised=request.normalised, dtype=request.dtype,
        compute_dtype=request.compute_dtype or request.dtype, chunk=request.chunk, seconds=round(seconds, 3),
        **settings,
    )  # fmt: skip
    give("coded", lambda: result, document, lambda: _text(result, path))


def _text(coded: CodedDocument, path: Path) -> str:
    """A short summary."""
    fps = f", {coded.fps:g} frames per second" if coded.fps else ""
    cut = ", truncated" if coded.truncated else ", rounded" if coded.values == "uint8" else ""
    rows = [
        ("latents", _shown(coded.latents) + (", normalised" if coded.normalised else "")),
        ("video", f"{_shown(coded.video)}{fps}"),
        ("values", f"{coded.values}{cut}"),
        ("computes in", f"{coded.compute_dtype}, weights {coded.dtype}, chunks of {coded.chunk}"),
        ("took", f"{coded.seconds:.1f} s"),
        ("wrote", f"{path} ({size(coded.output.bytes)})"),
    ]
    return f"{coded.model}: {coded.direction}d\n{facts(rows)}"


def _shown(shape: Sequence[int]) -> str:
    batch, frames, height, width, channels = shape
    several = f"{batch} x " if batch > 1 else ""
    return f"{several}{frames} frames of {height} x {width}, {channels} channels"


def read_coded(path: Path, names: tuple[str, ...]) -> Array:
    """An array (B, T, H, W, C), or of one video (T, H, W, C), from an ``.npy`` or ``.npz`` file; in an ``.npz`` file it
    has one of these names, or is the only one. A ``video`` may also be one that :func:`read_video` reads. Raises
    :class:`InputError`, and :class:`MachineError` as that function does."""
    from wdport.uses.data.arrays import npy_array, opened_npz
    from wdport.uses.data.table import data_file
    from wdport.uses.data.videos import is_video, read_video

    if "video" in names and is_video(path):
        return read_video(path)[None]
    if path.suffix not in LATENTS:
        also = ", or give a .gif, an .mp4 or a folder of .png images" if "video" in names else ""
        raise InputError(path, "is not an .npy or .npz file", f"save it with numpy.save or numpy.savez{also}")
    with data_file(path) as file:
        if path.suffix == ".npy":
            array = npy_array(file)
        else:
            with opened_npz(file) as arrays:
                candidates = (*names, *(arrays.files if len(arrays) == 1 else ()))
                name = next((candidate for candidate in candidates if candidate in arrays), "")
                if not name:
                    raise Fault(f"has no array {' or '.join(names)}", f"save it as {names[0]}")
                array = arrays[name]
    array = array[None] if array.ndim == 4 else array
    if array.ndim != 5 or 0 in array.shape:
        raise InputError(path, f"has an array of shape {array.shape}", "give (B, T, H, W, C) or (T, H, W, C)")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(path, "has NaN or infinite values", "give finite numbers")
    return array
