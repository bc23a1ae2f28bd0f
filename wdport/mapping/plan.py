"""The plan: a table and two lists of names and shapes to a proof that nothing is left over.

Every source tensor is used, checked or dropped exactly once, every target variable is filled exactly
once, and every constant is compared, all settled on names and shapes before an array is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from wdport.mapping.axes import AxisError, Rule, Shape
from wdport.mapping.names import PatternIndex
from wdport.mapping.table import Row, Table


@dataclass(frozen=True)
class Move:
    """One source tensor and the target variables that it fills, through ``rule`` with ``sizes``."""

    source: str
    targets: tuple[str, ...]
    rule: Rule
    sizes: dict[str, int]
    line: int


@dataclass(frozen=True)
class Plan:
    """What becomes of every tensor. ``checks`` maps a source to the constant that it must equal,
    ``drops`` a source to the reason for leaving it out."""

    table: Table
    moves: tuple[Move, ...]
    checks: dict[str, str]
    drops: dict[str, str]

    @property
    def targets(self) -> tuple[str, ...]:
        """Every variable that is filled, in the order of the moves."""
        return tuple(target for move in self.moves for target in move.targets)


@dataclass(frozen=True)
class Misfits:
    """Everything that does not fit, one sentence each, worst first."""

    faults: tuple[str, ...] = ()


@dataclass
class _Draft:
    moves: list[Move] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    drops: dict[str, str] = field(default_factory=dict)
    filled: dict[str, str] = field(default_factory=dict)
    misshapen: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)


def make_plan(
    table: Table,
    sources: Mapping[str, Shape],
    targets: Mapping[str, Shape],
    constants: Mapping[str, Shape],
    features: Collection[str] = (),
) -> Plan | Misfits:
    """Match every source against the table's rows and account for every target and constant.

    Args:
        table: the mapping table.
        sources: name and shape of every tensor of the checkpoint.
        targets: path and shape of every variable of the Keras model.
        constants: name and shape of what the model family can recompute.
        features: names under ``when:`` that apply.

    Returns:
        The plan, or all misfits at once.
    """
    rows = [row for row in table.rows if row.when is None or row.when in features]
    draft = _Draft()
    used: set[int] = set()  # rows by identity: several may stand on one line
    index = PatternIndex(row.torch for row in rows)
    for source, shape in sources.items():
        hits = [(rows[at], indices) for at, indices in index.find(source)]
        used.update(id(row) for row, _ in hits)
        if not hits:
            draft.unexpected.append(source)
        elif len(hits) > 1:
            lines = " and ".join(str(row.line) for row, _ in hits)
            draft.doubled.append(f"{source} is claimed by the table's lines {lines}")
        else:
            _place(draft, *hits[0], source, shape, targets, constants)
    wanted = _wanted(draft, rows, targets, constants)
    missing = {name: shape for name, shape in wanted.items() if name not in sources}
    for row in rows:
        silent = id(row) not in used and not row.optional
        if silent and not any(row.torch.match(name) is not None for name in missing):
            draft.idle.append(f"line {row.line} of the table ({row.torch.text}) matches nothing")
    faults = _sentences(draft, missing, sources)
    return Misfits(faults) if faults else Plan(table, tuple(draft.moves), draft.checks, draft.drops)


def _place(
    draft: _Draft,
    row: Row,
    indices: dict[str, int],
    source: str,
    shape: Shape,
    targets: Mapping[str, Shape],
    constants: Mapping[str, Shape],
) -> None:
    """Put one source into the draft by its row."""
    if row.drop is not None:
        draft.drops[source] = row.drop
        return
    if row.check is not None:
        constant = row.check.format(indices)
        if constant not in constants:
            if row.keras:
                draft.idle.append(f"line {row.line} compares {source} with {constant}, which the model does not have")
            else:
                draft.unexpected.append(source)
            return
        if constants[constant] != shape:
            draft.misshapen.append(f"{source} has shape {shape}, the model wants {constants[constant]}")
            return
        draft.checks[source] = constant
    if row.rule is None:
        return
    names = tuple(pattern.format(indices) for pattern in row.keras)
    if any(name not in targets for name in names):
        draft.checks.pop(source, None)
        draft.unexpected.append(source)
        return
    for name in names:
        if name in draft.filled:
            draft.doubled.append(f"{name} is filled by {draft.filled[name]} and by {source}")
        draft.filled[name] = source
    shapes = [targets[name] for name in names]
    try:
        sizes = row.rule.sizes([shape], shapes)
    except AxisError:
        wanted = row.rule.source_shape(shapes)
        turned = wanted is not None and len(shape) > 1 and wanted == shape[::-1]
        hint = " (transposed?)" if turned else ""
        draft.misshapen.append(
            f"{source} has shape {shape}, line {row.line} ({row.rule.name}) wants {wanted or shapes}{hint}"
        )
        return
    draft.moves.append(Move(source, names, row.rule, sizes, row.line))


def _wanted(
    draft: _Draft, rows: list[Row], targets: Mapping[str, Shape], constants: Mapping[str, Shape]
) -> dict[str, Shape | None]:
    """Sources that unfilled targets and uncompared constants want, with the shape they ought to have."""
    missing: dict[str, Shape | None] = {}
    filling = [(row.torch, row.rule, row.keras, pattern) for row in rows if row.rule for pattern in row.keras]
    index = PatternIndex(pattern for *_, pattern in filling)
    for target in targets:
        if target in draft.filled:
            continue
        hits = index.find(target)
        if not hits:
            draft.idle.append(f"no row of the table fills {target}")
            continue
        (torch, rule, patterns, _), found = filling[hits[0][0]], hits[0][1]
        shapes = [targets[name] for each in patterns if (name := each.format(found)) in targets]
        missing[torch.format(found)] = rule.source_shape(shapes)
    compared = set(draft.checks.values())
    for row in rows:
        if row.check is None or row.keras or row.optional:
            continue
        for constant, shape in constants.items():
            indices = row.check.match(constant)
            if indices is not None and constant not in compared:
                missing.setdefault(row.torch.format(indices), shape)
    return missing


def _sentences(draft: _Draft, missing: dict[str, Shape | None], sources: Mapping[str, Shape]) -> tuple[str, ...]:
    """All faults as sentences; a missing and an unexpected tensor of one shape are read as a renaming."""
    faults = [*draft.doubled]
    unexpected = list(draft.unexpected)
    absent = dict(missing)
    for name, shape in missing.items():
        alike = [other for other in unexpected if sources[other] == shape]
        rivals = [other for other, its in absent.items() if its == shape]
        if len(alike) == 1 and len(rivals) == 1:
            faults.append(f"missing {name}; is {alike[0]} the same tensor renamed?")
            unexpected.remove(alike[0])
            del absent[name]
    faults += [f"missing {name}" + (f" {shape}" if shape is not None else "") for name, shape in absent.items()]
    faults += draft.misshapen
    faults += [f"unexpected {name} {sources[name]}" for name in unexpected]
    return (*faults, *draft.idle)
