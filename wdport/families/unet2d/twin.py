"""UNet2DModel in PyTorch: our own implementation, with exactly the library's module names.

A converted model is compared with it if diffusers is not installed; a test compares it with the library.
Source: diffusers 0.42.1. Images are (B, C, H, W).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from wdport.families.unet2d.config import Config
from wdport.families.unet2d.stages import Stage, attends, down_stages, head_width, mid_groups, up_stages

ACTIVATIONS: dict[str, type[nn.Module]] = {"silu": nn.SiLU, "mish": nn.Mish, "gelu": nn.GELU, "relu": nn.ReLU}


class Waves(nn.Module):
    """Timesteps (B,) -> (B, D), sines and cosines of fixed frequencies."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.width, self.flip, self.shift = config.block_out_channels[0], config.flip_sin_to_cos, config.freq_shift

    def forward(self, times: Tensor) -> Tensor:
        half, kind = self.width // 2, torch.get_default_dtype()
        powers = torch.arange(half, dtype=kind) * (-math.log(10000) / (half - self.shift))
        angles = times.to(kind)[:, None] * powers.exp()
        parts = [angles.sin(), angles.cos()]
        parts = parts[::-1] if self.flip else parts
        return functional.pad(torch.cat(parts, dim=1), (0, self.width % 2))


class LogWaves(nn.Module):
    """Times (B,) above zero -> (B, 2D), sines and cosines of 2 pi log(t) times ``weight`` (D,)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 16)

    def forward(self, times: Tensor) -> Tensor:
        angles = times.log()[:, None] * self.weight * 2 * math.pi
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class TimeEmbedding(nn.Module):
    """(B, D) -> (B, T)."""

    def __init__(self, width: int, time_width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(width, time_width)
        self.act = nn.SiLU()
        self.linear_2 = nn.Linear(time_width, time_width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(self.act(self.linear_1(x)))


class Halve(nn.Module):
    """Halve height and width, by a convolution, or without ``channels`` by means."""

    def __init__(self, channels: int | None, padding: int = 1) -> None:
        super().__init__()
        self.padding = padding
        self.conv = nn.AvgPool2d(2) if channels is None else nn.Conv2d(channels, channels, 3, 2, padding)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(functional.pad(x, (0, 1, 0, 1)) if self.padding == 0 else x)


class Double(nn.Module):
    """Double height and width by nearest neighbour, then a convolution if there are ``channels``."""

    def __init__(self, channels: int | None = None) -> None:
        super().__init__()
        self.conv = None if channels is None else nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        return x if self.conv is None else self.conv(x)


class Resnet(nn.Module):
    """(B, C_in, H, W), (B, T) -> (B, C, H, W); ``resize`` "halve", "double" or ""."""

    def __init__(self, config: Config, inputs: int, channels: int, factor: float = 1.0, resize: str = "") -> None:
        super().__init__()
        groups, eps = config.norm_num_groups, config.norm_eps
        self.factor, self.scales = factor, config.resnet_time_scale_shift == "scale_shift"
        self.norm1 = nn.GroupNorm(groups, inputs, eps)
        self.conv1 = nn.Conv2d(inputs, channels, 3, padding=1)
        self.time_emb_proj = nn.Linear(config.time_width, channels * (1 + self.scales))
        self.norm2 = nn.GroupNorm(groups, channels, eps)
        self.dropout = nn.Dropout(config.dropout)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.nonlinearity = ACTIVATIONS[config.act_fn]()
        self.upsample = Double() if resize == "double" else None
        self.downsample = Halve(None) if resize == "halve" else None
        self.conv_shortcut = None if inputs == channels else nn.Conv2d(inputs, channels, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        hidden = self.nonlinearity(self.norm1(x))
        for resize in (self.upsample, self.downsample):
            if resize is not None:
                x, hidden = resize(x), resize(hidden)
        hidden = self.conv1(hidden)
        time = self.time_emb_proj(self.nonlinearity(embedding))[:, :, None, None]
        if self.scales:
            scale, shift = time.chunk(2, dim=1)
            hidden = self.norm2(hidden) * (1 + scale) + shift
        else:
            hidden = self.norm2(hidden + time)
        hidden = self.conv2(self.dropout(self.nonlinearity(hidden)))
        return ((x if self.conv_shortcut is None else self.conv_shortcut(x)) + hidden) / self.factor


class Attention(nn.Module):
    """(B, C, H, W) plus self-attention over its pixels."""

    def __init__(self, config: Config, channels: int, groups: int | None, factor: float = 1.0) -> None:
        super().__init__()
        width = head_width(config, channels)
        self.heads, self.factor = channels // width, factor
        inner = self.heads * width
        self.group_norm = None if groups is None else nn.GroupNorm(groups, channels, config.norm_eps)
        self.to_q, self.to_k, self.to_v = (nn.Linear(channels, inner) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(inner, channels), nn.Dropout(0.0)])

    def forward(self, hidden_states: Tensor) -> Tensor:
        pixels = hidden_states.flatten(2)
        if self.group_norm is not None:
            pixels = self.group_norm(pixels)
        pixels = pixels.transpose(1, 2)
        q, k, v = (
            each(pixels).unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (self.to_q, self.to_k, self.to_v)
        )
        weights = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).softmax(dim=-1)
        made = self.to_out[1](self.to_out[0]((weights @ v).transpose(1, 2).flatten(2)))
        return (made.transpose(1, 2).reshape(hidden_states.shape) + hidden_states) / self.factor


class StageBlock(nn.Module):
    """Base of down and up blocks: residual blocks, each followed by attention if the stage has it."""

    def __init__(self, config: Config, stage: Stage) -> None:
        super().__init__()
        channels = stage.channels
        self.resnets = nn.ModuleList(Resnet(config, inputs, channels) for inputs in stage.inputs)
        if stage.attention:
            self.attentions = nn.ModuleList(Attention(config, channels, config.norm_num_groups) for _ in stage.inputs)
        self.attends, self.by_resnet = stage.attention, stage.step == "resnet"

    def step(self, at: int, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.resnets[at](x, embedding)
        return self.attentions[at](x) if self.attends else x

    def resized(self, module: nn.Module, x: Tensor, embedding: Tensor) -> Tensor:
        return module(x, embedding) if self.by_resnet else module(x)


class Down(StageBlock):
    """(B, C_in, H, W) -> the output of the last step, and all skip connections."""

    def __init__(self, config: Config, stage: Stage) -> None:
        super().__init__(config, stage)
        made = Resnet(config, stage.channels, stage.channels, resize="halve") if self.by_resnet else (
            Halve(stage.channels, config.downsample_padding))  # fmt: skip
        self.downsamplers = nn.ModuleList([made]) if stage.step else None

    def forward(self, x: Tensor, embedding: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        kept: list[Tensor] = []
        for at in range(len(self.resnets)):
            x = self.step(at, x, embedding)
            kept.append(x)
        if self.downsamplers is not None:
            x = self.resized(self.downsamplers[0], x, embedding)
            kept.append(x)
        return x, tuple(kept)


class Mid(nn.Module):
    """Two residual blocks, with attention between them if the network has it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels, factor = config.block_out_channels[-1], config.mid_block_scale_factor
        self.attentions = nn.ModuleList([Attention(config, channels, mid_groups(config), factor)] * attends(config))
        self.resnets = nn.ModuleList(Resnet(config, channels, channels, factor) for _ in range(2))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        x = self.resnets[0](x, embedding)
        for attention in self.attentions:
            x = attention(x)
        return self.resnets[1](x, embedding)


