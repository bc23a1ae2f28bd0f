"""Encode and decode videos of any length: with one compiled program in equal chunks, or for an export in one scan;
pixels as bytes.

Zeros come before the video, so that its frames fill whole chunks from the end: the first frame is the last slot of its
latent frame. The network's outputs for the slots before it are cut off.

For an export, a scan computes frames as :class:`Codec` does in chunks of one, with the past as its carry; the device
then holds the whole video, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh

from wdport.base.errors import UsageError
from wdport.base.jax_settings import fast_compile
from wdport.base.options import COUNT, require_number
from wdport.models.interface import LARGEST_PIXEL, Array, Free, Function, KerasModel, Taken
from wdport.models.interface import KerasTensor as Tensor
from wdport.models.keras_runtime import described, exact_float64, variables_by_path
from wdport.nets.chunked import Chunked, Held, Step, Weights, require_divisible, scanned
from wdport.nets.composed import wide
from wdport.uses.wan_vae.blocks import Chunk
from wdport.uses.wan_vae.config import Config


def to_bytes(x: Tensor, truncate: bool = False) -> Tensor:
    """Values from -1 to 1, clipped, as uint8 from 0 to 255: the nearest of the 256 levels.

    ``truncate`` drops the fraction, as a plain cast does: images get darker by half a level on average, and only an
    exact 1 gives 255.
    """
    # bfloat16 has 8 significant bits, which leave no fraction to round near 255.
    scaled = jnp.clip((wide(x) + 1.0) * 127.5, 0.0, 255.0)
    return (scaled if truncate else jnp.round(scaled)).astype(jnp.uint8)


OUTPUTS = ("float32", "float64", "uint8")


class Posterior(NamedTuple):
    """Mean and log-variance (B, t, h, w, z) of the latents of videos."""

    mean: Array
    logvar: Array


@dataclass(frozen=True)
class CodecSettings:
    """The settings of a codec: the dtype of weights, that of activations, the output (one of :data:`OUTPUTS`), whether
    bytes are truncated, the devices, and whether programs are compiled fast because they run once."""

    dtype: str
    compute_dtype: str
    output: str
    truncate: bool = False
    mesh: Mesh | None = None
    quick: bool = False


class Codec:
    """Encodes and decodes with the layers of one :class:`wdport.uses.wan_vae.port.WanVAE`, whose weights are
    arguments."""

    def __init__(self, model: KerasModel, settings: CodecSettings) -> None:
        self.config: Config = model.config
        self.settings = settings
        self._model = (
            model if model.compute_dtype == settings.compute_dtype else _without_values(model, settings.compute_dtype)
        )
        self._paths = {id(variable): path for path, variable in variables_by_path(self._model).items()}
        options = fast_compile() if settings.quick else None
        self.encoder, self.decoder = (
            Chunked(step, settings.mesh, options) for step in (self.encode_step, self.decode_step)
        )

    def weights(self, model: KerasModel) -> Weights:
        """The values of a model's variables, by path."""
        kind = np.dtype(jax.numpy.dtype(self.settings.dtype))
        values = {path: variable.value for path, variable in variables_by_path(model).items()}
        cast = {path: value if value.dtype == kind else value.astype(kind) for path, value in values.items()}
        return self.decoder.place(cast)

    def encode(self, weights: Weights, video: Array, chunk: int) -> Iterator[Array]:
        """Mean and log-variance (B, t', h, w, 2z), clipped, of a video (B, T, H, W, C), in parts along t."""
        frames, slots = self.config.frames, chunk * self.config.frames
        # The first latent frame has one frame of the video, every other one `frames`.
        latents = (video.shape[1] - 1) // frames + 1
        before = -latents % chunk
        padded = _padded(video, before * frames + frames - 1, slots)
        # Numbers below zero are latent frames before the video, which are cut off.
        parts = self.encoder.run(weights, padded, -before, chunk)
        return (part[:, before:] if index == 0 else part for index, part in enumerate(parts))

    def decode(self, weights: Weights, latents: Array, chunk: int) -> Iterator[Array]:
        """The video (B, T', H, W, C') of latents (B, t, h, w, z), in parts along T."""
        before = -latents.shape[1] % chunk
        unused = before * self.config.frames + self.config.frames - 1
        parts = self.decoder.run(weights, _padded(latents, before, chunk), -before, chunk)
        return (part[:, unused:] if index == 0 else part for index, part in enumerate(parts))

    def encode_step(self, weights: Weights, held: Held, video: Any, start: Any) -> tuple[list[Any], Any]:
        """A step over the slots of some latent frames, of which the first has the number ``start``."""
        stream = Chunk(held, video.shape[1] // self.config.frames, start)
        with self._holding(weights):
            moments = self._model.encode_part(video.astype(self.settings.compute_dtype), stream)
        # One array, so that a step has one result for either direction.
        clipped_moments = jax.numpy.concatenate(self._model.split(wide(moments)), axis=-1)
        return stream.kept, clipped_moments

    def decode_step(self, weights: Weights, held: Held, latents: Any, start: Any) -> tuple[list[Any], Any]:
        """The same for the decoder."""
        stream = Chunk(held, latents.shape[1], start)
        with self._holding(weights):
            video = self._model.decode_part(latents.astype(self.settings.compute_dtype), stream)
        if self.settings.output == "uint8":
            return stream.kept, to_bytes(video, self.settings.truncate)
        return stream.kept, video.astype(self.settings.output)

    @contextmanager
    def _holding(self, weights: Weights) -> Iterator[None]:
        """Context in which the model has these values, in the dtype that it computes in."""
        kind = self.settings.compute_dtype
        held = [(variable, weights[self._paths[id(variable)]].astype(kind)) for variable in self._model.variables
                if id(variable) in self._paths]  # fmt: skip
        with exact_float64() if kind == "float64" else nullcontext(), keras.StatelessScope(state_mapping=held):
            yield


def _without_values(model: KerasModel, compute_dtype: str) -> KerasModel:
    with _enough(compute_dtype), described():
        return type(model)(model.config, dtype=compute_dtype)


@contextmanager
def _enough(*dtypes: str) -> Iterator[None]:
    """Context in which JAX has these dtypes."""
    with jax.enable_x64(True) if "float64" in dtypes else nullcontext():
        yield


def _padded(array: Array, before: int, count: int) -> Iterator[Array]:
    """Parts of ``count`` frames of an array (B, T, ...), with ``before`` frames of zeros before the first."""
    for start in range(-before, array.shape[1], count):
        part = np.asarray(array[:, max(start, 0) : start + count])
        lacking = count - part.shape[1]
        yield np.pad(part, ((0, 0), (lacking, 0), (0, 0), (0, 0), (0, 0))) if lacking else part


class Coding:
    """The methods of the Keras model that encode and decode; videos are (B, T, H, W, C) from -1 to 1."""

    config: Config
    compute_dtype: str
    variable_dtype: str

    def encode(
        self: Any, video: Array, *, chunk: int = 1, normalise: bool = False, dtype: str | None = None,
        compute_dtype: str | None = None, mesh: Mesh | None = None,
    ) -> Posterior:  # fmt: skip
        """Encode videos.

        Args:
            video: (B, T, H, W, C) from -1 to 1; T is one more than a multiple of the frames of a latent frame (4 in
                published models), H and W are multiples of its pixels (8 or 16).
            chunk: latent frames at a time. Results do not depend on it; memory does.
            normalise: return (latent - latents_mean) / latents_std, as diffusion models take them. Otherwise latents
                are those of the library's ``encode``.
            dtype: dtype of the weights; the model's if None.
            compute_dtype: dtype of activations; the model's if None.
            mesh: devices with axes "batch", "width" or both, among which videos and columns are divided.

        Returns:
            Mean and log-variance of the posterior, each (B, t, h, w, z), in float32 (float64 if it computes so).

        Raises:
            UsageError: shapes or settings are not supported.
        """
        _require_video(self.config, video, chunk, mesh)
        settings = _settings_of(self, None, dtype, compute_dtype, False, mesh)
        with _enough(settings.dtype, settings.compute_dtype):
            codec = self.codecs(settings)
            moments = np.concatenate(list(codec.encode(codec.weights(self), video, chunk)), axis=1)
        mean, logvar = np.split(moments, 2, axis=-1)
        if normalise:
            centre, spread = statistics(self.config, mean.dtype)
            # The variance is divided by the square of the deviation.
            return Posterior((mean - centre) / spread, logvar - 2 * np.log(spread))
        return Posterior(mean, logvar)

    def decode(
        self: Any, latents: Array, *, chunk: int = 1, output: str | None = None, normalised: bool = False,
        truncate: bool = False, dtype: str | None = None, compute_dtype: str | None = None, mesh: Mesh | None = None,
    ) -> Array:  # fmt: skip
        """Decode latents to videos.

        Args:
            latents: (B, t, h, w, z), as :meth:`encode` returns them.
            chunk: latent frames at a time. Results do not depend on it; memory does.
            output: "float32" from -1 to 1 (None: float64 if it computes so), or "uint8" from 0 to 255, made on the
                device.
            normalised: latents are normalised, as diffusion models return them.
            truncate: make bytes by dropping the fraction, half a level too dark on average, instead of rounding.
            dtype: as in :meth:`encode`.
            compute_dtype: as in :meth:`encode`.
            mesh: as in :meth:`encode`.

        Returns:
            The videos (B, T, H, W, C').

        Raises:
            UsageError: shapes or settings are not supported.
        """
        return np.concatenate(list(self.decode_in_parts(
            latents, chunk=chunk, output=output, normalised=normalised, truncate=truncate, dtype=dtype,
            compute_dtype=compute_dtype, mesh=mesh,
        )), axis=1)  # fmt: skip

    def decode_in_parts(
        self: Any, latents: Array, *, chunk: int = 1, output: str | None = None, normalised: bool = False,
        truncate: bool = False, dtype: str | None = None, compute_dtype: str | None = None, mesh: Mesh | None = None,
    ) -> Iterator[Array]:  # fmt: skip
        """The same in parts along T, each returned as soon as it is decoded, for videos that memory cannot hold."""
        _require_latents(self.config, latents, chunk, mesh)
        settings = _settings_of(self, output, dtype, compute_dtype, truncate, mesh)
        if normalised:
            centre, spread = statistics(self.config, np.float64 if settings.compute_dtype == "float64" else np.float32)
            latents = latents * spread + centre
        with _enough(settings.dtype, settings.compute_dtype):
            codec = self.codecs(settings)
            parts = codec.decode(codec.weights(self), latents, chunk)
        return _inside(parts, settings)


def _inside(parts: Iterator[Array], settings: CodecSettings) -> Iterator[Array]:
    """The parts, each computed with the dtypes that it needs."""
    while True:
        with _enough(settings.dtype, settings.compute_dtype):
            part = next(parts, None)
        if part is None:
            return
        yield part


def statistics(config: Config, dtype: Any) -> tuple[Array, Array]:
    """Mean and standard deviation (z,) of the latents; raises :class:`UsageError` if they are not known."""
    if not config.normalises:
        what = f"latents_mean and latents_std do not have a value for each of {config.z_dim} channels"
        raise UsageError("normalise", what, "use the latents as they are")
    return np.asarray(config.latents_mean, dtype), np.asarray(config.latents_std, dtype)


def _settings_of(model: KerasModel, output: str | None, dtype: str | None, compute_dtype: str | None, truncate: bool,
         mesh: Mesh | None) -> CodecSettings:  # fmt: skip
    compute = compute_dtype or model.compute_dtype
    output = output or ("float64" if compute == "float64" else "float32")
    for name, value, choices in (("output", output, OUTPUTS), ("compute_dtype", compute, _FLOATS),
                               ("dtype", dtype or model.variable_dtype, _FLOATS)):  # fmt: skip
        if value not in choices:
            raise UsageError(name, f"{value!r} is unknown", f"give one of {', '.join(choices)}")
    if truncate and output != "uint8":
        raise UsageError("truncate", "is for bytes", "add output='uint8'")
    return CodecSettings(dtype or model.variable_dtype, compute, output, truncate, mesh)


_FLOATS = ("float32", "bfloat16", "float16", "float64")


def _require_video(config: Config, video: Array, chunk: int, mesh: Mesh | None) -> None:
    channels = config.in_channels // config.patch**2
    _require(video, channels, "video", "(B, T, H, W, C)", chunk)
    if (largest := float(np.abs(video).max())) > LARGEST_PIXEL:
        raise UsageError("video", f"has values up to {largest:.3g}, and the model takes -1 to 1", "scale them")
    _, frames, height, width, _ = video.shape
    if (frames - 1) % config.frames:
        below, above = (((frames - 1) // config.frames + more) * config.frames + 1 for more in (0, 1))
        what = f"has {frames} frames, and the model takes one more than a multiple of {config.frames}"
        raise UsageError("video", what, f"give {below} or {above} frames")
    if height % config.pixels or width % config.pixels:
        what = f"is {height} x {width} pixels, and the model takes multiples of {config.pixels}"
        raise UsageError("video", what, "crop or resize it")
    require_divisible(mesh, len(video), width // config.pixels)


def _require_latents(config: Config, latents: Array, chunk: int, mesh: Mesh | None) -> None:
    _require(latents, config.z_dim, "latents", "(B, t, h, w, z)", chunk)
    require_divisible(mesh, len(latents), latents.shape[3])


def _require(array: Array, channels: int, name: str, axes: str, chunk: int) -> None:
    shape: Sequence[int] = np.shape(array)
    if len(shape) != 5 or shape[-1] != channels:
        raise UsageError(name, f"has the shape {tuple(shape)}", f"give {axes} with {channels} channels")
    if 0 in shape:
        raise UsageError(name, f"has the shape {tuple(shape)}, so it is empty", f"give at least one of each of {axes}")
    if array.dtype.kind != "f" and str(array.dtype) != "bfloat16":
        raise UsageError(name, f"has dtype {array.dtype}", "give floating-point numbers")
    require_number(COUNT, chunk=chunk)
    if not np.isfinite(array).all():
        raise UsageError(name, "has NaN or infinite values", "give finite ones")


def functions(model: KerasModel) -> dict[str, Function]:
    """ "encode" maps a video (B, T, H, W, C) from -1 to 1 to mean and log-variance (B, t, h, w, z) of its latents, and
    "decode" latents to a video; T, H and W are those of t, h and w."""
    exact = model.compute_dtype == "float64"
    codec: Codec = model.codecs(
        CodecSettings(model.variable_dtype, model.compute_dtype, "float64" if exact else "float32")
    )
    config = codec.config
    frames, pixels = config.frames, config.pixels
    batch, columns = Free("b"), (Free("h"), Free("w"))
    video = (batch, Free("t", frames, frames - 1), Free("h", pixels), Free("w", pixels),
             config.in_channels // config.patch**2)  # fmt: skip

    def encode(weights: Weights, x: Tensor) -> list[Tensor]:
        padded = jnp.pad(x, ((0, 0), (frames - 1, 0), (0, 0), (0, 0), (0, 0)))
        return jnp.split(_each(codec.encode_step, weights, padded, frames), 2, axis=-1)

    def decode(weights: Weights, latents: Tensor) -> list[Tensor]:
        return [_each(codec.decode_step, weights, latents, 1)[:, frames - 1 :]]

    return {
        "encode": Function((Taken("video", video),), ("mean", "logvar"), encode),
        "decode": Function((Taken("latents", (batch, Free("t"), *columns, config.z_dim)),), ("video",), decode),
    }


def _each(step: Step, weights: Weights, x: Tensor, slots: int) -> Any:
    """The results of a step for every latent frame, which has so many slots of ``x`` (B, T, ...), joined along T."""
    batch, length, *image = x.shape
    chunks = jnp.moveaxis(jnp.reshape(x, (batch, length // slots, slots, *image)), 1, 0)
    results = jnp.moveaxis(scanned(step, weights, chunks, np.int32(0), 1), 0, 1)
    return jnp.reshape(results, (batch, results.shape[1] * results.shape[2], *results.shape[3:]))
