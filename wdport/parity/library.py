"""Read a converted file with the library of its format, Keras, safetensors or numpy, not with wdport's own reader.

wdport's writer and reader share one description of the layout, so neither would reveal a fault in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch

import numpy as np

from wdport.compare.findings import Finding, fact
from wdport.compare.measure import same_bits
from wdport.conversion.load import Converted
from wdport.files.target import FOLDER
from wdport.model import Array, KerasVariable


def library_variables(converted: Converted) -> tuple[str, Mapping[str, Array]]:
    """The library's name, and every variable by path as the library reads it.

    Keras loads into a model of the family that is never run, so nothing is compiled; the assigned values are kept.
    """
    path = converted.path
    if converted.format in ("safetensors", FOLDER):
        from safetensors.numpy import load_file

        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        held = {name: array for file in files for name, array in load_file(file).items()}
        return "safetensors", {name: array.astype(np.float32, copy=False) for name, array in held.items()}
    if converted.format == "npz":
        with np.load(path) as arrays:
            return "numpy", {name: arrays[name].astype(np.float32, copy=False) for name in converted.variables}
    import keras

    assigned: dict[str, Array] = {}

    def keep(variable: KerasVariable, value: object) -> object:
        assigned[variable.path] = np.asarray(value)
        return value

    # A model under construction may assign initial values, which the file's follow.
    with converted.family.unfilled(), patch.object(keras.Variable, "assign", keep):
        if converted.format == "keras":
            keras.saving.load_model(converted.path, compile=False)
        else:
            converted.family.build(converted.config).load_weights(converted.path)
    return "Keras", assigned


def misread(converted: Converted, variables: Mapping[str, Array]) -> list[Finding]:
    """Findings on variables whose values, as the library reads them, are not bitwise equal to ``variables``."""
    library, loaded = library_variables(converted)
    wrong = [name for name in variables if name not in loaded or not same_bits(loaded[name], variables[name])]
    return [fact(f"{name} is another array as {library} reads the file", name, "unequal") for name in wrong]
