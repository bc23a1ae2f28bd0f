"""The two sides of gate E: a reference network through plain loops, and a Keras model as it is sampled.

Both start from one x_T and take one noise tape; each gives its state after every step of every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from wdport.compare.probe import Tensor
from wdport.compare.programs import Program
from wdport.compile_cache import FAST_COMPILE
from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.noise import lay_out
from wdport.diffusion.plans import TARGETS, Plan, make_plan
from wdport.diffusion.reference_sampler import Network, ddim_states, ddim_step_list, ddpm_states
from wdport.diffusion.scan import Network as Traced
from wdport.diffusion.scan import Rows, plan_rows, run_plan
from wdport.diffusion.schedules import NoiseSchedule
from wdport.diffusion.steps import step_list
from wdport.errors import UsageError
from wdport.model import Array, KerasModel
from wdport.sampling.network import fast_network

COUNT = 5
"""Steps asked for: by the checkpoint's rule 1000, 800, 600, 400, 200 and 1. DDPM runs over the same list with the
single step's beta and alpha, and with alpha_bar of the next step in the list for the previous one's."""

BATCH = 3
"""Samples that run together and must not see each other."""

SAMPLERS = (("ddpm", 0.0), ("ddim", 0.0), ("ddim", 0.5))


@dataclass(frozen=True)
class Reference:
    """The reference's side: its float64 network as a function of arrays, the checkpoint's noise schedule, what the
    network predicts, and the shape (C, F) of one sample; the float32 network is needed where a float32 port is held
    against it."""

    network: Network
    schedule: NoiseSchedule
    target: str
    shape: tuple[int, ...]
    single: Network | None = None


@dataclass(frozen=True)
class Run:
    """One sampler with one target: "DDIM, eta 0.5, noise target"."""

    sampler: str
    eta: float
    target: str

    def __str__(self) -> str:
        eta = f", eta {self.eta:g}" if self.sampler == "ddim" else ""
        return f"{self.sampler.upper()}{eta}, {self.target} target"


RUNS = tuple(Run(sampler, eta, target) for target in TARGETS for sampler, eta in SAMPLERS)


class Inputs:
    """x_T and the tape that both sides share; the tape has one slot more than a correct sampler takes."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.init = rng.standard_normal((BATCH, *shape))
        self.tape = rng.standard_normal((len(ddim_step_list(COUNT)), BATCH, *shape))


def reference_states(reference: Reference, inputs: Inputs, dtype: str = "float64") -> dict[Run, list[Array]]:
    """The reference's state after every step of every run; none in float32 where it has no such network."""
    network = reference.network if dtype == "float64" else reference.single
    if network is None:
        return {}
    steps, found = ddim_step_list(COUNT), {}
    for run in RUNS:
        given = (network, reference.schedule, run.target, steps, inputs.init.astype(dtype))
        if run.sampler == "ddpm":
            found[run] = ddpm_states(*given, inputs.tape)
        else:
            found[run] = ddim_states(*given, run.eta, inputs.tape)
    return found


Outcome = tuple[Plan, Array] | UsageError
"""The plan of a run and the state after every row of it, or why it could not be run."""


class Port:
    """A Keras model as it is sampled, going through the scan; one compiled program serves every run."""

    def __init__(self, model: KerasModel) -> None:
        self.network = fast_network(model)
        self._program = self._compiled(lambda network: network)

    def states(self, inputs: Inputs, fault: SamplerFault | None = None) -> dict[Run, Outcome]:
        """What becomes of every run; with ``fault`` in the samplers that can have it."""
        found: dict[Run, Outcome] = {}
        for run in RUNS:
            try:
                found[run] = self._run(run, inputs, fault if fault and run.sampler in fault.samplers else None)
            except UsageError as error:
                found[run] = error
        return found

    def _run(self, run: Run, inputs: Inputs, fault: SamplerFault | None) -> tuple[Plan, Array]:
        schedule, dtype = self.network.schedule(), self.network.dtype
        right = make_plan(run.sampler, schedule, step_list(COUNT), eta=run.eta, target=run.target)
        plan, program = right, self._program
        if fault is not None:
            plan = fault.apply(right, schedule)
            if (wrap := fault.wrap) is not None:
                program = self._compiled(lambda network: wrap(network, right, schedule))
        arrays = inputs.init.astype(dtype), lay_out(inputs.tape, plan.noisy).astype(dtype)
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            return plan, np.asarray(program(self.network.weights(), plan_rows(plan, dtype), *arrays))

    def _compiled(self, wrap: Callable[[Traced], Traced]) -> Program[object, Rows, Tensor, Tensor, jax.Array]:
        def states(weights: object, rows: Rows, init: Tensor, tape: Tensor) -> jax.Array:
            network = wrap(lambda x, time: self.network.at(weights, x, time))
            every: jax.Array = run_plan(network, rows, init, tape, record=True)
            return every

        return Program(states, FAST_COMPILE)
