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
    found: dict[tuple[str, str], Setting] = {}
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
                own, differing = compare_pair(pair)
            except (TypeError, ValueError, AttributeError, IndexError):  # a class of the user's own has its own values
                unread[layer_of(tap.reference)] = None
                continue
            count, compared = count + bool(own), compared + own
            for each in differing:
                key = (path, each.text)
                found.setdefault(key, replace(each, reference=layer_of(tap.reference), candidate=path))
    compared_paths = {path for tap in taps for path in tap.stack or (layer_of(tap.candidate),)}
    for path, layer in layers.items():
        if getattr(layer, "mask_zero", False) is True and path not in compared_paths:
            found[path, "mask_zero"] = Setting("mask_zero", None, True, "differs", MASKED, candidate=path)
    return SettingsReport(count, compared, tuple(found.values()), unread=tuple(unread))


def _with_shapes(pair: Pair, tap: Tap, reference: Calls, port: Calls) -> Pair:
    """Add the shapes of each side's first input and of the reference's output."""
    theirs, ours = reference.get(tap.reference), port.get(tap.candidate)
    fed = _first(theirs.inputs) if theirs is not None else ()
    made = _first(theirs.outputs) if theirs is not None else ()
    given = _first(ours.inputs) if ours is not None else ()
    if len(made) > 2 and getattr(pair.layer, "data_format", "") != "channels_first":
        made = (made[0], *made[2:], made[1])
    return replace(pair, fed=fed, given=given, made=made if len(made) == len(given) else ())


def _first(values: Sequence[object]) -> Shape:
    found = leaves(list(values))
    return tuple(int(size) for size in getattr(found[0], "shape", ())) if found else ()


def _channels_last(layers: Mapping[str, KerasLayer]) -> bool | None:
    """Whether all layers with windows are channels-last; ``None`` if there are none, or of both kinds."""
    windowed = [each for each in layers.values() if hasattr(each, "kernel_size") or hasattr(each, "pool_size")]
    formats = {str(each.data_format) for each in windowed if getattr(each, "data_format", None)}
    return formats == {"channels_last"} if len(formats) == 1 else None
