"""`wdport.evaluate`: read sets of series, and score generated series against real ones; every score has a floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.base.options import COUNT, Interval, require_number
from wdport.families.registry import known_model
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import variables_by_path
from wdport.uses.data.samples_reader import SeriesSet, has_windows, read_samples
from wdport.uses.data.series import Series, read_series, sliding_windows
from wdport.uses.evaluation.context_fid import EncoderUse
from wdport.uses.evaluation.distances import LARGEST, Scaling
from wdport.uses.evaluation.metrics import METRICS, Metric, some
from wdport.uses.evaluation.result import FLOOR, ITSELF, Evaluation, Score
from wdport.uses.roles import Encoding as Encodes
from wdport.uses.sampling.sampler import Samples

Given = ArrayLike | SeriesSet | Samples | str | PathLike[str]
"""A set of series: an array (n, N, F), what :func:`wdport.sample` returns, or a file of either."""


def set_of(name: str, samples: Given) -> SeriesSet:
    """The set that is given under this name; raises :class:`UsageError`, or :class:`InputError` for a file."""
    if isinstance(samples, SeriesSet):
        return samples
    if isinstance(samples, (str, PathLike)):
        return read_samples(samples)
    if isinstance(samples, Samples):
        if samples.decoded is None:
            raise UsageError(name, "are not decoded to series", "convert the model with its transform's settings")
        return SeriesSet(require_series(name, samples.decoded), samples.features, name)
    return SeriesSet(require_series(name, samples), (), name)


def array_of(name: str, values: object) -> Array:
    """Numbers as an array, masked ones as NaN; raises :class:`UsageError` for what is not an array of real numbers."""
    try:
        array = (
            np.ma.filled(values.astype(float), np.nan) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        )
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, a tensor that requires a gradient
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise UsageError(name, "are not an array of real numbers", "give series (n, length, features)")
    return array


def require_series(name: str, values: object) -> Array:
    """Return the series (n, N, F); raises :class:`UsageError` for anything else, or values that are not finite."""
    series = array_of(name, values)
    if series.ndim != 3 or 0 in series.shape:
        raise UsageError(name, f"have shape {series.shape}", "give series (n, length, features)")
    if not np.isfinite(series).all():
        count = int((~np.isfinite(series)).any((1, 2)).sum())
        raise UsageError(name, f"have NaN or infinite values in {count} of {len(series)}", "leave these series out")
    return np.ascontiguousarray(series)  # sums over another layout have other last bits


def require_scale(series_set: SeriesSet, scale: Scaling) -> None:
    """Raise :class:`UsageError` for values that are too far from the real ones to compute with."""
    if (furthest := float(np.abs(scale(series_set.values)).max())) > LARGEST:
        what = f"have values of {furthest:.3g} times the range of the data"
        raise UsageError(series_set.where, what, "leave these series out")


def alike(sets: Mapping[str, SeriesSet]) -> dict[str, SeriesSet]:
    """The sets with their features in one order, that of the first set with names; raises :class:`UsageError` for sets
    of different sizes or features."""
    shape = next(iter(sets.values())).shape
    names = next((series_set.features for series_set in sets.values() if series_set.features), ())
    ordered = {}
    for name, series_set in sets.items():
        if series_set.shape != shape:
            what = f"have length and features {series_set.shape}, others {shape}"
            raise UsageError(series_set.where, what, "give series of one shape")
        if series_set.features and series_set.features != names:
            places = [series_set.features.index(feature) for feature in names if feature in series_set.features]
            if len(places) < len(names):
                what = f"have the features {_listed(series_set.features)}, others {_listed(names)}"
                raise UsageError(series_set.where, what, "give series of the same features")
            series_set = replace(
                series_set, values=np.ascontiguousarray(series_set.values[..., places]), features=names
            )
        ordered[name] = series_set
    return ordered


def _listed(names: Sequence[str]) -> str:
    return ", ".join(str(name)[:40] for name in names)


BLOCK: Final = 4
"""Length of a block, in windows."""


@dataclass(frozen=True, eq=False)
class Real:
    """All windows (n, N, F) of a series, one a step, and two sets of them that share no step, for the floor.

    The series is cut into blocks of four times the length of a window. The first set has the windows inside every
    other block, the second those inside the blocks between. Halves of a series would differ by its drift, and random
    windows overlap, so they are too much alike. A set is empty if the series is too short.
    """

    windows: Array
    floor: tuple[Array, Array]
    names: tuple[str, ...] = ()


Data = ArrayLike | Series | str | PathLike[str]
"""Real data: a file, a series, an array (T, F), or windows (n, N, F)."""


def real_windows(data: Data, length: int, features: int, names: Sequence[str] = ()) -> Real:
    """Return the windows of ``length`` steps of a series with so many features, or of windows (n, length, F), which
    should be in the order of time.

    ``names`` are those of the features, if known: columns with these names are chosen from named ones. Raises
    :class:`UsageError` if the data have other sizes or columns, :class:`InputError` if the file cannot be read.
    """
    where = Path(data) if isinstance(data, (str, PathLike)) else "data"
    series = opened(data)
    if not isinstance(series, Series):
        return _of_windows(series, length, features)
    series = series.fitted(names, features, where)
    if len(series.values) < length:
        raise UsageError(where, f"has {len(series.values)} steps, and a sample {length}", "give a longer series")
    windows = sliding_windows(np.ascontiguousarray(series.values), length)
    return Real(windows, _blocks(windows, length), series.names if series.named else ())


def _blocks(windows: Array, length: int) -> tuple[Array, Array]:
    """The windows of every other block of consecutive ones, and those of the blocks between."""
    starts = np.arange(len(windows))
    # Windows that cross the border of a block belong to neither set, so the two share no step of a series of which
    # every window is there.
    inside = starts % (BLOCK * length) <= (BLOCK - 1) * length
    first = starts // (BLOCK * length) % 2 == 0
    return windows[inside & first], windows[inside & ~first]


def opened(data: Data) -> Array | Series:
    """Windows (n, N, F) of an array or an ``.npy`` file, otherwise a series; raises :class:`UsageError`, or
    :class:`InputError` for a file."""
    if isinstance(data, Series):
        return data
    if isinstance(data, (str, PathLike)):
        return read_samples(data).values if has_windows(data) else read_series(data)
    array = array_of("data", data)
    if array.ndim == 3:
        return array
    if array.ndim not in (1, 2) or not np.isfinite(array).all():
        what = f"have shape {array.shape}" if array.ndim not in (1, 2) else "have NaN or infinite values"
        raise UsageError("data", what, "give a finite series (T, F), or windows (n, N, F)")
    return Series.of(array)


def _of_windows(windows: Array, length: int, features: int) -> Real:
    if windows.shape[1:] != (length, features) or not len(windows):
        what = f"have shape {windows.shape}, and the samples (n, {length}, {features})"
        raise UsageError("data", what, "give windows of this shape, or a series (T, F)")
    if not np.isfinite(windows).all():
        raise UsageError("data", "have NaN or infinite values", "give finite ones")
    return Real(windows, _blocks(windows, length))


LEAST: Final = 5
"""Series of each set: a fifth of them is what a judge is tested on."""

Report = Callable[[int, int, str], None]
"""Called with (scores done, total scores, what comes next)."""


def evaluate(
    samples: Given | Mapping[str, Given],
    data: Data,
    *,
    metrics: str | Sequence[str] | None = None,
    repeats: int = 5,
    seed: int = 0,
    encoder: KerasModel | None = None,
    report: Report | None = None,
) -> Evaluation:
    """Score generated series against real ones; smaller is better for every score.

    All sets are compared at the size of the smallest one, with the same real windows and training runs, so a set's
    score does not depend on its name or on the order of the sets.

    Args:
        samples: series (n, N, F) in the units of the data: an array, the return value of :func:`wdport.sample`, or an
            ``.npz``, ``.npy`` or ``.csv`` file, such as ``wdport sample`` writes; or several of these by name.
        data: a data file, a series or an array (T, F), whose windows of N steps are compared; or windows (m, N, F),
            also as an ``.npy`` file. Columns are found by name if samples and data have names.
        metrics: any of "context-fid", "correlational", "discriminative", "predictive", "dtw-js" and
            "sliced-wasserstein", also as one comma-separated string; all by default, but for series of one feature not
            "correlational".
        repeats: repetitions of every score, each with its own random subsets and training runs.
        seed: seed for the random subsets and training runs.
        encoder: a converted series encoder, for Context-FID. By default, one is trained on the real windows of every
            repetition.
        report: called before every score, for a progress display.

    Returns:
        An :class:`Evaluation`. Its set "real" is the floor: the score of real windows against other real windows with
        which they share no step, if the data has enough windows. The set "itself" compares one half of the first of
        ``samples`` with the other half, if it has at least 10 series.

    Raises:
        UsageError: the samples, the data and the settings are incompatible.
        InputError: the data cannot be read.
    """
    sets = _sets_of(samples)
    require_number(COUNT, repeats=repeats)
    require_number(Interval(0, integral=True), seed=seed)
    repeats, seed = int(repeats), int(seed)
    first = next(iter(sets.values()))
    shape = first.shape
    chosen = _fitting(metrics, shape)
    real = real_windows(data, *shape, first.features)
    pairs = _pairs(sets, real)
    encoding = None if encoder is None else _encoding(encoder, shape[1])
    progress = _Progress(report, repeats * len(chosen) * len(pairs))
    rounds = [
        _repetition([seed, index], pairs, next(iter(sets)), chosen, encoding, progress) for index in range(repeats)
    ]
    keys = [metric.name for metric in chosen]
    set_scores = {name: {key: Score(key, tuple(scores[name, key] for scores in rounds)) for key in keys}
                  for name in pairs}  # fmt: skip
    counts = {name: pair.count for name, pair in pairs.items()}
    return Evaluation(set_scores, counts, shape, repeats, seed, real.names, real.windows)


def _repetition(
    seed: Sequence[int], pairs: Mapping[str, _Sets], first: str, chosen: Sequence[Metric], encoding: EncoderUse | None,
    progress: _Progress,
) -> dict[tuple[str, str], float]:  # fmt: skip
    """Every score by set and metric, with one draw of subsets and trainings; what depends on the real series alone
    sees those compared with the set ``first``, which are those compared with every set."""
    drawn = {name: pair.draw(seed) for name, pair in pairs.items()}
    # Streams 0 and 1 of a repetition draw the subsets, stream 2 the seed of trainings, which all sets share.
    number = int(np.random.default_rng([*seed, 2]).integers(1 << 31))
    scores = {}
    for metric in chosen:
        progress(metric.title)
        # Once for all sets: an encoder that is trained again would add the spread of its training to the differences of
        # sets.
        score = metric.prepare(drawn[first][0], number, encoding)
        for name, both in drawn.items():
            scores[name, metric.name] = score(*both, number)
            progress(metric.title, 1)
    return scores


def _sets_of(samples: Given | Mapping[str, Given]) -> dict[str, SeriesSet]:
    """The sets by name; raises :class:`UsageError`."""
    named_samples: Mapping[str, Any] = dict(samples) if isinstance(samples, Mapping) else {"samples": samples}
    if not named_samples:
        raise UsageError("samples", "have no set", "name every set of series")
    if reserved := {FLOOR, ITSELF} & set(named_samples):
        raise UsageError("samples", f"have a set {min(reserved)!r}, the name of a floor", "give it another name")
    return alike({name: set_of(name, series) for name, series in named_samples.items()})


def _fitting(names: str | Sequence[str] | None, shape: tuple[int, int]) -> list[Metric]:
    """The metrics of these names, for None all that series of this shape have; raises :class:`UsageError` if one needs
    longer series, or more features."""
    chosen = [METRICS[name] for name in chosen_metrics(names)
              if names is not None or METRICS[name].features <= shape[1]]  # fmt: skip
    for metric in chosen:
        if shape[1] < metric.features:
            what = f"{metric.name} compares pairs of features, and these series have {shape[1]}"
            raise UsageError("metrics", what, "name the others")
        if shape[0] < (fewest := metric.fewest(shape[1])):
            what = f"{metric.name} needs series of {fewest} steps, and these have {shape[0]}"
            raise UsageError("metrics", what, "name the others")
    return chosen


@dataclass(frozen=True, eq=False)
class _Sets:
    """Real windows, and series to score against them, of which ``count`` of both are drawn for a repetition."""

    windows: Array
    series: Array
    scale: Scaling
    count: int

    def draw(self, seed: Sequence[int]) -> tuple[Array, Array]:
        """Different ones, scaled; the same real windows, and the same places among the series, for every pair of these
        sizes."""
        sides = enumerate((self.windows, self.series))
        one, other = (
            self.scale(some(np.random.default_rng([*seed, index]), series, self.count)) for index, series in sides
        )
        return one, other


def _pairs(sets: Mapping[str, SeriesSet], real: Real) -> dict[str, _Sets]:
    """What is scored by name, the floors first; raises :class:`UsageError`."""
    # Of the real data only: a generated outlier must not shrink the real range.
    scale = Scaling.of(real.windows)
    # One size for all: scores such as the Fréchet distance depend on the number of series.
    count = min(len(real.windows), *map(len, sets.values()))
    for series_set in sets.values():
        require_scale(series_set, scale)
        if min(len(series_set), len(real.windows)) < LEAST:
            what = f"are {len(series_set)} with {len(real.windows)} real windows"
            raise UsageError(series_set.where, what, f"give at least {LEAST} of both")
    pairs = {name: _Sets(real.windows, series_set.values, scale, count) for name, series_set in sets.items()}
    first = next(iter(sets.values())).values
    if len(first) >= 2 * LEAST:
        # Every other series, since samples of a run that was cut off may be sorted, by label for example.
        pairs = {ITSELF: _Sets(first[::2], first[1::2], scale, min(len(first) // 2, count)), **pairs}
    if (fewer := min(map(len, real.floor))) >= LEAST:
        pairs = {FLOOR: _Sets(*real.floor, scale, min(fewer, count)), **pairs}
    return pairs


class _Progress:
    """Counts scores for a progress display."""

    def __init__(self, report: Report | None, total: int) -> None:
        self.report, self.total, self.done = report, total, 0

    def __call__(self, what: str, more: int = 0) -> None:
        self.done += more
        if self.report is not None:
            self.report(self.done, self.total, what)


def chosen_metrics(names: str | Sequence[str] | None) -> list[str]:
    """Names of metrics in the order of the table, all for None; raises :class:`UsageError` for an unknown one."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    requested = list(METRICS) if names is None else list(names)
    if unknown := [name for name in requested if name not in METRICS]:
        raise UsageError("metrics", f"unknown metric {str(unknown[0])[:40]!r}", f"use {', '.join(METRICS)}")
    if not requested:
        raise UsageError("metrics", "are empty", f"use {', '.join(METRICS)}")
    return [name for name in METRICS if name in requested]


def _encoding(model: KerasModel, features: int) -> EncoderUse:
    """A converted encoder with its weights; raises :class:`UsageError` if it does not encode series of so many
    features."""
    registration = known_model(model)
    if registration is None or not isinstance(registration[0], Encodes):
        raise UsageError("encoder", "does not encode series", "give a converted encoder of series")
    family: Any = registration[0]
    config = registration[1]
    if (expected := family.encoded(config)) != features:
        what = f"encodes series of {expected} features, and the samples have {features}"
        raise UsageError("encoder", what, "give an encoder for these data, or leave it out")
    weights = {path: variable.value for path, variable in variables_by_path(model).items()}
    return EncoderUse(family.series_encoder(config), weights)
