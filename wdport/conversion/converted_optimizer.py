"""A converted optimizer as a Keras optimizer, and back to its file after more training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from wdport.base.errors import MisfitError, UsageError, require_paths
from wdport.base.options import COUNT, require_within
from wdport.conversion.optimizer_file import (
    DECOUPLED,
    SETTINGS,
    Optimised,
    float32_digests,
    optimizer_output,
    read_optimizer,
    require_weights,
    weights_digest,
    write_optimizer,
)
from wdport.models.interface import Array, KerasModel, KerasVariable
from wdport.models.keras_runtime import set_variable, variables_by_path
from wdport.optimizers.schedules import Schedule
from wdport.optimizers.torch_like import SGD, Adam, TorchOptimizer

FAR: Final = 100_000
"""Steps for which the rates of a schedule without an end are computed by default."""


def load_optimizer(
    path: str | PathLike[str],
    model: KerasModel,
    *,
    learning_rate: float | None = None,
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    steps_per_epoch: int | None = None,
    clip_norm: float | None = None,
    gradient_accumulation_steps: int | None = None,
) -> TorchOptimizer:
    """Load a converted optimizer for a model: moments, steps, groups, and the position of the learning-rate schedule.

    Its arithmetic is that of `torch.optim`, so training continues as it would have in PyTorch:
    ``model.compile(optimizer=wdport.load_optimizer(path, model), ...)``.

    Args:
        path: the file ``NAME.optimizer.safetensors`` from :func:`wdport.convert`.
        model: the converted model, from :func:`wdport.load_model`.
        learning_rate: a constant rate for all groups, instead of the schedule.
        settings: other hyper-parameters for all groups, under their PyTorch names, such as ``{"betas": (0.9, 0.999)}``.
        steps: number of steps for which the schedule's rates are computed; after that, the last rate applies. Default:
            until the end of the schedule, or 100,000.
        steps_per_epoch: optimizer steps per step of the schedule, if it advances once an epoch. Inferred by default,
            for a checkpoint that was saved at the end of an epoch; 1 for SGD, which counts no steps.
        clip_norm: clip the gradients to this norm over all variables; checkpoints do not contain it.
        gradient_accumulation_steps: number of batches whose mean gradient one step uses; checkpoints do not contain it.

    Returns:
        The Keras optimizer, built.

    Raises:
        InputError: the file is damaged, or is not an optimizer file from wdport.
        MisfitError: it belongs to another model or to other weights, or PyTorch did not train all of the model's
            trainable variables.
        UsageError: the schedule is a function of the training program (pass ``learning_rate``).
    """
    require_paths("model", path=path)
    require_within("from 0", learning_rate=learning_rate)
    require_within("above 0", clip_norm=clip_norm)
    require_within(COUNT, steps=steps, steps_per_epoch=steps_per_epoch,
                   gradient_accumulation_steps=gradient_accumulation_steps)  # fmt: skip
    if gradient_accumulation_steps == 1:  # which Keras does not take
        gradient_accumulation_steps = None
    state, belongs = read_optimizer(Path(path))
    optimizer = optimizer_of(Path(path), state, model, learning_rate, settings, steps, steps_per_epoch, clip_norm,
                             gradient_accumulation_steps)  # fmt: skip
    require_weights(Path(path), state, belongs, _values(model))
    return optimizer


def optimizer_of(
    file: Path, state: Optimised, model: KerasModel, learning_rate: float | None = None,
    settings: Mapping[str, Any] | None = None, steps: int | None = None, steps_per_epoch: int | None = None,
    clip_norm: float | None = None, gradient_accumulation_steps: int | None = None,
) -> TorchOptimizer:  # fmt: skip
    """The optimizer of a file's state, whatever the model's weights are; arguments as for :func:`load_optimizer`."""
    names = _trainable(model)
    _require_fit(file, state, names, dict(zip(names, model.trainable_variables, strict=True)))
    changed = {**({"lr": learning_rate} if learning_rate is not None else {}), **(settings or {})}
    if wrong := set(changed) - {*SETTINGS[state.kind], DECOUPLED}:
        raise UsageError("settings", f"has {min(wrong)}, which is not a setting of {state.kind}",
                         f"known: {', '.join(SETTINGS[state.kind])}")  # fmt: skip
    groups = [{**group, **changed} for group in state.groups]
    rates, momenta = None, None
    if "lr" not in changed and (schedule := schedule_of(state)) is not None and not schedule.needs_metric:
        rates, momenta = _ahead(schedule, state, steps, steps_per_epoch)
        # A momentum that is given explicitly replaces that of the schedule, such as OneCycleLR's.
        momenta = None if {"betas", "momentum"} & set(changed) else momenta
    step = steps_taken(state)
    # PyTorch counts the steps of every parameter; one that was frozen for a while has taken fewer.
    moved = {name for arrays in state.moments.values() for name in arrays}
    late = [step - state.steps.get(name, step if name in moved or not _has_moments(state, name) else 0)
            for name in names]  # fmt: skip
    optimizer = (Adam if state.kind == "adam" else SGD)(
        [{key: group[key] for key in (*SETTINGS[state.kind], DECOUPLED) if key in group} for group in groups],
        members=[state.members[name] for name in names],
        rates=rates,
        momenta=momenta,
        clip_norm=clip_norm,
        late=late if any(late) else None,
        start=step,
        gradient_accumulation_steps=gradient_accumulation_steps,
    )
    optimizer.build(model.trainable_variables)
    # Keras's counter of batches, from which the bias corrections follow; it has no public setter.
    optimizer._iterations.assign(step * (gradient_accumulation_steps or 1))
    for moment, variables in optimizer.moments.items():
        for name, variable in zip(names, variables, strict=True):
            array = state.moments.get(moment, {}).get(name)
            if array is not None and variable is not None:
                # A copy: on a CPU the variable may share its memory with the array, and training writes into it.
                set_variable(variable, np.array(array, copy=True))
    return optimizer


def save_optimizer(
    optimizer: TorchOptimizer, model: KerasModel, path: str | PathLike[str], *, like: str | PathLike[str],
    steps_per_epoch: int | None = None, force: bool = False,
) -> Path:  # fmt: skip
    """Write an optimizer from :func:`load_optimizer` back to a file after more training.

    ``wdport export --to torch --optimizer-file FILE`` converts it back to PyTorch. If the optimizer was loaded with a
    ``learning_rate``, the schedule keeps its position.

    Args:
        optimizer: the optimizer.
        model: the model that it trained.
        path: the file, ``NAME.optimizer.safetensors``.
        like: the file from which it was loaded, which describes the PyTorch parameters.
        steps_per_epoch: as passed to :func:`load_optimizer`.
        force: replace an existing file.

    Returns:
        The path of the file.
    """
    require_paths("path", path=path, like=like)
    require_within(COUNT, steps_per_epoch=steps_per_epoch)
    file, before = Path(path), Path(like)
    output = optimizer_output(file, {} if file == before and force else {"like": before}, force)
    if not isinstance(optimizer, TorchOptimizer):
        raise UsageError("optimizer", f"is a {type(optimizer).__name__}", "give one from load_optimizer")
    state, belongs = read_optimizer(before)
    names = _trainable(model)
    belongs = replace(belongs, weights=weights_digest(float32_digests(_values(model)), state.members))
    now = int(np.asarray(optimizer.iterations))
    gone = now - steps_taken(state)
    moments = {
        # torch makes the state of a parameter at its first step, so zeros are left out.
        moment: {name: np.asarray(variable.value) for name, variable in zip(names, variables, strict=True)
                 if variable is not None and np.asarray(variable.value).any()}
        for moment, variables in optimizer.moments.items()
    }  # fmt: skip
    late = optimizer.late or [0] * len(names)
    steps = {name: now - less for name, less in zip(names, late, strict=True)} if state.steps else {}
    groups, schedules = _position(optimizer, state, gone, steps_per_epoch)
    extra = {**state.extra, **({"global_step": now} if "global_step" in state.extra else {})}
    moments = {moment: arrays for moment, arrays in moments.items() if arrays}
    now_held = replace(state, moments=moments, steps=steps, groups=groups, schedules=schedules, extra=extra)
    write_optimizer(output, now_held, belongs)
    return file


def steps_taken(state: Optimised) -> int:
    """The steps that the optimizer took; SGD does not count them, but Lightning or its schedule may."""
    if state.step:
        return state.step
    global_step = state.extra.get("global_step")
    counts = [global_step, *(schedule.get("last_epoch") for schedule in state.schedules.values())]
    # A momentum without a count: at least one step was taken, so that dampening applies from the next one on.
    return next((count for count in counts if isinstance(count, int) and count > 0), 1 if state.moments else 0)


def schedule_of(state: Optimised) -> Schedule | None:
    """The learning-rate schedule at its position; None if the file has none."""
    if len(state.schedules) > 1:
        what = f"has {len(state.schedules)} learning-rate schedules"
        raise UsageError("learning_rate", f"{what}, and it is not known which one applies", "give the rate")
    if not state.schedules:
        return None
    try:
        return Schedule(next(iter(state.schedules.values())), state.groups)
    except UsageError as error:
        raise UsageError(error.where, error.what, "give learning_rate") from None


def every(schedule: Schedule, state: Optimised, steps_per_epoch: int | None) -> int:
    """The number of optimizer steps per step of the schedule; raises :class:`UsageError` if that is not known."""
    if steps_per_epoch is not None:
        return steps_per_epoch
    position, step_count = int(schedule.state["last_epoch"]), steps_taken(state)
    if position == step_count:
        return 1
    # A schedule at its beginning does not show how often it advances; a checkpoint is taken for one of an epoch's end.
    if position and step_count % position == 0:
        return step_count // position
    what = f"the schedule is at {position} after {step_count} optimizer steps"
    raise UsageError("steps_per_epoch", what, "give the number of optimizer steps for each of its steps")


def _ahead(
    schedule: Schedule, state: Optimised, steps: int | None, steps_per_epoch: int | None
) -> tuple[Array, Array | None]:
    between = every(schedule, state, steps_per_epoch)
    # One rate beyond the end of the schedule, which then holds.
    step_limit = steps if steps is not None else FAR if schedule.left is None else max(schedule.left, 0) * between + 1
    phase = _phase(schedule, state, between)
    rates, momenta = (table[phase:] for table in schedule.ahead(max(step_limit, 1) + phase, between))
    return rates, momenta if (momenta != momenta[:1]).any() or schedule.kind == "OneCycleLR" else None


def _phase(schedule: Schedule, state: Optimised, between: int) -> int:
    """The optimizer steps since the schedule's last one, in an epoch of ``between`` steps."""
    since = steps_taken(state) - between * int(schedule.state["last_epoch"])
    return since if 0 <= since < between else 0


