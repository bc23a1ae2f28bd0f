"""The configuration: everything that fixes the function a WaveletDiff network computes, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from math import inf, isfinite
from typing import Any

from wdport.data.names import checked_names
from wdport.data.transforms import LOG_VOLUME, OHLC_ATR, OHLCV, ZSCORE, WindowStatistics, by_window, checked_name
from wdport.diffusion.schedules import NAMES as SCHEDULES
from wdport.errors import UsageError
from wdport.limits import MAX_FEATURES, MAX_GROUPS, MAX_LAYERS, MAX_STEPS, MAX_WIDTH
from wdport.wavelets.lengths import BOUNDARY_MODES

PREDICTION_TARGETS = ("noise", "coefficient")
CONDITIONINGS = ("scale", "none")


@dataclass(frozen=True)
class Config:
    """Sizes and switches of one network; raises ``ValueError`` for invalid combinations.

    ``level_lengths`` are the coefficients per group and feature, [cA_L, cD_L, ..., cD_1]. ``wavelet``,
    ``boundary_mode`` and ``seq_len`` describe the transform from series to coefficients; the network itself does not
    use them, and they are ``None`` if unknown. ``conditioning`` says whether a network with a scale embedding was
    trained with a "scale" for every window or with "none"; ``None`` if that is unknown. So are ``norm_mean`` and
    ``norm_std``, per feature, which scale a series from z-scores to the units of the data, and ``feature_names``.
    ``transform`` names another transform of the data (:mod:`wdport.data.transforms`), and ``window_statistics`` packs
    the statistics of the windows that the model was trained on.
    """

    level_lengths: tuple[int, ...]
    features: int
    embed_dim: int
    num_heads: int
    num_layers: int
    time_embed_dim: int
    qk_norm: bool = False
    cross_level_attention: bool = True
    scale_embedding: bool = False
    prediction_target: str = "noise"
    noise_schedule: str = "exponential"
    dropout: float = 0.1
    wavelet: str | None = None
    boundary_mode: str | None = None
    seq_len: int | None = None
    norm_mean: tuple[float, ...] | None = None
    norm_std: tuple[float, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    conditioning: str | None = None
    transform: str | None = None
    window_statistics: str | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_sizes()
        if self.embed_dim % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide embed_dim {self.embed_dim}")
        if self.time_embed_dim % 2 or self.time_embed_dim < 4:
            raise ValueError(f"time_embed_dim {self.time_embed_dim} is not even and at least 4")
        if self.cross_level_attention and len(self.level_lengths) < 2:
            raise ValueError("cross-level attention needs at least two coefficient groups")
        if self.prediction_target not in PREDICTION_TARGETS:
            known = ", ".join(PREDICTION_TARGETS)
            raise ValueError(f"prediction_target {self.prediction_target!r} is not one of {known}")
        if self.noise_schedule not in (*SCHEDULES, "custom"):
            raise ValueError(f"noise_schedule {self.noise_schedule!r} is not one of {', '.join(SCHEDULES)}")
        if self.conditioning not in (None, *CONDITIONINGS):
            raise ValueError(f"conditioning {self.conditioning!r} is not one of {', '.join(CONDITIONINGS)}")
        if self.conditioning == "scale" and not self.scale_embedding:
            raise ValueError("conditioning is scale, and the network has no scale embedding")
        if self.boundary_mode not in (None, *BOUNDARY_MODES):
            raise ValueError(f"boundary_mode {self.boundary_mode!r} is not one of {', '.join(BOUNDARY_MODES)}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout {self.dropout} is not in [0, 1)")
        self._check_statistics()
        self._check_transform()
        if self.feature_names is not None:
            object.__setattr__(self, "feature_names", checked_names(self.feature_names, self.features))

    def _check_types(self) -> None:
        """Check the type of every field; JSON lists become tuples."""
        for name, (kinds, most) in _LISTS.items():
            values = getattr(self, name)
            if values is None and name not in _REQUIRED:
                continue
            if not isinstance(values, (list, tuple)) or any(type(value) not in kinds for value in values):
                raise ValueError(f"{name} is not a list of {_NUMBERS[kinds]}")
            if len(values) > most:
                raise ValueError(f"{name} has {len(values)} values, at most {most} are supported")
            object.__setattr__(self, name, tuple(values))
        for name, (accepted, word) in _KINDS.items():
            value = getattr(self, name)
            if type(value) not in accepted and not (value is None and name in _OPTIONAL):
                raise ValueError(f"{name} is not {word}")

    def _check_sizes(self) -> None:
        """Check every size against its limits; :func:`sizes` of `variables` checks the size of the model."""
        if not self.level_lengths:
            raise ValueError("level_lengths is empty: there must be at least 1 group")
        values = [("level_lengths", length) for length in self.level_lengths]
        values += [(name, getattr(self, name)) for name in MOST if name != "level_lengths"]
        for name, value in values:
            if value is not None and value < 1:
                raise ValueError(f"{name} {_shown(value)}: every size must be at least 1")
            if value is not None and value > MOST[name]:
                raise ValueError(f"{name} {_shown(value)}: at most {MOST[name]} is supported")

    def _check_statistics(self) -> None:
        for name in ("norm_mean", "norm_std"):
            values = getattr(self, name)
            if (values is None) != (self.norm_mean is None):
                raise ValueError("norm_mean and norm_std go together")
            if values is not None:
                if len(values) != self.features:
                    raise ValueError(f"{name} has {len(values)} values, the model {self.features} features")
                try:
                    values = tuple(map(float, values))
                except OverflowError:
                    values = (inf,)
                if not all(isfinite(value) and (value > 0 or name == "norm_mean") for value in values):
                    raise ValueError(f"{name} has a value that is not finite or not positive")
                object.__setattr__(self, name, values)

    def _check_transform(self) -> None:
        if self.transform is None and self.window_statistics is None:
            return
        try:
            windowed = by_window(checked_name(self.transform or ZSCORE))
        except UsageError as error:
            raise ValueError(f"transform: {error.what}") from None
        if windowed != (self.window_statistics is not None) or windowed == (self.norm_mean is not None):
            wanted = "window_statistics" if windowed else "norm_mean and norm_std"
            raise ValueError(f"transform {self.transform} has {wanted}, and no other statistics")
        if self.transform in (LOG_VOLUME, OHLC_ATR) and self.features != len(OHLCV):
            raise ValueError(f"transform {self.transform} has {len(OHLCV)} features, the model {self.features}")
        statistics = self.statistics
        if statistics is not None and self.transform == OHLC_ATR:
            shapes = {name: array.shape for name, array in statistics.arrays.items()}
            n, wanted_length = statistics.count, self.seq_len
            if shapes != {"anchors": (n,), "atr_pcts": (n,), "vol_smas": (n, wanted_length)}:
                raise ValueError(f"window_statistics are not those of {OHLC_ATR} for windows of {wanted_length} steps")
            if min(statistics.arrays["anchors"].min(), statistics.arrays["atr_pcts"].min()) <= 0:
                raise ValueError("window_statistics has anchors or atr_pcts that are not positive")

    @property
    def statistics(self) -> WindowStatistics | None:
        """The statistics of the windows that the model was trained on; ``None`` if they are the same for all."""
        return None if self.window_statistics is None else _unpacked(self.window_statistics)

    @property
    def groups(self) -> int:
        """Number of coefficient groups, levels + 1."""
        return len(self.level_lengths)

    @property
    def coefficients(self) -> int:
        """C, coefficients per feature over all groups."""
        return sum(self.level_lengths)

    @property
    def widths(self) -> tuple[int, ...]:
        """Token width of each group: twice as large for the approximation."""
        return tuple(self.embed_dim * (2 if i == 0 else 1) for i in range(self.groups))

    @property
    def depths(self) -> tuple[int, ...]:
        """Blocks of each group: the approximation has two more than the others."""
        return tuple(self.num_layers + (2 if i == 0 else 0) for i in range(self.groups))

    @property
    def cross_width(self) -> int:
        """W, the width of the cross-level block: the widest group's."""
        return max(self.widths)

    @property
    def level_names(self) -> tuple[str, ...]:
        """``cA3``, ``cD3``, ..., ``cD1``: the groups in the order of the coefficients."""
        top = self.groups - 1
        return (f"cA{top}", *(f"cD{level}" for level in range(top, 0, -1)))

    @property
    def level_slices(self) -> tuple[slice, ...]:
        """Slice of each group on the coefficient axis."""
        ends = [sum(self.level_lengths[: i + 1]) for i in range(self.groups)]
        return tuple(slice(end - length, end) for end, length in zip(ends, self.level_lengths, strict=True))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; :meth:`from_dict` reads them back. Fields that older releases lack are left out
        if they are None."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {name: value for name, value in values.items() if value is not None or name not in _LATER}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from :meth:`to_dict`'s values; raises ``ValueError`` for anything else."""
        if not isinstance(values, Mapping):
            raise ValueError("the configuration is not a table of values")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(str(name) for name in set(values) - known):
            raise ValueError(f"unknown configuration values: {', '.join(unknown[:5])}")
        missing = [f.name for f in fields(cls) if f.name not in values and f.name in _REQUIRED]
        if missing:
            raise ValueError(f"missing configuration values: {', '.join(missing)}")
        return cls(**values)


