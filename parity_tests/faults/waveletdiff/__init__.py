"""Known bugs of WaveletDiff ports, from published and attempted ports, each in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from parity_tests.faults.waveletdiff.attention import attention_mutants, cross_level_mutants
from parity_tests.faults.waveletdiff.blocks import mlp_mutants, norm_mutants, numerics_mutants
from parity_tests.faults.waveletdiff.facts import FACTS
from parity_tests.faults.waveletdiff.network import (
    level_mutants,
    position_mutants,
    scale_embedding_mutants,
    scale_mutants,
    state_mutants,
    time_mutants,
)
from parity_tests.faults.waveletdiff.rewrites import rewrites
from parity_tests.faults.waveletdiff.wavelets import WAVELET_FAULTS
from wdport.families.faults import Bounds, FaultGroup, FaultSet, Mutant
from wdport.uses.waveletdiff.canary import SMALLEST, run_wavelet_faults
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.family import FAMILY
from wdport.uses.waveletdiff.reference import random_tensors


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


def _examples() -> dict[str, Config]:
    """Configurations by a short description."""
    short: dict[str, Any] = {"features": 3, "embed_dim": 16, "num_heads": 2, "num_layers": 2, "time_embed_dim": 8}
    first = Config((5, 5, 8, 13), **short, wavelet="db2", boundary_mode="symmetric", seq_len=24)
    second = replace(first, level_lengths=(14, 14, 21, 35), wavelet="db4", seq_len=64,
                     prediction_target="coefficient", noise_schedule="cosine")  # fmt: skip
    return {
        "24/db2": first,
        "64/db4, coefficient target": second,
        "24/db2, QK-norm, scale": replace(first, qk_norm=True, scale_embedding=True),
    }


EXAMPLES = _examples()


def _around(held: Bounds) -> Iterator[FaultGroup]:
    """Faults of the examples' transforms, and of two more boundary modes."""
    found = [FAMILY.transform(config) for config in EXAMPLES.values()]
    first, *others = dict.fromkeys(each for each in found if each is not None)
    modes = [replace(first, mode=mode) for mode in ("periodization", "smooth")]
    yield FaultGroup("F", "the wavelet transform", run_wavelet_faults((first, *others, *modes), WAVELET_FAULTS, held))


FAULTS = FaultSet(FAMILY, SMALLEST, random_tensors, mutants, EXAMPLES, _around, rewrites, causes_known=True)
