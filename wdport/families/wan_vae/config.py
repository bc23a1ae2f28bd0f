"""The configuration: the fields of ``config.json`` that describe an AutoencoderKLWan, with the library's defaults.

Source: diffusers 0.42.1, ``AutoencoderKLWan``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Final

from wdport.limits import MAX_LEVELS, MAX_RESIDUAL, MAX_WIDTH

MEAN: Final = (
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
    0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
)  # fmt: skip
STD: Final = (
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
    3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160,
)  # fmt: skip
"""Of the latents of Wan 2.1, by channel."""

GROUP: Final = 4
"""Video frames that the library's encoder takes at a time, after the first; it cannot halve them more than twice."""


@dataclass(frozen=True)
class Config:
    """Sizes and switches of one autoencoder; raises ``ValueError`` for values that the library cannot run or this
    family does not support.

    ``temperal_downsample`` (the library's spelling) says for each step between two levels of the encoder whether it
    also halves the number of frames; the decoder doubles them in reverse. ``is_residual`` and ``patch_size`` are those
    of Wan 2.2. ``latents_mean`` and ``latents_std`` are not used by the network: diffusers' pipelines normalise with
    them outside it.
    """

    base_dim: int = 96
    decoder_base_dim: int | None = None
    z_dim: int = 16
    dim_mult: tuple[int, ...] = (1, 2, 4, 4)
    num_res_blocks: int = 2
    attn_scales: tuple[float, ...] = ()
    temperal_downsample: tuple[bool, ...] = (False, True, True)
    dropout: float = 0.0
    latents_mean: tuple[float, ...] = MEAN
    latents_std: tuple[float, ...] = STD
    is_residual: bool = False
    in_channels: int = 3
    out_channels: int = 3
    patch_size: int | None = None
    scale_factor_temporal: int | None = 4
    scale_factor_spatial: int | None = 8

    def __post_init__(self) -> None:
        for name in LISTS:
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        for name, (accepted, word) in KINDS.items():
            value = getattr(self, name)
            if type(value) not in accepted and not (value is None and name in OPTIONAL):
                raise ValueError(f"{name} is not {word}")
        for name, (kinds, word) in LISTS.items():
            if any(type(each) not in kinds for each in getattr(self, name)):
                raise ValueError(f"{name} is not a list of {word}")
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} {_shown(value)}: from {least} to {most} is supported")
        self._check_levels()
        self._check_rest()

    def _check_levels(self) -> None:
        levels = len(self.dim_mult)
        if not 2 <= levels <= MAX_LEVELS:
            raise ValueError(f"dim_mult has {levels} values, from 2 to {MAX_LEVELS} are supported")
        if any(not 1 <= each <= MAX_WIDTH for each in self.dim_mult):
            raise ValueError(f"dim_mult has a value that is not from 1 to {MAX_WIDTH}")
        if len(self.temperal_downsample) != levels - 1:
            told = len(self.temperal_downsample)
            raise ValueError(f"temperal_downsample has {told} values for {levels - 1} steps between levels of dim_mult")
        if sum(self.temperal_downsample) > 2:
            raise ValueError(
                f"temperal_downsample halves the frames {sum(self.temperal_downsample)} times; the library's encoder, "
                f"which takes {GROUP} at a time, cannot run more than 2"
            )

    def _check_rest(self) -> None:
        if self.attn_scales:
            raise ValueError("attn_scales is not empty: the library cannot run attention among its down blocks")
        patch = self.patch
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % patch**2:
                raise ValueError(f"{name} {getattr(self, name)} is not a multiple of the {patch**2} pixels of a patch")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout} is not in [0, 1)")
        for name in ("latents_mean", "latents_std"):
            if not all(isfinite(each) and abs(each) < 1e30 for each in getattr(self, name)):
                raise ValueError(f"{name} has a value that is not a finite number")
        if any(each <= 0 for each in self.latents_std):
            raise ValueError("latents_std has a value that is not above zero, and latents are divided by it")

    @property
    def patch(self) -> int:
        """Height and width of the patches whose pixels are channels of the network; 1 without patches."""
        return self.patch_size or 1

    @property
    def decoder_dim(self) -> int:
        """The decoder's base width."""
        return self.base_dim if self.decoder_base_dim is None else self.decoder_base_dim

    @property
    def frames(self) -> int:
        """Video frames of one latent frame, except for the first, which has one."""
        return int(2 ** sum(self.temperal_downsample))

    @property
    def pixels(self) -> int:
        """Height and width in pixels of one latent pixel; those of a video must be multiples of it."""
        return int(self.patch * 2 ** (len(self.dim_mult) - 1))

    @property
    def normalises(self) -> bool:
        """Whether there is a mean and a deviation for each channel of the latents."""
        return len(self.latents_mean) == len(self.latents_std) == self.z_dim

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from such values, with the library's defaults for absent ones; raises ``ValueError``."""
        if not isinstance(values, Mapping):
            raise ValueError("the configuration is not a table of values")
        if unknown := sorted(str(name) for name in set(values) - set(FIELDS)):
            raise ValueError(f"unknown field {_shown(unknown[0])}")
        return cls(**values)


def _shown(value: object) -> str:
    """A value for an error message; numbers of thousands of digits are not written out."""
    if type(value) is int:
        return str(value) if abs(value) < 1 << 64 else f"of {value.bit_length()} bits"
    return repr(value)[:60]


FIELDS: Final = tuple(field.name for field in fields(Config))
"""Every field of ``config.json`` that is read."""

UNUSED: Final = ("dropout", "attn_scales", "latents_mean", "latents_std", "scale_factor_temporal",
                 "scale_factor_spatial")  # fmt: skip
"""Fields that the network's function does not depend on."""

LISTS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "dim_mult": ((int,), "whole numbers"),
    "attn_scales": ((int, float), "numbers"),
    "temperal_downsample": ((bool,), "true and false"),
    "latents_mean": ((int, float), "numbers"),
    "latents_std": ((int, float), "numbers"),
}
"""Types of the values of lists, and their descriptions."""

KINDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    **dict.fromkeys(("base_dim", "decoder_base_dim", "z_dim", "num_res_blocks", "in_channels", "out_channels",
                     "patch_size", "scale_factor_temporal", "scale_factor_spatial"), ((int,), "a whole number")),
    **{name: ((tuple,), f"a list of {word}") for name, (_, word) in LISTS.items()},
    "dropout": ((int, float), "a number"),
    "is_residual": ((bool,), "true or false"),
}  # fmt: skip
"""Types of the fields (a bool is not a number), and their descriptions."""

OPTIONAL: Final = ("decoder_base_dim", "patch_size", "scale_factor_temporal", "scale_factor_spatial")

BOUNDS: Final = {
    **dict.fromkeys(("base_dim", "decoder_base_dim", "z_dim", "in_channels", "out_channels"), (1, MAX_WIDTH)),
    "num_res_blocks": (1, MAX_RESIDUAL),
    "patch_size": (1, 64),
    **dict.fromkeys(("scale_factor_temporal", "scale_factor_spatial"), (1, MAX_WIDTH)),
}
"""The smallest and largest value of every size."""
