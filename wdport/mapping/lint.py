"""Check a mapping table without a checkpoint, beyond what :mod:`wdport.mapping.table` refuses to read.

An error means that no checkpoint fits the table, so every conversion with it is refused; a warning means that a row
cannot do what it states or that two rows claim one tensor of some checkpoint; a note is only informative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Literal

from wdport.base.shared_types import Count, about
from wdport.mapping.axes import AxisError, Rule, output_rules
from wdport.mapping.names import NamePattern, alike, overlap
from wdport.mapping.rows import ConstantRow, Row, Table
from wdport.mapping.table import CUSTOM
from wdport.recording.input_text import parse_inputs

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class RemarkFacts:
    """A remark on one line of a mapping table."""

    level: Annotated[Level, about(
        "`error`: no checkpoint can fit the table. `warning`: the table may nevertheless be correct. `note`: for "
        "information only.")]  # fmt: skip
    file: Annotated[str, about("Path of the table, or of an included table.")]
    line: Annotated[Count, about("Line number; 0 for the table as a whole.")]
    what: Annotated[str, about("The remark in one sentence.")]

    @property
    def place(self) -> str:
        """The place as text; empty for the table as a whole."""
        return ", ".join(part for part in (self.file, f"line {self.line}" if self.line else "") if part)

    @property
    def sentence(self) -> str:
        """The remark, after its place."""
        return f"{self.place}: {self.what}" if self.place else self.what


_Claim = tuple[Row, NamePattern]


@dataclass(frozen=True)
class _Fault:
    """What makes a row unusable, or, if ``dead`` is false, an overlap of two rows; ``repeated`` if already reported."""

    row: Row
    what: str
    dead: bool = True
    repeated: bool = False


def lint(table: Table) -> tuple[RemarkFacts, ...]:
    """Return all remarks that need only the table, by line; ``file`` is empty for the table itself."""
    faults = [*_meetings(table.rows), *_unsolved(table.rows), *_rows_for_families(table)]
    dead = {id(fault.row) for fault in faults if fault.dead}
    # A layer whose rows are alternatives is still usable if one of them is.
    useless = [rows for rows in groups(table.rows) if _required(rows) and all(id(row) in dead for row in rows)]
    lost = {id(row) for rows in useless for row in rows}
    remarks = [
        _remark("error" if fault.dead and id(fault.row) in lost else "warning", fault.row, fault.what)
        for fault in faults
        if not fault.repeated
    ]
    remarks += [
        *_filled_twice(table.rows),
        *_filled_besides(table),
        *_bad_ties(table),
        *_repeated_taps(table),
        *_heading(table),
    ]
    remarks += [
        _remark("note", row, f"{row.combine} is arithmetic: its inverse does not restore the stored bits")
        for row in table.rows
        if row.combine and (row.layer is None or row.combine == "sum")
    ]
    return tuple(sorted(dict.fromkeys(remarks), key=lambda remark: (remark.file, remark.line)))


def _remark(level: Level, row: Row, what: str) -> RemarkFacts:
    return RemarkFacts(level, row.file, row.line, what)


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Group the rows of each layer, and every other row alone: one row of a group must match."""
    by_layer: dict[int, list[Row]] = {}
    for row in rows:
        # Ids are positive, so negative numbers cannot collide with them.
        by_layer.setdefault(id(row) if row.layer is None else -row.layer.number, []).append(row)
    return list(by_layer.values())


def _required(rows: list[Row]) -> bool:
    """Return whether every model needs one of these rows."""
    layer = rows[0].layer
    optional = (layer.optional or layer.bare) if layer else rows[0].optional
    return not optional and rows[0].when is None


