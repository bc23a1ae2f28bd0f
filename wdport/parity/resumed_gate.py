"""Gate resumed (D'): five training steps of both sides from the converted optimizer, compared step by step.

The port's side is what a user trains with: the optimizer that :func:`wdport.load_optimizer` loads. The reference's is
`torch.optim`. As in gate optimiser (D), the port takes every step with the reference's gradients and from the
reference's state, so that a step's error is its own. Two first steps of a new optimizer with the same hyper-parameters
follow, with clipped gradients, and the learning rates of the schedule's steps to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np

from wdport.compare.findings import GATES, Finding, Gate, fact, measure, notice
from wdport.compare.measure import ScaledErrors, relative_l2, same_bits
from wdport.compare.programs import CompiledProgram
from wdport.conversion.load import Converted, sound_variables
from wdport.conversion.optimizer import Optimised, converted_optimizer
from wdport.conversion.optimizer_file import read_optimizer, require_weights
from wdport.conversion.prepare import Prepared
from wdport.errors import InputError, MisfitError, UsageError
from wdport.jax_settings import FAST_COMPILE
from wdport.keras_runtime import exact_float64, set_variable, variables_by_path
from wdport.mapping.arrays import apply_rule
from wdport.mapping.moves import Move
from wdport.model import Array, KerasVariable
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.model_pair import Sides
from wdport.parity.optimizer_gate import losses
from wdport.parity.training_mode_gate import TrainingStart
from wdport.recorder import lifted
from wdport.training.converted_optimizer import optimizer_of, schedule_of, steps_taken

if TYPE_CHECKING:
    import torch

    from wdport.parity.torch_training import TorchResumed

STEPS: Final = 5
FIRST_STEPS: Final = 2
BATCH: Final = 2
AHEAD: Final = 200
"""Optimizer steps whose learning rates are compared."""
PER_EPOCH: Final = (1, 3)
"""Optimizer steps per step of the schedule."""


@dataclass(frozen=True)
class Resumed:
    """The converted optimizer that is compared: its ``file``, and what the checkpoint's conversion gives now."""

    file: Path
    state: Optimised
    raw: Mapping[int, Mapping[str, Any]]
    schedule: type | None = None

    @property
    def by_metric(self) -> bool:
        """Whether the rate changes only with a measured value."""
        ours = schedule_of(self.state)
        return ours is not None and ours.needs_metric


def open_resumed(prepared: Prepared, file: Path, schedule: str | None = None) -> Resumed:
    """Read the optimizer's file and the checkpoint's own optimizer; ``schedule`` names the class of its schedule.

    Raises :class:`MisfitError` if the file belongs to another checkpoint's model, and what
    :func:`~wdport.conversion.optimizer.converted_optimizer` raises.
    """
    import torch

    from wdport.parity.torch_training import raw_state, schedule_class

    if not file.is_file():
        raise InputError(file, "no such file, which a resumed comparison needs", "convert with --with-optimizer")
    held, belongs = read_optimizer(file)
    if belongs.family != prepared.family.name or not set(held.members) <= set(prepared.variables):
        raise MisfitError(file, "is not the optimizer of this model", "give the one that was converted with it")
    names = [parameter.name for parameter in held.parameters]
    decoupled = [group.get("decoupled_weight_decay") for group in held.groups]
    state = converted_optimizer(prepared, held.key, names, decoupled[0])
    if state.kind != held.kind or [parameter.name for parameter in state.parameters] != names:
        raise MisfitError(file, "is not the optimizer of this checkpoint", "give the one that was converted with it")
    try:
        schedule_of(state)
    except UsageError as error:
        fix = "leave out `--with-optimizer`: load_optimizer needs a learning_rate"
        raise UsageError(error.where, error.what, fix) from None
    theirs = schedule_class(state, schedule)
    with prepared.checkpoint.stream() as stream:
        # Read by torch itself: wdport's reading of the state would otherwise be compared with itself.
        tree = torch.load(stream, weights_only=True, map_location="cpu")
    return Resumed(file, state, raw_state(tree, state.key, state.parameters), theirs)


class ResumedStart(TrainingStart):
    """The same, with the file of the optimizer checked against the converted weights."""

    def __init__(self, prepared: Prepared, converted: Converted, sides: Sides, file: Path) -> None:
        state, belongs = read_optimizer(file)
        require_weights(file, state, belongs, sound_variables(converted))
        super().__init__(prepared, converted, sides)

    def gate(self, resumed: Resumed) -> Gate:
        """The gate, with the weights of the checkpoint and of the converted file."""
        module, model = self.restore()
        return resumed_gate(self.prepared, module, GradientProbe(model, ()), resumed)