def _position(
    optimizer: TorchOptimizer, state: Optimised, gone: int, steps_per_epoch: int | None
) -> tuple[tuple[dict[str, Any], ...], Mapping[str, dict[str, Any]]]:
    """The groups and the schedule as they are ``gone`` steps later."""
    current_groups = tuple({**group, **{name: value for name, value in asdict(used).items() if name in group}}
                for group, used in zip(state.groups, optimizer.groups, strict=True))  # fmt: skip
    if optimizer.rates is None:
        # Keras holds the rate in float32; against the float64 rate, an unchanged one would have a ratio other than 1.
        base = float(np.float32(optimizer.groups[0].lr))
        scale = float(np.asarray(optimizer.learning_rate.value)) / base if base else 1.0
        return tuple({**group, "lr": group["lr"] * scale} for group in current_groups), state.schedules
    schedule = schedule_of(replace(state, groups=current_groups))
    if schedule is None:
        return current_groups, state.schedules
    between = every(schedule, state, steps_per_epoch)
    for _ in range((gone + _phase(schedule, state, between)) // between):
        if schedule.left != 0:
            schedule.step()
    return tuple(schedule.groups), {next(iter(state.schedules)): schedule.state}


def _values(model: KerasModel) -> Iterator[tuple[str, Array]]:
    return ((name, np.asarray(variable.value)) for name, variable in variables_by_path(model).items())


def _trainable(model: KerasModel) -> list[str]:
    """The paths of the trainable variables, in their order."""
    places = {id(variable): name for name, variable in variables_by_path(model).items()}
    return [places[id(variable)] for variable in model.trainable_variables]


def _has_moments(state: Optimised, name: str) -> bool:
    """Whether the optimizer keeps moments of a parameter that it trains; SGD has none without a momentum."""
    return state.kind != "sgd" or bool(state.groups[state.members[name]].get("momentum"))


def _require_fit(path: Path, state: Optimised, names: list[str], variables: Mapping[str, KerasVariable]) -> None:
    """Raise :class:`MisfitError` unless the model's trainable variables are those of the optimizer."""
    moved = {name for arrays in state.moments.values() for name in arrays}
    for name in names:
        if name not in state.members or (moved and name not in moved and _has_moments(state, name)):
            why = "PyTorch did not train it" if name not in state.members else "PyTorch never updated it"
            fix = "set trainable = False for its layer or variable, or start with a new optimizer"
            raise MisfitError((path, name), why, fix)
    for arrays in state.moments.values():
        for name, array in arrays.items():
            if name in variables and tuple(variables[name].shape) != array.shape:
                raise MisfitError((path, name), f"has shape {array.shape}, the model's variable "
                                  f"{tuple(variables[name].shape)}", "give the optimizer of this model")  # fmt: skip
