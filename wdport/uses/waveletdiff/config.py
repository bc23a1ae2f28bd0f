"""The configuration: everything that fixes the function a WaveletDiff network computes, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from sys import float_info
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta

from wdport.base.errors import UsageError
from wdport.base.fields import (
    NETWORK,
    SAMPLES,
    UNUSED,
    Choices,
    Dropout,
    Effect,
    FieldRefusal,
    Fields,
    Flag,
    Phrase,
    Summary,
    Width,
    Wording,
    fields_of,
    marked,
)
from wdport.base.limits import MAX_FEATURES, MAX_GROUPS, MAX_LAYERS, MAX_STEPS, MAX_WIDTH
from wdport.uses.data.table import checked_names
from wdport.uses.data.transforms import LOG_VOLUME, OHLC_ATR, OHLCV, ZSCORE, WindowStatistics, by_window, checked_name
from wdport.uses.diffusion.schedules import NAMES as SCHEDULES
from wdport.uses.wavelets.lengths import BOUNDARY_MODES, filter_length

SETTABLE: Final = Flag("--set may give the field")
OMITTED: Final = Flag("the field is left out of files where it is None, as in those of older releases")
TRAINING: Final = Effect(gates=("C", "D", "E"))
"""The gates beyond the network's forward pass, for its loss and its sampling, depend on the field."""


@dataclass(frozen=True)
class Public:
    """Section of a field in the public training configuration, what others call it, and its ``key`` there if that is
    not its name."""

    section: str
    also: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Released:
    """The value of the released models. It is ``assumed`` where a checkpoint does not determine the field; ``risk``
    states what goes wrong if another value is right."""

    value: object
    assumed: bool = True
    risk: str = ""


Steps = Annotated[int, Meta(ge=1, le=MAX_STEPS)]
Features = Meta(max_length=MAX_FEATURES)
Mean = Annotated[float, Meta(ge=-float_info.max, le=float_info.max), FieldRefusal("is not finite or not positive")]
Deviation = Annotated[float, Meta(gt=0, le=float_info.max), FieldRefusal("is not finite or not positive")]


