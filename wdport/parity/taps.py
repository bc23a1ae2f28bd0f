"""Taps: a mapping table and two models to the pairs of layers whose outputs must agree.

The table that moves the weights also says which layers belong together; nothing is guessed. Every
row must find its layers on both sides, and every layer is used once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from wdport.errors import IncompleteError
from wdport.mapping.table import Table

LEVEL = "level"
"""The index in a table that numbers wavelet levels."""


@dataclass(frozen=True)
class Tap:
    """One layer of the reference (torch module path) and its counterpart (Keras layer path).

    ``level`` is the wavelet level that the layer belongs to, if its row has that index. Outputs of a tap with
    ``shift`` need agree only up to what is the same at every token (axis 1): a bias of the keys, which softmax
    does not see.
    """

    reference: str
    candidate: str
    level: int | None
    shift: bool = False


def align(table: Table, modules: Collection[str], layers: Collection[str], features: Collection[str]) -> list[Tap]:
    """All taps, in the order of ``modules``; raises :class:`IncompleteError` if one has no counterpart."""
    rows = [row for row in table.taps if row.when is None or row.when in features]
    taps: list[Tap] = []
    matched: set[int] = set()
    for module in modules:
        for row in rows:
            indices = row.torch.match(module)
            if indices is not None:
                taps.append(Tap(module, row.keras.format(indices), indices.get(LEVEL), row.shift))
                matched.add(row.line)
    fix = "correct the taps of the mapping table"
    for row in rows:
        if row.line not in matched:
            raise IncompleteError((table.path, f"line {row.line}"), f"no layer is called {row.torch.text}", fix)
    for tap in taps:
        if tap.candidate not in layers:
            raise IncompleteError((table.path, tap.candidate), "the Keras model has no such layer", fix)
    for side in ("reference", "candidate"):
        names = [getattr(tap, side) for tap in taps]
        for name in names:
            if names.count(name) > 1:
                raise IncompleteError((table.path, name), "is named by two taps", fix)
    if not taps:
        raise IncompleteError(table.path, "has no taps, so no layer would be compared", "add a taps section")
    return taps
