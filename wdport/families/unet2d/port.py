"""UNet2DModel in Keras 3: maps (image (B, H, W, C), time (B,)[, labels]) to the prediction (B, H, W, C').

The readable source of truth. Every layer named in `mappings/unet2d.yaml` is a Keras layer whose output can be recorded
and whose inputs can be fed, eager or under jit. Everything that depends only on time and labels is in
:meth:`UNet2D.embed`, so that a sampler computes it once for all its steps. Source: diffusers 0.42.1, ``UNet2DModel``.
"""

from __future__ import annotations

import jax.numpy as jnp
import keras
from keras import layers, ops

from wdport.families.unet2d.blocks import Down, Mid, Up
from wdport.families.unet2d.config import Config, attends, down_stages, up_stages
from wdport.keras_runtime import layer_dtype, require_backend
from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor
from wdport.nets.convolutions import conv
from wdport.nets.embeddings import Fourier, Sinusoid, TimeMlp
from wdport.nets.norms import GroupNorm
from wdport.nets.precision import wide


@keras.saving.register_keras_serializable("wdport")
class UNet2D(keras.Model):
    """The denoiser: ``model((x, t))``, or ``model((x, t, labels))`` if it is class-conditional.

    Args:
        config: a :class:`Config` or its :meth:`Config.to_dict`; fixes every variable.

    Inputs: x (B, H, W, in_channels), where H and W are multiples of :attr:`Config.stride`; t (B,), timesteps as in the
        library, above zero for a Fourier embedding; labels (B,) below ``num_class_embeds``, or timesteps, or for
    "identity" the embedding itself, (B, T). Output: (B, H, W, out_channels) in the compute dtype.
    """

    def __init__(self, config: Config | dict[str, object], **kwargs: object) -> None:
        kwargs = {"name": "unet2d", **kwargs, "autocast": False}
        super().__init__(**kwargs)
        require_backend(self.variable_dtype)
        self.config = config if isinstance(config, Config) else Config.from_dict(config)
        self.levels = len(self.config.block_out_channels)
        with layer_dtype(self.dtype_policy):
            self._create()
        self._build_all()

    def _create(self) -> None:
        config = self.config
        self.conv_in = conv(config.block_out_channels[0], name="conv_in")
        self.time_proj = _time_proj(config)
        self.time_embedding = TimeMlp(config.time_width, name="time_embedding")
        self.class_embedding: KerasLayer = None
        if config.classes == "table":
            self.class_embedding = layers.Embedding(config.num_class_embeds, config.time_width, name="class_embedding")
        elif config.classes == "timestep":
            self.class_embedding = TimeMlp(config.time_width, name="class_embedding")
        for level, stage in enumerate(down_stages(config)):
            setattr(self, f"down_{level}", Down(config, stage, name=f"down_{level}"))
        self.mid = None if config.mid_block_type is None else Mid(config, attends(config), name="mid")
        for level, stage in enumerate(up_stages(config)):
            setattr(self, f"up_{level}", Up(config, stage, name=f"up_{level}"))
        self.conv_norm_out = GroupNorm(config.norm_num_groups, config.norm_eps, name="conv_norm_out")
        # Always SiLU in the library, whatever `act_fn` is; so are the activations of the time embedding.
        self.conv_act = layers.Activation("silu", name="conv_act")
        self.conv_out = conv(config.out_channels, name="conv_out")

    def _build_all(self) -> None:
        config, time = self.config, (None, self.config.time_width)
        self.conv_in.build((None, None, None, config.in_channels))
        self.time_proj.build((None,))
        self.time_embedding.build((None, config.wave_width))
        if self.class_embedding is not None:
            self.class_embedding.build((None,) if config.classes == "table" else (None, config.wave_width))
        for level in range(self.levels):
            getattr(self, f"down_{level}").build(time)
        if self.mid is not None:
            self.mid.build(time)
        for level in range(self.levels):
            getattr(self, f"up_{level}").build(time)
        self.conv_norm_out.build((None, None, None, config.block_out_channels[0]))
        self.conv_out.build((None, None, None, config.block_out_channels[0]))
        self.built = True

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

    def __dir__(self) -> list[str]:
        # Keras stores a layer under the first attribute that refers to it, in the order of dir(). Its own
        # generic `layers` would come before `up_0`; without it the file has our structural paths.
        return [name for name in super().__dir__() if name != "layers"]

    def get_config(self) -> dict[str, object]:
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_dict()}


def _time_proj(config: Config) -> KerasLayer:
    """The layer from times (B,) to the input of the time embedding's MLP."""
    width = config.block_out_channels[0]
    if config.time_embedding_type == "fourier":
        return Fourier(width, name="time_proj")
    if config.time_embedding_type == "learned":
        return layers.Embedding(config.num_train_timesteps, width, name="time_proj")
    return Sinusoid(width, config.flip_sin_to_cos, config.freq_shift, name="time_proj")
