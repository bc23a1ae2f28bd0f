"""WaveletDiff as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from wdport.compare.findings import Gate
from wdport.compare.gate_bounds import Bound
from wdport.families.ported import PortedFamily
from wdport.models.interface import Array, Constant, Document, LossPart, Objective, PartWords, Port, Signature
from wdport.recording.input_text import parse_inputs
from wdport.uses.diffusion.schedules import STEPS, noise_schedule
from wdport.uses.waveletdiff.config import RISKS, Config
from wdport.uses.waveletdiff.new_model import fresh_config, recipe
from wdport.uses.waveletdiff.public_form import is_public, settings_schema
from wdport.uses.waveletdiff.resolve import SCHEDULE_TOLERANCE, resolve
from wdport.uses.waveletdiff.sampled import diffused, process
from wdport.uses.waveletdiff.settings import parse_setting, read_settings
from wdport.uses.waveletdiff.variables import position_table, require_sizes, time_frequencies, variables

if TYPE_CHECKING:
    from jax import Array as Tensor

    from wdport.families.roles import Documented, Family, Trained
    from wdport.uses.roles import Fresh, Sampled
    from wdport.uses.waveletdiff.port import WaveletDiff
    from wdport.uses.wavelets.transform import WaveletTransform


def _constant(values: Array, tolerance: float | None, held: bool = True) -> Constant:
    """A small table that is already built."""
    return Constant(values.shape, lambda: values, tolerance, held)


class WaveletDiffFamily(PortedFamily[Config]):
    """Every role of :mod:`wdport.families.roles`."""

    name = "waveletdiff"
    configuration = Config
    keras_class = "WaveletDiff"
    guesses: Mapping[str, str] = MappingProxyType(RISKS)
    read_settings = staticmethod(read_settings)
    settings_schema = staticmethod(settings_schema)
    is_configuration = staticmethod(is_public)
    parse_setting = staticmethod(parse_setting)
    resolve = staticmethod(resolve)
    variables = staticmethod(variables)
    process = staticmethod(process)
    diffused = staticmethod(diffused)
    fresh_config = staticmethod(fresh_config)
    recipe = staticmethod(recipe)

    @property
    def bounds(self) -> Mapping[str, Bound]:  # type: ignore[override]  # not imported before it is used
        from wdport.uses.wavelets.check import BOUNDS

        return BOUNDS

    def features(self, config: Config) -> frozenset[str]:
        return frozenset(name for name in ("cross_level_attention", "scale_embedding") if getattr(config, name))

    def constants(self, config: Config) -> dict[str, Constant]:
        table_constants: dict[str, Constant] = {}
        # A custom schedule has no formula to check; only the shapes of the tables are used, which all schedules share.
        custom = config.noise_schedule == "custom"
        schedule = noise_schedule("linear" if custom else config.noise_schedule)
        roots = {"sqrt_alpha_bar": np.sqrt(schedule.alpha_bar),
                 "sqrt_one_minus_alpha_bar": np.sqrt(1.0 - schedule.alpha_bar)}  # fmt: skip
        for name, values in {**schedule._asdict(), **roots}.items():
            tolerance = SCHEDULE_TOLERANCE.get(config.noise_schedule)
            if name in roots and tolerance is not None:
                tolerance **= 0.5  # of a value near 0 the root is off by the root of its error
            table_constants[f"noise_schedule.{name}"] = _constant(values, tolerance, name not in roots)
        # Real files are within 2e-8 of the frequencies and, at 35 positions, within 1.3e-6 of the
        # position table: float32 angles p * w lose p * 2^-24 of a radian.
        time = config.time_embed_dim
        frequencies = Constant((time // 2,), partial(time_frequencies, time), 1e-6)
        table_constants["time_frequencies"] = frequencies
        if config.scale_embedding:
            table_constants["scale_frequencies"] = frequencies
        for level, (length, width) in enumerate(zip(config.level_lengths, config.widths, strict=True)):
            table = Constant((length, width), partial(position_table, length, width), 1e-7 * max(length, 8))
            table_constants[f"position_table.{level}"] = table
            # Some files keep the scale of the logits as a tensor without axes.
            scale = _constant(np.array(config.heads(width)[1] ** -0.5), 1e-6)
            for block in range(config.depths[level]):
                table_constants[f"attention_scale.{level}.{block}"] = scale
            if config.cross_level_attention:
                # Some files keep the numbers of the other groups, in ascending order.
                others = np.array([i for i in range(config.groups) if i != level], dtype=np.float64)
                table_constants[f"other_levels.{level}"] = _constant(others, 0.0)
                cross = config.heads(config.cross_width)[1] ** -0.5
                table_constants[f"cross_attention_scale.{level}"] = _constant(np.array(cross), 1e-6)
        return table_constants

    def load_config(self, values: Document) -> Config:
        return require_sizes(Config.from_dict(values))

    def unfilled(self) -> AbstractContextManager[None]:
        import keras  # noqa: F401  as in build

        from wdport.uses.waveletdiff.initial import blank

        return blank()

    def to_series(self, config: Config, coefficients: Array | Tensor) -> Tensor | None:
        from wdport.uses.waveletdiff.series import to_series

        return to_series(config, coefficients) if config.wavelet and config.seq_len else None

    def gates(self, config: Config) -> Sequence[Gate]:
        from wdport.uses.waveletdiff.gates import series_errors
        from wdport.uses.wavelets.check import wavelet_gate

        transform, decode = self.transform(config), _decoder(config)
        if transform is None or decode is None:
            return ()
        return [wavelet_gate(transform, series_errors(config, decode, partial(self.to_series, config)))]

    def signature(self, config: Config) -> Signature:
        """Coefficients (B, C, F) with a different energy in every level, time (B,) = step / 1000, scale (B,)."""
        lengths = " ".join(map(str, config.level_lengths))
        inputs = [f"x: b {config.coefficients} {config.features}, parts {lengths}", f"t: b, steps {STEPS}"]
        inputs += ["scale?: b, positive"] if config.scale_embedding else []
        parts = dict(zip(config.level_names, config.level_slices, strict=True))
        words = PartWords("level", "wavelet level", "coefficients", "series")
        output = Port("prediction", parts=parts, decode=_decoder(config), words=words)
        return Signature(parse_inputs(inputs), (output,))

    def fresh(self, config: Config, seed: int, dtype: str | None = None) -> WaveletDiff:
        import keras  # noqa: F401  as in build

        from wdport.uses.waveletdiff.initial import seeded
        from wdport.uses.waveletdiff.port import WaveletDiff

        with seeded(seed):
            return WaveletDiff(config, dtype=dtype)

    def loss_parts(self, config: Config) -> tuple[LossPart, ...]:
        from wdport.uses.waveletdiff.loss import level_parts

        return level_parts(config)

    def objective(self, config: Config, model: WaveletDiff) -> Objective:
        from wdport.uses.waveletdiff.loss import objective

        return objective(config, np.asarray(model.noise_schedule.alpha_bar.value))

    def port_tables(self, model: WaveletDiff) -> dict[str, Array]:
        tables = {"time_frequencies": model.time_embedding.frequencies}
        if model.scale_embedding is not None:
            tables["scale_frequencies"] = model.scale_embedding.frequencies
        for level in range(model.config.groups):
            level_layer = getattr(model, f"level_{level}")
            tables[f"position_table.{level}"] = level_layer.position.table
            for block in range(level_layer.depth):
                tables[f"attention_scale.{level}.{block}"] = np.asarray(
                    getattr(level_layer, f"block_{block}").attention.scale
                )
            if model.cross_level is not None:
                attention = getattr(model.cross_level, f"attention_{level}")
                tables[f"cross_attention_scale.{level}"] = np.asarray(attention.scale)
                tables[f"other_levels.{level}"] = np.asarray(model.cross_level.others[level])
        return tables

    def transform(self, config: Config) -> WaveletTransform | None:
        if config.wavelet is None or config.seq_len is None:
            return None
        from wdport.uses.waveletdiff.series import transform_of

        return transform_of(config)


def _decoder(config: Config) -> Callable[[Array], Array] | None:
    """The function from coefficients to series, if the wavelet is known."""
    if not (config.wavelet and config.seq_len):
        return None
    wavelet, mode = config.wavelet, config.mode
    return partial(_reconstruct, wavelet=wavelet, mode=mode, slices=config.level_slices, seq_len=config.seq_len)


def _reconstruct(coefficients: Array, wavelet: str, mode: str, slices: tuple[slice, ...], seq_len: int) -> Array:
    """Reconstruct series (B, N, F) from (B, C, F) with PyWavelets."""
    import pywt

    groups = [coefficients[:, part] for part in slices]
    series: Array = pywt.waverec(groups, wavelet, mode=mode, axis=1)
    # PyWavelets reconstructs an even number of steps.
    return series[:, :seq_len]


FAMILY = WaveletDiffFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Fresh, Sampled, Trained] = (FAMILY,) * 5
