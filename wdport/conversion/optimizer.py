"""Convert the state of an optimizer by the plan of its weights, and back.

Moments have the shapes of the parameters, so the moves of the weights apply to them. A moment that the plan would have
to compute, not move, is refused: a sum of two parameters has no moments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from wdport.base.errors import MisfitError
from wdport.checkpoint import Checkpoint
from wdport.checkpoint.error_context import located
from wdport.checkpoint.faults import Fault
from wdport.checkpoint.optimizer import OptimizerState, find_optimizer
from wdport.checkpoint.tensor import TensorRef
from wdport.checkpoint.unloaded_object import UnloadedObject
from wdport.conversion.optimizer_file import (
    DECOUPLED,
    MOMENTS,
    SETTINGS,
    WITHOUT_EFFECT,
    Groups,
    Kind,
    Optimised,
    Parameter,
)
from wdport.conversion.optimizer_parameters import BUFFERS, ParameterTensor, named, parameter_names
from wdport.conversion.prepare import Prepared
from wdport.conversion.rounding import typed
from wdport.mapping.moves import Move, Plan
from wdport.models.interface import Array

_STORED: Final[Mapping[Kind, frozenset[str]]] = {
    "adam": frozenset({"step", "exp_avg", "exp_avg_sq"}),
    "sgd": frozenset(),
}
"""The entries of every state."""

_OTHER: Final = "Adam, AdamW and SGD are converted; start with a new optimizer"


def converted_optimizer(
    prepared: Prepared, key: str | None = None, names: Sequence[str] | None = None, decoupled: bool | None = None
) -> Optimised:
    """Return the optimizer's state in a checkpoint, for the variables of its plan.

    Args:
        prepared: the open checkpoint with its plan.
        key: the entry of the checkpoint, if it holds several optimizers.
        names: the parameters' names in the order of the groups, if the file does not determine them.
        decoupled: True for AdamW and False for Adam, for a file of an older torch that does not state which, or with
            settings that neither has.

    Raises:
        InputError: the file has no optimizer, or a damaged one.
        MisfitError: the state does not fit the plan.
    """
    checkpoint, plan = prepared.checkpoint, prepared.plan
    with located(checkpoint.path):
        optimizer = find_optimizer(checkpoint.tree, key)
        kind, candidates = _kind(optimizer, decoupled is not None), _candidates(checkpoint, plan)
        by_index = (named(optimizer, names, candidates) if names is not None
                    else parameter_names(optimizer, candidates, checkpoint.prefixes))  # fmt: skip
        groups = tuple(_options(checkpoint, group.options) for group in optimizer.groups)
        groups = _with_decoupled(groups, kind, decoupled, optimizer.key)
        parameters = tuple(
            _parameter(checkpoint, optimizer, index, by_index[index], group_index)
            for group_index, group in enumerate(optimizer.groups)
            for index in group.indices
        )
    try:
        return _moved(checkpoint, plan, optimizer, kind, groups, parameters)
    except Fault as fault:
        raise MisfitError((checkpoint.path, fault.part), fault.what, fault.fix) from None


def _candidates(checkpoint: Checkpoint, plan: Plan) -> list[ParameterTensor]:
    """The tensors that may be parameters; tied tensors are one, at the first place of them."""
    by_name: dict[str, ParameterTensor] = {}
    for name, info in checkpoint.tensors.items():
        source = plan.ties.get(name, name)
        # A checked table is a buffer, which no optimizer has.
        if source not in plan.checks and source.rpartition(".")[2] not in BUFFERS:
            by_name.setdefault(source, ParameterTensor(source, info.shape, source not in plan.drops))
    return list(by_name.values())


def _kind(optimizer: OptimizerState, named: bool) -> Kind:
    """The optimizer by its whole set of settings and entries; other settings are accepted of an Adam that is ``named``
    by the user."""
    options = set().union(*(group.options for group in optimizer.groups))
    entries = set().union(*optimizer.state.values())
    for kind, needed in SETTINGS.items():
        has_settings = all(set(needed) <= group.options.keys() for group in optimizer.groups)
        stored = {*MOMENTS[kind], *_STORED[kind]}
        if not has_settings or not all(_STORED[kind] <= entry.keys() <= stored for entry in optimizer.state.values()):
            continue
        others = options - {*needed, *WITHOUT_EFFECT} - ({DECOUPLED} if kind == "adam" else set())
        # Another optimizer may have all of Adam's settings and more, so unknown settings are refused.
        if others and not (named and kind == "adam"):
            fix = (
                "give `--optimizer adam` or `--optimizer adamw` if it changes no step"
                if kind == "adam"
                else "start with a new optimizer"
            )
            raise Fault(f"has the setting {min(others)}, which no {kind.upper()} of torch has", fix, optimizer.key)
        return kind
    description = ", ".join(sorted(entries - {"step"})[:3] or sorted(options)[:4])
    raise Fault(f"is of another optimizer than Adam, AdamW or SGD (it has {description})", _OTHER, optimizer.key)


def _with_decoupled(groups: Groups, kind: Kind, decoupled: bool | None, key: str) -> tuple[dict[str, Any], ...]:
    """The groups, with the kind of weight decay that an older torch did not store."""
    if kind != "adam" or all(DECOUPLED in group for group in groups):
        return groups
    # Without a weight decay Adam and AdamW take the same steps.
    if decoupled is None and any(group["weight_decay"] for group in groups):
        raise Fault("does not state whether it is Adam or AdamW, and has a weight decay",
                    "give `--optimizer adam` or `--optimizer adamw`", key)  # fmt: skip
    return tuple({**group, DECOUPLED: group.get(DECOUPLED, decoupled is not False)} for group in groups)


def _options(checkpoint: Checkpoint, options: Mapping[str, object]) -> dict[str, Any]:
    """A group's hyper-parameters as plain values; a tensor of one value is a number."""
    return {name: _plain(checkpoint, value, name) for name, value in options.items()}


