"""Gate trajectories (E): compare both sides' trajectories on one noise tape, along every run.

Both sides start from the same x_T with the same noise tape; each returns its state after every step of every run.

The runs are the checkpoint's DDPM and DDIM, with the network's prediction target and with the other one. Each takes six
steps from the last to the first: errors compound along a run, and a network of the released size is slow in float64.

Gate sampling network (E'): compare the network that samplers run with the reference on the battery's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, log10, prod
from types import MappingProxyType
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from wdport.base.errors import MachineError, UsageError
from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.calls import Case
from wdport.compare.comparison import Comparison
from wdport.compare.findings import GATES, Finding, Gate, fact, measure
from wdport.compare.gate_bounds import TRAJECTORY
from wdport.compare.layouts import axes, laid_out
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.compare.probe import Tensor
from wdport.compare.programs import CompiledProgram
from wdport.conversion.prepare import Prepared
from wdport.conversion.values import source_array
from wdport.models.interface import Array, Configuration, Diffused, KerasModel, Signature
from wdport.parity.verdict import Trajectory
from wdport.recording import runs
from wdport.recording.float64 import lifted
from wdport.recording.torch_functions import highest_precision
from wdport.uses.diffusion.faults import SamplerFault
from wdport.uses.diffusion.noise import lay_out
from wdport.uses.diffusion.plans import SamplingPlan
from wdport.uses.diffusion.process import Network, Process, Run
from wdport.uses.diffusion.run_plan import Change, PlanRows, plan_rows, run_plan
from wdport.uses.roles import Sampled
from wdport.uses.sampling.network import Known, keras_network

if TYPE_CHECKING:
    import torch

BATCH = 3
"""Samples in a batch, which must not affect each other."""


@dataclass(frozen=True)
class TrajectoryReference:
    """The reference's side: its float64 network as a function of arrays, the noise process that the checkpoint states,
    and the shape (C, F) of one sample; the float32 network is needed to compare a float32 port with it."""

    network: Network
    process: Process
    shape: tuple[int, ...]
    single: Network | None = None


def reference_network(
    signature: Signature, condition: Array | None, module: torch.nn.Module, dtype: str = "float64"
) -> Network:
    """A ``module`` of this dtype as a function of the port's states (B, *shape) and times (B,); it is fed the
    ``condition`` (B, ...) as its last input, if it is given."""
    rules = [axes(text) for text in signature.axes]
    state_spec, time = signature.inputs[0], signature.inputs[1]
    back = [state_spec.keras_axes.index(axis) for axis in state_spec.axes]

    def network(state: Array, times: Array) -> Array:
        torch_state = np.ascontiguousarray(np.transpose(state, back))
        is_integer = condition is not None and condition.dtype.kind == "i"
        more = () if condition is None else (condition.astype(np.int64 if is_integer else state.dtype),)
        # A spacing by noise levels visits times between the steps, which most embeddings of steps take as well.
        whole_times = time.kind == "int" and not np.any(np.mod(times, 1.0))
        inputs = (torch_state, times.astype(np.int64) if whole_times else times, *more)
        with highest_precision(), lifted() if dtype == "float64" else nullcontext():
            output = runs.run(module, inputs)[0]
            # With a learned variance, the network has more channels than the state.
            channels = output.size // prod(state.shape[:-1])
            return laid_out(output, (*state.shape[:-1], channels), rules)

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
    def of(reference: TrajectoryReference) -> Inputs:
        """The inputs for every run of a reference."""
        process = reference.process
        return Inputs(reference.shape, max((len(process.visited(run)) for run in process.runs), default=0))


def reference_states(reference: TrajectoryReference, inputs: Inputs, dtype: str = "float64") -> dict[Run, list[Array]]:
    """The reference's state after every step of every run; empty in float32 if it has no such network."""
    network = reference.network if dtype == "float64" else reference.single
    if network is None:
        return {}
    process = reference.process
    return {run: process.loop(run, network, inputs.init.astype(dtype), inputs.tape) for run in process.runs}


Outcome = tuple[SamplingPlan, Array] | UsageError
"""The plan of a run and the state after every row of it, or the reason why it could not run."""


