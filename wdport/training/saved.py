"""Write a trained model as Keras writes it, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np

from wdport.files.atomic import replacing
from wdport.files.writable import OutputPath
from wdport.keras_runtime import set_variable, variables_by_path
from wdport.model import Array, KerasModel


def save_trained(model: KerasModel, output: OutputPath, values: Mapping[str, Array] | None = None) -> None:
    """Save ``model`` to a ``.keras`` file, with these ``values`` of its variables instead of its own if given.

    Raises :class:`MachineError` if writing fails.
    """
    named = variables_by_path(model)
    original = {name: np.array(named[name].value) for name in values or ()}
    try:
        for name, array in (values or {}).items():
            set_variable(named[name], np.array(array))
        with replacing(output) as (temporary,):
            keras.saving.save_model(model, temporary)
    finally:
        for name, array in original.items():
            set_variable(named[name], array)
