"""Write a suggested table as text: short rows, comments on what was proved, and every doubt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wdport.porting.folding import Section
from wdport.porting.options import Fields

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./<>+-]*")
_QUOTED = frozenset({"rule", "flatten", "axes", "drop"})
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"})


def table_text(
    parts: Sequence[Section], torch: str, keras: str, inputs: Sequence[str], config: Sequence[str] = (),
    head: Sequence[str] = (), doubts: Sequence[str] = (),
) -> str:  # fmt: skip
    """The table as YAML; ``head`` and ``doubts`` become comments."""
    lines = [f"# {line}" for line in head]
    lines += [f"# doubt: {line}" for line in doubts]
    lines += ["format: 2", *([f"torch: {_scalar(torch)}"] if torch else []), f"keras: {_scalar(keras)}"]
    if inputs:
        lines.append(f"inputs: [{', '.join(_quoted(text) for text in inputs)}]")
    if config:
        lines.append(f"config: [{', '.join(map(_scalar, config))}]")
    rows = [row for part in parts if not part.torch for row in part.rows]
    for name, chosen in _grouped(rows).items():
        lines += [f"{name}:", *(f"  - {row_text(row)}" for row in chosen)]
    with_prefix = [part for part in parts if part.torch]
    if with_prefix:
        lines.append("sections:")
    for part in with_prefix:
        lines += [f"  - torch: {_scalar(part.torch)}", f"    keras: {_scalar(part.keras)}"]
        for name, chosen in _grouped(part.rows).items():
            lines += [f"    {name}:", *(f"      - {row_text(row)}" for row in chosen)]
    return "\n".join(lines) + "\n"


def _grouped(rows: Sequence[Fields]) -> dict[str, list[Fields]]:
    """The rows by the list of the table that contains them."""
    by_list: dict[str, list[Fields]] = {"layers": [], "tensors": [], "tied": []}
    for row in rows:
        name = "tied" if "same_as" in row else "tensors" if "rule" in row or "drop" in row else "layers"
        by_list[name].append(row)
    return {name: chosen for name, chosen in by_list.items() if chosen}


def row_text(row: Fields) -> str:
    """One row on one line."""
    return "{" + ", ".join(f"{name}: {_value(name, value)}" for name, value in row.items()) + "}"


def _value(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value('', element)}" for key, element in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_scalar(str(element)) for element in value) + "]"
    if isinstance(value, (int, bool)):
        return str(value).lower()
    return _quoted(str(value)) if name in _QUOTED and " " in str(value) else _scalar(str(value))


def _scalar(text: str) -> str:
    plain = _PLAIN.fullmatch(text) or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text)
    return text if plain and text.lower() not in _WORDS else _quoted(text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
