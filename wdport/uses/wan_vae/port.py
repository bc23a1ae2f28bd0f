"""AutoencoderKLWan in Keras 3: maps a video (B, T, H, W, 3) to mean, log-variance and the video decoded of the mean.

The readable source of truth. Every layer named in `mappings/wan_vae.yaml` is a Keras layer whose output can be recorded
and whose inputs can be fed, eager or under jit. The call takes the frames in the library's groups, so that each layer
is called as often as there. :meth:`WanVAE.encode` and :meth:`WanVAE.decode` are for use: equal chunks, compiled once.
Source: diffusers 0.42.1, ``AutoencoderKLWan``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial

import jax.numpy as jnp
import keras
from keras import layers

from wdport.families.ported_model import PortedModel
from wdport.models.interface import KerasLayer
from wdport.models.interface import KerasTensor as Tensor
from wdport.nets.composed import Composed
from wdport.nets.convolutions import CausalConv3D
from wdport.nets.norms import LengthNorm
from wdport.uses.wan_vae.blocks import WINDOW, Frames, Level, Mid, Residual, Smaller, Stream, of
from wdport.uses.wan_vae.codec import Codec, CodecSettings, Coding
from wdport.uses.wan_vae.config import GROUP, Config, down_stages, flat, up_stages


class Ends(Composed):
    """What both halves end with: a norm, its activation and a convolution to ``channels``."""

    def __init__(self, inputs: int, first: int, last: int, channels: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.add(CausalConv3D(first, WINDOW, name="conv_in"), of(inputs))
        self.add(LengthNorm(name="norm_out"), of(last))
        self.nonlinearity = layers.Activation("silu", name="nonlinearity")
        self.add(CausalConv3D(channels, WINDOW, name="conv_out"), of(last))

    def end(self, x: Tensor, stream: Stream) -> Tensor:
        """The last features as the output."""
        return stream.causal(self.conv_out, self.nonlinearity(self.norm_out(x)))


class Encoder(Ends):
    """Video (B, T, H, W, in_channels) -> (B, t, h, w, 2 z): ``down_<i>``, numbered as in the library, then ``mid``."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        stages = down_stages(config)
        last = stages[-1].channels
        super().__init__(config.in_channels, config.base_dim, last, 2 * config.z_dim, **kwargs)
        if config.is_residual:
            self.count = len(stages)
            for index, stage in enumerate(stages):
                self.add(Level(stage, True, True, config.dropout, name=f"down_{index}"))
        else:
            # Wan 2.1 numbers residual blocks and steps in one list, so names of layers follow from the position in it.
            for index, (level, block) in enumerate(flat(config)):
                self.count, stage, name = index + 1, stages[level], f"down_{index}"
                self.add(Smaller(stage.channels, stage.temporal, name=name) if block is None else
                         Residual(stage.inputs[block], stage.channels, config.dropout, name=name))  # fmt: skip
        self.add(Mid(last, config.dropout, name="mid"))

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        stream = stream or Frames()
        x = stream.causal(self.conv_in, x)
        for index in range(self.count):
            x = getattr(self, f"down_{index}")(x, stream=stream)
        return self.end(self.mid(x, stream=stream), stream)


