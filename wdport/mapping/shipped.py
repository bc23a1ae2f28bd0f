"""Where the shipped tables are, and which of them fits a list of tensor names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from wdport.errors import InternalError, MisfitError
from wdport.mapping.table import Table, parse_table


@cache
def shipped_tables() -> tuple[Table, ...]:
    """All tables that come with wdport, by file name."""
    files = sorted(_folder().glob("*.yaml"))
    return tuple(parse_table(file.read_bytes(), f"mappings/{file.name}") for file in files)


def _folder() -> Path:
    """``mappings/`` inside the installed package, or beside it in a source checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_mappings", package.parent / "mappings"):
        if any(folder.glob("*.yaml")):
            return folder
    raise InternalError("wdport", "its mapping tables are not installed", "install the package again")


def choose_table(names: Iterable[str], where: str | Path) -> Table:
    """The one shipped table whose signature occurs among ``names``.

    Raises :class:`MisfitError` if none or more than one does.
    """
    names = list(names)
    fitting = [table for table in shipped_tables() if any(table.signature.match(name) for name in names)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = ", ".join(table.path for table in fitting)
        raise MisfitError(where, f"tensors of several layouts ({shown})", "name one table with --mapping FILE")
    best, hits = "", 0
    for table in shipped_tables():
        count = sum(any(row.torch.match(name) is not None for row in table.rows) for name in names)
        if count > hits:
            best, hits = table.path, count
    nearest = f"; nearest is {best} with {hits} of {len(names)} names" if best else ""
    raise MisfitError(where, f"no mapping table fits its {len(names)} tensors{nearest}", "give one with --mapping FILE")
