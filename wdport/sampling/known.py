"""Condition a network on a partly known sample (inpainting).

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
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import ArrayLike

from wdport.checkpoint.faults import Fault
from wdport.data.arrays import read_npy, read_npz
from wdport.data.files import data_file
from wdport.data.names import columns_of
from wdport.data.table import Table
from wdport.data.text import read_text
from wdport.diffusion.schedules import Array
from wdport.errors import UsageError
from wdport.families.roles import Tree
from wdport.model import Decoding, NotDecoded
from wdport.sampling.network import Network

RESAMPLE = 5
"""Default number of times every step is taken."""

FURTHEST = 1e6
"""Standard deviations from the mean: values further away are not data, and float32 cannot square values beyond 1e19."""

_TEXT = partial(read_text, gaps=True)
_READERS: dict[str, Callable[[Path, str | None], Table]] = {
    ".csv": _TEXT,
    ".txt": _TEXT,
    ".npy": read_npy,
    ".npz": read_npz,
}


def read_known(path: str | PathLike[str], names: Sequence[str] = ()) -> Array:
    """Read a series (N, F) from a file, NaN where unknown; in text, an empty field or NA is NaN too.

    Columns are found by ``names``, those of the model's features, if the file names its columns. Text columns without
    numbers, such as dates, are left out. Raises :class:`InputError`, or :class:`UsageError` if a column is missing.
    """
    with data_file(path) as file:
        suffix = file.suffix.lower()
        if suffix not in _READERS:
            raise Fault(f"is of an unknown kind ({suffix or 'no suffix'})", f"give one of {', '.join(_READERS)}")
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
    scores = np.where(mask, decoding.standard(values), 0.0)
    if np.abs(scores).max() > FURTHEST:
        what = f"has a value {np.abs(scores).max():.3g} standard deviations from the mean"
        raise UsageError("known", what, "give it in the units of the series that the model draws")
    held = Held(*(part.astype(network.dtype) for part in (scores, np.where(mask, values, 0.0), mask)))
    inner = network.specs
    return replace(
        network,
        embed=lambda weights, times: network.embed(weights[0], times),
        apply=lambda weights, state, embedded, condition: network.apply(weights[0], state, embedded, condition),
        change=partial(_change, network, decoding),
        finish=partial(_finish, network, decoding),
        weights=lambda batch=None: (network.weights(batch), held),
        specs=inner and (lambda batch=None: (inner(batch), held)),
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
    return _fitted(decoding, held, clean if network.change is None else network.change(network_weights, clean))


def _finish(network: Network, decoding: Decoding, weights: Tree, state: Tensor) -> tuple[Tensor, Tensor | None]:
    network_weights, held = weights
    last, decoded = network.finish(network_weights, _fitted(decoding, held, state))
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
