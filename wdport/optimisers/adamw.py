"""AdamW with PyTorch's semantics: compute the next parameters and moments by pure functions of arrays.

Formulas: Loshchilov and Hutter, arXiv 1711.05101, as `torch.optim.AdamW` computes them. Keras's optimiser differs in
one place: it adds epsilon before the bias correction of the second moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array as Tensor

from wdport.model import Array

Moments = tuple[Tensor, Tensor]
"""Running means of the gradient and of its square."""

CLIP_EPSILON = 1e-6
"""The constant that `torch.nn.utils.clip_grad_norm_` adds to the norm."""


@dataclass(frozen=True)
class AdamW:
    """The optimiser's constants. Weight decay applies to every parameter, biases and norms included."""

    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    def update(
        self, parameter: Tensor, gradient: Tensor, moments: Moments, step: int, rate: float, beta1: float
    ) -> tuple[Tensor, Moments]:
        """Return one parameter and its moments after step ``step`` (from 1) at learning rate ``rate``."""
        first = beta1 * moments[0] + (1.0 - beta1) * gradient
        second = self.beta2 * moments[1] + (1.0 - self.beta2) * gradient**2
        size = jnp.sqrt(second) / (1.0 - self.beta2**step) ** 0.5 + self.epsilon
        decayed = parameter * (1.0 - rate * self.weight_decay)
        return decayed - rate / (1.0 - beta1**step) * (first / size), (first, second)


def clip_factor(gradients: Sequence[Tensor | Array], largest: float) -> Tensor:
    """Return the factor for every gradient that makes their norm over all parameters at most ``largest``."""
    norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
    return jnp.minimum(largest / (norm + CLIP_EPSILON), 1.0)
