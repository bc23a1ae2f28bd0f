"""Known bugs of WaveletDiff ports, from published and attempted ports, each in one place."""

from __future__ import annotations

from dataclasses import replace

from wdport.families.mutants import Mutant
from wdport.families.waveletdiff.config import Config
from wdport.families.waveletdiff.mutants.attention import attention_mutants
from wdport.families.waveletdiff.mutants.blocks import mlp_mutants, norm_mutants
from wdport.families.waveletdiff.mutants.cross_level import cross_level_mutants
from wdport.families.waveletdiff.mutants.embeddings import position_mutants, scale_embedding_mutants, time_mutants
from wdport.families.waveletdiff.mutants.facts import FACTS
from wdport.families.waveletdiff.mutants.network import level_mutants, scale_mutants, state_mutants
from wdport.families.waveletdiff.mutants.numerics import numerics_mutants


def mutants(config: Config) -> tuple[Mutant, ...]:
    """All mutants that this configuration can have."""
    found = [
        *attention_mutants(config),
        *norm_mutants(),
        *mlp_mutants(),
        *time_mutants(),
        *position_mutants(),
        *level_mutants(config),
        *state_mutants(),
        *numerics_mutants(),
    ]
    found += cross_level_mutants() if config.cross_level_attention else []
    found += [*scale_mutants(), *scale_embedding_mutants()] if config.scale_embedding else []
    return tuple(replace(mutant, facts=FACTS.get(mutant.name, "")) for mutant in found)
