"""Known bugs of EuroBertForMaskedLM ports, each in one place."""

from __future__ import annotations

from parity_tests.faults.masked_lm.attention import attention_mutants, rotary_mutants
from parity_tests.faults.masked_lm.examples import examples, random_tensors
from parity_tests.faults.masked_lm.layers import feed_forward_mutants, norm_mutants
from parity_tests.faults.masked_lm.network import network_mutants, numerics_mutants
from wdport.families.faults import FaultSet, Mutant
from wdport.uses.masked_lm.config import Config
from wdport.uses.masked_lm.family import FAMILY


def mutants(config: Config) -> tuple[Mutant, ...]:
    """All mutants that this configuration can have."""
    return (
        *norm_mutants(config),
        *rotary_mutants(config),
        *attention_mutants(config),
        *feed_forward_mutants(config),
        *network_mutants(config),
        *numerics_mutants(config),
    )


EXAMPLES = examples()
FAULTS = FaultSet(FAMILY, next(iter(EXAMPLES.values())), random_tensors, mutants, EXAMPLES)
