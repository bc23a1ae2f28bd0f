"""Find the state of an optimizer in the tree of a checkpoint, and the position of its learning-rate schedule.

PyTorch's ``state_dict()`` of an optimizer has the two entries ``state``, from the index of a parameter to its moments,
and ``param_groups``, whose groups hold those indices and hyper-parameters. Lightning keeps a list of them under
``optimizer_states``, other programs keep one under another key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.tensor import TensorRef

_SCHEDULES: Final = ("lr_schedulers", "lr_scheduler", "scheduler", "lr_scheduler_state_dict", "scheduler_state_dict",
                     "lr_sched", "sched")  # fmt: skip
"""Keys under which training programs keep the state of a schedule; under others it is known by its ``_last_lr``."""

_SAVE_AGAIN: Final = "save the optimizer with optimizer.state_dict()"

Table = dict[object, object]
Number = int | float | bool
Entry = TensorRef | Number | None
"""One value of a parameter's state: a moment, a step, or None for a momentum that SGD has not begun."""


@dataclass(frozen=True)
class Group:
    """One group of parameters: its hyper-parameters and the parameters' indices.

    ``names`` are the parameters' names, which an optimizer that was made from ``named_parameters()`` states.
    """

    options: Mapping[str, object]
    indices: tuple[int, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class OptimizerState:
    """An optimizer's state as it is stored.

    ``state`` maps the index of a parameter to its values by name; a parameter that was never trained has none.
    ``schedules`` are the states of learning-rate schedules that the file has, by their dotted keys.
    """

    key: str
    groups: tuple[Group, ...]
    state: Mapping[int, Mapping[str, Entry]]
    schedules: Mapping[str, Mapping[str, object]]

    @property
    def indices(self) -> tuple[int, ...]:
        """All indices, group by group."""
        return tuple(index for group in self.groups for index in group.indices)


def find_optimizer(tree: object, key: str | None = None) -> OptimizerState:
    """Return the only optimizer of a checkpoint's tree, or the one under the dotted ``key``.

    Raises :class:`Fault` if there is none, if there are several, or if one was not written by PyTorch.
    """
    table = tree if isinstance(tree, dict) else {}
    states = dict(_candidates(table))
    if key is not None and key not in states:
        listing = f"optimizers are under {', '.join(states)}" if states else "the file has none"
        raise Fault(f"key {key!r} holds no optimizer state; {listing}", "leave out the key, or give one of them")
    if not states:
        keys = ", ".join(str(name) for name in list(table)[:6])
        raise Fault(f"has no optimizer state{f'; its keys are {keys}' if keys else ''}",
                    "give the checkpoint of a training run")  # fmt: skip
    if key is None and len(states) > 1:
        raise Fault(f"has {len(states)} optimizers: {', '.join(states)}", "choose one with `--optimizer-key NAME`")
    key = key or next(iter(states))
    groups, state = _groups(states[key], key), _state(states[key], key)
    indices = {index for group in groups for index in group.indices}
    if stray := sorted(set(state) - indices):
        raise Fault(f"has the state of parameter {stray[0]}, which is in none of its groups", _SAVE_AGAIN, key)
    return OptimizerState(key, groups, state, dict(_schedules(table)))


def has_optimizer(tree: object) -> bool:
    """Whether a checkpoint's tree has the state of an optimizer."""
    return any(_candidates(tree if isinstance(tree, dict) else {}))


def _candidates(table: dict[object, object]) -> Iterator[tuple[str, Table]]:
    """Yield dotted keys, at most two levels deep, of all optimizers."""
    for name, value in table.items():
        if _is_optimizer(value):
            yield str(name), value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, deeper in inner:
            if _is_optimizer(deeper):
                yield f"{name}.{key}", deeper
    # torch.save(optimizer.state_dict(), FILE): the file itself is the state.
    if _is_optimizer(table):
        yield "", table


def _is_optimizer(value: object) -> TypeGuard[Table]:
    return isinstance(value, dict) and isinstance(value.get("param_groups"), list) and "state" in value


def _groups(table: dict[object, object], key: str) -> tuple[Group, ...]:
    groups: list[Group] = []
    assigned: set[int] = set()
    listed = table["param_groups"]
    for number, group in enumerate(listed if isinstance(listed, list) else ()):
        where = f"{key}.param_groups.{number}"
        indices = group.get("params") if isinstance(group, dict) else None
        if not isinstance(group, dict) or not isinstance(indices, list) or not all(map(_is_index, indices)):
            raise Fault("is not a group of parameters as torch writes it", _SAVE_AGAIN, where)
        if len(set(indices)) < len(indices) or assigned & set(indices):
            raise Fault("names a parameter twice", _SAVE_AGAIN, where)
        assigned |= set(indices)
        options = {str(name): value for name, value in group.items() if name not in ("params", "param_names")}
        groups.append(Group(options, tuple(indices), _names(group.get("param_names"), len(indices), where)))
    if not assigned:
        raise Fault("has no parameters", _SAVE_AGAIN, key)
    return tuple(groups)


def _names(names: object, count: int, where: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise Fault(f"does not name its {count} parameters", _SAVE_AGAIN, where)
    return tuple(names)


def _is_index(value: object) -> bool:
    # True is an int in Python, and would be parameter 1.
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _state(table: dict[object, object], key: str) -> dict[int, dict[str, Entry]]:
    state = table["state"]
    if not isinstance(state, dict):
        raise Fault("is not a mapping of parameters to their states", _SAVE_AGAIN, f"{key}.state")
    entries: dict[int, dict[str, Entry]] = {}
    for index, values in state.items():
        where = f"{key}.state.{index}"
        if not _is_index(index) or not isinstance(values, dict):
            raise Fault("is not the state of a parameter as torch writes it", _SAVE_AGAIN, where)
        for name, value in values.items():
            if not isinstance(name, str) or not isinstance(value, (TensorRef, int, float, type(None))):
                raise Fault(f"its entry {name} is neither a tensor nor a number", _SAVE_AGAIN, where)
        # torch's `Optimizer.state` is a defaultdict: a look-up leaves an empty entry, which means the same as none.
        if values:
            entries[index] = dict(values)
    return entries


def _schedules(table: Table, deeper: bool = True) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield everything that may be the state of a schedule; its class is recognised by who reads it."""
    for key, value in table.items():
        several = (
            {f"{key}.{number}": schedule for number, schedule in enumerate(value)}
            if isinstance(value, list)
            else {key: value}
        )
        for name, schedule in several.items():
            if not isinstance(schedule, dict) or not schedule:
                continue
            if key in _SCHEDULES or "_last_lr" in schedule:
                yield str(name), {str(field): entry for field, entry in schedule.items()}
            elif deeper and not _is_optimizer(schedule):  # as deep as optimizers are looked for
                yield from ((f"{name}.{inner}", state) for inner, state in _schedules(schedule, deeper=False))
