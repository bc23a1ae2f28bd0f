"""Find the family of a mapping table: one that wdport ships, or the user's own model."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import cast

from wdport.errors import UsageError
from wdport.families.registry import find_family
from wdport.families.roles import Family, OwnFamily
from wdport.mapping.rows import Table
from wdport.mapping.table import CUSTOM, load_table


def family_of(table: Table, model: str | None, reference: str | None, inputs: Sequence[str]) -> Family:
    """The family of a table; options for the user's own model are errors for other families."""
    if table.family == CUSTOM:
        return _own_family(table, model, reference, inputs)
    for flag, value in (("--model", model), ("--input", inputs)):
        if value:
            raise UsageError(flag, f"the {table.family} family has its own", "leave it out")
    return find_family(table.family, table.path)


def _own_family(table: Table, model: str | None, reference: str | None, inputs: Sequence[str]) -> OwnFamily:
    """The module is imported when a table needs it, as for other families."""
    if table.sampling:
        return cast(
            OwnFamily, import_module("wdport.families.custom_sampled").CustomSampled(table, model, reference, inputs)
        )
    return cast(OwnFamily, import_module("wdport.families.custom").CustomFamily(table, model, reference, inputs))


def own_model(
    mapping: str | PathLike[str] | None, model: str | None, reference: str | None, inputs: Sequence[str]
) -> OwnFamily | None:
    """The user's own model (:class:`wdport.families.custom.CustomFamily`), if
    ``mapping`` is the table of one; ``None`` otherwise. Raises :class:`WdportError`."""
    table = load_table(Path(mapping)) if mapping else None
    if table is None or table.family != CUSTOM:
        return None
    return _own_family(table, model, reference, inputs)
