"""Whether a network computes the same once more, on its fast path and beside padding."""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING

import numpy as np

from .calls import Outputs
from .errors import Refusal
from .float64 import lifted
from .observation import Observation
from .runs import run
from .torch_functions import highest_precision

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array


def is_repeatable(module: Module, observation: Observation, where: str) -> bool:
    """Whether another run gives bitwise equal outputs; raises :class:`Refusal` if their difference is more than one of
    rounding, since there is then nothing to compare with."""
    before = _random_states()
    with highest_precision(), lifted():
        outputs = run(module, observation.inputs)
    pairs = list(zip(outputs, observation.outputs))
    if all(np.array_equal(again, first, equal_nan=again.dtype.kind == "f") for again, first in pairs):
        return True
    if not all(again.shape == first.shape and np.allclose(again, first, REPEATED, REPEATED, equal_nan=True)
               for again, first in pairs):  # fmt: skip
        if _random_states() != before:
            fix = "let it draw none unless self.training is true"
            raise Refusal(6, where, "draws random numbers in evaluation mode, so no outputs can be compared", fix)
        fix = "let it keep nothing of earlier calls, and draw no random numbers"
        raise Refusal(6, where, "gives other outputs when it runs again on the same inputs", fix)
    return False


REPEATED = 1e-10
"""Largest difference of float64 outputs, absolute and relative, that the order of additions may cause."""


def _random_states() -> list[object]:
    """The states of the generators of random numbers that a module may use."""
    import torch

    state = np.random.get_state(legacy=False)
    return [torch.get_rng_state().tolist(), repr(state), random.getstate()]


FAST = "computes something else on PyTorch's fast path, without gradients: its outputs are off by"


def fast_path_error(module: Module, observation: Observation) -> float:
    """How far the outputs of the float32 module that is called as users call it, without gradients, are from those that
    are compared: ``nn.TransformerEncoder`` then gives zeros at steps of padding. 0 for errors of rounding."""
    if observation.single is None:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nested tensors, which torch makes
        outputs = run(module, observation.single.inputs, fast=True)
    reference = observation.single.outputs[0]
    return _beyond_rounding(outputs, reference)


def _beyond_rounding(outputs: Outputs, reference: Outputs) -> float:
    """The largest relative error of finite outputs of one shape; 0 for errors of rounding."""
    pairs = [(a, b) for a, b in zip(outputs, reference) if a.shape == b.shape and b.dtype.kind == "f"]
    errors = [float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0)) for a, b in pairs if np.isfinite([a, b]).all()]
    return max([error for error in errors if error > 1e-3], default=0.0)


FAST_PADDED = (
    "nn.TransformerEncoder sets padding at the end to zero on PyTorch's fast path, without gradients: outputs off by "
    "{:.1e}; torch.backends.mha.set_fastpath_enabled(False) turns it off"
)


def padded_error(module: Module, observation: Observation) -> float:
    """How far the outputs of the fast path are from those that are compared, if an encoder is given masks of padding at
    the end, as tokenizers make them; 0 for errors of rounding."""
    encoders = any(type(part).__name__ == "TransformerEncoder" for part in module.modules())
    if observation.single is None or not encoders:
        return 0.0
    errors = [0.0]
    for sign in (1, -1):  # either value may be the one of padding
        inputs = [np.ascontiguousarray(np.sort(array, axis=-1)[..., ::sign]) if _is_mask(array) else array
                  for array in observation.single.inputs]  # fmt: skip
        if any(array is not other for array, other in zip(inputs, observation.single.inputs)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fast, slow = (run(module, inputs, fast=fast) for fast in (True, False))
            errors.append(_beyond_rounding(fast, slow))
    return max(errors)


def _is_mask(array: Array) -> bool:
    return array.ndim >= 2 and array.dtype.kind in "biu" and set(np.unique(array).tolist()) == {0, 1}