@dataclass(frozen=True)
class Config(Fields):
    """Sizes and switches of one network; raises ``ValueError`` for invalid combinations.

    ``wavelet``, ``boundary_mode`` and ``seq_len`` describe the transform from series to coefficients and are ``None``
    if unknown, as are the fields below them: ``norm_mean`` and ``norm_std`` scale a series from z-scores to the units
    of the data, ``transform`` names another transform of the data (:mod:`wdport.uses.data.transforms`), and
    ``window_statistics`` packs the statistics of the windows that the model was trained on.
    """

    level_lengths: Annotated[
        tuple[Steps, ...],
        Meta(max_length=MAX_GROUPS),
        "Number of coefficients in each group, per feature: [cA_L, cD_L, ..., cD_1].",
        NETWORK,
        Summary("groups"),
    ]
    features: Annotated[int, Meta(ge=1, le=MAX_FEATURES), "Number of features per time step.", NETWORK]
    embed_dim: Annotated[
        Width,
        "Width of the tokens of the detail levels; the tokens of the approximation are twice as wide.",
        NETWORK,
        Public("model", ("d_model", "hidden_dim", "embedding_dim", "dim", "width")),
        Released(256, assumed=False),
    ]
    num_heads: Annotated[
        Width,
        "Number of attention heads, a divisor of embed_dim.",
        NETWORK,
        Public("model", ("heads", "n_heads", "n_head", "nhead", "num_attention_heads", "attention_heads")),
        Released(8, risk="with another number every attention computes something else"),
        SETTABLE,
        Summary(),
    ]
    num_layers: Annotated[
        int,
        Meta(ge=1, le=MAX_LAYERS),
        "Number of transformer blocks per detail level; the approximation has two more.",
        NETWORK,
        Public("model", ("layers", "n_layers", "depth", "num_blocks")),
        Released(8, assumed=False),
    ]
    time_embed_dim: Annotated[
        int,
        Meta(ge=4, le=MAX_WIDTH, multiple_of=2),
        "Width of the time embedding; even, at least 4.",
        NETWORK,
        Public("model", ("time_dim", "t_embed_dim")),
        Released(128, assumed=False),
        FieldRefusal("{value} is not even and at least 4"),
    ]
    qk_norm: Annotated[bool, "Whether attention normalizes queries and keys.", NETWORK] = False
    cross_level_attention: Annotated[
        bool,
        "Whether the levels attend to one another.",
        NETWORK,
        Public(
            "attention",
            ("cross_level_attention", "cross_attention", "use_cross_attention"),
            "use_cross_level_attention",
        ),
    ] = True
    scale_embedding: Annotated[bool, "Whether the network takes a scale as a conditioning input.", NETWORK] = False
    prediction_target: Annotated[
        Literal["noise", "coefficient"],
        "What the network predicts: the noise, or the clean coefficients.",
        TRAINING,
        Public("model", ("target", "prediction_type", "prediction", "parameterization", "objective")),
        Released("noise", risk="with the other one every sample is wrong"),
        SETTABLE,
        Summary(),
    ] = "noise"
    noise_schedule: Annotated[
        str,
        Choices(SCHEDULES, unlisted=("custom",)),
        "Noise schedule of the diffusion.",
        TRAINING,
        Public("noise", ("noise_schedule", "beta_schedule", "schedule_type", "type", "name", "kind"), "schedule"),
        Released("exponential"),
        SETTABLE,
        Summary(),
    ] = "exponential"
    dropout: Annotated[Dropout, Public("model", ("dropout_rate", "p_dropout")), Released(0.1), SETTABLE] = 0.1
    wavelet: Annotated[str | None, "PyWavelets name of the wavelet.", Effect(gates=("F",)), SETTABLE, Summary()] = None
    boundary_mode: Annotated[
        Annotated[str, Choices(BOUNDARY_MODES)] | None,
        "How a series is extended beyond its ends.",
        UNUSED,  # it goes with the wavelet, as seq_len does
        Released("symmetric"),
        SETTABLE,
    ] = None
    seq_len: Annotated[
        Steps | None,
        "Number of time steps in a series, T.",
        UNUSED,
        Public("dataset", ("seq_length", "sequence_length", "length", "window", "window_size")),
        SETTABLE,
    ] = None
    norm_mean: Annotated[
        Annotated[tuple[Mean, ...], Features] | None, "Mean of every feature of the data.", SAMPLES
    ] = None
    norm_std: Annotated[
        Annotated[tuple[Deviation, ...], Features] | None, "Standard deviation of every feature of the data.", SAMPLES
    ] = None
    feature_names: Annotated[
        tuple[str, ...] | None, "Names of the features.", SAMPLES, Phrase("a list of texts"), OMITTED
    ] = None
    conditioning: Annotated[
        Literal["scale", "none"] | None,
        "Whether a network with a scale embedding was trained with a scale for every window; null if unknown.",
        UNUSED,
        SETTABLE,
        Summary(),
        OMITTED,
    ] = None
    transform: Annotated[str | None, "Transform of the data.", SAMPLES, OMITTED] = None
    window_statistics: Annotated[
        str | None, "Statistics of the windows of the training data, in packed form.", SAMPLES, OMITTED
    ] = None

    wording: ClassVar = Wording(
        below="{value}: every size must be at least 1",
        above="{value}: at most {most} is supported",
        choice="{value} is not one of {choices}",
        unknown="unknown configuration values: {names}",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.level_lengths:
            raise ValueError("level_lengths is empty: there must be at least 1 group")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide embed_dim {self.embed_dim}")
        if self.cross_level_attention and len(self.level_lengths) < 2:
            raise ValueError("cross-level attention needs at least two coefficient groups")
        if self.conditioning == "scale" and not self.scale_embedding:
            raise ValueError("conditioning is scale, and the network has no scale embedding")
        if self.wavelet is not None:
            filter_length(self.wavelet)
        self._check_statistics()
        self._check_transform()
        if self.feature_names is not None:
            object.__setattr__(self, "feature_names", checked_names(self.feature_names, self.features))

    def _check_statistics(self) -> None:
        if (self.norm_mean is None) != (self.norm_std is None):
            raise ValueError("norm_mean and norm_std go together")
        for name in ("norm_mean", "norm_std"):
            values = getattr(self, name)
            if values is not None:
                if len(values) != self.features:
                    raise ValueError(f"{name} has {len(values)} values, the model {self.features} features")
                object.__setattr__(self, name, tuple(map(float, values)))

    def _check_transform(self) -> None:
        if self.transform is None and self.window_statistics is None:
            return
        try:
            windowed = by_window(checked_name(self.transform or ZSCORE))
        except UsageError as error:
            raise ValueError(f"transform: {error.what}") from None
        # Statistics are either those of every window, or one mean and deviation for all.
        if windowed != (self.window_statistics is not None) or windowed == (self.norm_mean is not None):
            expected = "window_statistics" if windowed else "norm_mean and norm_std"
            raise ValueError(f"transform {self.transform} has {expected}, and no other statistics")
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
    def mode(self) -> str:
        """The boundary mode, where it is unknown that of the public code."""
        return self.boundary_mode or "symmetric"

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
        # The number of heads is the same for all groups, so the approximation's heads are twice as wide.
        return tuple(self.embed_dim * (2 if i == 0 else 1) for i in range(self.groups))

    @property
    def depths(self) -> tuple[int, ...]:
        """Blocks of each group: the approximation has two more than the others."""
        return tuple(self.num_layers + (2 if i == 0 else 0) for i in range(self.groups))

    @property
    def cross_width(self) -> int:
        """W, the width of the cross-level block: the widest group's."""
        return max(self.widths)

    def heads(self, width: int) -> tuple[int, int]:
        """Attention heads of tokens of this width, and the width of one."""
        return self.num_heads, width // self.num_heads

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
        # Files of older releases lack these names.
        return {name: value for name, value in super().to_dict().items() if value is not None or name not in _OMITTED}


@lru_cache(4)
def _unpacked(text: str) -> WindowStatistics:
    # Cached, since the configuration is frozen and keeps them packed, as text.
    return WindowStatistics.unpack(text)


_OMITTED: Final = marked(Config, OMITTED)
SETTINGS: Final = marked(Config, SETTABLE)
"""The fields that ``--set`` may give."""

_RELEASED: Final = {name: release for name, one in fields_of(Config).items() if (release := one.marker(Released))}
ASSUMED: Final = {name: release.value for name, release in _RELEASED.items() if release.assumed}
"""The released configuration's values for fields that a checkpoint does not determine."""

RISKS: Final = {name: release.risk for name, release in _RELEASED.items() if release.risk}
"""What goes wrong if an assumed value is wrong."""

SIZES: Final[dict[str, Any]] = {
    name: release.value for name, release in _RELEASED.items() if fields_of(Config)[name].required
}
"""The sizes of the released models."""
