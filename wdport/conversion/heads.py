"""What stands before every name of a checkpoint and not in the table: a wrapper's attribute, such as ``model``.

Wrappers that are known are taken away where the names are read; this one is known by the table alone.
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
