"""Names of a checkpoint that only the table knows: what stands before all of them, such as ``model``, and old ones.

Wrappers that are known are taken away where the names are read.
"""

from __future__ import annotations

from wdport.checkpoint.checkpoint import Checkpoint
from wdport.mapping.names import PatternIndex
from wdport.mapping.rows import Table


def leave_out_head(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Take the first component of the names away where all have the same one, no row of the table claims a name that
    has it, and every name is claimed that lacks it; a sentence that says so, or nothing.

    A name that no row claims speaks against the plan, so no plan that fits is lost by it.
    """
    heads = {name.partition(".")[0] for name in checkpoint.tensors if "." in name}
    if len(heads) != 1 or not all("." in name for name in checkpoint.tensors):
        return ()
    (head,) = heads
    index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
    short = [name.removeprefix(f"{head}.") for name in checkpoint.tensors]
    if any(map(index.find, checkpoint.tensors)) or not all(map(index.find, short)):
        return ()
    checkpoint.leave_out(f"{head}.")
    return (f"every name stands under '{head}.', which is left out",)


def use_new_names(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Give modules that the table knows by a former name their name of today; a sentence that says so, or nothing.

    A tensor whose new name another one has keeps its own, which no row claims then.
    """
    formerly = [pair for row in table.taps for pair in row.formerly]
    index, found = PatternIndex(was for was, _ in formerly), dict[str, str]()
    for name in checkpoint.tensors:
        module, _, last = name.rpartition(".")
        for at, indices in index.find(module):
            now = f"{formerly[at][1].format(indices)}.{last}"
            if now not in checkpoint.tensors and now not in found.values():
                found[name] = now
    if not found:
        return ()
    checkpoint.give_names(found)
    first, now = next(iter(found.items()))
    return (f"{len(found)} tensors have former names and are read as today's, such as {first} as {now}",)
