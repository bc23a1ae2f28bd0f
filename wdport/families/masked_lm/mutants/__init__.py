"""Known bugs of EuroBertForMaskedLM ports, each in one place."""

from __future__ import annotations

from wdport.families.masked_lm.config import Config
from wdport.families.masked_lm.mutants.attention import attention_mutants
from wdport.families.masked_lm.mutants.feed_forward import feed_forward_mutants
from wdport.families.masked_lm.mutants.network import network_mutants
from wdport.families.masked_lm.mutants.norms import norm_mutants
from wdport.families.masked_lm.mutants.numerics import numerics_mutants
from wdport.families.masked_lm.mutants.rotary import rotary_mutants
from wdport.families.mutants import Mutant


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