def unequal_moments(resumed: Resumed) -> list[Finding]:
    """Findings on moments and settings of the file that are not those of the checkpoint, bit for bit."""
    held, _ = read_optimizer(resumed.file)
    findings = []
    for moment, arrays in resumed.state.moments.items():
        theirs = held.moments.get(moment, {})
        wrong = [name for name, array in arrays.items() if name not in theirs or not same_bits(theirs[name], array)]
        findings += [
            fact(f"{moment} of {name} is not bitwise that of the checkpoint", name, "unequal") for name in wrong
        ]
    for what in ("kind", "groups", "members", "steps", "schedules"):
        if getattr(held, what) != getattr(resumed.state, what):
            findings.append(fact(f"the {what} of the optimizer are not those of the checkpoint", what, "unequal"))
    return findings


def resumed_gate(prepared: Prepared, module: torch.nn.Module, probe: GradientProbe, resumed: Resumed) -> Gate:
    """Take the steps and compare; both sides' weights (float64, initially those of the checkpoint) change."""
    from wdport.parity.torch_training import TorchResumed

    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64(), lifted():
        moving = None if resumed.by_metric else resumed.schedule
        theirs = TorchResumed(module, resumed.state, resumed.raw, moving)
        try:
            port = _Port(prepared, probe, resumed, theirs)
        except UsageError as refusal:  # of the file's schedule: that of the checkpoint has been read
            unread = fact(f"the optimizer's file cannot be resumed: {refusal.where} {refusal.what}", kind="unequal")
            return GATES["D'"].gate(0, 0, (), (*unequal_moments(resumed), unread))
        compare = losses(prepared, probe)
        errors = _rates_ahead(resumed)
        for step in range(STEPS + FIRST_STEPS):
            loss, graph, ours, slopes = compare(theirs.module, step)
            port.theirs.backward(graph)
            # Resumed steps show neither the first step of an optimizer nor clipping, so a new one takes two more.
            if step == STEPS:
                port.begin_anew()
            step_errors = {"loss": relative_l2(np.asarray(ours), np.asarray(loss)), **port.rates(step)}
            step_errors |= port.step(slopes)
            for name, error in step_errors.items():
                errors[name] = max(error, errors.get(name, 0.0))
    facts = [*unequal_moments(resumed), *port.facts]
    measures = tuple(measure(name, "error", error, "gradient") for name, error in errors.items())
    missing = [fact(f"{name} was not compared", name, "missing") for name in port.missing]
    return GATES["D'"].gate(len(errors), len(errors) + len(missing), measures, (*facts, *missing))


def _rates_ahead(resumed: Resumed) -> dict[str, float]:
    """The errors of the learning rates and momenta of the schedule's steps to come."""
    from wdport.parity.torch_training import rates_ahead

    if resumed.schedule is None:
        return {}
    state, errors = resumed.state, {"learning rates ahead": 0.0, "momenta ahead": 0.0}
    metrics = _metrics() if resumed.by_metric else None
    for every in PER_EPOCH if metrics is None else (1,):
        ours = schedule_of(state)
        assert ours is not None
        if metrics is None:
            held = ours.ahead(AHEAD, every)
        else:
            held = (np.empty((AHEAD, len(state.groups))), np.empty((AHEAD, len(state.groups))))
            for step, metric in enumerate(metrics):
                held[0][step], held[1][step] = ours.rates, ours.momenta
                ours.step(float(metric))
        theirs = rates_ahead(state, resumed.schedule, AHEAD, every, metrics)
        for name, candidate, reference in zip(errors, held, theirs, strict=True):
            errors[name] = max(errors[name], relative_l2(candidate, reference))
    return errors


