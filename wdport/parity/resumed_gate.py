"""Gate resumed (D'): five training steps of both sides from the converted optimizer, compared step by step.

The port's side is what a user trains with: the optimizer that :func:`wdport.load_optimizer` loads. The reference's is
`torch.optim`. Two first steps of a new optimizer with the same hyper-parameters follow, with clipped gradients, and the
learning rates of the schedule's steps to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from wdport.base.errors import InputError, MisfitError, UsageError
from wdport.compare.findings import GATES, Finding, Gate, fact, measure, notice
from wdport.compare.measure import relative_l2, same_bits
from wdport.conversion.converted_optimizer import optimizer_of, schedule_of, steps_taken
from wdport.conversion.optimizer import converted_optimizer
from wdport.conversion.optimizer_file import Optimised, read_optimizer, require_weights
from wdport.conversion.prepare import Prepared
from wdport.mapping.moves import Move
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import exact_float64, variables_by_path
from wdport.parity.keras_gradients import GradientProbe
from wdport.parity.optimizer_steps import OptimizerPair, losses
from wdport.parity.training_mode_gate import TrainingStart
from wdport.recording.float64 import lifted

STEPS: Final = 5
FIRST_STEPS: Final = 2
AHEAD: Final = 200
"""Optimizer steps whose learning rates are compared."""
PER_EPOCH: Final = (1, 3)
"""Optimizer steps per step of the schedule."""


@dataclass(frozen=True)
class Resumed:
    """The converted optimizer that is compared: its ``file``, what the checkpoint's conversion gives now, and how the
    file differs from that."""

    file: Path
    state: Optimised
    raw: Mapping[int, Mapping[str, Any]]
    unequal: tuple[Finding, ...]
    schedule: type | None = None

    @property
    def by_metric(self) -> bool:
        """Whether the rate changes only with a measured value."""
        ours = schedule_of(self.state)
        return ours is not None and ours.needs_metric


def open_resumed(
    prepared: Prepared, file: Path, variables: Mapping[str, Array], schedule: str | None = None
) -> Resumed:
    """Read the optimizer's file and the checkpoint's own optimizer; ``schedule`` names the class of its schedule.

    ``variables`` are those of the converted model. Raises :class:`MisfitError` if the file belongs to another model,
    and what :func:`~wdport.conversion.optimizer.converted_optimizer` raises.
    """
    import torch

    from wdport.parity.torch_training import raw_state, schedule_class

    if not file.is_file():
        raise InputError(file, "no such file, which a resumed comparison needs", "convert with `--with-optimizer`")
    stored, belongs = read_optimizer(file)
    if belongs.family != prepared.family.name or not set(stored.members) <= set(prepared.variables):
        raise MisfitError(file, "is not the optimizer of this model", "give the one that was converted with it")
    names = [parameter.name for parameter in stored.parameters]
    decoupled = [group.get("decoupled_weight_decay") for group in stored.groups]
    state = converted_optimizer(prepared, stored.key, names, decoupled[0])
    if state.kind != stored.kind or [parameter.name for parameter in state.parameters] != names:
        raise MisfitError(file, "is not the optimizer of this checkpoint", "give the one that was converted with it")
    try:
        schedule_of(state)
    except UsageError as error:
        fix = "leave out `--with-optimizer`: load_optimizer needs a learning_rate"
        raise UsageError(error.where, error.what, fix) from None
    require_weights(file, stored, belongs, variables.items())
    theirs = schedule_class(state, schedule)
    with prepared.checkpoint.stream() as stream:
        # Read by torch itself: wdport's reading of the state would otherwise be compared with itself.
        tree = torch.load(stream, weights_only=True, map_location="cpu")
    return Resumed(file, state, raw_state(tree, state.key, state.parameters), tuple(_unequal(stored, state)), theirs)


def _unequal(ours: Optimised, theirs: Optimised) -> Iterator[Finding]:
    """Yield findings on moments and settings of the file that are not those of the checkpoint, bit for bit."""
    for moment, arrays in theirs.moments.items():
        stored = ours.moments.get(moment, {})
        for name, array in arrays.items():
            if name not in stored or not same_bits(stored[name], array):
                yield fact(f"{moment} of {name} is not bitwise that of the checkpoint", name, "unequal")
    for what in ("kind", "groups", "members", "steps", "schedules"):
        if getattr(ours, what) != getattr(theirs, what):
            yield fact(f"the {what} of the optimizer are not those of the checkpoint", what, "unequal")


def resumed_gate(start: TrainingStart, resumed: Resumed) -> Gate:
    """Take the steps and compare; both sides' weights (float64, initially those of the checkpoint) change."""
    from wdport.parity.torch_training import resumed_training

    prepared, (module, model) = start.prepared, start.restore()
    probe = GradientProbe(model, ())
    moves = prepared.plan.moves
    with jax.enable_x64(True), jax.default_matmul_precision("highest"), exact_float64(), lifted():
        moving = None if resumed.by_metric else resumed.schedule
        theirs = resumed_training(module, resumed.state, resumed.raw, moving)
        _freeze(probe.model, resumed.state)
        state, _ = read_optimizer(resumed.file)
        try:
            optimizer = optimizer_of(resumed.file, state, probe.model, steps=STEPS + 1, steps_per_epoch=1)
        except UsageError as refusal:  # of the file's schedule: that of the checkpoint has been read
            unread = fact(f"the optimizer's file cannot be resumed: {refusal.where} {refusal.what}", kind="unequal")
            return GATES["D'"].gate(0, 0, (), (*resumed.unequal, unread))
        moves_on = theirs.schedule is not None and not theirs.ended
        schedule_text = f", with {type(theirs.schedule).__name__}" if moves_on else ", at a constant rate"
        text = f"the optimizer is resumed after {steps_taken(resumed.state)} steps{schedule_text}"
        pair = OptimizerPair(moves, probe.model, optimizer, theirs)
        del optimizer, theirs  # at 63 million parameters, 2 GB that the pair lets go of with its last step
        compare = losses(prepared, probe, start.sides.reference)
        errors = _rates_ahead(resumed)
        for step in range(STEPS + FIRST_STEPS):
            loss, slopes, step_errors = compare(module, step)
            pair.reference.backward(loss)
            # Resumed steps show neither the first step of an optimizer nor clipping, so a new one takes two more.
            if step == STEPS:
                pair = _new_pair(moves, probe.model, resumed.state, pair)
            if step < STEPS:  # the new one's rates are constant, and show in the values
                step_errors |= pair.rates(step)
            step_errors |= pair.gradients(slopes)
            del loss, slopes
            pair.step()
            step_errors |= pair.errors() if step in (STEPS - 1, STEPS + FIRST_STEPS - 1) else {}
            for name, error in step_errors.items():
                errors[name] = max(error, errors.get(name, 0.0))
    facts = [*resumed.unequal, notice(text)]
    measures = tuple(measure(name, "error", error, "gradient") for name, error in errors.items())
    missing = [fact(f"{name} was not compared", name, "missing") for name in pair.missing]
    return GATES["D'"].gate(len(errors), len(errors) + len(missing), measures, (*facts, *missing))


