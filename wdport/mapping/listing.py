"""List a table's rows by PyTorch name with properties, for comparison with another table."""

from __future__ import annotations

import re

from wdport.mapping.coverage import becomes
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Row, Table, TapRow

_INDEX = re.compile(r"<([a-z_]+)([+-][0-9]+)?>")


def table_listing(table: Table) -> dict[str, dict[str, str]]:
    """Return every row of a table by its PyTorch name, with its properties; indices are numbered in order.

    A layer is one entry, and so is each tensor of a row that is not a layer.
    """
    listing: dict[str, dict[str, str]] = {}
    tensors: dict[tuple[str, int, str], list[str]] = {}
    for row in table.rows:
        if row.layer is None:
            for place, pattern in enumerate(row.torch):
                _add(listing, pattern, _row_properties(row, place))
        elif row.combine != "weight_norm":
            key = row.layer.torch.text, row.layer.line, row.layer.file
            names = (pattern.text.removeprefix(f"{row.layer.torch.text}.") for pattern in row.torch)
            tensors.setdefault(key, []).extend(names)
    for tap in table.taps:
        if not tap.implied:
            suffixes = tensors.get((tap.torch.text, tap.line, tap.file), [])
            _add(listing, tap.torch, {**_tap_properties(tap), "tensors": ", ".join(suffixes)})
    return listing


def table_facts(table: Table) -> dict[str, str]:
    """Return the properties of the whole table."""
    return {
        "family": table.family,
        "variant": table.variant,
        "signature": _numbered(table.signature.text, {}) if table.signature else "",
        "torch": table.torch,
        "keras": table.keras,
        "inputs": "; ".join(table.inputs),
        "config": ", ".join(table.config),
        "sampling": ", ".join(f"{name}={value}" for name, value in sorted(table.sampling.items())),
    }


def _add(listing: dict[str, dict[str, str]], pattern: NamePattern, properties: dict[str, str]) -> None:
    order: dict[str, str] = {}
    name = _numbered(pattern.text, order)
    properties = {key: _numbered(text, order) for key, text in properties.items() if text}
    while name in listing:
        name += " (again)"
    listing[name] = properties


def _numbered(text: str, order: dict[str, str]) -> str:
    """Number a text's indices in order of appearance, so that their names do not matter."""

    def named(piece: re.Match[str]) -> str:
        return f"<{order.setdefault(piece[1], str(len(order) + 1))}{piece[2] or ''}>"

    return _INDEX.sub(named, text)


def _row_properties(row: Row, place: int) -> dict[str, str]:
    others = ", ".join(pattern.text for index, pattern in enumerate(row.torch) if index != place)
    return {
        "becomes": becomes(row),
        "rule": " or ".join(str(rule) for rule in row.rules),
        "with": f"{others}, at place {place + 1}" if others else "",
        "combine": row.combine,
        "sizes": ", ".join(f"{name}={size}" for name, size in sorted(row.sizes.items())) if row.rules else "",
        "when": row.when or "",
        "optional": "true" if row.optional else "",
    }


def _tap_properties(tap: TapRow) -> dict[str, str]:
    return {
        "becomes": tap.keras.text,
        "kind": tap.kind,
        "axes": " or ".join(str(rule) for rule in tap.axes),
        "then": tap.then,
        "up_to": "shift" if tap.shift else "",
        "flatten": str(tap.flatten or ""),
        "when": tap.when or "",
        "optional": "true" if tap.optional else "",
    }
