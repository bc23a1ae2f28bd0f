"""AutoencoderKLWan in PyTorch: our own implementation, with exactly the library's module names.

A converted model is compared with it if diffusers is not installed; a test compares it with the library.
Source: diffusers 0.42.1. Videos are (B, C, T, H, W).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from wdport.families.wan_vae.config import GROUP, Config
from wdport.families.wan_vae.stages import Stage, down_stages, flat, up_stages


class Past:
    """What the modules keep of the frames before: by module, the last frames that it was given."""

    def __init__(self) -> None:
        self.first = True
        self.held: dict[nn.Module, Tensor] = {}

    def exchange(self, module: nn.Module, x: Tensor, count: int) -> Tensor | None:
        before = self.held.get(module)
        self.held[module] = (x if before is None else torch.cat([before, x], dim=2))[:, :, -count:]
        return before


class CausalConv3d(nn.Conv3d):
    """Frames are padded only before the first, with those of ``cache_x`` and zeros for the rest."""

    def __init__(self, inputs: int, channels: int, window: int | tuple[int, int, int], step: int = 1,
                 causal: bool = True) -> None:  # fmt: skip
        super().__init__(inputs, channels, window, (step, 1, 1))
        frames, rows, columns = self.kernel_size
        self.sides = (columns // 2,) * 2 + (rows // 2,) * 2
        self.before = frames - 1 if causal else 0

    def forward(self, x: Tensor, cache_x: Tensor | None = None) -> Tensor:
        lacking = self.before
        if cache_x is not None:
            lacking -= cache_x.shape[2]
            x = torch.cat([cache_x, x], dim=2)
        return super().forward(functional.pad(x, (*self.sides, lacking, 0)))

    def next(self, x: Tensor, past: Past) -> Tensor:
        return self(x, past.exchange(self, x, 2))


class RmsNorm(nn.Module):
    """Channels of unit length, times the root of their number and ``gamma``."""

    def __init__(self, channels: int, axes: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, *(1,) * axes))

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x, dim=1) * x.shape[1] ** 0.5 * self.gamma


class Residual(nn.Module):
    """Two convolutions, added to the input."""

    def __init__(self, inputs: int, channels: int, dropout: float) -> None:
        super().__init__()
        self.nonlinearity = nn.SiLU()
        self.norm1 = RmsNorm(inputs, 3)
        self.conv1 = CausalConv3d(inputs, channels, 3)
        self.norm2 = RmsNorm(channels, 3)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = CausalConv3d(channels, channels, 3)
        self.conv_shortcut = nn.Identity() if inputs == channels else CausalConv3d(inputs, channels, 1)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        hidden = self.conv1.next(self.nonlinearity(self.norm1(x)), past)
        hidden = self.conv2.next(self.dropout(self.nonlinearity(self.norm2(hidden))), past)
        return hidden + self.conv_shortcut(x)


class Attention(nn.Module):
    """Among the pixels of each frame, with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = RmsNorm(channels, 2)
        self.to_qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, frames, height, width = x.shape
        images = x.transpose(1, 2).reshape(batch * frames, channels, height, width)
        q, k, v = self.to_qkv(self.norm(images)).flatten(2).transpose(1, 2).chunk(3, dim=-1)
        read = ((q @ k.transpose(1, 2)) * channels**-0.5).softmax(dim=-1) @ v
        made = self.proj(read.transpose(1, 2).reshape(images.shape))
        return made.reshape(batch, frames, channels, height, width).transpose(1, 2) + x


