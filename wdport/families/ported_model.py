"""The base class of the families' Keras models."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from wdport.base.fields import Fields
from wdport.models.keras_runtime import layer_dtype, require_backend
from wdport.nets.composed import Composed


class PortedModel(Composed, keras.Model):
    """A model that has all its variables from the start, for its ``configuration`` fixes every shape.

    Args:
        config: a configuration or its :meth:`~wdport.base.fields.Fields.to_dict`.
    """

    configuration: ClassVar[type[Fields]]
    family: ClassVar[str]

    def __init__(self, config: Any, **kwargs: object) -> None:
        # Without Keras's casts of inputs to the compute dtype: in bfloat16 neighbouring steps are equal.
        super().__init__(**{"name": self.family, **kwargs, "autocast": False})
        require_backend(self.variable_dtype)
        self.config: Any = config if isinstance(config, self.configuration) else self.configuration.from_dict(config)
        with layer_dtype(self.dtype_policy):
            self.create(self.config)
        # Without Keras's wrapper of `build`, which would put the model's name before the paths of all variables.
        Composed.build(self)
        self.built = True

    def create(self, config: Any) -> None:
        """Add the model's layers."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        # Keras stores a layer under the first attribute that refers to it, in the order of dir(). Its own
        # generic `layers` would come before others, such as `up_0`; without it the file has our structural paths.
        return [name for name in super().__dir__() if name != "layers"]

    def get_config(self) -> dict[str, object]:
        return {"name": self.name, "dtype": self.dtype_policy.name, "config": self.config.to_dict()}
