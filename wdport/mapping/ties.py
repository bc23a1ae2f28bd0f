"""Names that the ties of a table give to tensors, and that a file leaves out.

``safetensors.torch.save_model`` and the ``save_pretrained`` of transformers keep one name of a tensor that has several.
A tie is symmetric: whichever name the file has, the tensor has the others as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from wdport.mapping.names import NamePattern, PatternError, PatternIndex
from wdport.mapping.rows import Row


def needed_names(rows: Iterable[Row], names: Iterable[str]) -> dict[str, str]:
    """Return the names that tied tensors among ``names`` refer to and that are not among these, each with a tensor that
    it equals."""
    return _followed([(row.torch[0], row.same_as) for row in rows if row.same_as is not None], names)


def omitted_names(rows: Iterable[Row], names: Iterable[str]) -> dict[str, str]:
    """Return all names that ties give to tensors among ``names`` and that are not among these, each with a tensor that
    it equals."""
    pairs = [(row.torch[0], row.same_as) for row in rows if row.same_as is not None]
    return _followed([*pairs, *((same, name) for name, same in pairs)], names)


def _followed(pairs: list[tuple[NamePattern, NamePattern]], names: Iterable[str]) -> dict[str, str]:
    """Follow the pairs from every name, as far as they lead."""
    index = PatternIndex(pattern for pattern, _ in pairs)
    present = dict.fromkeys(names)
    pending, equals = list(present), dict[str, str]()
    for name in pending:  # grows
        for position, indices in index.find(name):
            try:
                other = pairs[position][1].format(indices)
            except PatternError:  # an index below 0, which the plan reports
                continue
            if other not in present and other not in equals:
                equals[other] = equals.get(name, name)
                pending.append(other)
    return equals
