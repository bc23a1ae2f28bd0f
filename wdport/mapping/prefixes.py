"""The prefix by which the names of a checkpoint differ from those of a table.

A class around a network adds one to all of its names: ``transformer.h.0.ln_1.weight`` of a ``GPT2LMHeadModel`` is
``h.0.ln_1.weight`` in a ``GPT2Model``, and in the file of either on a hub.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from wdport.mapping.names import PatternIndex
from wdport.mapping.rows import Table


@dataclass(frozen=True)
class CommonPrefix:
    """A prefix with its dot, and the table's name of every tensor that has it, or, if ``missing``, that lacks it."""

    text: str
    names: Mapping[str, str]
    missing: bool = False


def common_prefix(table: Table, names: Collection[str]) -> CommonPrefix | None:
    """Return the one prefix that the names have and the table's do not, or the other way round; ``None`` if there is no
    such prefix, or more than one.

    A row must claim every name without a prefix that is too much, and with one that is missing, more than half of all
    names; no row may fill a variable from a name as it is. Names that no row claims are a fault of the plan, so this
    never prevents a plan that fits.
    """
    names = dict.fromkeys(names)
    index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
    filling = PatternIndex(pattern for row in table.rows if row.keras for pattern in row.torch)
    if any(map(filling.find, names)):
        return None
    claimed = {name for name in names if index.find(name)}
    prefixes = [prefix for prefix in _extra(names) if claimed.isdisjoint(prefix.names)
             and all(map(index.find, prefix.names.values()))]  # fmt: skip
    prefixes += [
        prefix for prefix in _missing(table, index, names.keys() - claimed) if 2 * len(prefix.names) > len(names)
    ]
    # With two, nothing shows which one is meant; and no tensor may get the name of another one.
    if len(prefixes) != 1 or not names.keys().isdisjoint(prefixes[0].names.values()):
        return None
    return prefixes[0]


def _extra(names: Collection[str]) -> Iterator[CommonPrefix]:
    """Every first component of names, with the names without it."""
    shorter: dict[str, dict[str, str]] = {}
    for name in names:
        head, dot, rest = name.partition(".")
        if dot:
            shorter.setdefault(f"{head}.", {})[name] = rest
    yield from (CommonPrefix(text, renamed) for text, renamed in shorter.items())


def _missing(table: Table, index: PatternIndex, names: Collection[str]) -> Iterator[CommonPrefix]:
    """Every beginning of the table's names that makes some of these names the table's."""
    patterns = (pattern.text.split(".") for row in table.rows if row.keras for pattern in row.torch)
    begins = {".".join(parts[:count]) for parts in patterns for count in range(1, len(parts))}
    for text in sorted(f"{begin}." for begin in begins if "<" not in begin):
        if renamed := {name: text + name for name in names if index.find(text + name)}:
            yield CommonPrefix(text, renamed, True)
