"""The known faults in groups, each with the gate that is about them; a group gives its faults' fates as they come.

A further part of the harness adds its faults by adding a group to :func:`further_groups`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from wdport.model import Family
from wdport.parity.selftest.example import Example
from wdport.parity.selftest.inject import Bounds, run_mutants
from wdport.parity.selftest.kill import Kill
from wdport.parity.selftest.samplers import run_sampler_faults
from wdport.parity.selftest.state import run_state_faults
from wdport.parity.selftest.training import run_training_faults
from wdport.parity.selftest.wavelets import run_wavelet_faults
from wdport.parity.selftest.weights import Weights
from wdport.wavelets.transform import WaveletTransform


@dataclass(frozen=True)
class Group:
    """Faults of one kind: the gate that is about them ("" if there is more than one), a few words, and what becomes
    of them."""

    gate: str
    name: str
    kills: Iterator[Kill]


def layer_group(example: Example, held: Bounds, single: bool) -> Group:
    """Faults of an example's layers, and of its state."""
    kills = chain(run_mutants(example, held=held, single=single), run_state_faults(example, held))
    return Group("A", f"the network, {example.name}", kills)


def further_groups(family: Family, held: Bounds) -> Iterator[Group]:
    """Faults of everything around the network; where they need one, it is the smallest."""
    yield Group("F", "the wavelet transform", run_wavelet_faults(transforms(family), held))
    name, config = "the smallest network", family.smallest()
    yield Group("E", "the samplers", run_sampler_faults(name, Weights(family, config, 0), held))
    yield Group("D", "training", run_training_faults(name, Weights(family, config, 0), held))


def transforms(family: Family) -> Sequence[WaveletTransform]:
    """The examples' transforms, and the first of them with the boundary modes that are their own cases."""
    found = [family.transform(config) for config in family.examples().values()]
    known = list(dict.fromkeys(each for each in found if each is not None))
    return [*known, *(replace(known[0], mode=mode) for mode in ("periodization", "smooth"))]
