"""The condition of samples: labels or a scale with classifier-free guidance, or a partly known sample (inpainting).

After every call the network's estimate of the clean state is corrected by the encoding of its residual, so that its
decoded form has the known values; the rest is left to the model (the null-space method, arXiv 2212.00490). Repeating
steps makes the rest fit. On Gaussian data with 50 steps of DDIM, the mean of the filled-in values was off by 0.44
standard deviations of the data with every step taken once, by 0.12 with five repeats, by 0.08 with twenty; its spread
was 3.1, 2.5 and 1.7 times the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.checkpoint.faults import Fault
from wdport.models.interface import LARGEST_PIXEL, PIXELS, Array, Condition, Decoding, Diffused, NotDecoded
from wdport.uses.data.arrays import npy_array, read_npy, read_npz
from wdport.uses.data.table import ColumnTable, columns_of, data_file
from wdport.uses.data.text_tables import read_text
from wdport.uses.roles import Tree
from wdport.uses.sampling.network import Network
from wdport.uses.sampling.request import Request

DATA = "data"
"""Draw conditions from those of the training data."""

LARGEST = 1e6
"""Largest absolute value of a condition."""

SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest positive condition: the smallest normal number of float32."""


def checked_condition(about: Diffused, request: Request, count: int, drawn: Array | None) -> Array | None:
    """The condition (count, *shape) of a request, float64 or int32: its values cycled over the samples; None for a
    network that has none or is called without.

    ``drawn`` (count,) are the numbers of the windows of the training data whose condition ``"data"`` means.

    Raises:
        UsageError: the values are invalid for the network, or missing.
    """
    declared, values = about.condition, request.condition
    name = request.called.get("condition", request.condition_name)
    if declared is None or request.condition_name not in ("condition", declared.name):
        if values is not None:
            raise UsageError(name, _lacking(declared, request.condition_name), "leave it out")
        if request.unconditional and declared is None:
            raise UsageError("unconditional", "the model takes no condition", "leave it out")
    if declared is None:
        return None
    if request.unconditional and request.guidance not in (None, 1.0):
        raise UsageError("guidance", "has no condition to follow", "leave it out, or `--unconditional`")
    if values is None:
        return _without(declared, request, count)
    if request.unconditional:
        raise UsageError("unconditional", f"{declared.name} is given", "leave out one of the two")
    if isinstance(values, str):
        held = {} if about.windowed is None else about.windowed.statistics
        if values != DATA or drawn is None or declared.statistic is None or declared.statistic not in held:
            what = f"the model does not hold {declared.name} of its training data"
            fix = "give numbers, or convert with `--data FILE` `--transform NAME`"
            raise UsageError(name, what if values == DATA else f"{values[:40]!r} is not a number", fix)
        return np.asarray(held[declared.statistic], np.float64)[drawn]
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        raise UsageError(name, f"holds {array.dtype}, not real numbers", "give numbers")
    return _cycled(declared, array, count, name)


def _lacking(declared: Condition | None, name: str) -> str:
    if name == "labels":
        return "the model has no classes"
    return f"the model takes {declared.name}, not {name}" if declared else f"the model takes no {name}"


def _without(declared: Condition, request: Request, count: int) -> Array | None:
    """The condition of samples for which none is given: the null value, or None to call the network without it."""
    if declared.kind == "class":
        if request.unconditional and declared.null is not None:
            return np.full(count, int(declared.null), np.int32)
        what = "the model draws samples of a class"
        if request.unconditional:
            what = "the model was not trained without labels"
        raise UsageError(
            request.called.get("labels", "labels"), what, f"give one from 0 to {(declared.classes or 1) - 1}"
        )
    if not (request.unconditional or (declared.trained is False and declared.optional)):
        training = "was trained with it" if declared.trained else "may have been trained with or without it"
        data = " or data" if declared.statistic is not None else ""
        option = "`--scale NUMBER`" if declared.name == "scale" else "`--condition NUMBER`"
        without = ", or `--unconditional`" if declared.optional or declared.null is not None else ""
        what = f"the model takes a condition, {declared.name}, and {training}"
        raise UsageError(declared.name, what, f"give {option}{data}{without}")
    if declared.null is not None:
        return np.full((count, *declared.shape), declared.null)
    if not declared.optional:
        raise UsageError("unconditional", f"the model does not run without its condition, {declared.name}", "give it")
    return None


