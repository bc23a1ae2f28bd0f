"""`wdport.sample`: draw samples from a model."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike

from wdport.base.errors import UsageError
from wdport.models.interface import Array, KerasModel
from wdport.uses.data.arrays import npy_array
from wdport.uses.data.table import data_file
from wdport.uses.sampling.job import plan_job
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Samples, programs_of


def sample(
    model: KerasModel,
    n: int | None = None,
    *,
    sampler: str | None = None,
    steps: int | None = None,
    eta: float = 0.0,
    spacing: str | None = None,
    seed: int = 0,
    init: ArrayLike | None = None,
    noise: ArrayLike | None = None,
    known: ArrayLike | None = None,
    resample: int | None = None,
    labels: ArrayLike | None = None,
    scale: ArrayLike | str | None = None,
    condition: ArrayLike | str | None = None,
    unconditional: bool = False,
    guidance: float | None = None,
    anchor: float | None = None,
    transform: str | None = None,
    devices: int | str | None = None,
    shard_weights: bool = False,
    batch: int | None = None,
) -> Samples:
    """Draw samples from a converted diffusion model.

    Args:
        model: what :func:`wdport.load_model` returns.
        n: number of samples. Default: the length of ``init`` or ``noise``, otherwise 1.
        sampler: "ddpm" (default) or "ddim", both as in the checkpoint's own code; "ddim-textbook"; "euler",
            "euler-ancestral", "heun", "dpm++2m", "dpm++2m-sde" or "unipc", as diffusers and k-diffusion name them; or
            "probability-flow". A model on noise levels has that of its scheduler as the default, such as
            "predictor-corrector" or "consistency".
        steps: number of steps, counted as in the checkpoint's own code, where 50 gives 51 steps. Default: all 1000, or
            20 for "dpm++2m-sde", which takes exactly the given number of steps.
        eta: noise level of DDIM; 0 adds no noise.
        spacing: which steps are taken: "leading", "linspace" or "trailing", as in diffusers; or noise levels between
            those of the steps, "karras", "exponential" or "beta". Default: as in the checkpoint's own code.
        seed: 0 to 2^32 - 1. A sample depends only on the seed and its index.
        init: x_T (n, *shape) to start from instead of noise; ``shape`` is the shape of one state of the model.
        noise: recorded noise (slots, n, *shape), one slot for every step that adds noise (for DDPM, all but the last).
        known: one decoded sample, such as a series (N, F), in the units of the output, NaN where unknown. All samples
            have exactly the known values.
        resample: number of times every step is taken when ``known`` is given, so that the rest of the sample becomes
            consistent with the known values. Default: 5.
        labels: classes of the samples, for a class-conditional model; fewer than n labels are cycled.
        scale: the scale of every sample, for a model that takes one: positive numbers, cycled, or "data" to draw them
            from those of the training data.
        condition: the condition of every sample, for a model whose conditioning input has any other name and shape:
            values, cycled, or "data" to draw them from those of the training data, if the model holds these.
        unconditional: call the model without its condition. The model must be able to run, or have been trained,
            without it.
        guidance: scale of classifier-free guidance: 1 for none; larger values follow the condition more closely.
            Requires a model that was also trained without its condition.
        anchor: price near which all samples begin, for a model whose windows are relative to their first price; by
            default, the first prices of training windows drawn with the seed.
        transform: the transform of the model's data, if it is your own ``module:class``, whose code is then run;
            otherwise samples of such a model stay in the units of its windows.
        devices: "all" devices of this process, or the first N; the samples are divided among them. Default: one. Under
            ``jax.distributed`` the devices of every process are used: all processes make the same call and get all
            samples.
        shard_weights: divide the weights among ``devices`` of this process instead of copying them to each.
        batch: samples per network call. Default: chosen to fit the free memory. The batch size may change the last bits
            of a sample.

    Returns:
        States (n, *shape) in standard units, and the decoded samples, in the units of the data if the model holds their
        mean and standard deviation; None if the model cannot decode states. Both have the names that the model's family
        gives them; ``features`` are the names of the features along the last axis, if the model knows them.

    Raises:
        UsageError: an argument is invalid; the message names it.
    """
    request = Request(
        count=n, sampler=sampler, steps=steps, eta=eta, spacing=spacing, seed=seed, init=init, noise=noise, known=known,
        resample=resample, guidance=guidance, devices=devices, shard_weights=shard_weights, batch=batch,
        unconditional=unconditional, anchor=anchor, transform=transform,
        **one_condition(labels=labels, scale=scale, condition=condition),
    )  # fmt: skip
    job = plan_job(programs_of(model), request)
    return replace(Samples.join(list(job.draw())), given=job.given)


def one_condition(**conditions: ArrayLike | str | None) -> dict[str, Any]:
    """The fields of a :class:`Request` for the only one of these conditions that is given; raises :class:`UsageError`
    for several."""
    supplied = {name: values for name, values in conditions.items() if values is not None}
    if len(supplied) > 1:
        raise UsageError(" and ".join(supplied), "are given together", "give the one that the model takes")
    return next(({"condition": values, "condition_name": name} for name, values in supplied.items()), {})


def read_init(path: str | PathLike[str]) -> Array:
    """Read x_T from a ``.npy`` file; raises :class:`InputError` for any other file."""
    with data_file(path) as file:
        return npy_array(file)
