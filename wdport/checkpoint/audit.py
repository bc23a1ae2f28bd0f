"""Check that the pickle machine's result is a tree, and not too deep or too large.

Shared objects are normal (the same text or tensor occurs in several places). Refused are an object that contains
itself, and a few hundred bytes that unfold to billions of nodes when traversed. Inert leaves are not
inspected: objects may refer to themselves.
"""

from __future__ import annotations

from typing import Final

from wdport.checkpoint.faults import NOT_WRITTEN_BY_TORCH, Fault
from wdport.checkpoint.inert import UnloadedObject
from wdport.checkpoint.symbols import Constant, Constructor
from wdport.checkpoint.tensor import StorageClass, StorageRef, TensorRef
from wdport.limits import MAX_DEPTH, MAX_OPCODES

_NAMES: Final = (Constant, Constructor, StorageClass)
_LEAVES: Final = (str, int, float, bool, type(None), frozenset, TensorRef, StorageRef, UnloadedObject, *_NAMES)


def audit(tree: object) -> None:
    """Refuse cycles, depth over ``MAX_DEPTH``, and unfolded size over ``MAX_OPCODES``."""
    _Audit().measure(tree, 0)


class _Audit:
    def __init__(self) -> None:
        self.measured: dict[int, tuple[int, int]] = {}
        self.open: set[int] = set()

    def measure(self, node: object, depth: int) -> tuple[int, int]:
        """Return height and unfolded size of ``node``, at depth ``depth``; each object is visited once."""
        if isinstance(node, _LEAVES):
            return 0, 1
        measured = self.measured.get(id(node))
        height, size = measured if measured is not None else self._walk(node, depth)
        if depth + height > MAX_DEPTH:
            raise Fault(f"nested more than {MAX_DEPTH} deep", NOT_WRITTEN_BY_TORCH)
        if size > MAX_OPCODES:
            raise Fault(f"unfolds to more than {MAX_OPCODES} objects", NOT_WRITTEN_BY_TORCH)
        return height, size

    def _walk(self, node: object, depth: int) -> tuple[int, int]:
        if depth > MAX_DEPTH:
            raise Fault(f"nested more than {MAX_DEPTH} deep", NOT_WRITTEN_BY_TORCH)
        if id(node) in self.open:
            raise Fault("an object of the pickle contains itself")
        self.open.add(id(node))
        height, size = 0, 1
        for child in _children(node):
            child_height, child_size = self.measure(child, depth + 1)
            height, size = max(height, child_height + 1), size + child_size
        self.open.remove(id(node))
        self.measured[id(node)] = height, size
        return height, size


def _children(node: object) -> list[object] | tuple[object, ...]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, (list, tuple)) else ()