class Decoder(Ends):
    """Latents (B, t, h, w, z) -> (B, T, H, W, out_channels): ``mid``, then ``up_<i>``."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        stages = up_stages(config)
        first, last = config.decoder_dim * config.dim_mult[-1], stages[-1].channels
        super().__init__(config.z_dim, first, last, config.out_channels, **kwargs)
        self.add(Mid(first, config.dropout, name="mid"))
        self.count = len(stages)
        for index, stage in enumerate(stages):
            self.add(Level(stage, False, config.is_residual, config.dropout, name=f"up_{index}"))

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        stream = stream or Frames()
        x = self.mid(stream.causal(self.conv_in, x), stream=stream)
        for index in range(self.count):
            x = getattr(self, f"up_{index}")(x, stream=stream)
        return self.end(x, stream)


LEAST, MOST = -30.0, 20.0
"""Bounds of the log-variance, as in diffusers."""


@keras.saving.register_keras_serializable("wdport")
class WanVAE(Coding, PortedModel):
    """The autoencoder: ``mean, logvar, video = model(video)``.

    Its methods :meth:`encode`, :meth:`decode` and :meth:`decode_in_parts` are those of :class:`Coding`.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`.

    Input: video (B, T, H, W, C) from -1 to 1, where T is one more than a multiple of :attr:`Config.frames`, and H and W
        are multiples of :attr:`Config.pixels`. Outputs: mean and log-variance (B, t, h, w, z), and the video decoded
        of the mean, (B, T, H, W, C') from -1 to 1, all in the compute dtype.
    """

    configuration, family = Config, "wan_vae"

    def create(self, config: Config) -> None:
        twice = 2 * config.z_dim
        self.add(Encoder(config, name="encoder"))
        self.add(CausalConv3D(twice, (1, 1, 1), name="quant_conv"), of(twice))
        self.add(CausalConv3D(config.z_dim, (1, 1, 1), name="post_quant_conv"), of(config.z_dim))
        self.add(Decoder(config, name="decoder"))

    def call(self, video: Tensor, training: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = self.split(self._moments(patchify(video, self.config.patch)))
        return mean, logvar, self.finish(self._decoded(mean))

    def _moments(self, x: Tensor) -> Tensor:
        parts = [x[:, :1], *(x[:, start : start + GROUP] for start in range(1, x.shape[1], GROUP))]
        return self.quant_conv(_in_parts(self.encoder, parts))

    def _decoded(self, latents: Tensor) -> Tensor:
        x = self.post_quant_conv(latents)
        # The library encodes in groups of four frames, but decodes one latent frame at a time.
        return _in_parts(self.decoder, [x[:, frame : frame + 1] for frame in range(x.shape[1])])

    def encode_part(self, video: Tensor, stream: Stream) -> Tensor:
        """Mean and log-variance (B, t, h, w, 2z), not clipped, of the next frames (B, T, H, W, C) of a stream."""
        return self.quant_conv(self.encoder(patchify(video, self.config.patch), stream=stream))

    def decode_part(self, latents: Tensor, stream: Stream) -> Tensor:
        """The next frames (B, T, H, W, C') of the next latents (B, t, h, w, z) of a stream."""
        return self.finish(self.decoder(self.post_quant_conv(latents), stream=stream))

    @cached_property
    def codecs(self) -> Callable[[CodecSettings], Codec]:
        """The codec for given settings, with its compiled programs; the last few are kept."""
        # Per model: a cache of the module would keep every model alive.
        return lru_cache(maxsize=8)(partial(Codec, self))

    @staticmethod
    def split(moments: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance (B, t, h, w, z) of the encoder's output."""
        mean, logvar = jnp.split(moments, 2, axis=-1)
        # The mean is not clipped.
        return mean, jnp.clip(logvar, LEAST, MOST)

    def finish(self, x: Tensor) -> Tensor:
        """The decoder's output (B, T, h, w, C) as a video from -1 to 1."""
        return jnp.clip(unpatchify(x, self.config.patch), -1.0, 1.0)


def _in_parts(half: KerasLayer, parts: Sequence[Tensor]) -> Tensor:
    """The outputs of the encoder or the decoder for the parts of a video, joined."""
    stream, outputs = Frames(), []
    # A Python loop, so each layer is recorded once for every part, as the library calls it.
    for index, part in enumerate(parts):
        if index:
            stream.next()
        outputs.append(half(part, stream=stream))
    return jnp.concatenate(outputs, axis=1)


def patchify(x: Tensor, size: int) -> Tensor:
    """(B, T, H, W, C) -> (B, T, H / size, W / size, C * size^2): the columns of a patch before its rows."""
    batch, frames, height, width, channels = x.shape
    x = jnp.reshape(x, (batch, frames, height // size, size, width // size, size, channels))
    # The library's order: channel, column, row.
    x = jnp.transpose(x, (0, 1, 2, 4, 6, 5, 3))
    return jnp.reshape(x, (batch, frames, height // size, width // size, channels * size * size))


def unpatchify(x: Tensor, size: int) -> Tensor:
    """The inverse of :func:`patchify`."""
    batch, frames, height, width, channels = x.shape
    x = jnp.reshape(x, (batch, frames, height, width, channels // size**2, size, size))
    x = jnp.transpose(x, (0, 1, 2, 6, 3, 5, 4))
    return jnp.reshape(x, (batch, frames, height * size, width * size, channels // size**2))
