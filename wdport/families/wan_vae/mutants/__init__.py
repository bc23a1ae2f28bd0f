"""Known bugs of AutoencoderKLWan ports, each in one place."""

from __future__ import annotations

from wdport.families.mutants import Mutant
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.mutants.blocks import attention_mutants, residual_mutants, shortcut_mutants
from wdport.families.wan_vae.mutants.layers import convolution_mutants, norm_mutants
from wdport.families.wan_vae.mutants.network import network_mutants
from wdport.families.wan_vae.mutants.steps import step_mutants


def mutants(config: Config) -> tuple[Mutant, ...]:
    """All mutants that this configuration can have."""
    return (
        *convolution_mutants(),
        *norm_mutants(),
        *residual_mutants(config),
        *attention_mutants(config),
        *step_mutants(config),
        *shortcut_mutants(config),
        *network_mutants(config),
    )
