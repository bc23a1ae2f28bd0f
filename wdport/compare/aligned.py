"""The hyper-parameters of every aligned pair of two models: data, in the order of the computation, before any number.

It takes taps and the two models. What both sides' layers are given, where it is known, tells paddings and axes; nothing
is run here.
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


def compare_settings(
    taps: Sequence[Tap],
    modules: Mapping[str, torch.nn.Module],
    layers: Mapping[str, KerasLayer],
    reference: Calls | None = None,
    port: Calls | None = None,
) -> SettingsReport:
    """Compare what the two layers of every tap state.

    Args:
        taps: which layers are aligned, in the order in which findings are wanted.
        modules: the reference's, by path.
        layers: the port's, by path.
        reference: calls of the reference's modules, for the shapes of what they are given and make.
        port: calls of the port's layers, with arrays or with what stands for their shapes.
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
    return SettingsReport(count, compared, tuple(found.values()), unread=tuple(unread))


def _with_shapes(pair: Pair, tap: Tap, reference: Calls, port: Calls) -> Pair:
    """With the shapes of the first tensor that each side is given, and of what the reference makes of it."""
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
    """Whether all layers with windows have their channels last; ``None`` where there are none, or of both kinds."""
    windowed = [each for each in layers.values() if hasattr(each, "kernel_size") or hasattr(each, "pool_size")]
    formats = {str(each.data_format) for each in windowed if getattr(each, "data_format", None)}
    return formats == {"channels_last"} if len(formats) == 1 else None
