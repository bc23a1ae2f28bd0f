"""Read windows of a data file that a figure shows beside the samples of a converted model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wdport.errors import InputError, InternalError, UsageError, printable
from wdport.model import Decoding, Diffused, NotDecoded

if TYPE_CHECKING:  # not needed without a data file
    from wdport.conversion.load import Converted
    from wdport.files.series_figure import Beside


def drawn_shape(about: Diffused) -> tuple[tuple[int, ...], str]:
    """The shape of a drawn sample, and the name of its axis."""
    decoding = about.decoding
    if isinstance(decoding, NotDecoded):
        return about.shape, about.state.axis
    return decoding.shape, about.decoded.axis


def beside_samples(converted: Converted, data: str | None, plot: str | None) -> Beside | None:
    """Consecutive windows of ``data``, each as long as a sample; None without data.

    A table of points has one window per row. Columns are found by the model's feature names if both have names.
    Raises :class:`UsageError` if samples of the model cannot be compared with data, and :class:`InputError` for data
    that does not match the model.
    """
    if data is None:
        return None
    if plot is None:
        raise UsageError("--data", "has no effect without a figure", "add --plot FILE")
    from wdport.data import read_series
    from wdport.files.figure import is_point
    from wdport.files.series_figure import Beside

    about = about_of(converted)
    shape, _ = drawn_shape(about)
    _require_comparable(about, shape)
    point = is_point(shape)
    features = shape[-1] if point or len(shape) > 1 else 1
    values = read_series(data).fitted(about.features, features, data).values
    length = 1 if point else shape[0]
    if len(values) < length:
        what = f"has {len(values)} rows, and a sample has {length}"
        raise InputError(data, what, "give data at least as long as a sample")
    count = len(values) // length
    return Beside(printable(_name(data)), values[: count * length].reshape(count, *shape))


def about_of(converted: Converted) -> Diffused:
    from wdport.families.roles import Sampled

    if not isinstance(converted.family, Sampled):  # open_sampled has refused it
        raise InternalError(converted.path, "is not a diffusion model", "report this")
    return converted.family.diffused(converted.config)


def _require_comparable(about: Diffused, shape: tuple[int, ...]) -> None:
    """Raise :class:`UsageError` if samples are not series in the units of the data."""
    decoding, fix = about.decoding, "leave --data out"
    if isinstance(decoding, NotDecoded) and not decoding.data:
        raise UsageError("--data", decoding.what, decoding.fix)
    if len(shape) > 2:
        raise UsageError("--data", f"samples have shape {shape}, and data files hold series", fix)
    standard = isinstance(decoding, Decoding) and set(decoding.mean) == {0.0} and set(decoding.std) == {1.0}
    if standard and about.windowed is None:
        what = "the model's series are in z-score units, not in units of the data"
        raise UsageError("--data", what, "convert with --data or --norm-stats, or leave it out")


def _name(data: str) -> str:
    from pathlib import Path

    return Path(data).name
