"""What two runs with inputs of other sizes tell: which axes have other sizes, and which numbers of a call differ in a
way that no expression of sizes explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wdport.porting.functions import RESHAPES
from wdport.porting.graph import Graph, Guard, Node, Size, SizeExpression, SizeFloat, TensorSource, TracedTensor, mapped


@dataclass(frozen=True)
class Difference:
    """A call that the other run does in another way, by its serial; or all calls from there on."""

    serial: int
    why: str
    onwards: bool = False


class Sizes:
    """Compares a graph with that of another run; without one, nothing is known."""

    def __init__(self, graph: Graph, other: Graph | None) -> None:
        self._other = other
        self.doubtful: list[Guard] = []
        """Comparisons of free sizes that have the same result in both runs, and may have another one between them."""
        differences: list[Difference] = []
        if other is not None:
            differences = [*_calls(graph, other), *_guards(graph, other, self.doubtful)]
        self._by_node = {one.serial: one.why for one in differences if not one.onwards}
        self._onwards = min((one for one in differences if one.onwards), key=lambda one: one.serial, default=None)

    @property
    def end(self) -> Difference | None:
        """The call from which on nothing is known for inputs of other sizes."""
        return self._onwards

    def unexplained(self, node: Node) -> str:
        """Why a call alone is not known for inputs of other sizes; "" if it is."""
        return self._by_node.get(node.serial, "")

    def is_free(self, tensor: TracedTensor, axis: int) -> bool:
        """Whether an axis has another size in the other run."""
        source = tensor.source
        if self._other is None or source.kind not in ("input", "node"):
            return False
        if source.kind == "node" and source.node >= len(self._other.nodes):
            return False
        listed = self._other.root.inputs if source.kind == "input" else self._other.nodes[source.node].outputs
        return any(twin.source == source and int(twin.shape[axis]) != int(tensor.shape[axis]) for twin in listed)


def _guards(graph: Graph, other: Graph, doubtful: list[Guard]) -> Iterator[Difference]:
    """Comparisons of sizes that have another result in the other run; those that may have are ``doubtful``."""
    twins = {(guard.size, guard.operator, guard.other): guard for guard in other.guards}
    for guard in graph.guards:
        twin = twins.get((guard.size, guard.operator, guard.other))
        if twin is not None and guard.outcome != twin.outcome:
            why = f"the code takes another way for other sizes: {guard.other_way}; state one size for each axis"
            yield Difference(guard.size.after, why, onwards=True)
        elif twin is not None and _may_differ(guard, twin, graph, other):
            doubtful.append(guard)


def _may_differ(guard: Guard, twin: Guard, graph: Graph, other: Graph) -> bool:
    """Whether a comparison with the same result at both ends of a range may have another one between them."""
    leaves = list(_sizes_of(guard.size))
    if not any(_size(graph, *leaf) != _size(other, *leaf) for leaf in leaves):
        return False
    if _has_remainder(guard.size):
        return True
    low, high = sorted((guard.value, twin.value))
    return guard.operator in ("eq", "ne") and low <= guard.other <= high


def _sizes_of(size: SizeExpression | float) -> Iterator[tuple[TensorSource, int]]:
    if isinstance(size, SizeExpression):
        if size.tensor is not None:
            yield size.tensor, size.axis
        for operand in size.operands:
            yield from _sizes_of(operand)


def _has_remainder(size: SizeExpression | float) -> bool:
    return isinstance(size, SizeExpression) and (size.operator == "%" or any(map(_has_remainder, size.operands)))


def _size(graph: Graph, source: TensorSource, axis: int) -> int | None:
    """The size of an axis of a tensor of a run."""
    listed = graph.nodes[source.node].outputs if 0 <= source.node < len(graph.nodes) else graph.root.inputs
    return next((int(tensor.shape[axis]) for tensor in listed if tensor.source == source), None)


def _calls(graph: Graph, other: Graph) -> Iterator[Difference]:
    other_calls = "the code makes other calls for inputs of other sizes; state one size for each axis"
    changed = {TensorSource("constant", index=index)
               for index, (one, two) in enumerate(zip(graph.constants, other.constants, strict=False))
               if one.shape != two.shape or not np.array_equal(one, two, equal_nan=one.dtype.kind == "f")}  # fmt: skip
    unchanged: dict[TensorSource, TensorSource] = {}
    for node, twin in zip(graph.nodes, other.nodes, strict=False):
        if node.name != twin.name or _ranks(node) != _ranks(twin):
            yield Difference(node.serial, other_calls, onwards=True)
            return
        if node.same is not None or twin.same is not None:
            unchanged[node.outputs[0].source] = node.inputs[0].source
        if node.same is not None and twin.same is None and not _may_do_nothing(twin):
            why = "changes nothing at one size of the inputs, and something at another; state sizes at which it does"
            yield Difference(node.serial, why, onwards=True)
        leaves, others = (_leaves(call, unchanged) for call in (node, twin))
        if node.module is None or node.is_layer:
            pairs = list(zip(leaves, others, strict=False))
            number = next((one for one, two in pairs if not _is_same(one, two)), None)
            if len(leaves) != len(others) or any(not _is_same(one, two) for one, two in pairs):
                is_number = isinstance(number, (int, float)) and len(leaves) == len(others)
                text = f"its argument {number!r}" if is_number else "an argument"
                why = f"{text} depends on the sizes of the inputs, and how is not known{_COMPUTE if is_number else ''}"
                yield Difference(node.serial, why, onwards=not is_number)
            elif any(tensor.source in changed for tensor in node.inputs):
                why = "reads a tensor that depends on the inputs, and that no function of torch computes"
                yield Difference(node.serial, why, onwards=True)
    if len(graph.nodes) != len(other.nodes):
        yield Difference(min(len(graph.nodes), len(other.nodes)), other_calls, onwards=True)


def _may_do_nothing(node: Node) -> bool:
    """Whether a node is a reshape to the sizes of its input, of which some are equal, so that it could be another."""
    return node.name.rpartition(".")[2] in RESHAPES and node.inputs[0].shape == node.outputs[0].shape


_COMPUTE = "; compute it with + - * // and % from x.shape"


def _ranks(node: Node) -> list[int]:
    return [len(tensor.shape) for tensor in node.outputs]


def _leaves(node: Node, unchanged: dict[TensorSource, TensorSource]) -> list[Any]:
    """The arguments of a call, one after the other; tensors by their source and rank."""
    listed: list[Any] = []

    def note(leaf: Any) -> None:
        if isinstance(leaf, TracedTensor):
            source = leaf.source
            while source in unchanged:
                source = unchanged[source]
            leaf = source, len(leaf.shape)
        listed.append(leaf)

    mapped((node.args, dict(node.kwargs)), note)
    return listed


def _is_same(first: Any, second: Any) -> bool:
    expressions = [leaf.expression if isinstance(leaf, (Size, SizeFloat)) else None for leaf in (first, second)]
    if None not in expressions:
        return bool(expressions[0] == expressions[1])
    # A number that is not a number is not equal to itself.
    return bool(first == second) or (first != first and second != second)
