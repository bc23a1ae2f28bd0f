"""AdamW with PyTorch's semantics: parameters, gradients and moments in, the next ones out; pure functions of arrays.

Formulas: Loshchilov and Hutter, arXiv 1711.05101, as `torch.optim.AdamW` computes them. Keras's own differs in
one place: its epsilon is added before the bias correction of the second moment is taken out.
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
"""Added to the norm by `torch.nn.utils.clip_grad_norm_`."""


@dataclass(frozen=True)
class AdamW:
    """The optimiser's constants. Weight decay applies to every parameter, biases and norms included."""

    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    def update(
        self, parameter: Tensor, gradient: Tensor, moments: Moments, step: int, rate: float, beta1: float
    ) -> tuple[Tensor, Moments]:
        """One parameter after step ``step`` (from 1) at learning rate ``rate``, and its moments."""
        first = beta1 * moments[0] + (1.0 - beta1) * gradient
        second = self.beta2 * moments[1] + (1.0 - self.beta2) * gradient**2
        size = jnp.sqrt(second) / (1.0 - self.beta2**step) ** 0.5 + self.epsilon
        decayed = parameter * (1.0 - rate * self.weight_decay)
        return decayed - rate / (1.0 - beta1**step) * (first / size), (first, second)


def clip_factor(gradients: Sequence[Tensor | Array], largest: float) -> Tensor:
    """What every gradient is multiplied with so that their norm over all parameters is at most ``largest``."""
    norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
    return jnp.minimum(largest / (norm + CLIP_EPSILON), 1.0)
