"""Variables of a Keras layer by the attributes that lead to them: ``forward_layer/cell/kernel``."""

from __future__ import annotations

from typing import Any

import keras


def variables(layer: Any, path: str) -> dict[str, Any]:
    """Every weight below ``layer``, each once; random number generators have no weights to move."""
    found: dict[str, Any] = {}
    _walk(layer, path, found, set())
    return found


def _walk(layer: Any, path: str, found: dict[str, Any], seen: set[int]) -> None:
    seen.add(id(layer))
    for variable in (*layer._trainable_variables, *layer._non_trainable_variables):
        found[f"{path}/{variable.name}"] = variable
    inside = [(name, value) for name, value in vars(layer).items() if isinstance(value, keras.Layer)]
    for name, value in inside:
        if id(value) not in seen and not any(name == "layer" and value is other for at, other in inside if at != name):
            _walk(value, f"{path}/{name}", found, seen)
