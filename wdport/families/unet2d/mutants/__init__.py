"""Known bugs of UNet2DModel ports, each in one place."""

from __future__ import annotations

from wdport.families.mutants import Mutant
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.mutants.attention import attention_mutants
from wdport.families.unet2d.mutants.convolutions import convolution_mutants
from wdport.families.unet2d.mutants.embeddings import class_mutants, time_mutants
from wdport.families.unet2d.mutants.network import network_mutants
from wdport.families.unet2d.mutants.norms import norm_mutants
from wdport.families.unet2d.mutants.numerics import numerics_mutants
from wdport.families.unet2d.mutants.residual import activation_mutants, residual_mutants
from wdport.families.unet2d.mutants.sizes import size_mutants


def mutants(config: Config) -> tuple[Mutant, ...]:
    """All mutants that this configuration can have."""
    return (
        *norm_mutants(config),
        *convolution_mutants(),
        *size_mutants(config),
        *residual_mutants(config),
        *activation_mutants(config),
        *attention_mutants(config),
        *time_mutants(config),
        *class_mutants(config),
        *network_mutants(config),
        *numerics_mutants(config),
    )
