"""Which family a mapping table means: one that wdport comes with, or the user's own model."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from wdport.errors import UsageError
from wdport.families.custom import CustomFamily
from wdport.families.registry import find_family
from wdport.families.roles import Family
from wdport.mapping.rows import Table
from wdport.mapping.table import load_table


def family_of(table: Table, model: str | None, reference: str | None, inputs: Sequence[str]) -> Family:
    """The family of a table; what the user says of a model of their own goes with a table of that family alone."""
    if table.family == "custom":
        return CustomFamily(table, model, reference, inputs)
    for flag, given in (("--model", model), ("--input", inputs)):
        if given:
            raise UsageError(flag, f"the {table.family} family has its own", "leave it out")
    return find_family(table.family, table.path)


def own_model(
    mapping: str | PathLike[str] | None, model: str | None, reference: str | None, inputs: Sequence[str]
) -> CustomFamily | None:
    """The user's own model (:class:`wdport.families.custom.CustomFamily`), if
    ``mapping`` is the table of one; ``None`` otherwise. Raises :class:`WdportError`."""
    table = load_table(Path(mapping)) if mapping else None
    if table is None or table.family != "custom":
        return None
    return CustomFamily(table, model, reference, inputs)
