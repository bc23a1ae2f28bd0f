"""Find the tables that wdport and other packages ship, and the one that fits a list of tensor names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from wdport.errors import MisfitError
from wdport.extensions import tables_folders
from wdport.mapping.names import PatternIndex
from wdport.mapping.table import Table, mappings_folder, parse_table

OWN_MODEL = "make one for your own model with wdport map suggest (docs/own-model.md), and give it with `--mapping FILE`"


@cache
def shipped_tables() -> tuple[Table, ...]:
    """Return all tables that come with wdport and with packages of families, and have a signature, by file name."""
    folders = {"": mappings_folder(), **{f"{package}/": folder for package, folder in tables_folders().items()}}
    tables = [
        parse_table(file.read_bytes(), f"{package}mappings/{file.name}", file.parent)
        for package, folder in folders.items()
        for file in sorted(folder.glob("*.yaml"))
    ]
    return tuple(table for table in tables if table.signature is not None)


def choose_table(names: Iterable[str], where: str | Path) -> Table:
    """Return the shipped table whose signature occurs among ``names``.

    Raises :class:`MisfitError` if there is none or more than one.
    """
    names = list(names)
    fitting = [table for table in shipped_tables() if _signed(table, names)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        paths = ", ".join(table.path for table in fitting)
        raise MisfitError(where, f"tensors of several layouts ({paths})", "name one table with `--mapping FILE`")
    best, hits = "", 0
    # No table fits: only now are all rows matched, to name the nearest one.
    for table in shipped_tables():
        index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
        count = sum(bool(index.find(name)) for name in names)
        if count > hits:
            best, hits = table.path, count
    nearest = f"; nearest is {best} with {hits} of {len(names)} names" if best else ""
    tensors = f"{len(names)} tensor{'' if len(names) == 1 else 's'}"
    raise MisfitError(where, f"no mapping table fits its {tensors}{nearest}", OWN_MODEL)


def _signed(table: Table, names: Iterable[str]) -> bool:
    return table.signature is not None and any(table.signature.match(name) is not None for name in names)
