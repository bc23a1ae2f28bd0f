"""What `wdport encode` and `wdport decode` share: the checks, the run, the document and the summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from wdport.checkpoint.faults import Fault
from wdport.cli.console import facts, size
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.model_inputs import model_inputs
from wdport.errors import InputError, UsageError
from wdport.files.inputs import InputFiles
from wdport.files.json_document import NamedFile, output_file
from wdport.files.model_target import Target
from wdport.options import FORCE_OUTPUT, JSON, SHA256, Option

if TYPE_CHECKING:
    from wdport.cli.results import CodedDocument
    from wdport.conversion.load import Converted
    from wdport.model import Array, Coded

DTYPES = ("float32", "bfloat16")
LATENTS = (".npz", ".npy")


Work = Callable[[Any], tuple[Sequence[int], Sequence[int]]]
"""Writes the output with a coder, and returns the shapes of the latents and of the video."""


@dataclass(frozen=True, kw_only=True)
class CodingRequest:
    """The options of both verbs."""

    model: str
    normalised: bool = False
    chunk: Annotated[
        int,
        Option(
            "Process N latent frames at a time. N affects memory use, and affects results only by rounding.", "N",
            bounds=(1, 1 << 16),
        ),
    ] = 1  # fmt: skip
    dtype: Annotated[str, Option("Dtype of the weights.", choices=DTYPES)] = "float32"
    compute_dtype: Annotated[
        str | None, Option("Dtype of the activations.  [default: --dtype]", choices=DTYPES, group="model")
    ] = None
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE_OUTPUT] = False


def run_coding(
    request: CodingRequest, direction: Literal["encode", "decode"], source: Path, names: tuple[str, ...],
    target_of: Callable[[InputFiles, bool], Target],
    plan: Callable[[Array, Coded, Target], tuple[Work, Mapping[str, Any]]],
) -> int:  # fmt: skip
    """Check the files, run the autoencoder, and give the result.

    Args:
        request: the options.
        direction: the verb.
        source: the file that is read, and ``names``, those of its array: see :func:`read_coded`.
        target_of: checks the output.
        plan: checks the array, and returns the work and the fields of the document that only this verb knows.
    """
    from wdport.cli.results import CodedDocument
    from wdport.conversion.load import load_model

    inputs = model_inputs(request.model, request.sha256, **{names[0]: source})
    converted, coded = _open_coded(request.model, request.normalised)
    target = target_of(inputs, request.force)
    document = require_document(request.json_file, inputs, {"-o": target.path}, request.force)
    work, settings = plan(read_coded(source, names), coded, target)
    require_jax()
    start_jax()
    started, family = time.monotonic(), cast(Any, converted.family)
    coder, digest = family.coder(load_model(converted.path, request.dtype)), inputs.sha256(names[0])
    inputs.end_reading()
    latents, video = work(coder)
    seconds, path = time.monotonic() - started, target.path
    result = CodedDocument(
        model=converted.path.name, direction=direction, input=NamedFile(source.name, digest), output=output_file(path),
        latents=latents, video=video, normalised=request.normalised, dtype=request.dtype,
        compute_dtype=request.compute_dtype or request.dtype, chunk=request.chunk, seconds=round(seconds, 3),
        **settings,
    )  # fmt: skip
    give("coded", lambda: result, document, lambda: _text(result, path))
    return 0


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


def _open_coded(model: str, normal: bool) -> tuple[Converted, Coded]:
    """Open a converted autoencoder; raises :class:`UsageError` for other models, and if it cannot normalise."""
    from wdport.conversion.load import open_converted
    from wdport.families.roles import Autoencoder

    converted = open_converted(model)
    if not isinstance(converted.family, Autoencoder):
        what = f"a {converted.family.name} model encodes and decodes no videos"
        raise UsageError(converted.path, what, "give a converted autoencoder; wdport.load_model runs this one")
    coded = converted.family.coded(converted.config)
    if normal and not coded.normalises:
        what = "the model's config.json has no mean and deviation for every channel of its latents"
        raise UsageError("--normalised", what, "leave it out")
    return converted, coded


def read_coded(path: Path, names: tuple[str, ...]) -> Array:
    """An array (B, T, H, W, C), or of one video (T, H, W, C), from an ``.npy`` or ``.npz`` file; in an ``.npz`` file it
    has one of these names, or is the only one. A ``video`` may also be one that :func:`read_video` reads. Raises
    :class:`InputError`, and :class:`MachineError` as that function does."""
    import numpy as np

    from wdport.data.arrays import npy_array, opened_npz
    from wdport.data.table import data_file
    from wdport.data.videos import is_video, read_video

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
