"""``python -m tests.mapping.kinds_page``: write the table of layer kinds in ``docs/mapping.md`` from the catalogue."""

from __future__ import annotations

from pathlib import Path

from wdport.mapping.kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "mapping.md"
_BEFORE, _AFTER = "wdport supports these kinds:\n\n", "\n[Layer by layer]"


def table() -> str:
    """The table in Markdown: kinds with the same note share a row, as do those without tensors."""
    rows: dict[str, list[str]] = {}
    for kind in KINDS.values():
        note = kind.note or (f"`{kind.name}`" if kind.parts else "no tensors")
        rows.setdefault(note, []).append(f"`{kind.name}`")
    lines = [f"| {', '.join(names)} | {'' if note in names else note} |" for note, names in rows.items()]
    return "\n".join(["| kinds | notes |", "|---|---|", *lines, ""]).replace("|  |", "| |")


def page(text: str) -> str:
    """The page with the table of the catalogue in place of its own."""
    before, _, rest = text.partition(_BEFORE)
    return before + _BEFORE + table() + _AFTER + rest.partition(_AFTER)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
