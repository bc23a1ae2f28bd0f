"""Known bugs of UNet2DModel ports, each in one place."""

from __future__ import annotations

from parity_tests.faults.unet2d.attention import attention_mutants, numerics_mutants
from parity_tests.faults.unet2d.examples import examples, random_tensors
from parity_tests.faults.unet2d.layers import convolution_mutants, norm_mutants
from parity_tests.faults.unet2d.network import network_mutants, size_mutants
from parity_tests.faults.unet2d.residual import activation_mutants, class_mutants, residual_mutants, time_mutants
from wdport.families.faults import FaultSet, Mutant
from wdport.uses.unet2d.config import Config
from wdport.uses.unet2d.family import FAMILY


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


EXAMPLES = examples()
FAULTS = FaultSet(FAMILY, next(iter(EXAMPLES.values())), random_tensors, mutants, EXAMPLES)
