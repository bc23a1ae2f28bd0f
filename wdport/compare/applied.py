"""The functions that two layers apply, as activation layers or fused into another layer, and their differences."""

from __future__ import annotations

from wdport.compare.activations import beside, lacking
from wdport.compare.functions import Function, by_name, of_callable, of_layer, of_module
from wdport.compare.layouts import AFTER
from wdport.compare.pairs import Pair, computes_as_keras, computes_as_torch, is_torch
from wdport.compare.setting import Setting, plain, text
from wdport.compare.setting_checks import equal
from wdport.mapping.kinds import CATALOGUE

_ALONE = ("", "activation", "sequential")
"""Kinds of rows whose layer may be just a function."""

_LINEAR = tuple(torch_class.short for kind in CATALOGUE if kind.activates for torch_class in kind.torch)
"""Modules that apply no function to their output, where a Keras layer may."""


def applied(pair: Pair) -> tuple[Function, Function] | None:
    """The reference's function and the port's, if both are known: activation layers, or the function that the table
    states after the module and the one fused into the port's layer."""
    if pair.kind in _ALONE:
        theirs, ours = of_module(pair.module), of_layer(pair.layer)
        return None if theirs is None or ours is None or pair.layout.after else (theirs, ours)
    if not (computes_as_torch(pair.module) and is_torch(pair.module, *_LINEAR) and computes_as_keras(pair.layer)):
        return None
    theirs, ours = by_name(pair.layout.after or "linear"), of_callable(getattr(pair.layer, "activation", None))
    return None if theirs is None or ours is None else (theirs, ours)


def unlike(theirs: Function, ours: Function, pair: Pair) -> list[Setting]:
    """The differences of two functions: their names, or their numbers and axes."""
    if not theirs.same_by_name(ours) or (theirs.name == "gelu" and theirs.shown != ours.shown):
        return [Setting("activation", theirs.alias, ours.alias, "differs", _sentence(theirs, ours, pair))]
    settings = []
    for name in sorted(theirs.parameters.keys() & ours.parameters.keys()):
        expected, actual = theirs.parameters[name], ours.parameters[name]
        if name == "axis":
            places = pair.axes([int(expected)])
            if places is None or len(places) != 1 or places == (int(actual) % pair.rank,):
                continue
            expected = places[0]
        elif equal(expected, actual):
            continue
        words = f"{name} {text(actual)} where the reference has {text(expected)}"
        settings.append(Setting(name, plain(expected), plain(actual), "differs", words))
    return settings


def _sentence(theirs: Function, ours: Function, pair: Pair) -> str:
    if pair.kind not in _ALONE and ours.name == "linear":
        return lacking(theirs.alias)
    if pair.kind not in _ALONE and theirs.name == "linear":
        names = (name for name in AFTER if (function := by_name(name)) and function.does_as(ours))
        return beside(next(names, ours.shown))
    return f"activation: {ours.shown} where {'the table' if pair.layout.after else 'the reference'} has {theirs.shown}"
