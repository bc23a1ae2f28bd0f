"""Known faults of a family, their results, and mutants: known bugs of ports, each applied to one place of a correct
model.

They measure what `verify` can find. The canary's are in wdport, all others in ``parity_tests/faults`` of a checkout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import wraps
from typing import Annotated
from unittest.mock import patch

import numpy as np

from wdport.base.shared_types import Number, about
from wdport.families.roles import Family
from wdport.models.interface import Array, Configuration, KerasLayer, KerasModel, KerasTensor, KerasVariable

Bounds = Mapping[str, float]
"""Bounds by name."""


@dataclass(frozen=True)
class Kill:
    """One known fault and its outcome."""

    example: Annotated[str, about("Name of the model with the fault.")]
    mutant: Annotated[str, about("Name of the fault.")]
    site: Annotated[str, about("Layer with the fault.")]
    gate: Annotated[str, about(
        "Letter of the gate that found the fault: the expected gate if it failed, otherwise the first gate that "
        "failed; empty if no gate failed.")]  # fmt: skip
    expected: Annotated[str, about("Letter of the gate that should find the fault.")]
    sites: Annotated[tuple[str, ...], about("Layers that were reported as faulty.")]
    exact: Annotated[bool, about("Whether exactly the right layers were reported.")]
    margin: Annotated[Number, about("Base-10 logarithm of the largest ratio of an error to its bound.")]
    causes: Annotated[tuple[str, ...], about("Causes that were reported.")] = ()
    equivalent: Annotated[str, about(
        "For a fault that does not change the result, the reason why it does not; no gate should find such a "
        "fault.")] = ""  # fmt: skip
    inputs: Annotated[str, about("Case that revealed the fault.")] = ""
    sought: Annotated[bool, about("Whether the self-test looked for a cause.")] = False
    facts: Annotated[str, about("Text that a correct cause contains; empty if unknown.")] = ""
    ratio: Annotated[Number | None, about(
        "Largest isolated float32 error, as a multiple of the reference's; null if it was not "
        "measured.")] = None  # fmt: skip
    single: Annotated[str | None, about(
        "Letter of the gate that finds the fault if only float32 is compared; null if that was not "
        "measured.")] = None  # fmt: skip
    rejected: Annotated[tuple[str, ...] | None, about(
        "Fixed tolerances that reject the port's output; null if that was not measured.")] = None  # fmt: skip

    @property
    def killed(self) -> bool:
        """Whether a gate detected the fault."""
        return bool(self.gate)

    @property
    def right(self) -> bool:
        """Whether the result is as expected: gate and place, or survival of an equivalent."""
        if self.equivalent:
            return not self.killed
        return self.gate == self.expected and self.exact

    @property
    def diagnosed(self) -> bool:
        """Whether a probable cause has the words of a correct one."""
        return bool(self.facts) and any(self.facts in cause for cause in self.causes)

    @property
    def misdiagnosed(self) -> bool:
        """Whether causes are named, all of them wrong."""
        return bool(self.causes) and not self.diagnosed


@dataclass(frozen=True)
class FaultGroup:
    """Faults of one kind: the gate that tests them ("" for several), a short description, and their results."""

    gate: str
    name: str
    kills: Iterator[Kill]


@dataclass(frozen=True)
class FaultSet:
    """Known faults of a family, and the small models that they are put into.

    ``smallest`` is the fastest configuration that the self-tests use; ``examples`` are small
    configurations that together have every part of the family, by a short description. ``random_tensors`` makes a
    checkpoint's tensors from a configuration and a seed, float32, with every weight and bias random. ``mutants`` are
    those that a configuration can have. ``around`` yields the results of faults outside the network at the family's own
    gates, under these bounds. ``rewrites`` are correct ports that compute the same in another way: mutants, applied
    everywhere at once, that must survive. ``causes_known`` states whether the faults have the words of a correct
    diagnosis, so that reported causes can be judged.
    """

    family: Family
    smallest: Configuration
    random_tensors: Callable[[Configuration, int], dict[str, Array]]
    mutants: Callable[[Configuration], Sequence[Mutant]]
    examples: Mapping[str, Configuration] = field(default_factory=dict)
    around: Callable[[Bounds], Iterator[FaultGroup]] = lambda _: iter(())
    rewrites: Callable[[Configuration], Sequence[Mutant]] = lambda _: ()
    causes_known: bool = False


def fate(example: str, place: str, gate: str, fault: str, margin: float, killed: bool) -> Kill:
    """Result of a fault at a gate that does not distinguish places; a ``fault`` without a name is not a fault, and must
    survive."""
    reason = "" if fault else "nothing is changed"
    return Kill(example, fault or "no fault", place, gate if killed else "", gate, (place,) if killed else (),
                killed, float(margin), equivalent=reason)  # fmt: skip


Change = Callable[[KerasLayer, KerasModel], AbstractContextManager[object]]
"""Maps (layer, model) to a context in which the layer has the bug."""


@dataclass(frozen=True)
class Mutant:
    """One known bug.

    ``sites`` are patterns of Keras layer paths where it can be, "" for the network itself. ``equivalent`` states why it
    changes nothing, if it does not; ``gate`` is the gate expected to kill it: A, 0 if layers no longer run, A' or B if
    float64 does not show it. ``shares`` allows the fault to be found at every layer below its site. ``facts`` are words
    of a correct diagnosis.
    """

    name: str
    sites: tuple[str, ...]
    change: Change
    gate: str = "A"
    equivalent: str = ""
    shares: bool = False
    facts: str = ""

    def places(self, layers: Mapping[str, KerasLayer]) -> list[str]:
        """The paths of ``layers`` where it can be."""
        if "" in self.sites:
            return [""]
        return [path for path in layers if any(fnmatchcase(path, site) for site in self.sites)]


@contextmanager
def attributes(target: object, **values: object) -> Iterator[None]:
    """Context in which ``target`` has other attributes, set without Keras's tracking of layers and variables."""
    # Through __dict__: Keras's __setattr__ would track a layer set here, and the model would get another variable.
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
    # The layer is known only when the fault is put into a model.
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