def _metrics() -> Array:
    """Values of a watched metric: they fall for a while, stay, and rise."""
    step = np.arange(AHEAD)
    fall, rise = 0.9 ** np.minimum(step % 60, 20), 1.0 + step / AHEAD
    values: Array = np.where(step % 100 < 60, fall, rise) * 0.5 ** (step // 100)
    return values


class _Port:
    """The port's model and the user's optimizer; gradients and states of the reference go in by the table."""

    def __init__(self, prepared: Prepared, probe: GradientProbe, resumed: Resumed, theirs: TorchResumed) -> None:
        self.state, self.theirs = resumed.state, theirs
        by_path = variables_by_path(probe.model)
        places = {id(variable): path for path, variable in by_path.items()}
        moved = {path for moment in self.state.moments.values() for path in moment}
        trained = {path for path in self.state.members if path in moved or not moved}
        for path, variable in by_path.items():
            variable.trainable = variable.trainable and path in trained
        self.variables: list[KerasVariable] = list(probe.model.trainable_variables)
        self.names = [places[id(variable)] for variable in self.variables]
        state, _ = read_optimizer(resumed.file)
        self.optimizer = optimizer_of(resumed.file, state, probe.model, steps=STEPS + 1, steps_per_epoch=1)
        self.moves = [move for move in prepared.plan.moves if move.exact and set(move.targets) <= set(self.names)
                      and set(move.sources) <= set(theirs.parameters)]  # fmt: skip
        moved = {target for move in self.moves for target in move.targets}
        self.missing = [name for name in self.names if name not in moved]
        self._update = CompiledProgram(self.optimizer.stateless_apply, FAST_COMPILE)
        self._what = ""
        moving = theirs.schedule is not None and not theirs.ended
        schedule_text = f", with {type(theirs.schedule).__name__}" if moving else ", at a constant rate"
        self.facts = [notice(f"the optimizer is resumed after {steps_taken(self.state)} steps{schedule_text}")]

    def rates(self, step: int) -> dict[str, float]:
        """The errors of learning rates and momenta of the current step."""
        opt, errors = self.optimizer, dict[str, float]()
        if self._what:  # the rates are constant, and show in the values
            return errors
        for group, (rate, momentum) in enumerate(zip(self.theirs.rates, self.theirs.momenta, strict=True)):
            ours = opt.groups[group]
            own_rate = opt.rates[step, group] if opt.rates is not None else ours.lr
            own_momentum = ours.betas[0] if self.state.kind == "adam" else ours.momentum
            own_momentum = opt.momenta[step, group] if opt.momenta is not None else own_momentum
            errors[f"learning rate of group {group}"] = relative_l2(np.asarray(own_rate), np.asarray(rate))
            errors[f"momentum of group {group}"] = relative_l2(np.asarray(own_momentum), np.asarray(momentum))
        return errors

    def begin_anew(self) -> None:
        """From now on, both optimizers are new ones with the same hyper-parameters, and clip the current gradients."""
        state = replace(self.state, groups=tuple({**group, "lr": _usual_rate(group)} for group in self.state.groups),
                        schedules={})  # fmt: skip
        sources = [name for move in self.moves for name in move.sources]
        norm = float(np.sqrt(sum(np.sum(self.theirs.gradient(name) ** 2) for name in sources)))
        self.theirs = type(self.theirs)(self.theirs.module, state, {})
        # Half of the current norm, so that clipping takes effect.
        self.theirs.clip(sources, norm / 2.0)
        optimizer = self.optimizer
        pairs = zip(optimizer.groups, state.groups, strict=True)
        groups = [replace(group, lr=options["lr"]) for group, options in pairs]
        self.optimizer = type(optimizer)(groups, members=optimizer.members, clip_norm=norm / 2.0)
        self.optimizer.build(self.variables)
        self._update, self._what = CompiledProgram(self.optimizer.stateless_apply, FAST_COMPILE), ", first steps"

    def step(self, slopes: list[Array]) -> dict[str, float]:
        """Compare the gradients, take the reference's step and the port's, compare, and set the port's state to the
        reference's."""
        gradients = self._by_variable(self.theirs.gradient)
        errors = {"gradient": ScaledErrors()}
        for name, slope in zip(self.names, slopes, strict=True):
            if name in gradients:
                errors["gradient"].add(name, np.asarray(slope), gradients[name])
        applied = [gradients.get(name, np.zeros(variable.shape))
                   for name, variable in zip(self.names, self.variables, strict=True)]  # fmt: skip
        values = [variable.value for variable in self.variables]
        held = [variable.value for variable in self.optimizer.variables]
        new_values, new_state = self._update(held, applied, values)
        self.theirs.step()
        for variable, value in zip(self.optimizer.variables, new_state, strict=True):
            variable.assign(value)
        self._settle("value", errors, dict(zip(self.names, zip(new_values, self.variables, strict=True), strict=True)),
                     self._by_variable(self.theirs.value))  # fmt: skip
        for moment, variables in self.optimizer.moments.items():
            pairs = {name: (variable.value, variable) for name, variable in zip(self.names, variables, strict=True)
                     if variable is not None}  # fmt: skip
            self._settle(moment, errors, pairs, self._by_variable(partial(self.theirs.moment, moment)))
        relative = [(what, *pair) for what, scaled in errors.items() for pair in scaled.relative().items()]
        return {f"{what} of {name}{self._what}": error for what, name, error in relative}

    def _settle(
        self,
        what: str,
        errors: dict[str, ScaledErrors],
        ours: Mapping[str, tuple[Any, KerasVariable]],
        theirs: Mapping[str, Array],
    ) -> None:
        for name, array in theirs.items():
            if name in ours:
                value, variable = ours[name]
                errors.setdefault(what, ScaledErrors()).add(name, np.asarray(value), array)
                # A copy: Keras on JAX's CPU may keep the memory, which torch then changes in place.
                set_variable(variable, array.copy())

    def _by_variable(self, read: Callable[[str], Array | None]) -> dict[str, Array]:
        by_variable: dict[str, Array] = {}
        for move in self.moves:
            arrays = [read(name) for name in move.sources]
            held = [array.copy() for array in arrays if array is not None]
            if len(held) == len(arrays):
                by_variable.update(zip(move.targets, _moved(move, held), strict=True))
        return by_variable


def _usual_rate(group: Mapping[str, Any]) -> float:
    """The learning rate of a group at the begin of its schedule; the current one may be 0."""
    return float(group.get("initial_lr") or group["lr"] or 1e-3)


def _moved(move: Move, arrays: list[Array]) -> list[Array]:
    return apply_rule(move.rule, arrays, move.sizes)
