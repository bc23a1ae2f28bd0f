"""Try the reference's settings on a Keras layer that differs: the fewest that make it right are the cause.

A setting that two layers state differently explains nothing by itself: another layer of the model may make up for it,
such as one that pads. The layer is built again with the setting changed, gets the same weights, and is called on what
it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import jax
import numpy as np

from wdport.compare.pairs import is_keras
from wdport.compare.probe import run_layer, tensors
from wdport.compare.setting_checks import every
from wdport.compare.setting_values import Setting
from wdport.models.interface import Array, KerasLayer
from wdport.models.keras_runtime import exact_float64, set_variable, variables_by_path
from wdport.porting.fingerprints import InputCall

MOST_TRIALS = 48
"""Maximum number of layers that are built for one difference."""

Way = tuple[dict[str, Any], list[Array]]
"""Arguments of a layer's class, and inputs."""

Right = Callable[[KerasLayer, list[Array]], bool]
"""Whether a layer, built with other settings, and its outputs are those of the reference."""


ZEROS = "zeros"
"""The name of a setting that a layer does not have itself: the zeros that another one puts around its input."""


def needed(
    layer: KerasLayer, event: InputCall, settings: Sequence[Setting], right: Right, theirs: Array | None = None
) -> list[Setting]:
    """The fewest of these settings that make the layer right on the inputs of ``event``; none if all of them do not.
    ``theirs`` is its input with PyTorch's zeros, for :data:`ZEROS`."""
    subsets = (subset for count in range(1, len(settings) + 1) for subset in combinations(settings, count))
    trials = ((subset, *way) for subset in subsets for way in _changes(layer, event.inputs, subset, theirs))
    for subset, changes, fed in islice(trials, MOST_TRIALS):
        try:
            if right(*_run(layer, changes, fed, event.names)):
                return list(subset)
        # A layer may not take a setting, or the inputs with it.
        except Exception:
            continue
    return []


def called(layer: KerasLayer, inputs: Sequence[Array], names: Sequence[str] = ()) -> list[Array]:
    """The outputs of a layer in float64, eagerly; ``names`` are the arguments that hold its inputs."""
    with jax.enable_x64(True), exact_float64(), jax.default_matmul_precision("highest"):
        outputs = run_layer(layer, [jax.numpy.asarray(array) for array in inputs], names)
        return [np.asarray(tensor) for tensor in tensors(outputs)]


def _run(
    layer: KerasLayer, changes: Mapping[str, Any], inputs: Sequence[Array], names: Sequence[str]
) -> tuple[KerasLayer, list[Array]]:
    """The layer with changed settings and the same weights, and its outputs."""
    other = type(layer).from_config({**layer.get_config(), **changes})
    outputs = called(other, inputs, names)  # which also builds it
    values = {name: np.asarray(variable.value) for name, variable in variables_by_path(layer).items()}
    with jax.enable_x64(True):
        for name, variable in variables_by_path(other).items():
            # Of attention with another number of heads, the kernels hold the same numbers in other shapes.
            if name in values and values[name].size == np.prod(variable.shape):
                set_variable(variable, values[name].reshape(variable.shape))
    return other, called(other, inputs, names) if values else outputs


def _changes(
    layer: KerasLayer, inputs: Sequence[Array], settings: Sequence[Setting], theirs: Array | None
) -> Iterator[Way]:
    """Every way to give a layer these settings."""
    config = layer.get_config()
    by_name = {setting.name: setting.torch for setting in settings}
    if ZEROS in by_name and theirs is not None:
        del by_name[ZEROS]
        inputs = [theirs, *inputs[1:]]
    if by_name.keys() <= config.keys():
        others = {name: value for name, value in by_name.items() if name != "padding"}
        padded = "padding" in by_name
        ways = _paddings(layer, inputs, by_name["padding"]) if padded else iter([({}, list(inputs))])
        yield from (({**others, **changes}, fed) for changes, fed in ways)


def _paddings(layer: KerasLayer, inputs: Sequence[Array], widths: object) -> Iterator[Way]:
    """Other paddings of a layer with windows: its own, and that of PyTorch around its input."""
    yield from (({"padding": mode}, list(inputs)) for mode in ("same", "valid") if mode != layer.padding)
    count = inputs[0].ndim - 2
    if not isinstance(widths, (int, list, tuple)) or len(every(widths)) not in (1, count):
        return
    margins_by_axis = [(int(width), int(width)) for width in (every(widths) * count)[:count]]
    # Windows that reach over the end, as of a pooling with `ceil_mode`, see one step less than their stride more.
    steps = (every(layer.strides) * count)[:count]
    beyond = [(before, after + step - 1) for (before, after), step in zip(margins_by_axis, steps, strict=True)]
    blank = -np.inf if is_keras(layer, "MaxPooling1D", "MaxPooling2D", "MaxPooling3D") else 0.0
    for margins in (margins_by_axis, beyond):
        around = [*margins, (0, 0)] if layer.data_format == "channels_last" else [(0, 0), *margins]
        yield {"padding": "valid"}, [np.pad(inputs[0], [(0, 0), *around], constant_values=blank), *inputs[1:]]
