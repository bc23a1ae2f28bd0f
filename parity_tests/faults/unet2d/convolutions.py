"""Known bugs of convolutions that keep the image's size: the kernel's axes, and the bias."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import jax.numpy as jnp
import numpy as np

from parity_tests.faults.unet2d.places import CONV
from wdport.families.faults import Change, Mutant, array_of, calling, holding
from wdport.model import Array, KerasLayer, KerasModel, KerasTensor


def convolution_mutants() -> list[Mutant]:
    """The mutants of every convolution; kernels are (H, W, in, out)."""
    square = ("*/conv2",)  # as many channels in as out
    return [
        Mutant("convolution: kernel flipped", CONV, _kernel(lambda k: k[::-1, ::-1]), quick=True),
        Mutant("convolution: kernel's height and width swapped", CONV, _kernel(lambda k: np.swapaxes(k, 0, 1))),
        Mutant("convolution: kernel's channels swapped", square, _kernel(lambda k: np.swapaxes(k, 2, 3))),
        Mutant("convolution: bias dropped", CONV, _without_bias),
        Mutant("convolution: edges repeated for zeros", square, calling(_repeated)),
    ]


def _kernel(function: Callable[[Array], Array]) -> Change:
    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        return holding((layer.kernel, function(array_of(layer.kernel))))

    return change


def _without_bias(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
    return holding((layer.bias, array_of(layer.bias) * 0.0))


def _repeated(layer: KerasLayer, x: KerasTensor) -> KerasTensor:
    """Padding by the nearest pixel: the image is extended, and the output cropped."""
    larger = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    return type(layer).call(layer, larger)[:, 1:-1, 1:-1]
