"""The gates of all uses, as `verify` asks for them: those of samplers, and those of generation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final

import jax
import numpy as np

from wdport.base.jax_settings import fast_compile
from wdport.compare.comparison import Comparison
from wdport.compare.findings import Gate
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Family
from wdport.models.interface import Array, Configuration, KerasModel
from wdport.parity.gates_of_uses import UseGates
from wdport.parity.verdict import Trajectory
from wdport.recording.float64 import lifted
from wdport.recording.runs import run
from wdport.recording.torch_functions import highest_precision
from wdport.uses.gates.end_to_end.generation import SidePair, Tokens, generation_gate
from wdport.uses.gates.end_to_end.samplers import SEED, samplers_gate
from wdport.uses.gates.trajectories import (
    SamplingNetwork,
    file_process,
    reference_network,
    trajectories_gate,
    trajectory_reference,
)
from wdport.uses.roles import Completing, Sampled
from wdport.uses.sampling.network import keras_network


class _Gates:
    """See :class:`wdport.parity.gates_of_uses.UseGates`."""

    def lacking(self, family: Family) -> tuple[str, ...]:
        return () if isinstance(family, Sampled) else ("E", "E'")

    def planned(self, family: Family, config: Configuration, full: bool) -> Mapping[str, bool]:
        sampled = isinstance(family, Sampled) and not family.unsampled(config)
        return {"E": full and sampled, "E'": sampled, "H": sampled, "I": isinstance(family, Completing)}

    def network(
        self, family: Family, config: Configuration, models: Mapping[str, KerasModel], full: bool
    ) -> SamplingNetwork | None:
        if not isinstance(family, Sampled) or family.unsampled(config):
            return None
        return SamplingNetwork(family, config, models, full)

    def gates(self, prepared: Prepared, comparison: Comparison, network: bool, full: bool) -> list[Gate]:
        family, gates = prepared.family, []
        if network and isinstance(family, Sampled):
            with comparison.clock.gate("H"):
                gates.append(_samplers(family, prepared, comparison, full))
        if isinstance(family, Completing):
            precision = highest_precision() if comparison.modules else nullcontext()  # a recording needs no torch
            with comparison.clock.gate("I"), precision:
                pair = SidePair(family, comparison.candidate.models, _tokens(comparison))
                gates.append(generation_gate(pair, full))
        return gates

    def trajectories(self, prepared: Prepared, comparison: Comparison) -> tuple[Gate, tuple[Trajectory, ...]]:
        family = prepared.family
        assert isinstance(family, Sampled)
        reference = trajectory_reference(family, prepared, comparison)
        return trajectories_gate(reference, comparison.candidate.models, (family, prepared.config))


GATES: Final[UseGates] = _Gates()


def _samplers(family: Sampled, prepared: Prepared, comparison: Comparison, full: bool) -> Gate:
    model, config = comparison.candidate.models["float64"], prepared.config
    signature, modules = comparison.signature, comparison.modules
    # a recording has no tables: its port's own are compared with their formulas
    process = file_process(family, prepared) if modules else keras_network(model, (family, config)).process()
    stated = signature.in_port(signature.make(SEED, 2, 1.0))[0].shape[1:]  # an input of one sample may be longer
    decode = next((port.decode for port in signature.outputs if not port.parts), None)

    def plain(state: Array, times: Array, condition: Array | None) -> Array:
        return reference_network(signature, condition, modules["float64"])(state, times)

    return samplers_gate(model, family, config, process, stated, decode, plain if full and modules else None)


def _tokens(comparison: Comparison) -> Tokens:
    """The reference's logits; those of the port's call, which float64 (A) compares with it, if it is a recording."""
    modules = comparison.modules

    def called(dtype: str, tokens: Array, read: Array) -> Array:
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            # float64 (A) has compared this call with the recording, so it may serve as the reference here.
            call = jax.jit(comparison.candidate.models[dtype], compiler_options=fast_compile())
            return np.asarray(call((tokens.astype(np.int32), read)))

    def observed(dtype: str, tokens: Array, read: Array) -> Array:
        with lifted() if dtype == "float64" else nullcontext():
            return run(modules[dtype], (tokens.astype(np.int64), read))[0]

    return observed if modules else called
