"""What the names and shapes of a checkpoint's tensors determine of a configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from wdport.base.errors import MisfitError
from wdport.mapping.axes import Shape

Shapes = Mapping[str, Shape]

# No leading zeros, so that two names of a file never mean the same index.
NUMBER: Final = "(0|[1-9][0-9]{0,5})"
"""Pattern of an index in a tensor's name."""

_INDEX: Final = re.compile(rf"\.{NUMBER}\.")


def size(shapes: Shapes, name: str, axis: int) -> int | None:
    """The size of an axis of a tensor; ``None`` if there is no such tensor or axis."""
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else None


def most_frequent(sizes: Iterable[int | None]) -> int | None:
    """The most frequent of the sizes that are known, so that a single wrong tensor is reported by the plan and does not
    change the configuration."""
    # Of equally frequent sizes the first counts: Counter keeps the order of insertion.
    counts = Counter(dimension for dimension in sizes if dimension is not None)
    return counts.most_common(1)[0][0] if counts else None


def consecutive(indices: Iterable[int]) -> int:
    """The count of consecutive numbers from 0: a stray name does not make a model larger."""
    index_set = set(indices)
    return next(i for i in range(len(index_set) + 1) if i not in index_set)


def count(shapes: Shapes, prefix: str) -> int:
    """The count of blocks after ``prefix``."""
    matches = (_INDEX.match(name, len(prefix)) for name in shapes if name.startswith(prefix))
    return consecutive(int(match[1]) for match in matches if match)


def any_below(shapes: Shapes, prefix: str) -> bool:
    """Whether the name of a tensor begins with ``prefix``."""
    return any(name.startswith(prefix) for name in shapes)


def require_determined(sizes: Mapping[str, object], path: Path) -> None:
    """Raise :class:`MisfitError` if the shapes do not determine a size that they should."""
    if lacking := [name for name, value in sizes.items() if value is None]:
        what = f"{', '.join(lacking)} cannot be determined from its shapes"
        raise MisfitError(path, what, "use a complete checkpoint")


def contradicted(stated: Iterable[tuple[str, object, str]], sizes: Mapping[str, object]) -> list[str]:
    """Faults of ``stated`` fields, each with its value and its origin, that are not what the file has."""
    return [f"{name} is {value} in the {origin} but {sizes[name]} in the file"
            for name, value, origin in stated if name in sizes and sizes[name] != value]  # fmt: skip