class Middle(nn.Module):
    """Two residual blocks with attention between them."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Attention(channels)])
        self.resnets = nn.ModuleList(Residual(channels, channels, dropout) for _ in range(2))

    def forward(self, x: Tensor, past: Past) -> Tensor:
        return self.resnets[1](self.attentions[0](self.resnets[0](x, past)), past)


class Resample(nn.Module):
    """The step to the next size; ``resized`` channels on the way up, 0 on the way down."""

    def __init__(self, channels: int, temporal: bool, resized: int = 0) -> None:
        super().__init__()
        self.up = resized > 0
        if self.up:
            self.resample = nn.Sequential(nn.Upsample(scale_factor=2.0, mode="nearest-exact"),
                                          nn.Conv2d(channels, resized, 3, padding=1))  # fmt: skip
        else:
            self.resample = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(channels, channels, 3, 2))
        self.time_conv: CausalConv3d | None = None
        if temporal:
            made = CausalConv3d(channels, 2 * channels, (3, 1, 1)) if self.up else (
                CausalConv3d(channels, channels, (3, 1, 1), 2, causal=False))  # fmt: skip
            self.time_conv = made

    def forward(self, x: Tensor, past: Past) -> Tensor:
        if self.up and self.time_conv is not None and not past.first:
            x = self._twice(x, past, self.time_conv)
        batch, channels, frames, height, width = x.shape
        made = self.resample(x.transpose(1, 2).reshape(batch * frames, channels, height, width))
        x = made.reshape(batch, frames, *made.shape[1:]).transpose(1, 2)
        if self.up or self.time_conv is None:
            return x
        before = past.exchange(self, x, 1)
        return x if before is None else self.time_conv(torch.cat([before, x], dim=2))

    def _twice(self, x: Tensor, past: Past, conv: CausalConv3d) -> Tensor:
        before = past.exchange(self, x, 2)
        if before is None:  # the first frame counts as zeros
            past.held[self] = torch.cat([torch.zeros_like(x[:, :, :1]), x], dim=2)[:, :, -2:]
        batch, channels, frames, height, width = x.shape
        made = conv(x, before).reshape(batch, 2, channels, frames, height, width)
        return made.permute(0, 2, 3, 1, 4, 5).reshape(batch, channels, 2 * frames, height, width)


class Averages(nn.Module):
    """Frames, rows and columns become channels, whose groups are averaged."""

    def __init__(self, channels: int, time: int, space: int) -> None:
        super().__init__()
        self.channels, self.time, self.space = channels, time, space

    def forward(self, x: Tensor) -> Tensor:
        x = functional.pad(x, (0, 0, 0, 0, -x.shape[2] % self.time, 0))
        batch, channels, frames, height, width = x.shape
        size = (frames // self.time, height // self.space, width // self.space)
        x = x.reshape(batch, channels, size[0], self.time, size[1], self.space, size[2], self.space)
        return x.permute(0, 1, 3, 5, 7, 2, 4, 6).reshape(batch, self.channels, -1, *size).mean(dim=2)


class Copies(nn.Module):
    """Channels are repeated, and become frames, rows and columns."""

    def __init__(self, channels: int, time: int) -> None:
        super().__init__()
        self.channels, self.time = channels, time

    def forward(self, x: Tensor, first_chunk: bool = False) -> Tensor:
        x = x.repeat_interleave(self.channels * self.time * 4 // x.shape[1], dim=1)
        x = x.reshape(x.shape[0], self.channels, self.time, 2, 2, *x.shape[2:]).permute(0, 1, 5, 2, 6, 3, 7, 4)
        x = x.flatten(6, 7).flatten(4, 5).flatten(2, 3)
        return x[:, :, self.time - 1 :] if first_chunk else x


class Level(nn.Module):
    """Residual blocks and a step to the next size, which old and new models name differently."""

    def __init__(self, stage: Stage, down: bool, residual: bool, dropout: float) -> None:
        super().__init__()
        self.down, self.residual = down, residual
        self.resnets = nn.ModuleList(Residual(each, stage.channels, dropout) for each in stage.inputs)
        step = Resample(stage.channels, stage.temporal, 0 if down else stage.resized) if stage.resized else None
        time = 2 if stage.temporal else 1
        self.avg_shortcut: nn.Module | None = None
        if not residual:
            self.upsamplers = None if step is None else nn.ModuleList([step])
        elif down:
            self.avg_shortcut, self.downsampler = Averages(stage.channels, time, 2 if stage.resized else 1), step
        else:
            self.avg_shortcut, self.upsampler = None if step is None else Copies(stage.channels, time), step

    @property
    def step(self) -> nn.Module | None:
        if not self.residual:
            return None if self.upsamplers is None else self.upsamplers[0]
        return self.downsampler if self.down else self.upsampler

    def forward(self, x: Tensor, past: Past) -> Tensor:
        before = x
        for resnet in self.resnets:
            x = resnet(x, past)
        if self.step is not None:
            x = self.step(x, past)
        if self.avg_shortcut is None:
            return x
        return x + (self.avg_shortcut(before) if self.down else self.avg_shortcut(before, first_chunk=past.first))


class Encoder(nn.Module):
    """(B, C, T, H, W) -> (B, 2z, t, h, w)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        stages = down_stages(config)
        last = stages[-1].channels
        self.nonlinearity = nn.SiLU()
        self.conv_in = CausalConv3d(config.in_channels, config.base_dim, 3)
        if config.is_residual:
            self.down_blocks = nn.ModuleList(Level(each, True, True, config.dropout) for each in stages)
        else:
            self.down_blocks = nn.ModuleList(
                Resample(stages[level].channels, stages[level].temporal) if at is None else
                Residual(stages[level].inputs[at], stages[level].channels, config.dropout)
                for level, at in flat(config)
            )  # fmt: skip
        self.mid_block = Middle(last, config.dropout)
        self.norm_out = RmsNorm(last, 3)
        self.conv_out = CausalConv3d(last, 2 * config.z_dim, 3)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        x = self.conv_in.next(x, past)
        for block in self.down_blocks:
            x = block(x, past)
        return self.conv_out.next(self.nonlinearity(self.norm_out(self.mid_block(x, past))), past)