def _cycled(declared: Condition, values: Array, count: int, name: str) -> Array:
    if declared.trained is False:
        what = "the model was trained without this condition, whose weights are random"
        raise UsageError(name, what, "leave it out")
    if declared.kind == "class":
        return _labels(declared.classes or 0, values, count, name)
    values = np.atleast_1d(values) if not declared.shape else values
    if values.shape == declared.shape and declared.shape:
        values = values[None]
    if values.shape[1:] != declared.shape or not values.size:
        shape = ", ".join(map(str, ("n", *declared.shape)))
        raise UsageError(name, f"has shape {values.shape}", f"give numbers ({shape})")
    _require_count(name, len(values), count)
    values = values.astype(np.float64)
    largest = float(np.abs(values).max())
    if not np.isfinite(values).all() or largest > LARGEST:
        raise UsageError(name, "has a value that is not finite" if not isfinite(largest) else
                         f"has the value {largest:.3g}", f"give numbers of at most {LARGEST:g}")  # fmt: skip
    if declared.kind == "positive" and (smallest := float(values.min())) < SMALLEST:
        what = f"{smallest:g} is not positive" if smallest <= 0 else f"{smallest:g} is 0 in float32"
        raise UsageError(name, what, "give positive numbers")
    # numpy.resize repeats the values; the method of the same name would fill up with zeros.
    return np.resize(values, (count, *declared.shape))


def _labels(classes: int, values: Array, count: int, name: str) -> Array:
    labels = np.atleast_1d(values)
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind == "f":
        raise UsageError(name, "are not whole numbers", f"give labels from 0 to {classes - 1}")
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise UsageError(name, f"{wrong} is not a class of the model", f"give labels from 0 to {classes - 1}")
    _require_count(name, labels.size, count)
    return np.resize(labels, count).astype(np.int32)


def _require_count(name: str, value_count: int, count: int) -> None:
    if value_count > count:
        what = f"{value_count} {'labels' if 'label' in name else 'values'} for {count} samples"
        raise UsageError(name, what, "give one for each sample, or fewer")


def guided(network: Network, guidance: float | None) -> Network:
    """``network`` with classifier-free guidance (arXiv 2207.12598): its prediction for no condition, plus ``guidance``
    times the difference that the condition makes, in one doubled batch. 1 and None leave the network unchanged.

    Raises :class:`UsageError` for a network that has no value for "no condition".
    """
    if guidance is None:
        return network
    if not isinstance(guidance, Real) or isinstance(guidance, bool) or not isfinite(guidance):
        raise UsageError(
            "guidance", f"{guidance!r} is not a finite number", "give 1 for none, more to follow labels more"
        )
    declared = network.about.condition
    if declared is None or declared.null is None:
        raise UsageError("guidance", "the model was not trained for classifier-free guidance", "leave it out")
    if guidance == 1.0:
        return network
    weight, null = float(guidance), declared.null

    def apply(weights: Tree, state: Tensor, times: Tensor, condition: Tensor) -> Tensor:
        # One doubled batch, so that the program has one call of the network.
        both = jnp.concatenate([condition, jnp.full_like(condition, null)])
        doubled = (jnp.concatenate([values, values]) for values in (state, times))
        conditional, plain = jnp.split(network.apply(weights, *doubled, both), 2)
        mixed, channels = plain + weight * (conditional - plain), state.shape[-1]
        # What follows the prediction is a learned variance, which is not extrapolated.
        return jnp.concatenate([mixed[..., :channels], conditional[..., channels:]], axis=-1)

    return replace(network, apply=apply)


RESAMPLE = 5
"""Default number of times every step is taken."""

FURTHEST = 1e6
"""Standard deviations from the mean: values further away are not data, and float32 cannot square values beyond 1e19."""

_TEXT = partial(read_text, gaps=True)
_READERS: dict[str, Callable[[Path, str | None], ColumnTable]] = {
    ".csv": _TEXT,
    ".txt": _TEXT,
    ".npy": read_npy,
    ".npz": read_npz,
}


def read_known(path: str | PathLike[str], names: Sequence[str] = (), axes: int = 2) -> Array:
    """Read a series (N, F) from a file, NaN where unknown; in text, an empty field or NA is NaN too. A sample of more
    ``axes``, such as an image, is an array in an .npy file.

    Columns are found by ``names``, those of the model's features, if the file names its columns. Text columns without
    numbers, such as dates, are left out. Raises :class:`InputError`, or :class:`UsageError` if a column is missing.
    """
    with data_file(path) as file:
        suffix = file.suffix.lower()
        if suffix not in _READERS:
            raise Fault(f"is of an unknown kind ({suffix or 'no suffix'})", f"give one of {', '.join(_READERS)}")
        if axes > 2:
            if suffix != ".npy":
                raise Fault("is not an .npy file", f"save the sample, an array of {axes} axes, with numpy.save")
            return npy_array(file)
        try:
            table = _READERS[suffix](file, None)
            columns = columns_of(names, table.kept, path) if names and table.named else table.kept
            return table.load([table.names.index(name) for name in columns])
        except Fault as fault:
            fix = "give time steps by features, NaN or nothing where a value is unknown"
            raise Fault(fault.what, fix, fault.part) from None


