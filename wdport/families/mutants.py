"""Mutants: known bugs of ports, each applied to one place of a correct model within a context.

They measure what `verify` can find. The canary's are in wdport, all others in ``parity_tests/faults`` of a checkout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import wraps
from unittest.mock import patch

import numpy as np

from wdport.model import Array, KerasLayer, KerasModel, KerasTensor, KerasVariable

Change = Callable[[KerasLayer, KerasModel], AbstractContextManager[object]]
"""Maps (layer, model) to a context in which the layer has the bug."""


@dataclass(frozen=True)
class Mutant:
    """One known bug.

    ``sites`` are patterns of Keras layer paths where it can be, "" for the network itself. ``equivalent`` says why it
    changes nothing, if it does not; ``gate`` is the gate expected to kill it: A, 0 if layers no longer run, A' or B if
    float64 does not show it. ``shares`` allows the fault to be found at every layer below its site. The ``quick``
    mutants of a family have one in every part, and are found in seconds. ``facts`` are words of a correct diagnosis.
    """

    name: str
    sites: tuple[str, ...]
    change: Change
    gate: str = "A"
    equivalent: str = ""
    shares: bool = False
    quick: bool = False
    facts: str = ""

    def places(self, layers: Mapping[str, KerasLayer]) -> list[str]:
        """The paths of ``layers`` where it can be."""
        if "" in self.sites:
            return [""]
        return [path for path in layers if any(fnmatchcase(path, site) for site in self.sites)]


@contextmanager
def attributes(target: object, **values: object) -> Iterator[None]:
    """Context in which ``target`` has other attributes, set without Keras's tracking of layers and variables."""
    before = {name: target.__dict__[name] for name in values if name in target.__dict__}
    target.__dict__.update(values)
    try:
        yield
    finally:
        for name in values:
            del target.__dict__[name]
        target.__dict__.update(before)


def setting(**values: object) -> Change:
    """A fault that sets attributes of the layer."""
    return lambda layer, _: attributes(layer, **values)


def array_of(variable: KerasVariable) -> Array:
    """A variable's value in numpy."""
    return np.asarray(variable.value)


def calling(function: Callable[..., KerasTensor]) -> Change:
    """A fault whose layer computes ``function(layer, *inputs)`` instead."""

    def change(layer: KerasLayer, _: KerasModel) -> AbstractContextManager[object]:
        @wraps(layer.call)  # inputs are matched by the names of the layer's parameters
        def call(*inputs: KerasTensor, **kwargs: KerasTensor) -> KerasTensor:
            return function(layer, *inputs, **kwargs)

        return patch.object(layer, "call", call)

    return change


@contextmanager
def holding(*pairs: tuple[KerasVariable, Array]) -> Iterator[None]:
    """Context in which variables have other values: (variable, array) pairs."""
    with ExitStack() as stack:
        for variable, value in pairs:
            before = variable.value
            variable.assign(value)
            stack.callback(variable.assign, before)
        yield
