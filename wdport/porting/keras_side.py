"""The Keras model that is filled: its layers that can be watched, and the variables below each."""

from __future__ import annotations

from dataclasses import dataclass, field

from wdport.compare.calls import layer_of
from wdport.compare.pairs import is_keras
from wdport.keras_runtime import layers_by_path, variables_by_path
from wdport.model import Array, KerasModel, KerasVariable

_OPAQUE = ("RNN", "Bidirectional", "TimeDistributed")
"""Classes of ``keras.layers`` that call the layers below them in a loop, where the calls are not visible."""


class KerasSide:
    """The Keras model: its layers that can be watched, and the variables below each."""

    def __init__(self, model: KerasModel) -> None:
        self.model = model
        every = layers_by_path(model)
        opaque = tuple(f"{path}/" for path, layer in every.items() if is_keras(layer, *_OPAQUE))
        # Layers below an opaque one are not watched: their variables are filled as those of the outer layer.
        self.layers = {path: layer for path, layer in every.items() if not path.startswith(opaque)}
        self.variables: dict[str, KerasVariable] = {
            path: variable for path, variable in variables_by_path(model).items() if "float" in str(variable.dtype)
        }

    def variables_below(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer and of the layers in it."""
        return {name: variable for name, variable in self.variables.items() if not path or name.startswith(f"{path}/")}

    def direct_variables(self, path: str) -> dict[str, KerasVariable]:
        """The variables of a layer that do not belong to a watched layer in it."""
        inside = tuple(f"{layer}/" for layer in self.layers if not path or layer.startswith(f"{path}/"))
        return {name: variable for name, variable in self.variables_below(path).items() if not name.startswith(inside)}


@dataclass
class InputCall:
    """A call of a Keras layer: its inputs and outputs."""

    call: str
    inputs: list[Array]
    outputs: list[Array] = field(default_factory=list)

    @property
    def path(self) -> str:
        return layer_of(self.call)