def _pairs(claims: Iterable[_Claim]) -> Iterator[tuple[Row, NamePattern, Row, NamePattern]]:
    """Yield claims that may overlap: equal except for numbers, and of rows that apply together."""
    names: dict[str, list[_Claim]] = {}
    wild: dict[str, list[_Claim]] = {}
    for claim in claims:
        text = claim[1].text
        (wild if claim[1].indices else names).setdefault(alike(text) if claim[1].indices else text, []).append(claim)
    # Only names that are equal except for numbers, so that a long table does not take quadratic time.
    near = [pair for similar in (*names.values(), *wild.values()) for pair in combinations(similar, 2)]
    for text, similar in names.items():
        near += [(a, b) for a in wild.get(alike(text), ()) if a[1].match(text) is not None for b in similar]
    for (a, p), (b, q) in near:
        # Different features count as exclusive.
        if a.when is None or b.when is None or a.when == b.when:
            yield (a, p, b, q) if _place(a) <= _place(b) else (b, q, a, p)


def _place(row: Row) -> tuple[str, int]:
    return row.file, row.line


def _meetings(rows: Iterable[Row]) -> Iterator[_Fault]:
    """Yield tensors that two rows claim, or one row claims twice, which every plan refuses."""
    for a, p, b, q in _pairs((row, pattern) for row in rows for pattern in row.torch):
        common = overlap(p, q)
        if common.both is None:
            continue
        if a is b:
            yield _Fault(a, f"{p.text} and {q.text} are one tensor, {common.both}, which the row takes twice")
            continue
        inside = [(a, p, b, q)] * (common.first is None) + [(b, q, a, p)] * (common.second is None)
        for row, pattern, other, wider in inside:
            if common.first is None and common.second is None:
                what = f"{pattern.text} is also claimed by {other.place}"
            else:
                what = f"every {pattern.text} is also claimed by {other.place} ({wider.text})"
            yield _Fault(row, what, other.when in (None, row.when), _stored_apart(a) and _stored_apart(b))
        if not inside:
            what = f"{q.text} and {a.place} ({p.text}) claim the same tensor, such as {common.both}"
            yield _Fault(b, what, False, _stored_apart(a) and _stored_apart(b))


def _stored_apart(row: Row) -> bool:
    """Return whether this row is for PyTorch's alternative format of a layer's weight."""
    return row.layer is not None and row.combine == "weight_norm"


def _unsolved(rows: Iterable[Row]) -> Iterator[_Fault]:
    """Yield rows none of whose rules can ever apply."""
    for row in rows:
        reasons = [_unsolvable(rule, row) for rule in row.rules]
        if reasons and all(reasons):
            yield _Fault(row, f"{row.rules[0]} fits no shapes: {reasons[0]}")


def _unsolvable(rule: Rule, row: Row) -> str:
    """Return why no shapes determine the sizes of this rule's axes; "" if some do."""
    # The same steps as in Rule.sizes, with sets of known axes instead of sizes.
    sizes = {name: size for name, size in row.sizes.items() if name in rule.source.names}
    counts = [(name, len(labels), "labels") for name, labels in rule.source.labels]
    sources = 1 if row.combine else len(row.torch)
    for side, count in ((rule.source, sources), (rule.target, len(row.keras))):
        if side.stacked:
            counts.append((side.stacked, count, "tensors"))
    for name, count, what in counts:
        if sizes.setdefault(name, count) != count:
            return f"{name} is {count} {what} and sizes states {sizes[name]}"
    determined, before = set(sizes), -1
    while before != len(determined):
        before = len(determined)
        for group in (*rule.source.groups, *rule.target.groups):
            if len(unknown := set(group) - determined) == 1:
                determined |= unknown
    open_ = [name for name in rule.source.names if name not in determined]
    return f"no shape determines the size of {', '.join(open_)}; give it under sizes" if open_ else ""


def _rows_for_families(table: Table) -> Iterator[_Fault]:
    """Yield rows that only a family that comes with wdport can use: features, and constants to check.

    A table that names no model is assumed to be included by others.
    """
    for row in table.rows if table.family == CUSTOM and (table.keras or table.torch) else ():
        if row.when is not None:
            yield _Fault(row, f"when: {row.when} never applies: your own model has no features")
        elif row.check is not None:
            what = f"check: {row.check.text} is a constant; your own model has none: drop it with a reason"
            yield _Fault(row, what)