def resampling(times: int | None, has_known: bool) -> int:
    """The number of times every step is taken; raises :class:`UsageError` for repeats without known values."""
    if times is not None and not has_known:
        raise UsageError("resample", "has no effect without known values", "leave it out, or give them")
    return (RESAMPLE if has_known else 1) if times is None else times


def with_known(network: Network, known_values: ArrayLike, standard: Array | None = None) -> Network:
    """``network`` conditioned so that its decoded samples have the values of ``known_values``.

    Args:
        network: the unconditioned network.
        known_values: one decoded sample, (N, F) in the units of the model's output, NaN where unknown.
        standard: the same in standard units, if every window has its own statistics; only these are used.

    Raises:
        UsageError: the model does not decode its states, or ``known_values`` do not fit it.
    """
    decoding = network.about.decoding
    if isinstance(decoding, NotDecoded):
        raise UsageError("known", decoding.what, decoding.fix)
    if (windowed := network.about.windowed) is not None and standard is None:
        what = f"every window of {windowed.transform} has its own units, in which the known values are not"
        raise UsageError("known", what, f"add `--transform {windowed.transform}`")
    values = checked_known(known_values, decoding.shape) if standard is None else standard
    mask = np.isfinite(values)
    # Zeros and not NaN where unknown: the mask multiplies them, and NaN times 0 is NaN.
    scores = np.where(mask, decoding.standard(values), 0.0)
    if decoding.units == PIXELS and np.abs(scores).max() > LARGEST_PIXEL:
        what = f"has values up to {np.nanmax(np.abs(values)):.3g}, and images of the model are {PIXELS}"
        raise UsageError("known", what, "divide pixels by 255; NaN for unknown")
    if np.abs(scores).max() > FURTHEST:
        what = f"has a value {np.abs(scores).max():.3g} standard deviations from the mean"
        raise UsageError("known", what, "give it in the units of the series that the model draws")
    held = Held(*(part.astype(network.dtype) for part in (scores, np.where(mask, values, 0.0), mask)))
    inner = network.specs
    return replace(
        network,
        apply=lambda weights, state, times, condition: network.apply(weights[0], state, times, condition),
        change=partial(_change, network, decoding),
        finish=partial(_finish, network, decoding),
        # With the weights, as arguments of the programs: other known values do not compile anything again.
        weights=lambda: (network.weights(), held),
        specs=inner and (lambda: (inner(), held)),
    )


class Held(NamedTuple):
    """The known values, kept with the weights: in standard units, in units of the data, and their mask (1 and 0)."""

    standard: Array
    values: Array
    mask: Array


def _fitted(decoding: Decoding, held: Held, state: Tensor) -> Tensor:
    """The state whose decoded form has the known values."""
    missing = held.mask * (held.standard - decoding.decode(state))
    moved: Tensor = state + decoding.encode(missing).astype(state.dtype)
    return moved


def _change(network: Network, decoding: Decoding, weights: Tree, clean: Tensor) -> Tensor:
    network_weights, held = weights
    # After the model's own clipping, which would move known values.
    return _fitted(decoding, held, clean if network.change is None else network.change(network_weights, clean))


def _finish(network: Network, decoding: Decoding, weights: Tree, state: Tensor) -> tuple[Tensor, Tensor | None]:
    network_weights, held = weights
    last, decoded = network.finish(network_weights, _fitted(decoding, held, state))
    # Decoding the state gives the known values up to rounding; the result has them exactly.
    return last, None if decoded is None else jnp.where(held.mask > 0, held.values, decoded)


def checked_known(known_values: ArrayLike, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(known_values)
    except ValueError:  # lists of different lengths
        raise UsageError("known", "is not an array", "give time steps by features") from None
    if array.dtype.kind not in "iuf":
        raise UsageError("known", f"holds {array.dtype}, not real numbers", "give floats, NaN for unknown")
    values = array.astype(np.float64)
    if values.shape != shape:
        raise UsageError("known", f"has shape {values.shape}", f"give {shape}: time steps, features; NaN for unknown")
    if np.isinf(values).any():
        raise UsageError("known", "has infinite values", "give NaN for unknown values")
    return values