def _plain(checkpoint: Checkpoint, value: object, name: str) -> Any:
    if isinstance(value, TensorRef):
        array = checkpoint.read_ref(value)
        if array.size != 1:
            raise Fault(f"has a tensor of {array.size} values for {name}, which is one number", _OTHER)
        return array.reshape(()).item()
    # It was not made, since that would run code that the file names.
    if isinstance(value, UnloadedObject):
        return None
    if isinstance(value, Counter):
        return Counter(value)
    if isinstance(value, dict):
        return {key: _plain(checkpoint, element, name) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(checkpoint, element, name) for element in value)
    return value


def _parameter(checkpoint: Checkpoint, optimizer: OptimizerState, index: int, name: str, group: int) -> Parameter:
    state = optimizer.state.get(index, {})
    step = state.get("step")
    dtype = step.dtype if isinstance(step, TensorRef) else ""
    value = _plain(checkpoint, step, "step")
    # torch stores the step as a float32 tensor; Keras counts in integers.
    if value is not None and not (value >= 0 and math.isfinite(value) and value == int(value)):
        raise Fault(f"has taken {value} steps", _OTHER, f"{optimizer.key}.state.{index}")
    stored = [ref for entry, ref in state.items() if entry != "step" and isinstance(ref, TensorRef)]
    shape = checkpoint.tensors[name].shape
    for ref in stored:
        if ref.shape != shape:
            what = f"has moments of shape {ref.shape} for {name}, which has {shape}"
            raise Fault(what, "give the optimizer of this model", optimizer.key)
    kinds = {ref.dtype for ref in stored}
    if len(kinds) > 1:
        raise Fault(f"has moments of dtypes {' and '.join(sorted(kinds))}", _OTHER, f"{optimizer.key}.state.{index}")
    return Parameter(index, name, group, tuple(state), value, dtype, next(iter(kinds), "float32"))


def _moved(
    checkpoint: Checkpoint,
    plan: Plan,
    optimizer: OptimizerState,
    kind: Kind,
    groups: Groups,
    parameters: tuple[Parameter, ...],
) -> Optimised:
    by_name = {parameter.name: parameter for parameter in parameters}
    moments: dict[str, dict[str, Array]] = {}
    members: dict[str, int] = {}
    steps: dict[str, int] = {}
    moved: set[str] = set()
    for move in plan.moves:
        trained = [by_name[name] for name in move.sources if name in by_name]
        moved |= {parameter.name for parameter in trained}
        if not trained:
            continue
        _require_equal_training(move, trained)
        members.update(dict.fromkeys(move.targets, trained[0].group))
        # Frozen, or without a gradient so far: torch has no state for it, and begins one at its first step.
        if not trained[0].entries:
            continue
        if not move.exact:
            what = f"are combined into {move.targets[0]}, which has no moments"
            raise Fault(what, "start with a new optimizer", " and ".join(move.sources))
        if trained[0].step is not None:
            steps.update(dict.fromkeys(move.targets, int(trained[0].step)))
        for name in MOMENTS[kind]:
            refs = [optimizer.state[parameter.index].get(name) for parameter in trained]
            if refs[0] is not None:
                arrays = move.apply([checkpoint.read_ref(ref) for ref in refs])
                moments.setdefault(name, {}).update(zip(move.targets, arrays, strict=True))
    left = tuple(parameter.name for parameter in parameters if parameter.name not in moved)
    schedules = {key: _options(checkpoint, schedule) for key, schedule in optimizer.schedules.items()}
    plain = {name: value for name, value in checkpoint.metadata.items() if isinstance(value, (int, float, str, bool))}
    return Optimised(kind, groups, members, steps, moments, schedules, parameters, optimizer.key, left, extra=plain)


