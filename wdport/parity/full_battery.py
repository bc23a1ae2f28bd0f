"""What `verify --full` adds: the port run eagerly, bfloat16, gradients, optimiser steps and sampling trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from wdport.compare.calls import CASES, layer_of
from wdport.compare.findings import Gate
from wdport.compare.memory import release_memory
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Sampled, Trained
from wdport.model import Array
from wdport.parity.bfloat16_gate import bfloat16_gate
from wdport.parity.gradient_gate import gradient_gate
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimiser_gate import OptimiserErrors, PortTraining, optimiser_gate
from wdport.parity.runner import Runner
from wdport.parity.trajectories import file_process, trajectories_gate
from wdport.parity.trajectory_sides import Reference, reference_network, trial_labels
from wdport.parity.verdict import PartResult, Trajectory, VariableResult
from wdport.recorder import highest_precision, lifted, run

SEED = 5
BATCH = 2
"""Samples in a backward pass and in an optimiser step: more do not fit with 63 million parameters in float64."""


@dataclass(frozen=True)
class FullBattery:
    """Gates bfloat16, gradients and optimiser, and the sampling runs of trajectories, with the measurements that are
    not stored in the taps."""

    gates: tuple[Gate, ...] = ()
    path: Gate | None = None
    part_gradients: tuple[float, ...] = ()
    variables: tuple[VariableResult, ...] = ()
    trajectories: tuple[Trajectory, ...] = ()

    def parts(self, parts: tuple[PartResult, ...]) -> tuple[PartResult, ...]:
        """The parts' results with their gradients' errors."""
        if not self.part_gradients:
            return parts
        return tuple(replace(part, gradient=g) for part, g in zip(parts, self.part_gradients, strict=True))


def run_full_battery(prepared: Prepared, runner: Runner, say: Callable[[str], None]) -> FullBattery:
    """Run it with the current weights. Afterwards the float32 models are dropped and the others are trained."""
    sides, taps, family = runner.sides, runner.aligned, prepared.family
    release_memory()
    probe = GradientProbe(sides.candidates["float64"], {layer_of(tap.candidate) for tap in taps})
    with ThreadPoolExecutor(1) as pool:  # compiling the backward pass takes longest
        signature = family.signature(prepared.config)
        compiling = pool.submit(probe.compile, signature.in_port(signature.make(SEED, BATCH, 1.0)))
        say("bfloat16")
        with runner.clock.gate("B'"):
            low, ratios = bfloat16_gate(runner, CASES[0])
        release_memory()
        path: Gate | None = None
        trajectories: tuple[Trajectory, ...] = ()
        if runner.sampling is not None:
            say("sampling trajectories")
            with highest_precision(), runner.clock.gate("E"):
                reference = _reference(runner.sampling.family, prepared, runner)
                path, trajectories = trajectories_gate(
                    reference, sides.candidates, (runner.sampling.family, prepared.config)
                )
            release_memory()
        say("running the port eagerly")
        with runner.clock.gate("A"):
            runner.compare_eagerly(CASES[-1])
        with runner.clock.gate("C"):
            compiling.result()
    runner.drop_single_precision()
    release_memory()
    say("gradients")
    with lifted(), runner.clock.gate("C"):
        plain = [tap for tap in taps if tap.reference not in runner.arranged]
        slopes = gradient_gate(prepared, sides.references["float64"], probe, plain, SEED, BATCH)
    release_memory()
    for name, result in runner.taps.items():
        result.bfloat16, result.gradient = ratios.get(name), slopes.taps.get(name)
    steps = _optimiser_steps(family, prepared, runner, probe, say) if isinstance(family, Trained) else None
    variables = _variables(prepared, slopes.variables, steps.variables if steps is not None else {})
    gates = (low, slopes.gate) if steps is None else (low, slopes.gate, steps.gate)
    return FullBattery(gates, path, tuple(slopes.parts), variables, trajectories)


def _optimiser_steps(
    family: Trained, prepared: Prepared, runner: Runner, probe: GradientProbe, say: Callable[[str], None]
) -> OptimiserErrors:
    """Gate optimiser (D), for a family that defines its training loss."""
    say("optimiser steps")
    objective = family.objective(prepared.config, probe.model)
    with lifted(), runner.clock.gate("D"):
        return optimiser_gate(prepared.plan.moves, runner.sides.references["float64"], probe, objective,
                              PortTraining(objective), BATCH)  # fmt: skip


def _reference(family: Sampled, prepared: Prepared, runner: Runner) -> Reference:
    """The reference's side of trajectories (E)."""

    about, modules = family.diffused(prepared.config), runner.sides.references

    def single(inputs: tuple[Array, ...]) -> Array:
        return run(modules["float32"], inputs)[0]

    def double(inputs: tuple[Array, ...]) -> Array:
        with lifted():
            return run(modules["float64"], inputs)[0]

    labels = trial_labels(about)
    wide, narrow = (reference_network(runner.signature, labels, each) for each in (double, single))
    return Reference(wide, file_process(family, prepared), about.shape, narrow)


def _variables(
    prepared: Prepared, gradients: dict[str, float], found: Mapping[str, dict[str, float]]
) -> tuple[VariableResult, ...]:
    sources = {target: " + ".join(move.sources) for move in prepared.plan.moves for target in move.targets}
    return tuple(
        VariableResult(sources[name], name, gradients[name], found.get("gradient", {}).get(name, 0.0),
                       found.get("first moment", {}).get(name, 0.0), found.get("second moment", {}).get(name, 0.0),
                       found.get("value", {}).get(name, 0.0))
        for name in gradients
    )  # fmt: skip
