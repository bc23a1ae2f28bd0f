"""Compare two lists of names and properties, such as two tables' rows: what is only in one, what changed, what was
probably renamed.

It is used for tensors (shape and dtype) and for the rows of a table (what each row does with its tensor).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, TypeVar

from wdport.base.shared_types import Count, JsonShape, about
from wdport.mapping.coverage import becomes
from wdport.mapping.names import NamePattern
from wdport.mapping.rows import Row, Table, TapRow

Property = str | JsonShape
"""A shape, or any other property as text; "" for one that is missing."""

Properties = Mapping[str, Property]
"""Properties of one name."""

Listing = Mapping[str, Properties]
P = TypeVar("P", bound=Property)

LEAST = 0.6
"""Least similarity, from 0 to 1, at which two of several names with the same properties count as a renaming."""

BEGINS = 0.8
"""Similarity of two names if one is a prefix of the other."""

MOST = 80
"""Limit on names with the same properties and numbers that are compared pairwise; beyond it only unique ones are
matched."""


@dataclass(frozen=True)
class RenamedFacts:
    """A name that was probably renamed."""

    a: Annotated[str, about("Name in A.")]
    b: Annotated[str, about("Name in B.")]
    of: Annotated[tuple[int, int], about(
        "Number of names with the same properties that are only in A, and number of such names that are only in "
        "B.")]  # fmt: skip


@dataclass(frozen=True)
class DifferenceDocument:
    """What ``wdport map diff --json`` prints: how B differs from A."""

    same: Annotated[bool, about("Whether A and B are the same.")]
    alike: Annotated[Count, about("Number of names that have the same properties in both.")]
    facts: Annotated[Mapping[str, tuple[str, str]], about(
        "Properties of the whole file that differ, with their values in A and in B; \"\" for a missing "
        "property.")]  # fmt: skip
    prefix: Annotated[tuple[str, str] | None, about(
        "The common prefix of the names in A, and the prefix that replaces it in B; null if it did not "
        "change.")]  # fmt: skip
    only_a: Annotated[Mapping[str, Mapping[str, Property]], about(
        "Names that B lacks, with their properties: a tensor's shape and dtype, or what a row of a table "
        "does.")]  # fmt: skip
    only_b: Annotated[Mapping[str, Mapping[str, Property]], about(
        "Names that A lacks, with their properties.")]  # fmt: skip
    changed: Annotated[Mapping[str, Mapping[str, tuple[Property, Property]]], about(
        "The properties that differ, by the name in B, with their values in A and in B; \"\" for a missing "
        "property.")]  # fmt: skip
    renamed: Annotated[Sequence[RenamedFacts], about("Names that were probably renamed.")]


def difference(
    a: Listing, b: Listing, joint: str = ".", facts: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
) -> DifferenceDocument:
    """Compare two listings whose names have components joined by ``joint``."""
    # First, or every name would count as removed and added.
    prefix = prefix_change(list(a), list(b), joint)
    listed = {prefix[1] + name.removeprefix(prefix[0]): properties for name, properties in a.items()} if prefix else a
    only_a = {name: properties for name, properties in listed.items() if name not in b}
    only_b = {name: properties for name, properties in b.items() if name not in listed}
    renamed = tuple(_renamings(only_a, only_b))
    for pair in renamed:
        del only_a[pair.a], only_b[pair.b]
    changed = {name: changes for name in listed if name in b and (changes := _differing(listed[name], b[name]))}
    alike = sum(name in b for name in listed) - len(changed)
    here, there = prefix or ("", "")
    gone = {here + name.removeprefix(there): properties for name, properties in only_a.items()}
    properties = _differing(*facts)
    same = not (properties or prefix or gone or only_b or changed or renamed)
    return DifferenceDocument(same, alike, properties, prefix, gone, only_b, changed, renamed)


def _differing(a: Mapping[str, P], b: Mapping[str, P]) -> dict[str, tuple[P | str, P | str]]:
    return {name: (a.get(name, ""), b.get(name, "")) for name in {**a, **b} if a.get(name, "") != b.get(name, "")}


def prefix_change(a: Sequence[str], b: Sequence[str], joint: str = ".") -> tuple[str, str] | None:
    """Return the common prefix of A's names and its replacement in B, if the replacement makes more names agree."""
    theirs = set(b)
    best, agreeing = None, len(theirs.intersection(a))
    for old in _prefixes(a, joint):
        for new in _prefixes(b, joint):
            if (old or new) and not (old.endswith(new) and new.endswith(old)):
                count = sum(new + name.removeprefix(old) in theirs for name in a)
                # More than half of the smaller list, so that a few names that agree by chance do not make a prefix.
                if count > agreeing and 2 * count > min(len(a), len(b)):
                    best, agreeing = (old, new), count
    return best


