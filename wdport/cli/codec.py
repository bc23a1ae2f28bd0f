"""What `wdport encode` and `wdport decode` share: the model, the chunk, the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.regular import open_regular
from wdport.cli.options import facts, size
from wdport.errors import InputError, UsageError
from wdport.options import FORCE_OUTPUT, JSON, SHA256, Option

if TYPE_CHECKING:
    from wdport.cli.results import CodedDocument
    from wdport.conversion.load import Converted
    from wdport.model import Array, Coded

DTYPES = ("float32", "bfloat16")
LATENTS = (".npz", ".npy")


@dataclass(frozen=True, kw_only=True)
class CodingRequest:
    """The options of both verbs."""

    chunk: Annotated[
        int,
        Option("Latent frames at a time: affects memory, and results by rounding only.", "N", bounds=(1, 1 << 16)),
    ] = 1
    dtype: Annotated[str, Option("Dtype of the weights.", choices=DTYPES)] = "float32"
    compute_dtype: Annotated[str | None, Option("Dtype of activations.  [default: --dtype]", choices=DTYPES)] = None
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE_OUTPUT] = False


@dataclass(frozen=True)
class CodecRun:
    """A finished run: the verb, the names, shapes and settings, and the seconds that it took."""

    direction: Literal["encode", "decode"]
    model: str
    input: str
    sha256: str
    output: Path
    latents: Sequence[int]
    video: Sequence[int]
    settings: Mapping[str, Any]
    seconds: float

    def document(self) -> CodedDocument:
        """The result as a document."""
        from wdport.cli.results import CodedDocument
        from wdport.files.json_document import NamedFile, output_file

        return CodedDocument(
            model=self.model,
            direction=self.direction,
            input=NamedFile(self.input, self.sha256),
            output=output_file(self.output),
            latents=self.latents,
            video=self.video,
            **self.settings,
            seconds=round(self.seconds, 3),
        )

    def text(self) -> str:
        """A short summary."""
        settings = self.settings
        fps = f", {settings['fps']:g} frames per second" if settings["fps"] else ""
        cut = ", truncated" if settings["truncated"] else ", rounded" if settings["values"] == "uint8" else ""
        rows = [
            ("latents", _shown(self.latents) + (", normalised" if settings["normalised"] else "")),
            ("video", f"{_shown(self.video)}{fps}"),
            ("values", f"{settings['values']}{cut}"),
            ("computes in", f"{settings['compute_dtype']}, weights {settings['dtype']}, chunks of {settings['chunk']}"),
            ("took", f"{self.seconds:.1f} s"),
            ("wrote", f"{self.output} ({size(self.output.stat().st_size)})"),
        ]
        return f"{self.model}: {self.direction}d\n{facts(rows)}"


def _shown(shape: Sequence[int]) -> str:
    batch, frames, height, width, channels = shape
    several = f"{batch} x " if batch > 1 else ""
    return f"{several}{frames} frames of {height} x {width}, {channels} channels"


def open_coded(model: str, normal: bool) -> tuple[Converted, Coded]:
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


def coder_of(converted: Converted, dtype: str) -> Any:
    """The coder of a converted model with weights in this dtype."""
    from wdport.conversion.load import load_model

    family: Any = converted.family
    return family.coder(load_model(converted.path, dtype))


def read_coded(path: Path, names: tuple[str, ...]) -> Array:
    """An array (B, T, H, W, C), or of one video (T, H, W, C), from an ``.npy`` or ``.npz`` file; in an ``.npz`` file it
    has one of these names, or is the only one. Raises :class:`InputError`."""
    import numpy as np

    from wdport.data.arrays import opened_npz, understood
    from wdport.data.numpy_files import read_array
    from wdport.data.table import data_file

    if path.suffix not in LATENTS:
        raise InputError(path, "is not an .npy or .npz file", "save it with numpy.save or numpy.savez")
    with data_file(path) as file:
        if path.suffix == ".npy":
            with open_regular(file) as opened, understood(".npy"):
                array = read_array(opened, file.stat().st_size)
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
