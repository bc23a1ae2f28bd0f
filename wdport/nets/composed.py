"""Layers that consist of others, of whose inputs they know the shapes; and the dtype of sums and exponentials, whatever
the compute dtype."""

from __future__ import annotations

import keras
from keras import layers, ops

from wdport.models.interface import KerasLayer
from wdport.models.interface import KerasTensor as Tensor

Shape = tuple[int | None, ...]


class Composed(layers.Layer):
    """A layer that is built by building its parts, in the order in which they were added."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._shapes: dict[str, tuple[Shape, ...]] = {}

    def add(self, part: KerasLayer, *shapes: Shape) -> None:
        """Add a part, which is built for inputs of these ``shapes``, as the attribute of its own name, so that a
        variable's path is the same in the code, in Keras and in a file."""
        setattr(self, part.name, part)
        self._shapes[part.name] = shapes

    def build(self, *_: Shape) -> None:
        for name, shapes in self._shapes.items():
            getattr(self, name).build(*shapes)


def wide(x: Tensor) -> Tensor:
    """``x`` in at least float32: sums and exponentials are not computed in 16 bits (nor in PyTorch)."""
    return ops.cast(x, "float32") if keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16") else x