class Decoder(nn.Module):
    """(B, z, t, h, w) -> (B, C, T, H, W)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        stages = up_stages(config)
        first, last = config.decoder_dim * config.dim_mult[-1], stages[-1].channels
        self.nonlinearity = nn.SiLU()
        self.conv_in = CausalConv3d(config.z_dim, first, 3)
        self.mid_block = Middle(first, config.dropout)
        self.up_blocks = nn.ModuleList(Level(each, False, config.is_residual, config.dropout) for each in stages)
        self.norm_out = RmsNorm(last, 3)
        self.conv_out = CausalConv3d(last, config.out_channels, 3)

    def forward(self, x: Tensor, past: Past) -> Tensor:
        x = self.mid_block(self.conv_in.next(x, past), past)
        for block in self.up_blocks:
            x = block(x, past)
        return self.conv_out.next(self.nonlinearity(self.norm_out(x)), past)


class WanVaeTwin(nn.Module):
    """Video (B, C, T, H, W) to mean, log-variance and the video decoded of the mean."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patch, twice = config.patch, 2 * config.z_dim
        self.encoder = Encoder(config)
        self.quant_conv = CausalConv3d(twice, twice, 1)
        self.post_quant_conv = CausalConv3d(config.z_dim, config.z_dim, 1)
        self.decoder = Decoder(config)

    def forward(self, video: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = functional.pixel_unshuffle(video.transpose(1, 2).mT, self.patch).mT.transpose(1, 2)
        parts = [x[:, :, :1], *torch.split(x[:, :, 1:], GROUP, dim=2)]
        mean, logvar = self.quant_conv(in_turn(self.encoder, parts)).chunk(2, dim=1)
        made = in_turn(self.decoder, torch.split(self.post_quant_conv(mean), 1, dim=2))
        made = functional.pixel_shuffle(made.transpose(1, 2).mT, self.patch).mT.transpose(1, 2)
        return mean, logvar.clamp(-30.0, 20.0), made.clamp(-1.0, 1.0)


def in_turn(module: nn.Module, parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """The outputs of a module for the parts of a video, joined."""
    past, found = Past(), []
    for at, part in enumerate(parts):
        past.first = at == 0
        found.append(module(part, past))
    return torch.cat(found, dim=2)
