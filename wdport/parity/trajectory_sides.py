"""The two sides of trajectories (E): a reference network sampled in plain loops, and a Keras model sampled by wdport.

Both start from the same x_T with the same noise tape; each returns its state after every step of every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from wdport.compare.layouts import axes, laid_out
from wdport.compare.probe import Tensor
from wdport.compare.programs import Program
from wdport.compile_cache import FAST_COMPILE
from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.noise import lay_out
from wdport.diffusion.plans import Plan
from wdport.diffusion.process import Network, Process, Run
from wdport.diffusion.scan import Change, Rows, plan_rows, run_plan
from wdport.errors import UsageError
from wdport.model import Array, Diffused, KerasModel, Signature
from wdport.sampling.network import Known, fast_network

BATCH = 3
"""Samples in a batch, which must not affect each other."""


@dataclass(frozen=True)
class Reference:
    """The reference's side: its float64 network as a function of arrays, the noise process that the checkpoint states,
    and the shape (C, F) of one sample; the float32 network is needed to compare a float32 port with it."""

    network: Network
    process: Process
    shape: tuple[int, ...]
    single: Network | None = None


def reference_network(
    signature: Signature, condition: Array | None, run: Callable[[tuple[Array, ...]], Array]
) -> Network:
    """The reference as a function of the port's states (B, *shape) and times (B,); ``run`` takes all its inputs, the
    ``condition`` (B, ...) as the last one, if it is given."""
    rules = [axes(text) for text in signature.axes]
    state_spec, time = signature.inputs[0], signature.inputs[1]
    back = [state_spec.keras_axes.index(axis) for axis in state_spec.axes]

    def network(state: Array, times: Array) -> Array:
        torch_state = np.ascontiguousarray(np.transpose(state, back))
        is_integer = condition is not None and condition.dtype.kind == "i"
        more = () if condition is None else (condition.astype(np.int64 if is_integer else state.dtype),)
        output = run((torch_state, times.astype(np.int64) if time.kind == "int" else times, *more))
        return laid_out(output, state.shape, rules)

    return network


def trial_condition(about: Diffused) -> Array | None:
    """A condition for each sample of a run, if the network takes one."""
    return None if about.condition is None else about.condition.trial(BATCH)


class Inputs:
    """x_T and the noise tape that both sides share; the tape has one slot more than a correct sampler uses."""

    def __init__(self, shape: tuple[int, ...], slots: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.init = rng.standard_normal((BATCH, *shape))
        self.tape = rng.standard_normal((slots, BATCH, *shape))

    @staticmethod
    def of(reference: Reference) -> Inputs:
        """The inputs for every run of a reference."""
        process = reference.process
        return Inputs(reference.shape, max((len(process.visited(run)) for run in process.runs), default=0))


def reference_states(reference: Reference, inputs: Inputs, dtype: str = "float64") -> dict[Run, list[Array]]:
    """The reference's state after every step of every run; empty in float32 if it has no such network."""
    network = reference.network if dtype == "float64" else reference.single
    if network is None:
        return {}
    process = reference.process
    return {run: process.loop(run, network, inputs.init.astype(dtype), inputs.tape) for run in process.runs}


Outcome = tuple[Plan, Array] | UsageError
"""The plan of a run and the state after every row of it, or the reason why it could not run."""


class Port:
    """A Keras model sampled by the compiled scan; one program serves every run."""

    def __init__(self, model: KerasModel, family_config: Known | None = None) -> None:
        self.network = fast_network(model, known=family_config)
        self.process = self.network.process()
        self._program = self._compiled()

    def states(self, inputs: Inputs, fault: SamplerFault | None = None) -> dict[Run, Outcome]:
        """The outcome of every run, with ``fault`` injected into the samplers that can have it."""
        outcomes: dict[Run, Outcome] = {}
        for run in self.process.runs:
            try:
                outcomes[run] = self._run(run, inputs, fault if fault and run.sampler in fault.samplers else None)
            except UsageError as error:
                outcomes[run] = error
        return outcomes

    def _run(self, run: Run, inputs: Inputs, fault: SamplerFault | None) -> tuple[Plan, Array]:
        process, dtype = self.process, self.network.dtype
        plan, program = process.trial(run, self.network.change is not None), self._program
        if fault is not None:
            plan = fault.apply(plan, process)
            if fault.change is not None:
                program = self._compiled(fault.change)
        arrays = inputs.init.astype(dtype), lay_out(inputs.tape, plan.noisy).astype(dtype)
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            return plan, np.asarray(program(self.network.weights(), plan_rows(plan, dtype), *arrays))

    def _compiled(self, change: Change | None = None) -> Program[object, Rows, Tensor, Tensor, jax.Array]:
        trial = trial_condition(self.network.about)

        def states(weights: object, rows: Rows, init: Tensor, tape: Tensor) -> jax.Array:
            active = change or self.network.changing(weights)
            condition = None if trial is None else jnp.asarray(trial, None if trial.dtype.kind == "i" else init.dtype)
            every: jax.Array = run_plan(
                lambda x, time: self.network.at(weights, x, time, condition),
                rows,
                init,
                tape,
                record=True,
                change=active,
            )
            return every

        return Program(states, FAST_COMPILE)