@lru_cache(4)
def _unpacked(text: str) -> WindowStatistics:
    return WindowStatistics.unpack(text)


def _shown(value: int) -> str:
    """A number for an error message; numbers of thousands of digits are not written out."""
    return str(value) if abs(value) < 1 << 64 else f"of {value.bit_length()} bits"


_REQUIRED = ("level_lengths", "features", "embed_dim", "num_heads", "num_layers", "time_embed_dim")

_INTEGERS, _REALS = (int,), (int, float)
_NUMBERS = {_INTEGERS: "whole numbers", _REALS: "numbers"}
_LISTS = {
    "level_lengths": (_INTEGERS, MAX_GROUPS),
    "norm_mean": (_REALS, MAX_FEATURES),
    "norm_std": (_REALS, MAX_FEATURES),
}
"""Fields of several values: their types (a bool is not a number), and their maximum length."""

MOST = {
    "level_lengths": MAX_STEPS,
    "features": MAX_FEATURES,
    "embed_dim": MAX_WIDTH,
    "num_heads": MAX_WIDTH,
    "num_layers": MAX_LAYERS,
    "time_embed_dim": MAX_WIDTH,
    "seq_len": MAX_STEPS,
}
"""The largest value of every size."""

_LATER = ("feature_names", "conditioning", "transform", "window_statistics")
"""Fields that are left out of files where they are None."""

_TEXTS = (
    "prediction_target",
    "noise_schedule",
    "wavelet",
    "boundary_mode",
    "conditioning",
    "transform",
    "window_statistics",
)
_OPTIONAL = ("wavelet", "boundary_mode", "seq_len", "conditioning", "transform", "window_statistics")
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **{name: (_INTEGERS, "a whole number") for name in MOST if name != "level_lengths"},
    **dict.fromkeys(("qk_norm", "cross_level_attention", "scale_embedding"), ((bool,), "true or false")),
    **dict.fromkeys(_TEXTS, ((str,), "text")),
    "dropout": (_REALS, "a number"),
}
"""Types of the other fields, and their descriptions."""