class TrajectoryPort:
    """A Keras model sampled by the compiled scan; one program serves every run."""

    def __init__(self, model: KerasModel, family_config: Known | None = None) -> None:
        self.network = keras_network(model, family_config)
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

    def _run(self, run: Run, inputs: Inputs, fault: SamplerFault | None) -> tuple[SamplingPlan, Array]:
        process, dtype = self.process, self.network.dtype
        plan, program = process.trial(run, self.network.change is not None), self._program
        if fault is not None:
            plan = fault.apply(plan, process)
            if fault.change is not None:
                program = self._compiled(fault.change)
        arrays = inputs.init.astype(dtype), lay_out(inputs.tape, plan.noisy).astype(dtype)
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            return plan, np.asarray(program(self.network.weights(), plan_rows(plan, dtype), *arrays))

    def _compiled(self, change: Change | None = None) -> CompiledProgram[object, PlanRows, Tensor, Tensor, jax.Array]:
        trial = trial_condition(self.network.about)

        def states(weights: object, rows: PlanRows, init: Tensor, tape: Tensor) -> jax.Array:
            active = change or self.network.changing(weights)
            condition = None if trial is None else jnp.asarray(trial, None if trial.dtype.kind == "i" else init.dtype)
            network = partial(self.network.apply, weights)
            every: jax.Array = run_plan(lambda x, times: network(x, times, condition), rows, init, tape, record=True,
                                        change=active)  # fmt: skip
            return every

        return CompiledProgram(states, FAST_COMPILE)


def file_process(family: Sampled, prepared: Prepared) -> Process:
    """The noise process that a checkpoint was trained to reverse, from its tables, recomputed if stored in 16 bits."""
    sources = {constant: source for source, constant in prepared.plan.checks.items()}
    return family.process(prepared.config, lambda name: source_array(prepared, sources[name]))


def trajectory_reference(family: Sampled, prepared: Prepared, comparison: Comparison) -> TrajectoryReference:
    """The reference's side of a comparison."""
    about, modules = family.diffused(prepared.config), comparison.modules
    wide, narrow = (reference_network(comparison.signature, trial_condition(about), modules[dtype], dtype)
                    for dtype in ("float64", "float32"))  # fmt: skip
    return TrajectoryReference(wide, file_process(family, prepared), about.shape, narrow)


def trajectories_gate(
    reference: TrajectoryReference, models: Mapping[str, KerasModel], family_config: Known | None = None
) -> tuple[Gate, tuple[Trajectory, ...]]:
    """Gate trajectories (E).

    Args:
        reference: the reference's side.
        models: the port as Keras models by dtype; "float64" is compared with the bound. "float32" may be left out;
            its error is reported as a multiple of the reference's own.
        family_config: their family and configuration, which a user's own Keras models do not state.
    """
    try:
        inputs = Inputs.of(reference)
    except MachineError as error:  # the reference is a library's scheduler, which is not installed
        missing = fact(f"not compared: {error}", kind="missing")
        return GATES["E"].gate(0, reference.process.counts + 1, facts=(missing,)), ()
    ports = {dtype: TrajectoryPort(model, family_config) for dtype, model in models.items()}
    with ThreadPoolExecutor(len(ports)) as pool:  # compiling is most of it
        running = {dtype: pool.submit(port.states, inputs) for dtype, port in ports.items()}
        truth = reference_states(reference, inputs)
        single = reference_states(reference, inputs, "float32") if "float32" in models else {}
        states = {dtype: future.result() for dtype, future in running.items()}
    trajectories, facts = _compare(reference.process, truth, states, single)
    return _gate(reference, ports["float64"], trajectories, facts), tuple(trajectories)


def kill_sampler_faults(
    reference: TrajectoryReference, model: KerasModel, faults: Sequence[SamplerFault],
    family_config: Known | None = None,
) -> Iterator[tuple[str, float, bool]]:  # fmt: skip
    """Inject ``faults`` of samplers into a correct float64 port, one at a time; yield its name, the largest error over
    the bound in decades, and whether the gate fails."""
    inputs, port = Inputs.of(reference), TrajectoryPort(model, family_config)
    truth = reference_states(reference, inputs)
    for fault in faults:
        gate = _gate(reference, port, *_compare(reference.process, truth, {"float64": port.states(inputs, fault)}))
        worst = inf if gate.worst is None else gate.worst
        margin = log10(worst / TRAJECTORY) if 0.0 < worst < inf else (inf if worst else -inf)
        yield fault.name, margin, not gate.passed


def _compare(
    process: Process, truth: Mapping[Run, Sequence[Array]], states: Mapping[str, Mapping[Run, Outcome]],
    single: Mapping[Run, Sequence[Array]] = MappingProxyType({}),
) -> tuple[list[Trajectory], list[Finding]]:  # fmt: skip
    """Every run's errors, and the other differences."""
    trajectories, facts = [], list[Finding]()
    for run in process.runs:
        steps, ratio = process.visited(run), None
        errors: dict[str, tuple[float, ...]] = {"float64": (), "float32": ()}
        for dtype, outcome in ((dtype, outcomes[run]) for dtype, outcomes in states.items() if run in outcomes):
            if isinstance(outcome, UsageError):
                facts.append(fact(f"{run}, {dtype}: {outcome}", str(run)))
                continue
            plan, ours = outcome
            if plan.steps.tolist() != steps:
                text = f"{run}, {dtype}: the port's steps are {plan.steps.tolist()}, the reference's {steps}"
                facts.append(fact(text, str(run)))
            # Not strict: another number of states is the fact above.
            errors[dtype] = tuple(relative_l2(c, r) for c, r in zip(ours, truth[run], strict=False))
            if dtype == "float32" and run in single and len(ours) == len(truth[run]):
                pair = ErrorPair()
                for c, r, t in zip(ours, single[run], truth[run], strict=True):
                    pair.add(c, r, t)
                ratio = pair.rms_ratio
        trajectories.append(Trajectory(str(run), tuple(steps), errors["float64"], errors["float32"], ratio))
    return trajectories, facts


