"""`wdport.sample`: a model in, samples out."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wdport.data.arrays import understood
from wdport.data.files import data_file
from wdport.diffusion.schedules import Array
from wdport.errors import UsageError
from wdport.sampling.chunks import chunked
from wdport.sampling.devices import spread_over
from wdport.sampling.known import FURTHEST, resampling, with_known
from wdport.sampling.programs import Programs, programs_of
from wdport.sampling.sampler import Sampler, Samples, plan_of

MOST = 1 << 32
"""Samples of one seed: their numbers have 32 bits."""


def sample(
    model: Any,
    n: int | None = None,
    *,
    sampler: str = "ddpm",
    steps: int | None = None,
    eta: float = 0.0,
    seed: int = 0,
    init: ArrayLike | None = None,
    noise: ArrayLike | None = None,
    known: ArrayLike | None = None,
    resample: int | None = None,
    devices: int | str | None = None,
    shard_weights: bool = False,
    pad_widths: int = 1,
    batch: int | None = None,
) -> Samples:
    """Draw samples from a converted diffusion model.

    Args:
        model: what :func:`wdport.load_model` returns.
        n: number of samples; 1, or as many as ``init`` or ``noise`` has, if not given.
        sampler: "ddpm" or "ddim", which do what the checkpoint's own code does; "ddim-textbook", "dpm-solver++",
            "heun" or "euler".
        steps: number of steps, by the checkpoint's rule (50 makes 51); every one of the 1000 if not given.
        eta: noise of DDIM, 0 for none.
        seed: 0 to 2^32 - 1. A sample depends on the seed and its own number alone.
        init: x_T (n, C, F) to start from instead of noise.
        noise: a noise tape (slots, n, C, F), one slot for every step that adds noise (all but the last of DDPM).
        known: a series (N, F), in the units of the series that come out, NaN where it is not known: all samples
            have the known values, exactly.
        resample: how often every step is taken with ``known``, so that the rest fits it; 5 if not given.
        devices: "all" devices of this process share the samples, or the first so many; one if not given. Under
            ``jax.distributed`` those of every process do: all make the same call and get all samples.
        shard_weights: divide the weights among ``devices`` of this process instead of copying them to each.
        pad_widths: fill the network's widths up with zeros to a multiple of this, such as 128 or 256. The samples
            stay what they are but for rounding. It may pay on a TPU or GPU with matrix units of that size, where
            widths are no multiples already; on a CPU it is work for nothing.
        batch: samples per call of the network; by the free memory if not given. Another batch may change the last bits
            of a sample.

    Returns:
        Coefficients (n, C, F) in z-score space; series (n, N, F) in the units of the data where the model
        carries their mean and standard deviation, None where it does not know its wavelet.

    Raises:
        UsageError: an argument is impossible; the message names it.
    """
    programs = programs_of(model, pad_widths)
    if known is not None:
        programs = Programs(with_known(programs.network, model.config, known))
    plan = plan_of(programs.network, sampler, steps, eta, resampling(resample, known is not None))
    runner = Sampler(programs, plan, seed, spread_over(devices, shard_weights))
    shape = programs.network.shape
    start = None if init is None else checked_array("init", init, ("n", *shape))
    tape = None if noise is None else checked_array("noise", noise, (runner.plan.slots, "n", *shape))
    count = _count(n, start, tape)
    _check_number("batch", batch)
    size = runner.auto_batch(model.config, count) if batch is None else int(batch)
    return Samples.join(list(chunked(runner, count, size, init=start, tape=tape)))


def read_init(path: str | PathLike[str], shape: tuple[int, int]) -> Array:
    """x_T (n, C, F) from a ``.npy`` file.

    Raises :class:`InputError` for any other file, :class:`UsageError` for an array that is no such x_T.
    """
    with data_file(path) as file, file.open("rb") as opened, understood(".npy"):
        array = np.lib.format.read_array(opened, allow_pickle=False)
    return checked_array(str(path), array, ("n", *shape))


def checked_array(name: str, values: ArrayLike, shape: tuple[int | str, ...]) -> Array:
    """``values`` as a finite array of this shape, "n" standing for any length; or a :class:`UsageError`."""
    array = np.asarray(values)
    fits = array.ndim == len(shape) and all(a == b or b == "n" for a, b in zip(array.shape, shape, strict=True))
    if not fits or 0 in array.shape[-3:]:
        wanted = ", ".join(map(str, shape))
        raise UsageError(name, f"has shape {array.shape}", f"give ({wanted}) for this model and sampler")
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise UsageError(name, "has values that are no finite numbers", "give finite real numbers")
    if (largest := float(np.abs(array).max(initial=0))) > FURTHEST:
        raise UsageError(name, f"has values up to {largest:.3g}", "give standard normal noise, or what is like it")
    return array


def _count(n: int | None, init: Array | None, tape: Array | None) -> int:
    """The number of samples, on which everything given must agree."""
    _check_number("n", n)
    told = {"n": n, "init": None if init is None else len(init), "noise": None if tape is None else tape.shape[1]}
    counts = {name: int(count) for name, count in told.items() if count is not None}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} is for {count}" for name, count in counts.items())
        raise UsageError("n", said, "give the same number of samples everywhere")
    count = next(iter(counts.values()), 1)
    if count > MOST:
        raise UsageError("n", f"{count} is more than seeds can tell apart", f"give at most {MOST}, and another seed")
    return count


def _check_number(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
        raise UsageError(name, f"{value!r} is no number of samples", "give 1 or more")
