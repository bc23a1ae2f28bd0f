"""A converted file read by the library that its format belongs to: Keras or safetensors, not by wdport's own reader.

Writer and reader of wdport share one description of the layout, so a fault of that would pass unseen between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wdport.load import Converted
from wdport.models.family import Array


def library_model(converted: Converted) -> Any | None:
    """The float32 model as Keras itself loads it; ``None`` for a format that Keras does not know."""
    if converted.format == "safetensors":
        return None
    import keras

    if converted.format == "keras":
        return keras.saving.load_model(converted.path, compile=False)
    model = converted.family.build(converted.config)
    model.load_weights(converted.path)
    return model


def misread(converted: Converted, model: Any | None, variables: Mapping[str, Array]) -> list[str]:
    """Sentences on the variables that the library reads otherwise than wdport's ``variables``, bit for bit."""
    if model is None:
        from safetensors.numpy import load_file

        library, found = "safetensors", load_file(converted.path)
    else:
        library, found = "Keras", {variable.path: np.asarray(variable.value) for variable in model.weights}
    wrong = [name for name in variables if name not in found or not same_bits(found[name], variables[name])]
    return [f"{name} is another array as {library} reads the file" for name in wrong]


def same_bits(first: Array, second: Array) -> bool:
    """Whether two arrays are equal to the last bit; zero and minus zero are not."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    bits = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)]
    return np.array_equal(bits[0], bits[1])