def _prefixes(names: Sequence[str], joint: str) -> list[str]:
    """Return the common prefixes of all names in whole components, the empty one first."""
    if not names:
        return [""]
    # What the first and the last name in order have in common, all names between have in common.
    first, last = min(names).split(joint)[:-1], max(names).split(joint)[:-1]
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    return ["".join(part + joint for part in first[:count]) for count in range(common + 1)]


def _renamings(a: Listing, b: Listing) -> Iterator[RenamedFacts]:
    """Yield pairs of names with the same properties, one only in A and one only in B: unique ones, or the most
    similar."""
    groups: dict[tuple[tuple[str, Property], ...], tuple[list[str], list[str]]] = {}
    for side, listing in enumerate((a, b)):
        for name, properties in listing.items():
            groups.setdefault(tuple(sorted(properties.items())), ([], []))[side].append(name)
    for old, new in groups.values():
        count = (len(old), len(new))
        if count == (1, 1):
            yield RenamedFacts(old[0], new[0], count)
            continue
        for left, right in _by_numbers(old, new):
            yield from (RenamedFacts(one, other, count) for one, other in _nearest(left, right))


def _by_numbers(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield names that contain the same numbers: a renamed layer keeps its number."""
    groups: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}
    for side, names in enumerate((a, b)):
        for name in names:
            groups.setdefault(tuple(re.findall(r"[0-9]+", name)), ([], []))[side].append(name)
    return (pair for pair in groups.values() if all(pair))


def _nearest(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of names, most similar first, each name once; equally similar candidates are not paired."""
    if len(a) > MOST or len(b) > MOST:
        return []
    ours, theirs = _distinct_parts(a), _distinct_parts(b)
    if (len(a) == 1) != (len(b) == 1):  # a single name has no parts that distinguish it
        ours = theirs = _distinct_parts([*a, *b])
    scores = sorted(((_similar(ours[x], theirs[y]), x, y) for x in a for y in b), reverse=True)
    pairs: list[tuple[str, str]] = []
    left, right = set(a), set(b)
    for score, x, y in scores:
        if score < LEAST or x not in left or y not in right:
            continue
        # A tie: either pairing would be a guess.
        near = [1 for other, p, q in scores if other == score and (p == x) != (q == y) and p in left and q in right]
        left.discard(x)
        right.discard(y)
        if not near:
            pairs.append((x, y))
    return pairs


def _similar(a: str, b: str) -> float:
    """Return the similarity of two names, from 0 to 1; a name and its prefix are similar, such as q_proj and q."""
    if a and b and a != b and (a.startswith(b) or b.startswith(a)):
        return BEGINS
    return SequenceMatcher(None, a, b, False).ratio()


def _distinct_parts(names: Sequence[str]) -> dict[str, str]:
    """Map each name to it without the components that all names begin or end with; a single name is unchanged."""
    split = [re.split(r"([./])", name) for name in names]
    if len(names) > 1:
        while all(split) and len({parts[0] for parts in split}) == 1:
            split = [parts[1:] for parts in split]
        while all(split) and len({parts[-1] for parts in split}) == 1:
            split = [parts[:-1] for parts in split]
    return {name: "".join(parts) for name, parts in zip(names, split, strict=True)}


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
    for fill in table.fills:
        _add(listing, fill.keras, {"becomes": f"filled with {fill.fill}", "when": fill.when or ""})
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
        "outputs": "; ".join(table.outputs),
        "config": ", ".join(table.config),
        "sampling": ", ".join(f"{name}={value}" for name, value in sorted(table.sampling.items())),
    }


def _add(listing: dict[str, dict[str, str]], pattern: NamePattern, properties: dict[str, str]) -> None:
    order: dict[str, str] = {}
    name = _numbered(pattern.text, order)
    properties = {key: _numbered(text, order) for key, text in properties.items() if text}
    # Two rows may have one name, for different features.
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
        "digest": row.digest,
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
