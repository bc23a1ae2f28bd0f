"""Encode and decode videos of any length in one call each, for an export: a scan over latent frames, one at a time.

Frames are computed as :class:`wdport.families.wan_vae.codec.Codec` does in chunks of one, with the past as the scan's
carry. The device holds the whole video, before and after.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from wdport.families.wan_vae.codec import Codec, CodecSettings
from wdport.model import Free, Function, KerasModel, Taken
from wdport.model import KerasTensor as Tensor
from wdport.nets.chunked import Step, Weights, scanned


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