def _freeze(model: KerasModel, state: Optimised) -> None:
    """Train only the variables that PyTorch trained: of those in the optimizer, the ones with a state, if any has."""
    moved = {path for moment in state.moments.values() for path in moment}
    trained = {path for path in state.members if path in moved or not moved}
    for path, variable in variables_by_path(model).items():
        variable.trainable = variable.trainable and path in trained


def _new_pair(moves: Sequence[Move], model: KerasModel, state: Optimised, pair: OptimizerPair) -> OptimizerPair:
    """New optimizers with the same hyper-parameters, which clip the current gradients."""
    from wdport.parity.torch_training import resumed_training

    # A rate may be 0 at the end of a schedule; that at its begin is not.
    rates = [float(group.get("initial_lr") or group["lr"] or 1e-3) for group in state.groups]
    groups = tuple({**group, "lr": rate} for group, rate in zip(state.groups, rates, strict=True))
    theirs = resumed_training(pair.reference.module, replace(state, groups=groups, schedules={}), {})
    # Half of the current norm, so that clipping takes effect.
    norm = float(np.sqrt(sum(np.sum(theirs.gradient(name) ** 2) for name in pair.reference.clipped)))
    theirs.clip = norm / 2.0
    old = pair.optimizer
    options = [replace(group, lr=rate) for group, rate in zip(old.groups, rates, strict=True)]
    optimizer = type(old)(options, members=old.members, clip_norm=norm / 2.0)
    optimizer.build(model.trainable_variables)
    return OptimizerPair(moves, model, optimizer, theirs, ", first steps")


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
