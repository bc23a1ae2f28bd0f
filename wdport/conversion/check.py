"""A mapping table held against a checkpoint's headers and, where the Keras model is known, against its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.conversion.heads import leave_out_head, use_new_names
from wdport.conversion.prepare import Settings, planned_from
from wdport.conversion.value_finding import ValueFinding
from wdport.conversion.values import look
from wdport.errors import MisfitError, UsageError
from wdport.families.registry import find_family
from wdport.mapping.coverage import Coverage, cover
from wdport.mapping.lint import Remark, lint
from wdport.mapping.moves import Plan
from wdport.mapping.rows import Table
from wdport.mapping.table import CUSTOM, load_table


@dataclass(frozen=True)
class Check:
    """What a check of a table found.

    Attributes:
        table: the table.
        remarks: what the table alone tells.
        checkpoint: the checkpoint's path; empty where only the table was looked at.
        coverage: which row claims which tensor; ``None`` without a checkpoint.
        planned: how many tensors the whole plan uses, compares, drops and ties; ``None`` where there is no plan.
        misfits: what a conversion would say against the plan, a sentence each.
        notes: what was done to the names before, and what was not looked at.
        values: what is odd about the checkpoint's values; ``None`` where nobody looked.
    """

    table: Table
    remarks: tuple[Remark, ...]
    checkpoint: str = ""
    coverage: Coverage | None = None
    planned: Mapping[str, int] | None = None
    misfits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    values: tuple[ValueFinding, ...] | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        """All that a conversion would be refused for, one sentence each; the plan's misfits take the place of the
        coverage's faults, which they repeat."""
        errors = (each.sentence for each in self.remarks if each.level == "error")
        left = self.coverage.faults if self.coverage and self.planned is None else ()
        return (*errors, *(self.misfits or left))

    @property
    def warnings(self) -> tuple[Remark, ...]:
        return tuple(each for each in self.remarks if each.level == "warning")


def check_table(
    path: str | Path, checkpoint: str | Path | None = None, settings: Settings | None = None, values: str = ""
) -> Check:
    """Check a table; ``settings`` as for a conversion, ``model`` among them for the plan of a model of the user's own.

    Without it nothing of the user's is imported. Arrays are not read, but for the small table from which a family that
    comes with wdport may tell its configuration, and, where ``values`` is the dtype of the port, all that it moves, for
    what is odd about them. Raises ``MisfitError`` for a table that cannot be read, ``InputError`` for such a
    checkpoint, ``UsageError`` for settings that do not go with the table.
    """
    settings = replace(settings or Settings(), mapping=path)
    table = load_table(Path(path))
    unknown = _unknown_family(table)
    found = Check(table, (*unknown, *lint(table)))
    if checkpoint is None:
        if settings.model:
            raise UsageError("--model", "needs the tensors of a checkpoint", "name a checkpoint after the table")
        if values:
            raise UsageError("--values", "needs the tensors of a checkpoint", "name a checkpoint after the table")
        return found
    with open_checkpoint(Path(checkpoint), key=settings.key) as opened:
        planned = not unknown and (table.family != CUSTOM or settings.model is not None)
        if values and not planned:
            raise UsageError("--values", "needs the whole plan", "give --model MODULE:FUNCTION, your own Keras model")
        return _with_checkpoint(found, opened, settings, planned, values)


def _unknown_family(table: Table) -> tuple[Remark, ...]:
    if table.family == CUSTOM:
        return ()
    try:
        find_family(table.family, table.path)
    except MisfitError as error:
        return (Remark("error", 0, f"family: {error.what}; {error.fix}"),)
    return ()


def _with_checkpoint(
    found: Check, checkpoint: Checkpoint, settings: Settings, planned: bool, values: str = ""
) -> Check:
    """The coverage and, where it is ``planned``, the plan and what is odd about the ``values`` that it moves."""
    table = found.table
    notes = [*leave_out_head(checkpoint, table), *use_new_names(checkpoint, table)]
    features = frozenset[str]() if table.family == CUSTOM else None
    if planned:
        try:
            prepared = planned_from(checkpoint, settings)
        except MisfitError as error:
            misfits = error.details or (f"{error.where}: {error.what}; {error.fix}",)
            found = replace(found, misfits=misfits)
        else:
            features = prepared.family.features(prepared.config)
            odd = look(prepared.plan, checkpoint, values) if values else None
            found = replace(found, planned=_counts(prepared.plan), values=odd)
    elif table.family == CUSTOM:
        option = f"--model {table.keras}" if table.keras else "--model MODULE:FUNCTION"
        notes.append(f"the Keras model's variables were not looked at; {option} does")
    coverage = cover(table, checkpoint.tensors, features)
    return replace(found, checkpoint=str(checkpoint.path), coverage=coverage, notes=tuple(notes))


def _counts(plan: Plan) -> dict[str, int]:
    return {
        "used": sum(len(move.sources) for move in plan.moves),
        "variables": len(plan.targets),
        "checked": len(plan.checks),
        "dropped": len(plan.drops),
        "tied": len(plan.ties),
    }
