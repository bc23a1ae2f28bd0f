"""List the parts of a checkpoint's tree that were not read, one line each.

A line has the place and its content: ``hyper_parameters (class pytorch_lightning.utilities.parsing.AttributeDict)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wdport.checkpoint.inert import UnloadedObject
from wdport.checkpoint.symbols import Constructor
from wdport.checkpoint.tensor import StorageClass
from wdport.errors import printable
from wdport.limits import MAX_UNREAD

_LONGEST_PLACE: Final = 200
_LONGEST_LINE: Final = 400

_Place = tuple["_Place | None", object]
"""The parent place and the key: joined only for a message."""


def not_read(tree: object, read: object, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return a line for each inert leaf outside ``read``, the object with the tensors, and the lines of ``more``."""
    lines = [printable(line, _LONGEST_LINE) for line in more]
    visited: set[int] = set()
    pending: list[tuple[object, _Place | None]] = [(tree, None)]
    while pending:
        node, place = pending.pop()
        if node is read:
            continue
        if isinstance(node, (dict, list, tuple)):
            if id(node) not in visited:
                visited.add(id(node))
                pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
                pending += [(child, (place, key)) for key, child in reversed(pairs)]
        elif isinstance(node, UnloadedObject):
            lines.append(_line(place, node.described, lines))
        elif isinstance(node, (Constructor, StorageClass)):
            lines.append(_line(place, f"name {node.name}", lines))
    more_lines = len(lines) - MAX_UNREAD
    return (*lines[:MAX_UNREAD], f"and {more_lines} more") if more_lines > 0 else tuple(lines)


def _line(place: _Place | None, what: str, lines: list[str]) -> str:
    if len(lines) >= MAX_UNREAD:
        return ""  # only counted
    parts: list[str] = []
    while place is not None:
        place, key = place
        parts.append(f"<{key.described}>" if isinstance(key, UnloadedObject) else printable(key, _LONGEST_PLACE))
    where = printable(".".join(reversed(parts)), _LONGEST_PLACE)
    return printable(f"{where} ({what})" if where else what, _LONGEST_LINE)
