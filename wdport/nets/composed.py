"""Layers that consist of others, of whose inputs they know the shapes."""

from __future__ import annotations

from keras import layers

from wdport.model import KerasLayer

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
