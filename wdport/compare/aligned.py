"""Compare the hyper-parameters of every aligned pair of layers, in the order of the computation.

The inputs are taps and the two models; nothing is run here. Paddings and axes are compared if the shapes of the layers'
inputs are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wdport.compare.calls import Calls, layer_of, leaves
from wdport.compare.pairs import Pair
from wdport.compare.setting import Setting, SettingsReport
from wdport.compare.settings import compare_pair
from wdport.compare.taps import Tap
from wdport.mapping.axes import Shape
from wdport.model import KerasLayer

if TYPE_CHECKING:
    import torch


MASKED = "mask_zero True hands a mask to later layers, and no module of the reference is compared with this layer"


def compare_settings(
    taps: Sequence[Tap],
    modules: Mapping[str, torch.nn.Module],
    layers: Mapping[str, KerasLayer],
    reference: Calls | None = None,
    port: Calls | None = None,
) -> SettingsReport:
    """Compare the settings of the two layers of every tap.

    Args:
        taps: the aligned layers, in the order of the findings.
        modules: the reference's, by path.
        layers: the port's, by path.
        reference: calls of the reference's modules, for the shapes of their inputs and outputs.
        port: calls of the port's layers, with arrays or with shape placeholders.
    """
    last = _channels_last(layers)
    count, compared = 0, 0
    settings: dict[tuple[str, str], Setting] = {}
    unread: dict[str, None] = {}
    for tap in taps:
        module = modules.get(layer_of(tap.reference))
        for path in tap.stack or (layer_of(tap.candidate),):
            if module is None or path not in layers:
                continue
            pair = Pair(tap.kind, module, layers[path], tap.layout, last=last)
            if path == layer_of(tap.candidate) and len(tap.stack) < 2:
                pair = _with_shapes(pair, tap, reference or {}, port or {})
            try:
                pair_count, differing = compare_pair(pair)
            except (TypeError, ValueError, AttributeError, IndexError):  # a class of the user's own has its own values
                unread[layer_of(tap.reference)] = None
                continue
            count, compared = count + bool(pair_count), compared + pair_count
            for difference in differing:
                key = (path, difference.text)
                settings.setdefault(key, replace(difference, reference=layer_of(tap.reference), candidate=path))
    compared_paths = {path for tap in taps for path in tap.stack or (layer_of(tap.candidate),)}
    for path, layer in layers.items():
        if getattr(layer, "mask_zero", False) is True and path not in compared_paths:
            settings[path, "mask_zero"] = Setting("mask_zero", None, True, "differs", MASKED, candidate=path)
    return SettingsReport(count, compared, tuple(settings.values()), unread=tuple(unread))


def _with_shapes(pair: Pair, tap: Tap, reference: Calls, port: Calls) -> Pair:
    """Add the shapes of each side's first input and of the reference's output."""
    theirs, ours = reference.get(tap.reference), port.get(tap.candidate)
    fed = _first(theirs.inputs) if theirs is not None else ()
    output = _first(theirs.outputs) if theirs is not None else ()
    port_input = _first(ours.inputs) if ours is not None else ()
    if len(output) > 2 and getattr(pair.layer, "data_format", "") != "channels_first":
        output = (output[0], *output[2:], output[1])
    return replace(pair, fed=fed, given=port_input, made=output if len(output) == len(port_input) else ())


def _first(values: Sequence[object]) -> Shape:
    arrays = leaves(list(values))
    return tuple(int(size) for size in getattr(arrays[0], "shape", ())) if arrays else ()


def _channels_last(layers: Mapping[str, KerasLayer]) -> bool | None:
    """Whether all layers with windows are channels-last; ``None`` if there are none, or of both kinds."""
    windowed = [layer for layer in layers.values() if hasattr(layer, "kernel_size") or hasattr(layer, "pool_size")]
    formats = {str(layer.data_format) for layer in windowed if getattr(layer, "data_format", None)}
    return formats == {"channels_last"} if len(formats) == 1 else None
