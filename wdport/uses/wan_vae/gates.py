"""The family's own gate, chunks (G): videos in chunks and as bytes, as they are used, against the network's call.

The other gates compare the call, in the library's order of frames, with the library. This one compares
:meth:`wdport.uses.wan_vae.port.WanVAE.encode` and ``decode``, and the programs that an export holds, with the call,
in a narrow network of the same kind with random weights, so that it takes seconds for any model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Final
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from wdport.base.jax_settings import fast_compile
from wdport.compare.findings import Gate, Term, measure
from wdport.compare.gate_bounds import Bound
from wdport.compare.measure import relative_l2
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import set_variable, unfilled, variables_by_path
from wdport.nets import chunked
from wdport.uses.wan_vae.codec import Codec, CodecSettings, functions, to_bytes
from wdport.uses.wan_vae.config import GROUP, Config
from wdport.uses.wan_vae.port import WanVAE

CHUNKS: Final = Term("G", "chunks", "videos in chunks, and as bytes, agree with the network's call in float64")

CHUNK: Final = 2
OTHER: Final = 3
"""Latent frames at a time; neither size divides :data:`LATENTS`, so that the first chunk begins before the video."""

LATENTS: Final = 5
"""Latent frames, more than in a chunk. The call, whose compilation takes time for every frame, gets the first ones."""

WIDTH: Final = 4
"""Largest width of the narrow network before ``dim_mult``."""


@dataclass(frozen=True)
class Example:
    """A narrow network in float64, a video and latents, and the call's outputs for the first frames of either."""

    model: KerasModel
    video: Array
    latents: Array
    mean: Array
    logvar: Array
    decoded: Array


def gates(config: Config, bounds: Mapping[str, Bound]) -> list[Gate]:
    """Gate chunks (G) for a model of this configuration, with the family's ``bounds``."""
    errors = chunk_errors(config)
    measures = tuple(measure(name, "error", value, "chunks", family_bounds=bounds) for name, value in errors.items())
    return [CHUNKS.gate(len(measures), len(measures), measures)]


def chunk_errors(config: Config) -> dict[str, float]:
    """Relative float64 errors by what is compared: mean and log-variance of latents, the video, and its bytes, in
    chunks of two latent frames, and of three; one at a time by the model's own methods, normalised; and as whole
    videos, as exported.

    Bytes, and chunks of three, are compared with what the chunks of two gave; bytes of a network that computes in 16
    bits with those of the same values in float64.
    """
    example = _example(_narrow(config))
    example.model.codecs.cache_clear()  # programs from an earlier call: a fault may have been put into the model since
    with jax.enable_x64(True):
        return {**_in_chunks(example), **_by_methods(example), **_exported(example), **_in_16_bits()}


def _in_chunks(example: Example) -> dict[str, float]:
    exact, pixels = (Codec(example.model, CodecSettings("float64", "float64", output, quick=True))
                     for output in ("float64", "uint8"))  # fmt: skip
    weights, frames, latents = exact.weights(example.model), example.video, example.latents
    # Against the call, whose order of frames is the library's; the others only against this codec's own.
    moments = _joined(exact.encode(weights, frames, CHUNK))
    mean, logvar = np.split(moments, 2, axis=-1)
    video = _joined(exact.decode(weights, latents, CHUNK))
    return {
        "encode, mean": _error(mean, example.mean, latents),
        "encode, logvar": _error(logvar, example.logvar, latents),
        "decode": _error(video, example.decoded, frames),
        "bytes": _bytes_error(_joined(pixels.decode(weights, latents, CHUNK)), np.round(_levels(video))),
        f"encode, {OTHER} at a time": _error(_joined(exact.encode(weights, frames, OTHER)), moments, latents),
        f"decode, {OTHER} at a time": _error(_joined(exact.decode(weights, latents, OTHER)), video, frames),
    }