def _gate(
    reference: TrajectoryReference, port: TrajectoryPort, trajectories: Sequence[Trajectory], facts: list[Finding]
) -> Gate:
    process = reference.process
    if (wrong := port.process.wrong_count()) is not None:
        facts.append(fact(f"the list for {wrong} steps is not the checkpoint's"))
    if port.process.target != process.target:
        facts.append(fact(f"the port's target is {port.process.target}, the checkpoint's {process.target}"))
    errors = tuple(
        measure(trajectory.sampler, "step", error, "trajectory", f", step {step}")
        for trajectory in trajectories
        for step, error in zip(trajectory.steps, trajectory.logic, strict=False)
    )
    others = process.counts + 1  # the step lists and the target
    compared, expected = len(errors) + others, sum(len(process.visited(run)) for run in process.runs) + others
    return GATES["E"].gate(compared, expected, errors, tuple(facts))


WHOLE = "sampling network"


class SamplingNetwork:
    """The sampling networks of a port by dtype, and the accumulated errors.

    Batches run in float32, the dtype of sampling, and single samples in float64, where a wrong epsilon shows. The full
    battery also runs batches in float64.
    """

    letter = "E'"
    name = WHOLE

    def __init__(self, family: Sampled, config: Configuration, models: Mapping[str, KerasModel], full: bool) -> None:
        self.family, self._full = family, full
        self._networks = {dtype: keras_network(model, (family, config)) for dtype, model in models.items()}
        self._programs = {dtype: CompiledProgram(net.apply, FAST_COMPILE) for dtype, net in self._networks.items()}
        self.logic: dict[str, float] = {}
        self.numerics: dict[str, ErrorPair] = {}
        self.expected = 0
        self._optional = bool((condition := family.diffused(config).condition) and condition.optional)
        self._single: Case | None = None
        self._exact = 2 if self._optional else 1  # cases in float64, with and without an optional input

    def dtypes(self, case: Case) -> tuple[str, ...]:
        """The dtypes in which the network runs in this case."""
        if not case.numerics:
            return ("float64",) if self._full or case.batch == 1 else ()
        first = self._optional and case == self._first(case)
        return ("float64", "float32") if self._full or first else ("float32",)

    def _first(self, case: Case) -> Case:
        """The first case that is run in float32."""
        self._single = self._single or case
        return self._single

    def predict(self, dtype: str, inputs: tuple[Array, ...]) -> Array:
        """The prediction (B, C, F)."""
        state, times, *condition = inputs
        weights = self._networks[dtype].weights()
        output = np.asarray(self._programs[dtype](weights, state, times, condition[0] if condition else None))
        self._exact -= dtype == "float64"
        if self._exact == 0 and dtype == "float64" and not self._full:  # its last case; it holds a copy of the weights
            del self._networks[dtype], self._programs[dtype]
        return output

    def compare(self, case: str, output: Array, truth: Array) -> None:
        """Add a float64 prediction and the reference's."""
        self.expected += len(truth)
        if output.shape == truth.shape:
            errors = map(relative_l2, output, truth)
            self.logic |= {f"{WHOLE}, sample {index} of {case}": error for index, error in enumerate(errors)}

    def compare_single(self, output: Array, reference: Array, truth: Array) -> None:
        """Add a float32 prediction, the reference's and the truth."""
        if output.shape == truth.shape:
            self.numerics.setdefault(WHOLE, ErrorPair()).add(output, reference, truth)

    def gate(self, trajectories: Sequence[Trajectory] = ()) -> Gate:
        """Gate sampling network (E'), with the float32 errors of the full battery's ``trajectories``."""
        ratios = {name: pair.ratio for name, pair in self.numerics.items()}
        ratios |= {trajectory.sampler: trajectory.ratio for trajectory in trajectories if trajectory.ratio is not None}
        single = tuple(measure(name, "float32", ratio, "numerics") for name, ratio in ratios.items())
        double = tuple(measure(name, "error", error, "trajectory") for name, error in self.logic.items())
        # At least one float32 comparison is expected, so that a gate without any is incomplete.
        return GATES["E'"].gate(len(single) + len(double), max(len(single), 1) + self.expected, (*single, *double))
