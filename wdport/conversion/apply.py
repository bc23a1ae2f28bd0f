"""Carry out a plan: yield every variable of the port with its float32 array, one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from wdport.conversion.prepare import Prepared
from wdport.conversion.values import See
from wdport.errors import InputError, MisfitError
from wdport.mapping.moves import Move
from wdport.model import Array

Progress = Callable[[int, int], None]


def converted_arrays(
    prepared: Prepared,
    allow_nonfinite: bool = False,
    cast: bool = False,
    progress: Progress | None = None,
    see: See | None = None,
) -> Iterator[tuple[str, Array]]:
    """Yield (variable path, float32 array) in the order of the plan; ``see`` is called with every stored tensor.

    Raises ``InputError`` for a NaN or infinity and ``MisfitError`` for a float64 value that float32 cannot hold, unless
    these are allowed; and ``InputError`` if the file was changed meanwhile.
    """
    plan, tensors = prepared.plan, prepared.checkpoint.tensors
    # Before the first array: the tied tensor fills nothing, so nobody would notice another value of it later.
    require_equal_ties(prepared)
    total, done = sum(tensors[name].nbytes for move in plan.moves for name in move.sources), 0
    for move in plan.moves:
        yield from zip(move.targets, moved_arrays(prepared, move, allow_nonfinite, cast, see), strict=True)
        done += sum(tensors[name].nbytes for name in move.sources)
        if progress:
            progress(done, total)
    # Also at the end: every read checks the open file, and this one the file that the path now names.
    prepared.checkpoint.require_unchanged()


def require_equal_ties(prepared: Prepared) -> None:
    """Raise ``MisfitError`` if a tied tensor is not bit for bit equal to the tensor that it is tied to."""
    if faults := prepared.plan.unequal_ties(prepared.checkpoint.same):
        fix = "correct the checkpoint, or write a separate row for the tensor"
        raise MisfitError(prepared.checkpoint.path, faults[0], fix, faults)


def moved_arrays(
    prepared: Prepared, move: Move, allow_nonfinite: bool = False, cast: bool = False, see: See | None = None
) -> list[Array]:
    """Return the float32 variables that one move computes from the checkpoint's tensors.

    Arithmetic uses the stored values, so that it is rounded once.
    """
    sources = [source_array(prepared, name, allow_nonfinite, cast, see) for name in move.sources]
    if not move.exact:
        # Read again in the stored dtype: float64 values that are rounded to float32 first would be rounded twice.
        sources = [prepared.checkpoint.read(name) for name in move.sources]
    return move.apply(sources)


def source_array(
    prepared: Prepared, name: str, allow_nonfinite: bool = False, cast: bool = False, see: See | None = None
) -> Array:
    """Return one tensor of the checkpoint as float32; a table that 16-bit storage has ruined is recomputed."""
    if name in prepared.recomputed:
        return prepared.constants[prepared.plan.checks[name]].values.astype(np.float32)
    where = (prepared.checkpoint.path, name)
    stored = prepared.checkpoint.read(name)
    if stored.dtype.kind != "f":
        raise MisfitError(where, f"is {stored.dtype.name}, not floating point", "check the table's row for it")
    if not allow_nonfinite and not np.isfinite(stored).all():
        raise InputError(where, "has NaN or infinite values", "use an undamaged checkpoint, or `--allow-nonfinite`")
    if see is not None:
        see(name, stored)
    # A float64 value that overflows becomes infinite, and is refused below because it differs.
    with np.errstate(over="ignore"):
        array = stored.astype(np.float32, copy=False)
    if stored.dtype == np.float64 and not cast and not np.array_equal(array, stored, equal_nan=True):
        raise MisfitError(where, "has float64 values that float32 cannot hold", "accept the rounding with `--cast`")
    return array