class Up(StageBlock):
    """(B, C_in, H, W) and its skip connections, the last first."""

    def __init__(self, config: Config, stage: Stage) -> None:
        super().__init__(config, stage)
        made = Resnet(config, stage.channels, stage.channels, resize="double") if self.by_resnet else (
            Double(stage.channels))  # fmt: skip
        self.upsamplers = nn.ModuleList([made]) if stage.step else None

    def forward(self, x: Tensor, kept: tuple[Tensor, ...], embedding: Tensor) -> Tensor:
        for at in range(len(self.resnets)):
            x = self.step(at, torch.cat([x, kept[-1 - at]], dim=1), embedding)
        return x if self.upsamplers is None else self.resized(self.upsamplers[0], x, embedding)


class UNet2DTwin(nn.Module):
    """Image (B, C, H, W), timesteps (B,) and, if class-conditional, labels to the prediction (B, C', H, W)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, first = config, config.block_out_channels[0]
        self.conv_in = nn.Conv2d(config.in_channels, first, 3, padding=1)
        self.time_proj: nn.Module = Waves(config)
        if config.time_embedding_type == "fourier":
            self.time_proj = LogWaves(first)
        elif config.time_embedding_type == "learned":
            self.time_proj = nn.Embedding(config.steps, first)
        self.time_embedding = TimeEmbedding(config.wave_width, config.time_width)
        self.class_embedding: nn.Module | None = None
        if config.classes == "table":
            self.class_embedding = nn.Embedding(config.num_class_embeds or 0, config.time_width)
        elif config.classes == "timestep":
            self.class_embedding = TimeEmbedding(config.wave_width, config.time_width)
        self.down_blocks = nn.ModuleList(Down(config, stage) for stage in down_stages(config))
        self.mid_block = None if config.mid_block_type is None else Mid(config)
        self.up_blocks = nn.ModuleList(Up(config, stage) for stage in up_stages(config))
        self.conv_norm_out = nn.GroupNorm(config.norm_num_groups, first, config.norm_eps)
        self.conv_act = nn.SiLU()
        self.conv_out = nn.Conv2d(first, config.out_channels, 3, padding=1)

    def forward(self, sample: Tensor, times: Tensor, labels: Tensor | None = None) -> Tensor:
        embedding = self.time_embedding(self.time_proj(times))
        if labels is not None:
            labels = self.time_proj(labels) if self.config.classes == "timestep" else labels
            embedding = embedding + (labels if self.class_embedding is None else self.class_embedding(labels))
        x = self.conv_in(2 * sample - 1 if self.config.center_input_sample else sample)
        kept = [x]
        for down in self.down_blocks:
            x, more = down(x, embedding)
            kept += more
        x = x if self.mid_block is None else self.mid_block(x, embedding)
        for up, stage in zip(self.up_blocks, up_stages(self.config), strict=True):
            taken = len(stage.inputs)
            x = up(x, tuple(kept[-taken:]), embedding)
            del kept[-taken:]
        x = self.conv_out(self.conv_act(self.conv_norm_out(x)))
        return x / times[:, None, None, None] if self.config.time_embedding_type == "fourier" else x
