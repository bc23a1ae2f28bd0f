"""Compare the settings of the user's two models without running them: all differences, or the first layer that explains
why a table does not fit.

A plan notices a pooling with another output size only at the next weight, some layers later. Both models are available,
so the settings of layers with windows are compared, as far as their input shapes are known; nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from wdport.base.errors import MisfitError, WdportError
from wdport.compare.alignment import compare_settings
from wdport.compare.calls import Call
from wdport.compare.setting_values import SettingsReport
from wdport.compare.settings import differences, has_windows, kind_of
from wdport.compare.taps import align
from wdport.families.user_functions import find_function
from wdport.mapping.rows import Table
from wdport.models.interface import Document, KerasLayer, KerasModel
from wdport.models.keras_runtime import layers_by_path
from wdport.recording import user_code
from wdport.recording.errors import one_line
from wdport.recording.runs import module_names

if TYPE_CHECKING:
    import torch


def first_unlike(model: KerasModel, reference: str | None, arguments: Document, table: Table) -> str:
    """How the first such layer of ``model`` differs from its module, as text; "" if none does, or if the PyTorch model
    of the function ``reference`` cannot be built."""

    if not reference:
        return ""
    layers = layers_by_path(model)
    try:
        module = user_code.find_function(reference)(**arguments)
        taps = align(table, module_names(module), layers, ())
        modules = dict(module.named_modules())
    # The caller reports that the table does not fit; whatever the PyTorch model raises would hide that.
    except Exception:  # the function is the user's, and this is only a hint
        return ""
    taps_by_layer = {tap.candidate: tap for tap in taps if tap.reference in modules}
    for path, layer in layers.items():
        if path not in taps_by_layer:
            continue
        tap, input_shape = taps_by_layer[path], _known_input_shape(layer)
        if not input_shape or not has_windows(tap.kind) or _may_be_padded(layer, model):
            continue  # it sets no size, or the effect of its own padding is unknown
        if sentences := differences(tap.kind, modules[tap.reference], layer, input_shape):
            return f"{path}: {sentences[0]}"
    return ""


def settings_of(model: KerasModel, reference: str, arguments: Document, table: Table) -> SettingsReport:
    """The settings that differ between every pair of layers that the table aligns, as far as known without running
    them.

    Raises :class:`WdportError` if the PyTorch model cannot be built, or the table does not fit the two models.
    """

    layers = layers_by_path(model)
    try:
        module = find_function(reference)(**arguments)
        # A module that is used in several places has a row in the table for each, under each of its names.
        modules = dict(getattr(module, "named_modules")(remove_duplicate=False))
    except WdportError:
        raise
    except (Exception, SystemExit) as error:
        raise MisfitError(reference, f"raises {one_line(error)}", "correct the function") from error
    taps = align(table, module_names(cast("torch.nn.Module", module)), layers, ())
    input_shapes = {path: shape for path, layer in layers.items() if (shape := _known_input_shape(layer))}
    kinds = {tap.candidate: tap.kind or kind_of(modules[tap.reference]) for tap in taps if tap.reference in modules}
    # A PyTorch module that pads is often a ZeroPadding layer and a layer without padding in Keras, so their paddings
    # differ.
    doubtful = {path for path, kind in kinds.items() if has_windows(kind)}
    doubtful -= {path for path in input_shapes if path in doubtful and not _may_be_padded(layers[path], model)}
    # Only the shapes are read: a broadcast zero takes no memory at any size.
    calls = {path: Call((np.broadcast_to(np.float32(0), shape),), ()) for path, shape in input_shapes.items()}
    report = compare_settings(taps, modules, layers, None, calls, table.fills)
    settings = (setting for setting in report.found if setting.name != "padding" or setting.candidate not in doubtful)
    return replace(report, found=tuple(settings))


def _may_be_padded(layer: KerasLayer, model: KerasModel) -> bool:
    """Whether the input of a layer of a functional model was enlarged by a layer without windows; true if unknown."""
    if not getattr(model, "inputs", None):
        return True  # not a functional model as a whole
    tensor = layer.input
    while not any(tensor is model_input for model_input in model.inputs):
        # Keras notes on a symbolic tensor which call made it; there is no public way back through the graph.
        history = tensor._keras_history
        inputs = history.operation._inbound_nodes[history.node_index].input_tensors
        if not inputs:
            return True  # inside a nested model: the layers before it are unknown
        # Another layer with windows: its own comparison covers what happens before it.
        if hasattr(history.operation, "kernel_size") or hasattr(history.operation, "pool_size"):
            return False
        tensor_sizes = _sizes(tensor.shape, layer)
        sizes = [_sizes(input_tensor.shape, layer) for input_tensor in inputs]
        if tensor_sizes not in sizes:
            return any(None in lengths for lengths in (tensor_sizes, *sizes)) or any(
                prod(lengths) < prod(tensor_sizes) for lengths in sizes
            )
        tensor = inputs[sizes.index(tensor_sizes)]
    return False


def _sizes(shape: Sequence[int], layer: KerasLayer) -> tuple[int, ...]:
    """The sizes of all axes except batch and channels."""
    return tuple(shape[2:] if getattr(layer, "data_format", "") == "channels_first" else shape[1:-1])


def _known_input_shape(layer: KerasLayer) -> tuple[int, ...]:
    """The input shape of a layer of a functional model; empty if unknown."""
    try:
        shape = layer.input.shape
    except (AttributeError, ValueError):
        return ()
    return (1, *shape[1:]) if all(isinstance(size, int) for size in shape[1:]) else ()
