"""Known bugs of AutoencoderKLWan ports, each in one place."""

from __future__ import annotations

from collections.abc import Iterator

from parity_tests.faults.wan_vae.blocks import (
    attention_mutants,
    convolution_mutants,
    norm_mutants,
    residual_mutants,
    shortcut_mutants,
)
from parity_tests.faults.wan_vae.chunks import run_chunk_faults
from parity_tests.faults.wan_vae.examples import examples, random_tensors
from parity_tests.faults.wan_vae.network import network_mutants, step_mutants
from wdport.families.faults import Bounds, FaultGroup, FaultSet, Mutant
from wdport.uses.wan_vae.config import Config
from wdport.uses.wan_vae.family import FAMILY


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


def _around(held: Bounds) -> Iterator[FaultGroup]:
    yield FaultGroup("G", "videos in chunks and as bytes", run_chunk_faults(EXAMPLES, held))


EXAMPLES = examples()
FAULTS = FaultSet(FAMILY, next(iter(EXAMPLES.values())), random_tensors, mutants, EXAMPLES, around=_around)