def _filled_twice(rows: tuple[Row, ...]) -> Iterator[RemarkFacts]:
    """Yield variables that two rows fill. Rows of one layer are alternatives, and so is an optional row."""
    for a, p, b, q in _pairs((row, pattern) for row in rows for pattern in row.keras):
        if a is not b and ((a.layer is not None and a.layer == b.layer) or not _required([a]) or not _required([b])):
            continue
        if _stored_apart(a) or _stored_apart(b):
            continue
        if (both := overlap(p, q).both) is None:
            continue
        certain = a is b or not (p.indices or q.indices or a.layer or b.layer)
        other = "the same row" if a is b else f"{a.place} ({a.torch[0].text})"
        yield _remark("error" if certain else "warning", b, f"{both} is also filled by {other}")


def _filled_besides(table: Table) -> Iterator[RemarkFacts]:
    """Yield variables that get a constant and that another row fills too."""
    rows = [row for row in table.rows if row.layer is None and _required([row])]
    index: dict[str, list[tuple[Row | ConstantRow, NamePattern]]] = {}
    for row in rows:
        for pattern in row.keras:
            index.setdefault(alike(pattern.text), []).append((row, pattern))
    for fill in table.fills:
        near = index.setdefault(alike(fill.keras.text), [])
        for other, pattern in near:
            if (both := overlap(pattern, fill.keras).both) is not None:
                level: Level = "warning" if pattern.indices or fill.keras.indices else "error"
                yield RemarkFacts(level, fill.file, fill.line, f"{both} is also filled by {other.place}")
        near.append((fill, fill.keras))


def _bad_ties(table: Table) -> Iterator[RemarkFacts]:
    """Yield ties to tensors that no row claims."""
    claimed = [pattern for row in table.rows if row.same_as is None for pattern in row.torch]
    for row in table.rows:
        if row.same_as is not None and not _meets(row.same_as, claimed):
            yield _remark("warning", row, f"{row.torch[0].text} is tied to {row.same_as.text}, which no row claims")


def _meets(pattern: NamePattern, others: Iterable[NamePattern]) -> bool:
    near = alike(pattern.text)
    return any(alike(other.text) == near and overlap(pattern, other).both is not None for other in others)


def _repeated_taps(table: Table) -> Iterator[RemarkFacts]:
    """Yield duplicate comparisons of layers."""
    lines: dict[tuple[str, str, str | None], int] = {}
    for tap in table.taps:
        key = tap.torch.text, tap.keras.text, tap.when
        if key in lines and not tap.implied:
            what = f"{tap.torch.text} is already compared with {tap.keras.text} in line {lines[key]}"
            yield RemarkFacts("warning", tap.file, tap.line, what)
        lines.setdefault(key, tap.line)


def _heading(table: Table) -> Iterator[RemarkFacts]:
    """Yield remarks on the fields of the whole table."""
    claimed = [pattern for row in table.rows for pattern in row.torch]
    if table.signature is not None and not _meets(table.signature, claimed):
        yield RemarkFacts("warning", "", 0, f"signature: no row claims {table.signature.text}")
    if table.family != CUSTOM:
        return
    for name, text in (("torch", table.torch), ("keras", table.keras)):
        module, _, function = text.partition(":")
        if text and not (module and function):
            yield RemarkFacts("warning", "", 0, f"{name}: {text!r} is not MODULE:FUNCTION")
    try:
        parse_inputs(table.inputs)
    except ValueError as error:
        yield RemarkFacts("error", "", 0, f"inputs: {error}")
    try:
        output_rules(table.outputs)
    except AxisError as error:
        yield RemarkFacts("error", "", 0, f"outputs: {error}")
