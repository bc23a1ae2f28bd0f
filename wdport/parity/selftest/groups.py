"""The known faults in groups, each with the gate that is about them; a group gives its faults' fates as they come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from wdport.families.faults import Group
from wdport.families.roles import Faulty, Sampled, Trained
from wdport.parity.selftest.example import Example
from wdport.parity.selftest.inject import Bounds, run_mutants
from wdport.parity.selftest.samplers import run_sampler_faults
from wdport.parity.selftest.state import run_state_faults
from wdport.parity.selftest.training import run_training_faults
from wdport.parity.selftest.weights import Weights


def layer_group(example: Example, held: Bounds, single: bool) -> Group:
    """Faults of an example's layers, and of its state."""
    kills = chain(run_mutants(example, held=held, single=single), run_state_faults(example, held))
    return Group("A", f"the network, {example.name}", kills)


def further_groups(family: Faulty, held: Bounds) -> Iterator[Group]:
    """Faults of everything around the network, by the family's roles; where they need one, it is the smallest."""
    yield from family.faults(held)
    name, config = "the smallest network", family.smallest()
    if isinstance(family, Sampled):
        yield Group("E", "the samplers", run_sampler_faults(name, family, Weights(family, config, 0), held))
    if isinstance(family, Trained):
        yield Group("D", "training", run_training_faults(name, family, Weights(family, config, 0), held))
