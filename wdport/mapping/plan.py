"""Make a plan from a table and two lists of names and shapes, and prove that nothing is left over.

Every source tensor is used, checked, tied or dropped exactly once, every target variable is filled exactly
once, and every constant is compared. All of this is checked on names and shapes before any array is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from wdport.base.errors import did_you_mean
from wdport.mapping.axes import Shape
from wdport.mapping.coverage import Fit, Misfit, Misfits, fit, sentences, written
from wdport.mapping.kinds import KINDS
from wdport.mapping.lint import groups
from wdport.mapping.moves import Fill, Move, Plan
from wdport.mapping.names import NamePattern, PatternError, PatternIndex, alike
from wdport.mapping.rows import ConstantRow, Row, Table
from wdport.mapping.table import CUSTOM, table_of

__all__ = ["Misfits", "Move", "Plan", "make_plan"]

Shapes = Mapping[str, Shape]

ADVISED: Final = 5
"""Rows with a wrong name for which a similar one is looked for; it takes time."""


def make_plan(
    table: Table, sources: Shapes, targets: Shapes, constants: Shapes, features: Collection[str] = ()
) -> Plan | Misfits:
    """Match every source against the table's rows and account for every target and constant.

    Args:
        table: the mapping table.
        sources: name and shape of every tensor of the checkpoint.
        targets: path and shape of every variable of the Keras model.
        constants: name and shape of the tables that the model family can recompute.
        features: names under ``when:`` that apply.

    Returns:
        The plan, or all misfits at once.
    """
    rows = [row for row in table.rows if row.when is None or row.when in features]
    draft = _Draft(rows, sources, targets, constants, custom=table.family == CUSTOM)
    draft.place_all()
    draft.place_fills([row for row in table.fills if row.when is None or row.when in features])
    draft.find_missing()
    draft.find_idle()
    faults = sentences(draft.doubled, draft.missing, draft.misshapen, draft.unexpected, draft.idle, sources)
    if faults:
        only = len(faults) == len(draft.unexpected)
        advised = draft.custom and not (draft.doubled or draft.missing or draft.misshapen)
        return Misfits(
            faults, draft.sized, tuple(draft.unexpected) if only else (), _left_out(draft) if advised else ""
        )
    return Plan(table, tuple(draft.moves), draft.checks, draft.drops, _rooted(draft.ties), draft.digests,
                tuple(draft.fills))  # fmt: skip


def _rooted(ties: Mapping[str, str]) -> dict[str, str]:
    """Return every tied tensor with the last one of its chain: of c = b and b = a, both are tied to a."""
    roots = dict[str, str]()
    for name, same in ties.items():
        passed = {name}
        while same in ties and same not in passed:
            passed.add(same)
            same = ties[same]
        roots[name] = same
    return roots


@dataclass
class _Draft:
    """A plan under construction, and the faults found so far."""

    rows: list[Row]
    sources: Shapes
    targets: Shapes
    constants: Shapes
    custom: bool = False  # whether the user wrote the table, whose rows may then be wrong
    moves: list[Move] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    drops: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    ties: dict[str, str] = field(default_factory=dict)
    fills: list[Fill] = field(default_factory=list)
    filled: dict[str, str] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)  # rows by identity: several may be on one line
    missing: dict[str, Shape | None] = field(default_factory=dict)
    misshapen: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    sized: bool = False
    placeable: set[int] | None = None  # layers and rows, by identity, with a variable that the model has
    nowhere: int = 0
    dotted: dict[str, Row] = field(default_factory=dict)  # by the right path of their layer

    def place_all(self) -> None:
        """Assign every source according to its row, or record a fault."""
        claims = [(row, pattern) for row in self.rows for pattern in row.torch]
        index = PatternIndex(pattern for _, pattern in claims)
        placed: set[tuple[int, tuple[tuple[str, int], ...]]] = set()
        for source in self.sources:
            hits = [(claims[position][0], indices) for position, indices in index.find(source)]
            self.used.update(id(row) for row, _ in hits)
            if not hits:
                self.unexpected.append(source)
            elif len(hits) > 1:
                self.doubled.append(f"{source} is claimed by {_places([row for row, _ in hits])}")
            else:
                row, indices = hits[0]
                once = (id(row), tuple(sorted(indices.items())))
                # A row of several tensors is found once for each of them, and makes one move.
                if once not in placed:
                    placed.add(once)
                    self._place(row, indices, source)
        for right, row in [*self.dotted.items()][:1]:
            more = f", and {len(self.dotted) - 1} more" if len(self.dotted) > 1 else ""
            self.idle.append(f"{row.short}: Keras joins the parts of a path by slashes: write {right}{more}")

    def place_fills(self, rows: Sequence[ConstantRow]) -> None:
        """Fill every variable that a row names with its constant, or record a fault."""
        index, used = PatternIndex(row.keras for row in rows), set[int]()
        for target, shape in self.targets.items():
            for position, _ in index.find(target):
                row = rows[position]
                used.add(position)
                if target in self.filled:
                    self.doubled.append(f"{target} is filled by {self.filled[target]} and with {row.fill}")
                else:
                    self.fills.append(Fill(target, row.fill, tuple(shape), row.line, row.file))
                self.filled[target] = f"a constant ({row.place})"
        self.idle += [f"{row.place} fills {row.keras.text}, which the model does not have"
                      for position, row in enumerate(rows) if position not in used]  # fmt: skip

    def _place(self, row: Row, indices: dict[str, int], source: str) -> None:
        try:
            if row.drop is not None:
                self.drops[source] = row.drop
                if row.digest:
                    self.digests[source] = row.digest
            elif row.same_as is not None:
                self._tie(row, source, row.same_as.format(indices))
            elif row.check is not None and not self._check(row, source, row.check.format(indices)):
                return
            elif row.rules:
                self._move(row, written(row.torch, indices), self._paths(row, indices))
        except PatternError as error:
            self.idle.append(f"{row.place}: {error}")

    def _tie(self, row: Row, source: str, same: str) -> None:
        if same not in self.sources:
            self.idle.append(f"{row.place} ties {source} to {same}, which the checkpoint does not have")
        elif self.sources[same] != self.sources[source]:
            self.misshapen.append(f"{source} has shape {self.sources[source]}, {same} has {self.sources[same]}")
        else:
            self.ties[source] = same

    def _check(self, row: Row, source: str, constant: str) -> bool:
        """Plan the comparison of the source with its constant; return false if that is a fault."""
        if constant not in self.constants:
            if row.keras:
                self.idle.append(f"{row.short} compares {source} with {constant}, which the model does not have")
            else:
                self.unexpected.append(source)
            return False
        if self.constants[constant] != self.sources[source]:
            shape = self.constants[constant]
            self.misshapen.append(f"{source} has shape {self.sources[source]}, the model expects {shape}")
            return False
        self.checks[source] = constant
        return True

    def _paths(self, row: Row, indices: Mapping[str, int]) -> tuple[str, ...]:
        """Return the variables of a row: the first of its alternatives that the model has, or the first one."""
        first = written(row.keras, indices)
        alternatives = (first, *(written(other, indices) for other in row.others))
        return next((names for names in alternatives if all(name in self.targets for name in names)), first)

    def _move(self, row: Row, names: tuple[str, ...], paths: tuple[str, ...]) -> None:
        present = [name for name in names if name in self.sources]
        if any(path not in self.targets for path in paths):
            for name in present:
                # A tensor that fills nothing is reported once, as unexpected, and not also compared.
                self.checks.pop(name, None)
            if self.custom and (right := self.slashed(row)):
                self.dotted.setdefault(right, row)
                self.filled |= dict.fromkeys((path.replace(".", "/") for path in paths), present[0])
            elif self.custom and (wrong := self._nowhere(row)):
                self.idle.append(wrong)
            else:
                self.unexpected += present
            return
        for path in paths:
            if path in self.filled:
                self.doubled.append(f"{path} is filled by {self.filled[path]} and by {present[0]}")
            self.filled[path] = present[0]
        shapes = [self.targets[path] for path in paths]
        if len(present) < len(names):
            for name, shape in zip(names, fit(row, None, shapes).expected, strict=True):
                if name not in self.sources:
                    self.missing[name] = shape
            return
        result = fit(row, [self.sources[name] for name in names], shapes)
        if isinstance(result, Misfit):
            self.misshapen.append(result.sentence(row, names))
            self.sized |= _is_sized(row, result)
        else:
            self._add(row, names, paths, result)

    def _nowhere(self, row: Row) -> str:
        """The fault of a row whose variables, and all others of its layer, the model has for no index; empty if there
        is none."""
        if self.placeable is None:
            present = {alike(target) for target in self.targets}
            held = [other for other in self.rows if any(alike(pattern.text) in present for pattern in other.keras)]
            self.placeable = {id(other.layer or other) for other in held}
        if id(row.layer or row) in self.placeable:
            return ""
        self.nowhere += 1
        text = row.keras[0].text
        free = [target for target in self.targets if target not in self.filled] if self.nowhere <= ADVISED else []
        meant = did_you_mean(text, free)
        return f"{row.short} fills {text}, which the model does not have{meant and f': {meant}'}"

    def _add(self, row: Row, names: tuple[str, ...], paths: tuple[str, ...], fitting: Fit) -> None:
        shapes = tuple(tuple(self.sources[name]) for name in names)
        self.moves.append(Move(names, paths, fitting.rule, fitting.sizes, row.combine, row.line, shapes, row.file))

    def slashed(self, row: Row) -> str:
        """The Keras path of a row that joins the parts of a variable's path by dots, as it is right; else empty."""
        text = row.keras[0].text
        right = text.replace(".", "/")
        if right == text or not any(alike(right) == alike(target) for target in self.targets):
            return ""
        return right.removesuffix(f"/{text.rpartition('/')[2]}")

    def find_missing(self) -> None:
        """Find the sources that unfilled targets and uncompared constants need, with their expected shapes."""
        self._missing_for_targets()
        compared = set(self.checks.values())
        for row in self.rows:
            if row.check is None or row.keras or row.optional:
                continue
            for constant, shape in self.constants.items():
                indices = row.check.match(constant)
                if indices is not None and constant not in compared:
                    self.missing.setdefault(row.torch[0].format(indices), shape)
        self.missing = {name: shape for name, shape in self.missing.items() if name not in self.sources}

    def _missing_for_targets(self) -> None:
        alternatives = [(row, paths) for row in self.rows if row.rules for paths in (row.keras, *row.others)]
        filling = [(row, paths, pattern) for row, paths in alternatives for pattern in paths]
        index = PatternIndex(pattern for *_, pattern in filling)
        for target in self.targets:
            if target in self.filled:
                continue
            hits = [(*filling[position][:2], indices) for position, indices in index.find(target)]
            missing = next((missing for missing in map(self._missing_shapes, hits) if missing), None)
            if missing is None:
                self.idle.append(f"no row of the table fills {target}")
            else:
                self.missing |= missing

    def _missing_shapes(
        self, hit: tuple[Row, tuple[NamePattern, ...], dict[str, int]]
    ) -> dict[str, Shape | None] | None:
        """Return the sources that a row needs for a target, with their shapes; None if it has no names for them."""
        row, patterns, indices = hit
        try:
            names, paths = written(row.torch, indices), written(patterns, indices)
        except PatternError:
            return None
        shapes = [self.targets[path] for path in paths if path in self.targets]
        return dict(zip(names, fit(row, None, shapes).expected, strict=True))

    def find_idle(self) -> None:
        """Find rows that match nothing, and layers none of whose rows match anything.

        A layer that may have no tensors is accepted if there is no other fault: it is compared, not converted.
        """
        sound = not (self.missing or self.unexpected or self.misshapen or self.doubled or self.idle)
        for rows in groups(self.rows):
            layer = rows[0].layer
            if (layer.optional if layer else rows[0].optional) or any(id(row) in self.used for row in rows):
                continue
            # With another fault, a bare norm that matches nothing may be a symptom of it, and is listed.
            if layer and layer.bare and sound:
                continue
            patterns = [pattern for row in rows for pattern in row.torch]
            if not any(pattern.match(name) is not None for pattern in patterns for name in self.missing):
                torch = layer.torch if layer else rows[0].torch[0]
                self.idle.append(f"{rows[0].place} ({torch.text}) matches nothing")