def _require_equal_training(move: Move, trained: Sequence[Parameter]) -> None:
    """Raise :class:`Fault` unless all tensors of a move are trained alike, since their variable is one."""
    if len(trained) < len(move.sources):
        missing = next(name for name in move.sources if name not in {parameter.name for parameter in trained})
        raise Fault(f"is not trained, but {trained[0].name} is, and both fill {move.targets[0]}",
                    "start with a new optimizer", missing)  # fmt: skip
    first = trained[0]
    for parameter in trained[1:]:
        for what, ours, theirs in (("group", first.group, parameter.group), ("step", first.step, parameter.step),
                                   ("state", first.entries, parameter.entries)):  # fmt: skip
            if ours != theirs:
                raise Fault(f"has another {what} than {first.name}, and both fill {move.targets[0]}",
                            "start with a new optimizer", parameter.name)  # fmt: skip


def torch_state(optimised: Optimised, plan: Plan) -> dict[str, Any]:
    """Return the state_dict of the torch optimizer, with NumPy arrays where torch has tensors."""
    arrays: dict[str, dict[str, Array]] = {}
    for name, by_path in optimised.moments.items():
        arrays[name] = {}
        for move in plan.moves:
            if move.targets[0] in by_path:
                back = move.invert([np.asarray(by_path[target]) for target in move.targets])
                arrays[name].update(zip(move.sources, back, strict=True))
    steps = {source: optimised.steps[move.targets[0]] for move in plan.moves for source in move.sources
             if move.targets[0] in optimised.steps}  # fmt: skip
    state: dict[int, dict[str, Any]] = {}
    for parameter in optimised.parameters:
        trained = tuple(name for name in MOMENTS[optimised.kind] if parameter.name in arrays.get(name, {}))
        if parameter.name not in optimised.left_out and (parameter.entries or trained):
            state[parameter.index] = _entries(optimised.kind, parameter, trained, arrays, steps)
    groups = [
        {**options, "params": [parameter.index for parameter in optimised.parameters if parameter.group == group_index]}
        for group_index, options in enumerate(optimised.groups)
    ]
    return {"state": state, "param_groups": groups}


def _entries(
    kind: Kind,
    parameter: Parameter,
    trained: tuple[str, ...],
    arrays: Mapping[str, Mapping[str, Array]],
    steps: Mapping[str, int],
) -> dict[str, Any]:
    """The state of a parameter; one that Keras began to train gets the entries that torch would give it."""
    stored = parameter.step_dtype if parameter.entries else "float32"
    values: dict[str, Any] = {}
    for name in parameter.entries or (("step",) * (kind == "adam") + trained):
        if name == "step":
            step = steps.get(parameter.name, int(parameter.step or 0))
            values[name] = typed(np.asarray(step), stored) if stored else step
        else:
            values[name] = typed(arrays[name][parameter.name], parameter.dtype) if name in trained else None
    return values


def training_file(optimised: Optimised, plan: Plan, tensors: Mapping[str, Array], key: str | None) -> dict[str, Any]:
    """Return the contents of the training program's checkpoint: weights under ``key``, optimizer and schedules under
    theirs, and the other numbers of the checkpoint."""
    parts = {key or "model": dict(tensors), optimised.key or "optimizer": torch_state(optimised, plan)}
    tree: dict[str, Any] = dict(optimised.extra)
    for name, part in (parts | dict(optimised.schedules)).items():
        first, _, rest = name.partition(".")
        # "optimizer_states.0": Lightning stores a list.
        if rest.isdecimal():
            tree.setdefault(first, []).append(part)
        elif rest:
            tree.setdefault(first, {})[rest] = part
        else:
            tree[name] = part
    return tree
