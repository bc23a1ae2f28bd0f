"""Transforms between a series in the units of its data and the windows that a model is trained on.

A transform is known by name: ``zscore`` (mean and standard deviation of every feature), ``log1p-volume`` (the same,
with the fifth feature through log1p before), ``ohlc-atr`` (open, high, low, close and volume relative to the window's
first open price and its mean average true range; Wilder, 1978), or ``module:class`` of the user's.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from wdport.base.errors import UsageError, did_you_mean
from wdport.models.interface import Array
from wdport.recording.errors import Refusal, one_line
from wdport.recording.user_code import find_function
from wdport.uses.data.series import Series, sliding_windows
from wdport.uses.data.table import columns_of

ZSCORE: Final = "zscore"
LOG_VOLUME: Final = "log1p-volume"
OHLC_ATR: Final = "ohlc-atr"
NAMES: Final = (ZSCORE, LOG_VOLUME, OHLC_ATR)
"""Transforms that wdport has; others are ``module:class``."""

VOLUME: Final = 4
"""The feature of ``log1p-volume`` that is a volume."""

OHLCV: Final = ("open", "high", "low", "close", "volume")
ATR_PERIOD: Final = 14
AVERAGE_PERIOD: Final = 20
DROPPED: Final = AVERAGE_PERIOD - 1
"""Rows of a series before its first average of the volume."""

LEAST_ATR: Final = 1e-6
LEAST_VOLUME: Final = 1e-6
LARGEST_LOG: Final = 20.0
LARGEST_PRICE: Final = 1e18
"""Largest price or volume."""

MOST_BYTES: Final = 256 << 20
"""Bytes of the statistics of all windows."""

_OWN: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ENTRY: Final = re.compile(r"([A-Za-z_]\w{0,63})=(\d{1,10}(?:x\d{1,10}){0,3})")


class SeriesTransform(Protocol):
    """A transform whose statistics may differ between windows.

    ``forward`` maps a series (T, F) to windows (n, N, F) and their statistics: arrays by name, of which those of length
    n have an entry for every window, and the others hold for all. ``inverse`` maps windows (B, N, F), with the entries
    of their statistics, to series (B, N, F). Known values of samples need a third method, ``normalize``: its
    inverse, which maps NaN to NaN.
    """

    def forward(self, series: Any, /) -> tuple[Array, Mapping[str, Array]]: ...

    def inverse(self, windows: Array, statistics: Mapping[str, Array], /) -> Array: ...


@dataclass(frozen=True, eq=False)
class WindowStatistics:
    """Statistics of ``count`` windows, float32 by name; those of that length have an entry for every window."""

    arrays: Mapping[str, Array]
    count: int

    def rows(self, windows: Array) -> dict[str, Array]:
        """The statistics of the windows with these numbers (B,)."""
        return {name: array[windows] if array.shape[:1] == (self.count,) else array
                for name, array in self.arrays.items()}  # fmt: skip

    def pack(self) -> str:
        """As one line of text: names and shapes, and the compressed values."""
        heads = [f"{name}={'x'.join(map(str, array.shape or (1,)))}" for name, array in self.arrays.items()]
        data = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in self.arrays.values())
        return f"{self.count};{';'.join(heads)};{base64.b64encode(zlib.compress(data, 9)).decode()}"

    @staticmethod
    def unpack(text: str) -> WindowStatistics:
        """The inverse of :meth:`pack`; raises ``ValueError`` for any other text."""
        count, *heads, data = text.split(";") if text.count(";") > 1 else ("", "")
        matches = [_ENTRY.fullmatch(head) for head in heads]
        if not count.isdecimal() or len(count) > 10 or not matches or not all(matches):
            raise ValueError("window_statistics is not in the form that wdport writes")
        shapes = {match[1]: tuple(map(int, match[2].split("x"))) for match in matches if match}
        size = 4 * sum(map(prod, shapes.values()))
        if size > MOST_BYTES or len(shapes) != len(heads):
            raise ValueError(f"window_statistics has {size} bytes, at most {MOST_BYTES} are supported")
        unpacking = zlib.decompressobj()
        try:
            # One byte more than stated is asked for, so that a larger stream is noticed without being unpacked.
            values = unpacking.decompress(base64.b64decode(data, validate=True), size + 1)
        except (binascii.Error, zlib.error, ValueError):
            raise ValueError("window_statistics is damaged") from None
        if len(values) != size or not unpacking.eof:
            raise ValueError("window_statistics has another size than it states")
        arrays, start = {}, 0
        for name, shape in shapes.items():
            arrays[name] = np.frombuffer(values, "<f4", prod(shape), start).reshape(shape).astype(np.float32)
            start += 4 * prod(shape)
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("window_statistics has values that are not finite")
        return WindowStatistics(arrays, int(count))


class OhlcAtr:
    """Windows of open, high, low, close and volume, relative to their own first price and average true range.

    Columns of a series are found by name, in any case. The statistics of a window are ``anchors`` (its first open
    price), ``atr_pcts`` (its mean average true range over 14 steps, in percent of the anchor), and ``vol_smas`` (N,)
    (the average of the volume over 20 steps). Features of a window: open, body, upper wick, lower wick, all in units of
    the average true range, and the logarithm of the volume relative to its average.
    """

    condition = "atr_pcts"
    features = OHLCV

    def __init__(self, length: int) -> None:
        self.length = length

    def forward(self, series: Series) -> tuple[Array, dict[str, Array]]:
        """The windows (n, N, 5) of a series and their statistics; the first 19 steps are left out."""
        columns = _columns(series, OHLC_ATR, OHLCV)
        if len(columns) < DROPPED + self.length:
            what = f"has {len(columns)} steps, and {OHLC_ATR} takes {DROPPED} and a window of {self.length}"
            raise UsageError("data", what, "give a longer series")
        _require_prices(columns)
        wilder, average = _average_true_range(columns)[DROPPED:], _moving_average(columns[:, 4])
        windows = sliding_windows(columns[DROPPED:], self.length)
        anchors = windows[:, 0, 0]
        mean = sliding_windows(wilder[:, None], self.length)[..., 0].mean(axis=1)
        statistics = {
            "anchors": anchors,
            # A window of constant prices has a range of zero, by which features are divided.
            "atr_pcts": np.maximum(mean / anchors * 100.0, LEAST_ATR),
            "vol_smas": sliding_windows(average[:, None], self.length)[..., 0],
        }
        return self.normalize(windows, statistics), statistics

    def normalize(self, series: Array, statistics: Mapping[str, Array]) -> Array:
        """Windows (B, N, 5) of series (B, N, 5) with these statistics; NaN where a price that is needed is NaN."""
        _require_prices(series)
        first, high, low, last, volume = np.moveaxis(series, -1, 0)
        anchor = statistics["anchors"][:, None]
        unit = anchor * statistics["atr_pcts"][:, None] / 100.0
        features = [
            (first - anchor) / unit,
            (last - first) / unit,
            (high - np.maximum(first, last)) / unit,
            (np.minimum(first, last) - low) / unit,
            np.log((volume + LEAST_VOLUME) / (statistics["vol_smas"] + LEAST_VOLUME)),
        ]
        return np.stack(features, axis=-1)

    def nearest(self, series: Array, statistics: Mapping[str, Array]) -> int | None:
        """The number of the window whose average volumes are nearest to the known ones of a series (N, 5)."""
        volume = series[:, VOLUME]
        measured = volume >= 0
        if not measured.any():
            return None
        apart = np.log(volume[measured] + LEAST_VOLUME) - np.log(statistics["vol_smas"][:, measured] + LEAST_VOLUME)
        return int(np.argmin((apart**2).mean(axis=1)))

    def inverse(self, windows: Array, statistics: Mapping[str, Array]) -> Array:
        """Open, high, low, close and volume (B, N, 5) of windows (B, N, 5) with these statistics."""
        values = np.asarray(windows, np.float64)
        anchor, percent, average = (np.asarray(statistics[name], np.float64)
                                    for name in ("anchors", "atr_pcts", "vol_smas"))  # fmt: skip
        anchor = anchor[:, None]
        first, body, upper, lower = np.moveaxis(values[..., :4] * percent[:, None, None], -1, 0) / 100.0
        opened = anchor * (1.0 + first)
        closed = opened + body * anchor
        # A drawn wick may be slightly negative, which would put the highest price inside the body.
        high = np.maximum(opened, closed) + np.maximum(upper, 0.0) * anchor
        low = np.minimum(opened, closed) - np.maximum(lower, 0.0) * anchor
        # The bounds are those of the public code; without them a wild sample would overflow.
        volume = np.exp(np.clip(values[..., 4], -LARGEST_LOG, LARGEST_LOG)) * average
        return np.stack([opened, high, low, closed, np.maximum(volume, 0.0)], axis=-1)


def _columns(series: Series, name: str, requested: tuple[str, ...]) -> Array:
    """The wanted columns of a series by name, in any case; other columns are left out."""
    if not series.named:
        what = f"{name} finds columns by name, and these {len(series.names)} have none"
        raise UsageError("data", what, f"give the columns {', '.join(requested)}")
    places = [series.names.index(column) for column in columns_of(requested, series.names, "data")]
    values: Array = series.values[:, places]
    return values


def _require_prices(columns: Array) -> None:
    """Raise :class:`UsageError` for prices or volumes (..., 5) that cannot be such."""
    prices, volume = columns[..., :4], columns[..., VOLUME]
    wrong = {
        "a price is not positive": (prices <= 0).any(axis=-1),
        "the highest price is below the lowest": prices[..., 1] < prices[..., 2],
        "a volume is negative": volume < 0,
        f"a number is above {LARGEST_PRICE:g}": (columns > LARGEST_PRICE).any(axis=-1),
    }
    for what, where in wrong.items():
        if where.any():
            step = int(np.argwhere(where)[0][-1])
            fix = f"give prices and volumes, as {OHLC_ATR} takes them"
            raise UsageError("data", f"{what} at step {step}, counted from 0", fix)


def _average_true_range(columns: Array) -> Array:
    """Wilder's average of the true range, from the 14th step on; before it, zeros."""
    _, high, low, close, _ = columns.T
    # The first row has no previous close, and takes its own, as the public code does.
    before = np.concatenate([close[:1], close[:-1]])
    true = np.maximum(high - low, np.maximum(np.abs(high - before), np.abs(low - before)))
    averages = np.zeros(len(true))
    # A recursion in Python, since every average depends on the one before; the series is read once.
    averages[ATR_PERIOD - 1] = average = true[:ATR_PERIOD].mean()
    for step in range(ATR_PERIOD, len(true)):
        average = average * (1.0 - 1.0 / ATR_PERIOD) + true[step] / ATR_PERIOD
        averages[step] = average
    return averages


