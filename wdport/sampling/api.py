"""`wdport.sample`: a model in, samples out."""

from __future__ import annotations

import os
from os import PathLike

from numpy.typing import ArrayLike

from wdport.checkpoint.regular import open_regular
from wdport.data.arrays import understood
from wdport.data.files import data_file
from wdport.data.npy import read_array
from wdport.diffusion.schedules import Array
from wdport.model import KerasModel
from wdport.sampling.job import plan_job
from wdport.sampling.programs import programs_of
from wdport.sampling.request import Request
from wdport.sampling.samples import Samples


def sample(
    model: KerasModel,
    n: int | None = None,
    *,
    sampler: str | None = None,
    steps: int | None = None,
    eta: float = 0.0,
    seed: int = 0,
    init: ArrayLike | None = None,
    noise: ArrayLike | None = None,
    known: ArrayLike | None = None,
    resample: int | None = None,
    labels: ArrayLike | None = None,
    guidance: float | None = None,
    devices: int | str | None = None,
    shard_weights: bool = False,
    pad_widths: int = 1,
    batch: int | None = None,
) -> Samples:
    """Draw samples from a converted diffusion model.

    Args:
        model: what :func:`wdport.load_model` returns.
        n: number of samples; 1, or as many as ``init`` or ``noise`` has, if not given.
        sampler: "ddpm", the default, or "ddim", which do what the checkpoint's own code does; "ddim-textbook",
            "dpm-solver++", "heun" or "euler".
        steps: number of steps, by the checkpoint's rule (50 makes 51); every one of the 1000 if not given.
        eta: noise of DDIM, 0 for none.
        seed: 0 to 2^32 - 1. A sample depends on the seed and its own number alone.
        init: x_T (n, *shape) to start from instead of noise; ``shape`` is that of one state of the model.
        noise: a noise tape (slots, n, *shape), one slot for every step that adds noise (all but the last of DDPM).
        known: one decoded sample, such as a series (N, F), in the units of those that come out, NaN where it is not
            known: all samples have the known values, exactly.
        resample: how often every step is taken with ``known``, so that the rest fits it; 5 if not given.
        labels: the class of each sample, or of all, of a model that knows classes; fewer labels come in turn.
        guidance: classifier-free guidance: 1 for none, more to follow the labels more; for models that were trained
            without labels as well.
        devices: "all" devices of this process share the samples, or the first so many; one if not given. Under
            ``jax.distributed`` those of every process do: all make the same call and get all samples.
        shard_weights: divide the weights among ``devices`` of this process instead of copying them to each.
        pad_widths: fill the network's widths up with zeros to a multiple of this, such as 128 or 256. The samples
            stay what they are but for rounding. It may pay on a TPU or GPU with matrix units of that size, where
            widths are no multiples already; on a CPU it is work for nothing.
        batch: samples per call of the network; by the free memory if not given. Another batch may change the last bits
            of a sample.

    Returns:
        States (n, *shape) in standard units, and what they are decoded to, in the units of the data where the model
        carries their mean and standard deviation; None where the model does not know how. Both have the names that the
        model's family gives them.

    Raises:
        UsageError: an argument is impossible; the message names it.
    """
    request = Request(
        count=n, sampler=sampler, steps=steps, eta=eta, seed=seed, init=init, noise=noise, known=known,
        resample=resample, labels=labels, guidance=guidance, devices=devices, shard_weights=shard_weights, batch=batch,
    )  # fmt: skip
    return Samples.join(list(plan_job(programs_of(model, pad_widths), request).draw()))


def read_init(path: str | PathLike[str]) -> Array:
    """An array from a ``.npy`` file, x_T; raises :class:`InputError` for any other file."""
    with data_file(path) as file, open_regular(file) as opened, understood(".npy"):
        return read_array(opened, os.fstat(opened.fileno()).st_size)
