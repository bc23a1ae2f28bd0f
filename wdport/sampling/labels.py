"""Class labels and classifier-free guidance."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from numbers import Real

import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor
from numpy.typing import ArrayLike

from wdport.diffusion.schedules import Array
from wdport.errors import UsageError
from wdport.families.roles import Tree
from wdport.model import Diffused
from wdport.sampling.network import Network


def checked_labels(about: Diffused, labels: ArrayLike | None, count: int, name: str = "labels") -> Array | None:
    """Labels (count,), int32: ``labels`` cycled over the samples; None for a network without classes.

    Raises :class:`UsageError` for labels that are invalid for the network.
    """
    if about.classes is None:
        if labels is not None:
            raise UsageError(name, "the model has no classes", "leave it out")
        return None
    if labels is None:
        raise UsageError(name, "the model draws samples of a class", f"give one from 0 to {about.classes - 1}")
    given = np.atleast_1d(np.asarray(labels))
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise UsageError(name, "are not whole numbers", f"give labels from 0 to {about.classes - 1}")
    if given.min() < 0 or given.max() >= about.classes:
        wrong = given.min() if given.min() < 0 else given.max()
        raise UsageError(name, f"{wrong} is not a class of the model", f"give labels from 0 to {about.classes - 1}")
    if given.size > count:
        raise UsageError(name, f"{given.size} labels for {count} samples", "give one for each sample, or fewer")
    return np.resize(given, count).astype(np.int32)


def guided(network: Network, guidance: float | None) -> Network:
    """``network`` with classifier-free guidance (arXiv 2207.12598): its prediction for no class, plus ``guidance``
    times the difference that a label makes, in one doubled batch. 1 and None leave the network unchanged.

    Raises :class:`UsageError` for a network that has no label for "no class".
    """
    if guidance is None:
        return network
    if not isinstance(guidance, Real) or isinstance(guidance, bool) or not isfinite(guidance):
        raise UsageError(
            "guidance", f"{guidance!r} is not a finite number", "give 1 for none, more to follow labels more"
        )
    none = network.about.no_class
    if network.about.classes is None or none is None:
        raise UsageError("guidance", "the model was not trained for classifier-free guidance", "leave it out")
    if guidance == 1.0:
        return network
    weight = float(guidance)

    def apply(weights: Tree, state: Tensor, condition: Tree, labels: Tensor) -> Tensor:
        both = jnp.concatenate([labels, jnp.full_like(labels, none)])
        made, plain = jnp.split(network.apply(weights, jnp.concatenate([state, state]), condition, both), 2)
        return plain + weight * (made - plain)

    return replace(network, apply=apply)
