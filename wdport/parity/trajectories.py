"""Gate trajectories (E): compare both sides' trajectories on one noise tape, along every run.

The runs are the checkpoint's DDPM and DDIM, with the network's prediction target and with the other one. Each takes six
steps from the last to the first: errors compound along a run, and a network of the released size is slow in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf, log10

from wdport.compare.bounds import TRAJECTORY
from wdport.compare.findings import Finding, Gate, fact, measure
from wdport.compare.glossary import GATES
from wdport.compare.measure import ErrorPair, relative_l2
from wdport.conversion.apply import source_array
from wdport.conversion.prepare import Prepared
from wdport.diffusion.faults import SamplerFault
from wdport.diffusion.process import Process, Run
from wdport.errors import MachineError, UsageError
from wdport.families.roles import Sampled
from wdport.model import Array, KerasModel
from wdport.parity.trajectory_sides import Inputs, Outcome, Port, Reference, reference_states
from wdport.parity.verdict import Trajectory
from wdport.sampling.network import Known


def file_process(family: Sampled, prepared: Prepared) -> Process:
    """The noise process that a checkpoint was trained to reverse, from its tables, recomputed if stored in 16 bits."""
    sources = {constant: source for source, constant in prepared.plan.checks.items()}
    return family.process(prepared.config, lambda name: source_array(prepared, sources[name], cast=True))


def trajectories_gate(
    reference: Reference, models: Mapping[str, KerasModel], family_config: Known | None = None
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
    ports = {dtype: Port(model, family_config) for dtype, model in models.items()}
    with ThreadPoolExecutor(len(ports)) as pool:  # compiling is most of it
        running = {dtype: pool.submit(port.states, inputs) for dtype, port in ports.items()}
        truth = reference_states(reference, inputs)
        single = reference_states(reference, inputs, "float32") if "float32" in models else {}
        states = {dtype: future.result() for dtype, future in running.items()}
    results = _compare(reference.process, truth, states, single)
    return _gate(reference, ports["float64"], results), tuple(result.trajectory for result in results)


def kill_sampler_faults(
    reference: Reference,
    model: KerasModel,
    faults: Sequence[SamplerFault],
    family_config: Known | None = None,
) -> Iterator[tuple[str, float, bool]]:
    """Inject ``faults`` of samplers into a correct float64 port, one at a time; yield its name, the largest error over
    the bound in decades, and whether the gate fails."""
    inputs, port = Inputs.of(reference), Port(model, family_config)
    truth = reference_states(reference, inputs)
    for fault in faults:
        gate = _gate(reference, port, _compare(reference.process, truth, {"float64": port.states(inputs, fault)}))
        worst = inf if gate.worst is None else gate.worst
        margin = log10(worst / TRAJECTORY) if 0.0 < worst < inf else (inf if worst else -inf)
        yield fault.name, margin, not gate.passed


@dataclass(frozen=True)
class _Result:
    """One run's errors and other differences."""

    trajectory: Trajectory
    facts: tuple[Finding, ...]


def _compare(
    process: Process,
    truth: Mapping[Run, Sequence[Array]],
    states: Mapping[str, Mapping[Run, Outcome]],
    single: Mapping[Run, Sequence[Array]] | None = None,
) -> list[_Result]:
    float32_states = single or {}
    return [
        _one(
            run,
            process.visited(run),
            truth[run],
            {dtype: outcomes[run] for dtype, outcomes in states.items() if run in outcomes},
            float32_states.get(run),
        )
        for run in process.runs
    ]


def _one(
    run: Run,
    steps: list[int],
    truth: Sequence[Array],
    states: Mapping[str, Outcome],
    single: Sequence[Array] | None,
) -> _Result:
    errors: dict[str, tuple[float, ...]] = {"float64": (), "float32": ()}
    facts, ratio = [], None
    for dtype, outcome in states.items():
        if isinstance(outcome, UsageError):
            facts.append(fact(f"{run}, {dtype}: {outcome}", str(run)))
            continue
        plan, ours = outcome
        if plan.steps.tolist() != steps:
            text = f"{run}, {dtype}: the port's steps are {plan.steps.tolist()}, the reference's {steps}"
            facts.append(fact(text, str(run)))
        errors[dtype] = tuple(relative_l2(c, r) for c, r in zip(ours, truth, strict=False))
        if dtype == "float32" and single is not None and len(ours) == len(truth):
            pair = ErrorPair()
            for c, r, t in zip(ours, single, truth, strict=True):
                pair.add(c, r, t)
            ratio = pair.rms_ratio
    return _Result(Trajectory(str(run), tuple(steps), errors["float64"], errors["float32"], ratio), tuple(facts))


def _gate(reference: Reference, port: Port, results: Sequence[_Result]) -> Gate:
    facts = [finding for result in results for finding in result.facts]
    process = reference.process
    if (wrong := port.process.wrong_count()) is not None:
        facts.append(fact(f"the list for {wrong} steps is not the checkpoint's"))
    if port.process.target != process.target:
        facts.append(fact(f"the port's target is {port.process.target}, the checkpoint's {process.target}"))
    errors = tuple(
        measure(result.trajectory.sampler, "step", error, "trajectory", f", step {step}")
        for result in results
        for step, error in zip(result.trajectory.steps, result.trajectory.logic, strict=False)
    )
    others = process.counts + 1  # the step lists and the target
    compared, expected = len(errors) + others, sum(len(process.visited(run)) for run in process.runs) + others
    return GATES["E"].gate(compared, expected, errors, tuple(facts))
