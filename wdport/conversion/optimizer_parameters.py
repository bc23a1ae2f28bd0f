"""Which parameter has which index in the state of an optimizer.

PyTorch numbers parameters by their place in the optimizer's groups. Every group lists its parameters in the order of
``module.parameters()``, which is that of the state_dict without buffers and repeated tensors. So each group is a
subsequence of the names, with the shapes of its moments. An assignment is used only if there is exactly one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wdport.checkpoint.faults import Fault
from wdport.checkpoint.optimizer import OptimizerState
from wdport.checkpoint.tensor import TensorRef
from wdport.mapping.axes import Shape

MOST_STATES: Final = 20_000
"""Partial assignments that are kept at a time."""

BUFFERS: Final = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""The last component of the names of PyTorch's own buffers."""

_NAME_THEM: Final = "give the parameters' names in its order with `--parameter-names FILE` (a JSON list)"

Places = tuple[int, ...]
"""How many parameters of each group are assigned."""


@dataclass(frozen=True)
class ParameterTensor:
    """A tensor that may be a parameter; ``needed`` means that it is one, unless it was frozen."""

    name: str
    shape: Shape
    needed: bool = True


def parameter_names(
    optimizer: OptimizerState, candidates: Sequence[ParameterTensor], prefixes: Sequence[str] = ()
) -> dict[int, str]:
    """Return the name of every index.

    Args:
        optimizer: the optimizer's state.
        candidates: the tensors of the state_dict, in its order, without buffers and repeated tensors.
        prefixes: prefixes that were removed from their names.

    Raises:
        Fault: the shapes fit no assignment, or more than one.
    """
    if all(group.names for group in optimizer.groups):
        return _names_in_groups(optimizer, candidates, prefixes)
    shapes = {index: _shape(optimizer.state.get(index, {})) for index in optimizer.indices}
    needed = [candidate for candidate in candidates if candidate.needed]
    count = len(optimizer.indices)
    if count > len(candidates):
        raise Fault(f"has {count} parameters, but the weights have {len(candidates)}",
                    "give the optimizer of this model", optimizer.key)  # fmt: skip
    # First without tensors that the table drops, which are mostly buffers.
    for tried in dict.fromkeys((tuple(needed), tuple(candidates))):
        if count == len(tried) or tried == tuple(candidates):
            names = _assigned(optimizer, shapes, tried, count == len(tried))
            if names is not None:
                return names
    raise Fault("its moments have other shapes than the weights in the order of the state_dict", _NAME_THEM,
                optimizer.key)  # fmt: skip


def named(optimizer: OptimizerState, names: Sequence[str], candidates: Sequence[ParameterTensor]) -> dict[int, str]:
    """Return the name of every index from the user's list; raises :class:`Fault` if it does not fit."""
    if len(names) != len(optimizer.indices):
        raise Fault(f"has {len(optimizer.indices)} parameters, but {len(names)} names are given", _NAME_THEM)
    return _checked(optimizer, dict(zip(optimizer.indices, names, strict=True)), candidates)


def _shape(state: Mapping[str, object]) -> Shape | None:
    """The shape of a parameter by its moments; None if it has none."""
    return next((ref.shape for name, ref in state.items() if name != "step" and isinstance(ref, TensorRef)), None)


def _names_in_groups(
    optimizer: OptimizerState, candidates: Sequence[ParameterTensor], prefixes: Sequence[str]
) -> dict[int, str]:
    """The names that the file states, with or without the prefixes of the state_dict."""
    candidate_names = {candidate.name for candidate in candidates}
    names: dict[int, str] = {}
    for group in optimizer.groups:
        for index, name in zip(group.indices, group.names, strict=True):
            short = name
            for prefix in prefixes:
                # The optimizer may have been made before the module was compiled or wrapped, or after.
                short = short if short in candidate_names else short.replace(prefix, "", 1)
            names[index] = short
    return _checked(optimizer, names, candidates)


def _checked(optimizer: OptimizerState, names: dict[int, str], candidates: Sequence[ParameterTensor]) -> dict[int, str]:
    candidate_names = {candidate.name for candidate in candidates}
    for name in names.values():
        if name not in candidate_names:
            raise Fault(f"names a parameter {name}, which the weights do not have", _NAME_THEM, optimizer.key)
    if len(set(names.values())) < len(names):
        raise Fault("names a parameter twice", _NAME_THEM, optimizer.key)
    return names


def _assigned(
    optimizer: OptimizerState, shapes: Mapping[int, Shape | None], candidates: Sequence[ParameterTensor], every: bool
) -> dict[int, str] | None:
    """The only assignment, None if there is none; ``every`` means that all candidates are assigned."""
    groups = [group.indices for group in optimizer.groups]
    start: Places = (0,) * len(groups)
    # Dynamic programming over the candidates: only how far each group has come matters, not by which way. Two ways are
    # as bad as a million, so counts stop at 2.
    reached: dict[Places, int] = {start: 1}  # how many ways lead there, at most 2
    steps: list[dict[Places, tuple[Places, int | None]]] = []
    for candidate in candidates:
        ahead: dict[Places, int] = {}
        came: dict[Places, tuple[Places, int | None]] = {}
        for places, ways in reached.items():
            for group_index, after in _next(places, groups, shapes, candidate, every):
                ahead[after] = min(ahead.get(after, 0) + ways, 2)
                came[after] = (places, group_index)
        if len(ahead) > MOST_STATES:
            raise Fault("has too many groups of equal shapes to tell its parameters apart", _NAME_THEM, optimizer.key)
        steps.append(came)
        reached = ahead
    ends = tuple(map(len, groups))
    if not reached.get(ends):
        return None
    if reached[ends] > 1:
        raise Fault("several assignments of its parameters fit their shapes", _NAME_THEM, optimizer.key)
    names: dict[int, str] = {}
    places = ends
    for candidate, came in zip(reversed(candidates), reversed(steps), strict=True):
        before, group_index = came[places]
        if group_index is not None:
            names[groups[group_index][before[group_index]]] = candidate.name
        places = before
    return dict(sorted(names.items()))


def _next(
    places: Places,
    groups: Sequence[tuple[int, ...]],
    shapes: Mapping[int, Shape | None],
    candidate: ParameterTensor,
    every: bool,
) -> list[tuple[int | None, Places]]:
    """Where the next candidate can go: to the next index of a group, or to none of them."""
    ways: list[tuple[int | None, Places]] = [] if every else [(None, places)]
    for group, indices in enumerate(groups):
        if places[group] < len(indices) and shapes[indices[places[group]]] in (None, candidate.shape):
            ways.append((group, (*places[:group], places[group] + 1, *places[group + 1 :])))
    return ways
