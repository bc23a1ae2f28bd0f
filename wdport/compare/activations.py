"""Detect from a layer's outputs an activation that only one side has."""

from __future__ import annotations

import numpy as np

from wdport.compare.calls import Call, Expected
from wdport.compare.layouts import AFTER
from wdport.compare.relations import same
from wdport.compare.taps import Tap


def other_activation(tap: Tap, port_call: Call, expected: Expected) -> list[str]:
    """The activation that follows the layer on only one side: one sentence, or none."""
    if len(port_call.outputs) != 1 or len(expected.outputs) != 1:
        return []
    ours, theirs = np.asarray(port_call.outputs[0]), np.asarray(expected.outputs[0])
    stated = tap.layout.after
    if stated and same(AFTER[stated](ours), theirs):
        return [lacking(stated)]
    for name in () if stated else AFTER:
        if same(AFTER[name](theirs), ours):
            return [beside(name)]
    return []


def lacking(name: str) -> str:
    """The message that the port's layer lacks an activation that the table states."""
    return f"lacks the {name} that the table says follows"


def beside(name: str) -> str:
    """The message that the port's layer has an activation that is not stated for the reference's module."""
    rest = f"; if it follows the module, state `then: {name}`" if name in AFTER else ""
    return f"has a {name} that the reference's module does not have{rest}"