def _left_out(draft: _Draft) -> str:
    """Advice to add the row of a layer that the table leaves out, if its tensors fill the variables of one layer."""
    modules = _by_layer({name: draft.sources[name] for name in draft.unexpected}, ".")
    layers = _by_layer({name: shape for name, shape in draft.targets.items() if name not in draft.filled}, "/")
    for torch, sources in [*modules.items()][:ADVISED]:
        fitting = {keras: kinds for keras, targets in [*layers.items()][:ADVISED]
                   if (kinds := _kinds(torch, keras, sources, targets))}  # fmt: skip
        if len(fitting) == 1:
            ((keras, (kind, *others)),) = fitting.items()
            doubt = f" (or kind {', '.join(others)})" if others else ""
            return f"add `{{torch: {torch}, keras: {keras}, kind: {kind}}}` under layers{doubt}"
    return ""


def _by_layer(shapes: Shapes, joint: str) -> dict[str, dict[str, Shape]]:
    layers: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        if layer := name.rpartition(joint)[0]:
            layers.setdefault(layer, {})[name] = shape
    return layers


def _kinds(torch: str, keras: str, sources: Shapes, targets: Shapes) -> list[str]:
    """The kinds of layer that account for these tensors and these variables."""
    fitting = []
    for kind in KINDS.values():
        table = table_of({"format": 2, "layers": [{"torch": torch, "keras": keras, "kind": kind.name}]}, "")
        draft = _Draft([*table.rows], sources, targets, {})
        draft.place_all()
        draft.find_missing()
        draft.find_idle()
        if draft.moves and not (draft.unexpected or draft.missing or draft.misshapen or draft.doubled or draft.idle):
            fitting.append(kind.name)
    return fitting


def _is_sized(row: Row, misfit: Misfit) -> bool:
    """Return whether a matrix, not a window or a vector, has another number of values."""
    counts = [sum(map(prod, shapes)) for shapes in (misfit.sources, misfit.targets)]
    # A kernel of another size is the layer's own setting, and not caused by the layer before it.
    windowed = any("conv" in rule.name for rule in row.rules)
    return counts[0] != counts[1] and not windowed and any(len(shape) > 1 for shape in misfit.sources)


def _places(rows: list[Row]) -> str:
    """Return the places of these rows, for a sentence."""
    if any(row.file for row in rows):
        return " and ".join(row.place for row in rows)
    return f"the table's lines {' and '.join(str(row.line) for row in rows)}"
