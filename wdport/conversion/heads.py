"""Change a checkpoint's names as the table requires: remove a common prefix such as ``model``, replace old names.

Known wrapper prefixes are removed when the names are read.
"""

from __future__ import annotations

from wdport.checkpoint.checkpoint import Checkpoint
from wdport.mapping.names import PatternIndex
from wdport.mapping.rows import Table


def leave_out_head(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Remove the first component of names, such as ``model``, if no row of the table claims a name with it and rows
    claim every name without it; return a sentence that says so, or nothing.

    Names without it, such as those of a loss stored with a model, keep theirs; no row may move one of them. A name that
    no row claims is a fault of the plan, so this never prevents a plan that fits.
    """
    index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
    moving = PatternIndex(pattern for row in table.rows if row.drop is None for pattern in row.torch)
    claimed = {name for name in checkpoint.tensors if index.find(name)}
    moved = {name for name in claimed if moving.find(name)}
    groups: dict[str, dict[str, str]] = {}
    for name in checkpoint.tensors:
        head, dot, rest = name.partition(".")
        if dot:
            groups.setdefault(head, {})[name] = rest
    candidates = [(head, short) for head, short in groups.items()
                  if claimed.isdisjoint(short) and all(map(index.find, short.values()))]  # fmt: skip
    if moved or len(candidates) != 1:
        return ()
    ((head, short),) = candidates
    if len(short) < len(checkpoint.tensors):
        if not checkpoint.tensors.keys().isdisjoint(short.values()):
            return ()
        checkpoint.give_names(short)
        return (f"{len(short)} of {len(checkpoint.tensors)} names have the prefix '{head}.', which is removed",)
    checkpoint.leave_out(f"{head}.")
    return (f"every name has the prefix '{head}.', which is removed",)


def use_new_names(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Rename modules that have a former name in the table; return a sentence that says so, or nothing.

    A tensor keeps its old name, which no row claims, if another tensor already has the new one.
    """
    formerly = [pair for row in table.taps for pair in row.formerly]
    index, renamed = PatternIndex(was for was, _ in formerly), dict[str, str]()
    for name in checkpoint.tensors:
        module, _, last = name.rpartition(".")
        for position, indices in index.find(module):
            now = f"{formerly[position][1].format(indices)}.{last}"
            if now not in checkpoint.tensors and now not in renamed.values():
                renamed[name] = now
    if not renamed:
        return ()
    checkpoint.give_names(renamed)
    first, now = next(iter(renamed.items()))
    return (f"{len(renamed)} tensors have former names and are renamed, such as {first} to {now}",)
