"""The gates of what users run, samplers (H) and generation (I), for a comparison in progress."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import numpy as np

from wdport.compare.comparison import Comparison
from wdport.compare.findings import Gate
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Completing, Sampled
from wdport.jax_settings import fast_compile
from wdport.model import Array
from wdport.parity.end_to_end.generation import SidePair, Tokens, generation_gate
from wdport.parity.end_to_end.samplers import SEED, samplers_gate
from wdport.parity.trajectories import file_process, reference_network
from wdport.recorder import highest_precision, lifted, run
from wdport.sampling.network import keras_network


def use_gates(prepared: Prepared, comparison: Comparison, samples: bool, full: bool) -> list[Gate]:
    """The gates of the verbs that the family offers; ``samples`` states whether the model draws samples."""
    family, gates = prepared.family, []
    if samples and isinstance(family, Sampled):
        with comparison.clock.gate("H"):
            gates.append(_samplers(family, prepared, comparison, full))
    if isinstance(family, Completing):
        precision = highest_precision() if comparison.modules else nullcontext()  # a recording needs no torch
        with comparison.clock.gate("I"), precision:
            pair = SidePair(family, comparison.candidate.models, _tokens(comparison))
            gates.append(generation_gate(pair, full))
    return gates


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
