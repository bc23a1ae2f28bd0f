"""An activation that one side has and the other has not, told from a layer's outputs."""

from __future__ import annotations

import numpy as np

from wdport.compare.calls import Call, Expected
from wdport.compare.layouts import AFTER
from wdport.compare.relations import same
from wdport.compare.taps import Tap


def other_activation(tap: Tap, own: Call, expected: Expected) -> list[str]:
    """What follows the layer on one side alone: a sentence, or nothing."""
    if len(own.outputs) != 1 or len(expected.outputs) != 1:
        return []
    ours, theirs = np.asarray(own.outputs[0]), np.asarray(expected.outputs[0])
    stated = tap.layout.after
    if stated and same(AFTER[stated](ours), theirs):
        return [lacking(stated)]
    for name in () if stated else AFTER:
        if same(AFTER[name](theirs), ours):
            return [beside(name)]
    return []


def lacking(name: str) -> str:
    """The port's layer has not what the table says."""
    return f"lacks the {name} that the table says follows"


def beside(name: str) -> str:
    """The port's layer has what nobody says of the reference's."""
    rest = f"; if it follows there, state `then: {name}`" if name in AFTER else ""
    return f"has a {name} that the reference's module has not{rest}"