def _moving_average(volume: Array) -> Array:
    """The mean of the last 20 volumes, from the 20th step on."""
    sums = np.cumsum(np.concatenate([[0.0], volume]))
    averages: Array = (sums[AVERAGE_PERIOD:] - sums[:-AVERAGE_PERIOD]) / AVERAGE_PERIOD
    return averages


def transform_of(name: str, length: int) -> SeriesTransform:
    """The transform of this name for windows of ``length`` steps, if its statistics differ between windows.

    Raises :class:`UsageError` for an unknown name, or a class that cannot be used.
    """
    return OhlcAtr(length) if name == OHLC_ATR else _UserTransform(checked_name(name), length)


class _UserTransform:
    """A transform of the user's. Its code may raise and return anything, each of which is an error of one line."""

    def __init__(self, name: str, length: int) -> None:
        self._name = name
        try:
            user_class = find_function(name)
        except Refusal as refusal:
            raise UsageError(name, refusal.what, refusal.fix) from refusal
        self._instance = self._called("__init__", user_class, length)
        if not all(callable(getattr(self._instance, method, None)) for method in ("forward", "inverse")):
            raise UsageError(name, "has no forward and inverse", "give a class with both methods")

    def forward(self, series: Series) -> tuple[Array, Mapping[str, Array]]:
        result = self._called("forward", self._instance.forward, series)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
            self._refuse("forward", result, "windows and their statistics, arrays by name")
        statistics = {str(key): self._array("forward", array) for key, array in result[1].items()}
        return self._array("forward", result[0]), statistics

    def inverse(self, windows: Array, statistics: Mapping[str, Array]) -> Array:
        return self._array(
            # Copies: the user's code may change its arguments in place.
            "inverse",
            self._called("inverse", self._instance.inverse, windows.copy(), _copied(statistics)),
        )

    @property
    def normalize(self) -> Callable[[Array, Mapping[str, Array]], Array] | None:
        """The user's method of this name; None without one."""
        method = getattr(self._instance, "normalize", None)
        if not callable(method):
            return None
        return lambda series, statistics: self._array(
            "normalize", self._called("normalize", method, series.copy(), _copied(statistics))
        )

    def _called(self, method: str, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a script's exit, or any class of the user's
            raise UsageError(self._name, f"{method} raises {one_line(error)}", "correct the class") from error

    def _array(self, method: str, result: object) -> Array:
        try:
            array = np.asarray(result)
        except (TypeError, ValueError):  # lists of different lengths
            array = np.asarray(None)
        if array.dtype.kind not in "fiu":
            self._refuse(method, result, "arrays of real numbers")
        return array

    def _refuse(self, method: str, result: object, expected: str) -> NoReturn:
        raise UsageError(self._name, f"{method} returns a {type(result).__name__}", f"return {expected}")


def _copied(statistics: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(array) for name, array in statistics.items()}


def checked_name(name: str) -> str:
    """``name`` if it is that of a transform; raises :class:`UsageError` otherwise."""
    if name not in NAMES and not _OWN.fullmatch(name):
        fix = did_you_mean(name, NAMES, f"give {', '.join(NAMES)} or MODULE:CLASS")
        raise UsageError("--transform", f"{name[:40]!r} is not a transform", fix)
    return name


def by_window(name: str | None) -> bool:
    """Whether the statistics of a transform may differ between windows; those of the others are a mean and a std."""
    return name not in (None, ZSCORE, LOG_VOLUME)


def windows_of(name: str, length: int, series: Series) -> tuple[Array, WindowStatistics]:
    """The windows (n, ``length``, F), float64, and the statistics of a series under the transform of this name.

    Raises :class:`UsageError` for a series that it does not take, or a transform of the user's that returns anything
    else.
    """
    result, statistics = transform_of(name, length).forward(series)
    windows = np.asarray(result, np.float64)
    with np.errstate(over="ignore"):
        arrays = {key: np.asarray(value, np.float32) for key, value in statistics.items()}
    if windows.ndim != 3 or not len(windows) or windows.shape[1] != length or not np.isfinite(windows).all():
        what = f"forward returns windows of shape {windows.shape}"
        raise UsageError(name, what, f"return finite ones: (n, {length}, features)")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise UsageError(name, "forward returns statistics that float32 does not hold", "return smaller, finite ones")
    return windows, WindowStatistics(arrays, len(windows))
