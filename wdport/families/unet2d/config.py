"""The configuration: the fields of ``config.json`` that fix the function of a UNet2DModel, with the library's defaults.

Source: diffusers 0.42.1, ``UNet2DModel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Final

from wdport.diffusion.scheduler import Scheduler
from wdport.limits import MAX_IMAGE, MAX_LEVELS, MAX_RESIDUAL, MAX_STEPS, MAX_WIDTH

DOWN: Final = ("DownBlock2D", "AttnDownBlock2D", "ResnetDownsampleBlock2D")
UP: Final = ("UpBlock2D", "AttnUpBlock2D", "ResnetUpsampleBlock2D")
MID: Final = "UNetMidBlock2D"
ACTIVATIONS: Final = ("silu", "mish", "gelu", "relu")
CHOICES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "time_embedding_type": ("positional", "fourier", "learned"),
    "mid_block_type": (MID, None),
    "downsample_type": ("conv", "resnet"),
    "upsample_type": ("conv", "resnet"),
    "act_fn": ACTIVATIONS,
    "resnet_time_scale_shift": ("default", "scale_shift"),
    "class_embed_type": (None, "timestep", "identity"),
}
"""Fields with few values, and the supported ones."""

RES: Final = "UNetRes"
"""Prefixes of block names in old files."""

STEPS: Final = 1000
"""Steps of training if their number is unknown; the network then does not use it."""


@dataclass(frozen=True)
class Config:
    """Sizes and switches of one network; raises ``ValueError`` for values that the library or this family does not
    support.

    ``scheduler`` is the process that the network was trained to undo, from ``scheduler_config.json``, or ``None``.
    ``sample_size`` is the height and width that the model was made for, one number, two, or ``None``; the network takes
    any size. ``attention_head_dim`` is the width of a head, ``None`` for a single head of all channels.
    """

    sample_size: int | tuple[int, int] | None = None
    in_channels: int = 3
    out_channels: int = 3
    center_input_sample: bool = False
    time_embedding_type: str = "positional"
    time_embedding_dim: int | None = None
    freq_shift: float = 0
    flip_sin_to_cos: bool = True
    down_block_types: tuple[str, ...] = ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D")
    mid_block_type: str | None = MID
    up_block_types: tuple[str, ...] = ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")
    block_out_channels: tuple[int, ...] = (224, 448, 672, 896)
    layers_per_block: int = 2
    mid_block_scale_factor: float = 1
    downsample_padding: int = 1
    downsample_type: str = "conv"
    upsample_type: str = "conv"
    dropout: float = 0.0
    act_fn: str = "silu"
    attention_head_dim: int | None = 8
    norm_num_groups: int = 32
    attn_norm_num_groups: int | None = None
    norm_eps: float = 1e-5
    resnet_time_scale_shift: str = "default"
    add_attention: bool = True
    class_embed_type: str | None = None
    num_class_embeds: int | None = None
    num_train_timesteps: int | None = None
    scheduler: Scheduler | None = None

    def __post_init__(self) -> None:
        self._normalise()
        for name, (accepted, word) in KINDS.items():
            value = getattr(self, name)
            if type(value) not in accepted and not (value is None and name in OPTIONAL):
                raise ValueError(f"{name} is not {word}")
        self._check_lists()
        self._check_numbers()
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} {_shown(getattr(self, name))} is not supported: {_either(choices)}")
        for name, supported in (("down_block_types", DOWN), ("up_block_types", UP)):
            for block in getattr(self, name):
                if block not in supported:
                    raise ValueError(f"{name} has {_shown(block)}, which is not supported: {_either(supported)}")
        if self.time_embedding_type == "learned" and self.num_train_timesteps is None:
            raise ValueError("a learned time embedding needs num_train_timesteps")
        if self.time_embedding_type == "positional" and self.block_out_channels[0] // 2 == self.freq_shift:
            raise ValueError("freq_shift is half of block_out_channels[0], so the frequencies have no values")

    def _normalise(self) -> None:
        """Synonyms are unified; JSON lists become tuples."""
        for name in ("down_block_types", "up_block_types", "block_out_channels", "sample_size"):
            if isinstance(value := getattr(self, name), list):
                self._set(name, tuple(value))
        for name in ("down_block_types", "up_block_types"):
            if isinstance(value := getattr(self, name), tuple):
                self._set(name, tuple(b.removeprefix(RES) if isinstance(b, str) else b for b in value))
        for name in ("downsample_type", "upsample_type"):
            if getattr(self, name) is None:
                self._set(name, "conv")
        if isinstance(self.scheduler, Mapping):
            self._set("scheduler", Scheduler.from_dict(self.scheduler))
        elif self.scheduler is not None and not isinstance(self.scheduler, Scheduler):
            raise ValueError("scheduler is not a table of values")
        if isinstance(self.act_fn, str):
            act = self.act_fn.lower()
            self._set("act_fn", "silu" if act == "swish" else act)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_lists(self) -> None:
        levels = len(self.block_out_channels)
        if not 1 <= levels <= MAX_LEVELS:
            raise ValueError(f"block_out_channels has {levels} values, from 1 to {MAX_LEVELS} are supported")
        for name in ("down_block_types", "up_block_types"):
            if len(getattr(self, name)) != levels:
                raise ValueError(f"{name} has {len(getattr(self, name))} blocks, block_out_channels {levels} values")
        for channels in self.block_out_channels:
            _require("block_out_channels", channels, 1, MAX_WIDTH)
        if isinstance(self.sample_size, tuple):
            if len(self.sample_size) != 2:
                raise ValueError("sample_size is not a number, two numbers or null")
            for size in self.sample_size:
                _require("sample_size", size, 1, MAX_IMAGE)

    def _check_numbers(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, tuple):
                _require(name, value, least, most)
        if self.layers_per_block * len(self.block_out_channels) > MAX_RESIDUAL:
            raise ValueError(f"layers_per_block {self.layers_per_block}: more than {MAX_RESIDUAL} blocks in all")
        for name in ("norm_eps", "mid_block_scale_factor", "freq_shift"):
            value = getattr(self, name)
            if not (abs(value) < 1e30 and isfinite(value)):
                raise ValueError(f"{name} is not a finite number")
        if self.norm_eps < 0:
            raise ValueError("norm_eps is below zero")
        if self.mid_block_scale_factor == 0:
            raise ValueError("mid_block_scale_factor is zero, and outputs are divided by it")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout} is not in [0, 1)")

    @property
    def time_width(self) -> int:
        """T, the width of the time embedding."""
        return self.time_embedding_dim or 4 * self.block_out_channels[0]

    @property
    def wave_width(self) -> int:
        """The input width of the time embedding's MLP."""
        return self.block_out_channels[0] * (2 if self.time_embedding_type == "fourier" else 1)

    @property
    def steps(self) -> int:
        """Steps of training, an exclusive upper bound of times."""
        return self.num_train_timesteps or STEPS

    @property
    def classes(self) -> str:
        """How classes condition the network: "table", "timestep", "identity", or "" without classes."""
        if self.class_embed_type is not None:
            return self.class_embed_type
        return "table" if self.num_class_embeds is not None else ""

    @property
    def stride(self) -> int:
        """Height and width must be multiples of it."""
        return int(2 ** (len(self.block_out_channels) - 1))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {**values, "scheduler": None if self.scheduler is None else self.scheduler.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from such values, with the library's defaults for absent ones; raises ``ValueError``."""
        if not isinstance(values, Mapping):
            raise ValueError("the configuration is not a table of values")
        if unknown := sorted(str(name) for name in set(values) - set(FIELDS)):
            raise ValueError(f"unknown field {_shown(unknown[0])}")
        return cls(**values)


def _require(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int:
        raise ValueError(f"{name} has a value that is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{name} {_shown(value)}: from {least} to {most} is supported")


def _shown(value: object) -> str:
    """A value for an error message; numbers of thousands of digits are not written out."""
    if type(value) is int:
        return str(value) if abs(value) < 1 << 64 else f"of {value.bit_length()} bits"
    return repr(value)[:60]


def _either(choices: tuple[str | None, ...]) -> str:
    return "use " + ", ".join("null" if each is None else each for each in choices)


FIELDS: Final = tuple(field.name for field in fields(Config))
"""Every field of ``config.json`` that is read."""

_INTEGER, _REAL, _FLAG, _TEXT = ((int,), "a whole number"), ((int, float), "a number"), ((bool,), "true or false"), ((str,), "text")  # noqa: E501  # fmt: skip
KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "sample_size": ((int, tuple), "a number, two numbers or null"),
    **dict.fromkeys(("down_block_types", "up_block_types"), ((tuple,), "a list of names")),
    "block_out_channels": ((tuple,), "a list of whole numbers"),
    **dict.fromkeys(("in_channels", "out_channels", "time_embedding_dim", "layers_per_block", "downsample_padding",
                     "attention_head_dim", "norm_num_groups", "attn_norm_num_groups", "num_class_embeds",
                     "num_train_timesteps"), _INTEGER),
    **dict.fromkeys(("freq_shift", "mid_block_scale_factor", "dropout", "norm_eps"), _REAL),
    **dict.fromkeys(("center_input_sample", "flip_sin_to_cos", "add_attention"), _FLAG),
    **dict.fromkeys(("time_embedding_type", "mid_block_type", "downsample_type", "upsample_type", "act_fn",
                     "resnet_time_scale_shift", "class_embed_type"), _TEXT),
}  # fmt: skip
"""Types of the fields (a bool is not a number), and their descriptions."""

OPTIONAL: Final = ("sample_size", "time_embedding_dim", "mid_block_type", "attention_head_dim", "attn_norm_num_groups",
                    "class_embed_type", "num_class_embeds", "num_train_timesteps")  # fmt: skip

BOUNDS: Final = {
    "sample_size": (1, MAX_IMAGE),
    "in_channels": (1, MAX_WIDTH),
    "out_channels": (1, MAX_WIDTH),
    "time_embedding_dim": (1, MAX_WIDTH),
    "layers_per_block": (1, MAX_RESIDUAL),
    "downsample_padding": (0, 1),
    "attention_head_dim": (1, MAX_WIDTH),
    "norm_num_groups": (1, MAX_WIDTH),
    "attn_norm_num_groups": (1, MAX_WIDTH),
    "num_class_embeds": (1, MAX_STEPS),
    "num_train_timesteps": (1, MAX_STEPS),
}
"""The smallest and largest value of every size."""