def _by_methods(example: Example) -> dict[str, float]:
    """As `wdport encode` and `decode` call the model: one latent frame at a time, latents normalised if they can be."""
    model, config = example.model, example.model.config
    normal = config.normalises
    centre, spread = (np.asarray(statistic, np.float64) if normal else default for statistic, default in
                      ((config.latents_mean, 0.0), (config.latents_std, 1.0)))  # fmt: skip
    latents = (example.latents - centre) / spread
    # Compiled fast, as the others: the model's own programs take four times as long to compile.
    with patch.object(chunked, "OPTIONS", fast_compile()):
        posterior = model.encode(example.video, normalise=normal)
        video = model.decode(latents, normalised=normal)
        dark = model.decode(latents, normalised=normal, output="uint8", truncate=True)
    return {
        "encode, one at a time, mean": _error(posterior.mean, (example.mean - centre) / spread, latents),
        "encode, one at a time, logvar": _error(posterior.logvar, example.logvar - 2.0 * np.log(spread), latents),
        "decode, one at a time": _error(video, example.decoded, example.video),
        "bytes, truncated": _bytes_error(dark, np.floor(_levels(video))),
    }


def _exported(example: Example) -> dict[str, float]:
    """As the exported programs compute."""
    programs, variables = functions(example.model), variables_by_path(example.model)
    weights = {path: variable.value for path, variable in variables.items()}
    inputs = {"encode": example.video, "decode": example.latents}
    outputs = {name: jax.jit(programs[name].call, compiler_options=fast_compile())(weights, array)
            for name, array in inputs.items()}  # fmt: skip
    mean, logvar = map(np.asarray, outputs["encode"])
    return {
        "encode, exported, mean": _error(mean, example.mean, example.latents),
        "encode, exported, logvar": _error(logvar, example.logvar, example.latents),
        "decode, exported": _error(np.asarray(outputs["decode"][0]), example.decoded, example.video),
    }


def _in_16_bits() -> dict[str, float]:
    # All multiples of 1/256, which bfloat16 holds.
    values = np.arange(-256, 257)[None] / 256
    pixels = np.asarray(to_bytes(jnp.asarray(values, jnp.bfloat16)))
    return {"bytes, bfloat16": _bytes_error(pixels, np.round(_levels(values)))}


def _levels(video: Array) -> Array:
    """A video from -1 to 1 in levels from 0 to 255, without rounding."""
    return np.clip((video + 1.0) * 127.5, 0.0, 255.0)


def _bytes_error(candidate: Array, levels: Array) -> float:
    return _error(candidate.astype(np.float64), levels, levels) if candidate.dtype == np.uint8 else inf


def _joined(parts: Iterator[Array]) -> Array:
    return np.concatenate(list(parts), axis=1)


def _error(candidate: Array, right: Array, length: Array) -> float:
    """The error of the first frames, which are those of ``right``; there must be as many as in ``length``."""
    begun = candidate[:, : right.shape[1]]
    return relative_l2(begun, right) if begun.shape == right.shape and len(candidate[0]) == len(length[0]) else inf


def _narrow(config: Config) -> Config:
    decoder = config.decoder_base_dim
    # Chunks concern the order of frames, which does not depend on the width; steps and levels stay.
    return replace(config, base_dim=min(config.base_dim, WIDTH), num_res_blocks=1,
                   decoder_base_dim=None if decoder is None else min(decoder, WIDTH))  # fmt: skip


@lru_cache(maxsize=2)
def _example(config: Config) -> Example:
    rng = np.random.default_rng(0)
    # One more than a multiple of 4 frames, since the call takes the library's groups of 4.
    groups = 2 if config.frames == GROUP else 1
    called = 1 + GROUP * groups
    size = (config.pixels, 2 * config.pixels, config.in_channels // config.patch**2)
    with jax.enable_x64(True):
        with unfilled():
            model = WanVAE(config, dtype="float64")
        for path, variable in variables_by_path(model).items():
            width = 0.2 if path.startswith("decoder/conv_out") else 1.0  # few pixels are clipped
            # Random biases and norms too: a zero would hide a shift.
            scale = 0.1 if len(variable.shape) == 1 else width * np.prod(variable.shape[:-1]) ** -0.5
            set_variable(variable, scale * rng.standard_normal(variable.shape))
        video = rng.uniform(-1.0, 1.0, (2, 1 + (LATENTS - 1) * config.frames, *size))
        outputs = jax.jit(lambda x: model(x), compiler_options=fast_compile())(video[:, :called])
    mean, logvar, decoded = map(np.asarray, outputs)
    # No frame depends on later ones, so that the call need not get these.
    latents = np.concatenate([mean, rng.standard_normal(mean.shape)], axis=1)[:, :LATENTS]
    return Example(model, video, latents, mean, logvar, decoded)
