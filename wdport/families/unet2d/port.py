"""UNet2DModel in Keras 3: maps (image (B, H, W, C), time (B,)[, labels]) to the prediction (B, H, W, C').

The readable source of truth. Every layer named in `mappings/unet2d.yaml` is a Keras layer whose output can be recorded
and whose inputs can be fed, eager or under jit. Everything that depends only on time and labels is in
:meth:`UNet2D.embed`, so that a sampler computes it once for all its steps. Source: diffusers 0.42.1, ``UNet2DModel``.
"""

from __future__ import annotations

import jax.numpy as jnp
import keras
from keras import layers, ops

from wdport.families.ported_model import PortedModel
from wdport.families.unet2d.blocks import Down, Mid, Up, image_of
from wdport.families.unet2d.config import Config, attends, down_stages, up_stages
from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor
from wdport.nets.convolutions import conv
from wdport.nets.embeddings import Fourier, Sinusoid, TimeMlp
from wdport.nets.norms import GroupNorm
from wdport.nets.precision import wide


@keras.saving.register_keras_serializable("wdport")
class UNet2D(PortedModel):
    """The denoiser: ``model((x, t))``, or ``model((x, t, labels))`` if it is class-conditional.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`.

    Inputs: x (B, H, W, in_channels), where H and W are multiples of :attr:`Config.stride`; t (B,), timesteps as in the
        library, above zero for a Fourier embedding; labels (B,) below ``num_class_embeds``, or timesteps, or for
    "identity" the embedding itself, (B, T). Output: (B, H, W, out_channels) in the compute dtype.
    """

    configuration, family = Config, "unet2d"

    def create(self, config: Config) -> None:
        self.levels, first = len(config.block_out_channels), config.block_out_channels[0]
        self.add(conv(first, name="conv_in"), image_of(config.in_channels))
        self.add(_time_proj(config), (None,))
        self.add(TimeMlp(config.wave_width, config.time_width, name="time_embedding"))
        self.class_embedding: KerasLayer = None
        if config.classes == "table":
            self.add(layers.Embedding(config.num_class_embeds, config.time_width, name="class_embedding"), (None,))
        elif config.classes == "timestep":
            self.add(TimeMlp(config.wave_width, config.time_width, name="class_embedding"))
        for level, stage in enumerate(down_stages(config)):
            self.add(Down(config, stage, name=f"down_{level}"))
        self.mid: KerasLayer = None
        if config.mid_block_type is not None:
            self.add(Mid(config, attends(config), name="mid"))
        for level, stage in enumerate(up_stages(config)):
            self.add(Up(config, stage, name=f"up_{level}"))
        self.add(GroupNorm(config.norm_num_groups, config.norm_eps, name="conv_norm_out"), image_of(first))
        # Always SiLU in the library, whatever `act_fn` is; so are the activations of the time embedding.
        self.conv_act = layers.Activation("silu", name="conv_act")
        self.add(conv(config.out_channels, name="conv_out"), image_of(first))

    def call(self, inputs: tuple[Tensor, ...], training: bool | None = None) -> Tensor:
        x, times, *labels = inputs
        return self.denoise(x, self.embed(times, *labels))

    def embed(self, times: Tensor, labels: Tensor | None = None) -> Tensor:
        """The embedding (B, T) of times (B,) and labels: everything that depends only on these.

        With a Fourier embedding, the time itself is an additional column, by which :meth:`denoise` divides.
        """
        embedding = self.time_embedding(self.time_proj(times))
        if self.config.classes == "timestep":
            labels = self.time_proj(labels)
        if self.class_embedding is not None:
            labels = self.class_embedding(labels)
        if self.config.classes:
            embedding = embedding + ops.cast(labels, embedding.dtype)
        if self.config.time_embedding_type != "fourier":
            return embedding
        # The time is a divisor of the output, and would be rounded in 16 bits.
        embedding = wide(embedding)
        return jnp.concatenate([embedding, ops.cast(times, embedding.dtype)[:, None]], axis=-1)

    def denoise(self, state: Tensor, embedding: Tensor) -> Tensor:
        """The prediction (B, H, W, C') for an image (B, H, W, C) and the output of :meth:`embed`."""
        # An array without columns, unless the embedding is a Fourier embedding.
        divisor, embedding = embedding[:, None, None, self.config.time_width :], embedding[:, : self.config.time_width]
        embedding = ops.cast(embedding, self.compute_dtype)
        x = self.conv_in(2 * state - 1 if self.config.center_input_sample else state)
        skips = [x]
        for level in range(self.levels):
            x, more = getattr(self, f"down_{level}")(x, embedding)
            skips += more
        if self.mid is not None:
            x = self.mid(x, embedding)
        for level in range(self.levels):
            up = getattr(self, f"up_{level}")
            count = len(up.stage.inputs)
            x = up(x, skips[-count:], embedding)
            del skips[-count:]
        x = self.conv_out(self.conv_act(self.conv_norm_out(x)))
        return x if self.config.time_embedding_type != "fourier" else ops.cast(x / divisor, x.dtype)

    def compute_output_shape(self, inputs_shape: tuple[tuple[int | None, ...], ...]) -> tuple[int | None, ...]:
        return (*inputs_shape[0][:-1], self.config.out_channels)


def _time_proj(config: Config) -> KerasLayer:
    """The layer from times (B,) to the input of the time embedding's MLP."""
    width = config.block_out_channels[0]
    if config.time_embedding_type == "fourier":
        return Fourier(width, name="time_proj")
    if config.time_embedding_type == "learned":
        return layers.Embedding(config.num_train_timesteps, width, name="time_proj")
    return Sinusoid(width, config.flip_sin_to_cos, config.freq_shift, name="time_proj")
