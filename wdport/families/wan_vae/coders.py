"""The encoder and the decoder, without the convolutions of one pixel between them."""

from __future__ import annotations

from keras import layers

from wdport.families.wan_vae.blocks import WINDOW, Level, Mid, Residual, Smaller, of
from wdport.families.wan_vae.config import Config, down_stages, flat, up_stages
from wdport.families.wan_vae.stream import Frames, Stream
from wdport.model import KerasLayer
from wdport.model import KerasTensor as Tensor
from wdport.nets.causal import CausalConv3D
from wdport.nets.norms import LengthNorm


class Ends(layers.Layer):
    """What both halves end with: a norm, its activation and a convolution to ``channels``."""

    def __init__(self, inputs: int, first: int, last: int, channels: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.inputs, self.last = inputs, last
        self.conv_in = CausalConv3D(first, WINDOW, name="conv_in")
        self.norm_out = LengthNorm(name="norm_out")
        self.nonlinearity = layers.Activation("silu", name="nonlinearity")
        self.conv_out = CausalConv3D(channels, WINDOW, name="conv_out")

    def build_ends(self) -> None:
        """Build these layers."""
        self.conv_in.build(of(self.inputs))
        self.norm_out.build(of(self.last))
        self.conv_out.build(of(self.last))

    def end(self, x: Tensor, stream: Stream) -> Tensor:
        """The last features as the output."""
        return stream.causal(self.conv_out, self.nonlinearity(self.norm_out(x)))


class Encoder(Ends):
    """Video (B, T, H, W, in_channels) -> (B, t, h, w, 2 z): ``down_<i>``, numbered as in the library, then ``mid``."""

    def __init__(self, config: Config, **kwargs: object) -> None:
        stages = down_stages(config)
        last = stages[-1].channels
        super().__init__(config.in_channels, config.base_dim, last, 2 * config.z_dim, **kwargs)
        down_layers: list[KerasLayer] = []
        if config.is_residual:
            down_layers += [
                Level(stage, True, True, config.dropout, name=f"down_{index}") for index, stage in enumerate(stages)
            ]
        else:
            # Wan 2.1 numbers residual blocks and steps in one list, so names of layers follow from the position in it.
            for index, (level, block) in enumerate(flat(config)):
                stage, name = stages[level], f"down_{index}"
                down_layers.append(Smaller(stage.channels, stage.temporal, name=name) if block is None else
                            Residual(stage.inputs[block], stage.channels, config.dropout, name=name))  # fmt: skip
        self.count = len(down_layers)
        for layer in down_layers:
            setattr(self, layer.name, layer)
        self.mid = Mid(last, config.dropout, name="mid")

    def build(self, _: tuple[int | None, ...] = ()) -> None:
        self.build_ends()
        for index in range(self.count):
            getattr(self, f"down_{index}").build(())
        self.mid.build(())
        self.built = True

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
        self.mid = Mid(first, config.dropout, name="mid")
        self.count = len(stages)
        for index, stage in enumerate(stages):
            setattr(self, f"up_{index}", Level(stage, False, config.is_residual, config.dropout, name=f"up_{index}"))

    def build(self, _: tuple[int | None, ...] = ()) -> None:
        self.build_ends()
        self.mid.build(())
        for index in range(self.count):
            getattr(self, f"up_{index}").build(())
        self.built = True

    def call(self, x: Tensor, stream: Stream | None = None) -> Tensor:
        stream = stream or Frames()
        x = self.mid(stream.causal(self.conv_in, x), stream=stream)
        for index in range(self.count):
            x = getattr(self, f"up_{index}")(x, stream=stream)
        return self.end(x, stream)
