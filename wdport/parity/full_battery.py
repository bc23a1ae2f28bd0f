"""What `verify --full` adds: the port run eagerly, bfloat16, gradients, optimizer steps and sampling trajectories;
training mode follows it, since it changes the weights."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from wdport.compare.activities import Say
from wdport.compare.calls import CASES, Case, layer_of
from wdport.compare.comparison import Comparison
from wdport.compare.findings import Gate
from wdport.compare.gates import EAGER
from wdport.compare.measure import float32_share, relative_l2
from wdport.compare.programs import release_memory
from wdport.compare.results import TapResult
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Trained
from wdport.parity.bfloat16_gate import bfloat16_gate
from wdport.parity.gates_of_uses import NetworkInUse, use_gates
from wdport.parity.gradient_gate import GradientErrors, gradient_gate
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimizer_gate import OptimizerErrors, PortTraining, optimizer_gate
from wdport.parity.optimizer_steps import BATCH
from wdport.parity.verdict import PartResult, Trajectory, VariableResult
from wdport.recording.float64 import lifted
from wdport.recording.torch_functions import highest_precision

SEED = 5
# With a gain of 32, so that attention's logits are large.
BFLOAT16_CASES = (CASES[0], replace(CASES[0], gain=32.0), CASES[1])
"""The last one has the greatest lengths."""


@dataclass(frozen=True)
class FullBattery:
    """Gates bfloat16, gradients and optimizer, and the sampling runs of trajectories, with the measurements that are
    not stored in the taps."""

    gates: tuple[Gate, ...] = ()
    path: Gate | None = None
    part_gradients: tuple[float, ...] = ()
    variables: tuple[VariableResult, ...] = ()
    trajectories: tuple[Trajectory, ...] = ()

    def parts(self, parts: tuple[PartResult, ...]) -> tuple[PartResult, ...]:
        if not self.part_gradients:
            return parts
        return tuple(replace(part, gradient=g) for part, g in zip(parts, self.part_gradients, strict=True))


def run_full_battery(prepared: Prepared, comparison: Comparison, in_use: NetworkInUse | None, say: Say) -> FullBattery:
    """Run it with the current weights. Afterwards the float32 models are dropped and the others are trained."""
    models, taps, family = comparison.candidate.models, comparison.alignment.taps, prepared.family
    release_memory()
    probe = GradientProbe(models["float64"], {layer_of(tap.candidate) for tap in taps})
    with ThreadPoolExecutor(1) as pool:  # compiling the backward pass takes longest
        signature = family.signature(prepared.config)
        # XLA compiles without Python's lock, so the other gates run meanwhile.
        inputs = comparison.reference.inputs(Case(SEED, BATCH, 1.0))
        compiling = pool.submit(probe.compile, signature.in_port(inputs))
        say("bfloat16")
        with comparison.clock.gate("B'"):
            low, ratios = bfloat16_gate(prepared, comparison, BFLOAT16_CASES, in_use is not None)
        release_memory()
        path: Gate | None = None
        trajectories: tuple[Trajectory, ...] = ()
        if in_use is not None:
            say("sampling trajectories")
            with highest_precision(), comparison.clock.gate("E"):
                # Nothing holds the reference afterwards: it would keep the float32 module in memory.
                path, trajectories = use_gates().trajectories(prepared, comparison)
            release_memory()
        say("running the port eagerly")
        with comparison.clock.gate("A"):
            _compare_eagerly(comparison, CASES[-1])
        with comparison.clock.gate("C"):
            compiling.result()
    # The float32 models are not used any more, and the backward pass needs their memory.
    for held in (comparison.port.probes, models, comparison.modules):
        if isinstance(held, dict):
            held.pop("float32", None)
    release_memory()
    say("gradients")
    slopes = _gradients(prepared, comparison, probe)
    release_memory()
    for name, result in comparison.taps.items():
        result.bfloat16, result.gradient = ratios.get(name), slopes.taps.get(name)
    steps = _optimizer_steps(family, prepared, comparison, probe, say) if isinstance(family, Trained) else None
    variables = _variables(prepared, slopes.variables, steps.errors if steps is not None else {})
    gates = (low, slopes.gate) if steps is None else (low, slopes.gate, steps.gate)
    return FullBattery(gates, path, tuple(slopes.parts), variables, trajectories)


def gradient_battery(prepared: Prepared, comparison: Comparison) -> FullBattery:
    """Gate gradients alone, with the current weights."""
    paths = {layer_of(tap.candidate) for tap in comparison.alignment.taps}
    probe = GradientProbe(comparison.candidate.models["float64"], paths)
    return FullBattery((_gradients(prepared, comparison, probe).gate,))


def _gradients(prepared: Prepared, comparison: Comparison, probe: GradientProbe) -> GradientErrors:
    with lifted(), comparison.clock.gate("C"):
        # Of the calls that every case makes: longer inputs than those of this pass make more.
        plain = [tap for tap in comparison.alignment.always if tap.reference not in comparison.arranged]
        compared = partial(gradient_gate, prepared, comparison.reference, probe, plain, SEED, BATCH)
        errors = compared()
        return compared() if not errors.gate.passed and probe.optimize() else errors


def _compare_eagerly(comparison: Comparison, case: Case) -> None:
    """Gate float64 (A) again, for the outputs only, with the port run eagerly: compiling may change the results."""
    observation = comparison.observe(case)
    outputs = comparison.port.eagerly(comparison.signature.in_port(observation.inputs))
    right = comparison.outputs_in_port(observation.outputs, observation.names, outputs)
    error = max(map(relative_l2, outputs, right)) if right else inf
    share = (max(map(float32_share, observation.outputs)), max(map(float32_share, outputs)))
    comparison.taps[EAGER] = TapResult(EAGER, "", None, isolated=error, cumulative=error, share32=share)
    comparison.float64.expected += 1
    comparison.float64.compared += 1


def _optimizer_steps(
    family: Trained, prepared: Prepared, comparison: Comparison, probe: GradientProbe, say: Say
) -> OptimizerErrors:
    """Gate optimizer (D), for a family that defines its training loss."""
    say("optimizer steps")
    objective = family.objective(prepared.config, probe.model)
    module = comparison.modules["float64"]
    with lifted(), comparison.clock.gate("D"):
        errors = optimizer_gate(prepared.plan.moves, module, probe, objective, PortTraining(objective), BATCH)
    module.zero_grad(set_to_none=True)
    release_memory()
    return errors


def _variables(
    prepared: Prepared, gradients: dict[str, float], step_errors: Mapping[str, float]
) -> tuple[VariableResult, ...]:
    sources = {target: " + ".join(move.sources) for move in prepared.plan.moves for target in move.targets}
    return tuple(
        VariableResult(
            sources[name],
            name,
            gradients[name],
            *(step_errors.get(f"{what} of {name}", 0.0) for what in ("gradient", "exp_avg", "exp_avg_sq", "value")),
        )
        for name in gradients
    )
