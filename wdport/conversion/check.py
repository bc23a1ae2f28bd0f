"""Check a mapping table against a checkpoint's headers, the variables of the Keras model, and the settings of both
models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.base.errors import MisfitError, UsageError
from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.conversion.prepare import Settings, adapt_names, planned_from, source_of, user_configuration
from wdport.conversion.values import ValueFinding, find_unusual_values
from wdport.families.registry import find_family, own_model
from wdport.mapping.coverage import CoverageFacts, cover
from wdport.mapping.lint import RemarkFacts, lint
from wdport.mapping.moves import Plan
from wdport.mapping.rows import Table
from wdport.mapping.table import CUSTOM, load_table

if TYPE_CHECKING:
    from wdport.compare.setting_values import SettingsReport


def settings_report(path: str | Path, settings: Settings, checkpoint: str | Path | None = None) -> SettingsReport:
    """Compare the hyper-parameters of every pair of layers that a table aligns.

    The functions that build the models are the table's, or those of ``settings``; a ``checkpoint`` is used only for the
    ``config.json`` next to it. Raises ``UsageError`` if one of the models is not named, ``MisfitError`` if it
    cannot be built or the table does not fit it.
    """
    family = own_model(path, settings.model, settings.reference, settings.inputs)
    if family is None:
        raise UsageError("--settings", f"{path} is for a model that comes with wdport", "use wdport verify")
    for option, field, target in (("--keras-model", "keras", family.model), ("--reference", "torch", family.reference)):
        if not target:
            raise UsageError("--settings", f"no model is named for `{option}`", f"add `{field}: MODULE:FUNCTION`")
    stated, _ = user_configuration(family, settings)
    arguments = {key: stated[key] for key in family.table.config if key in stated}
    if len(arguments) < len(family.table.config):
        if checkpoint is None:
            fix = "give `--config FILE`, or a checkpoint with a config.json next to it"
            raise UsageError("--settings", "the models need configuration values", fix)
        with open_checkpoint(Path(checkpoint), key=settings.key) as opened:
            arguments = family.arguments(source_of(opened), stated)
    return family.settings(arguments)


@dataclass(frozen=True)
class Check:
    """The result of checking a table.

    Attributes:
        table: the table.
        remarks: remarks that need only the table.
        checkpoint: the checkpoint's path; empty if only the table was checked.
        coverage: which row claims which tensor; ``None`` without a checkpoint.
        planned: how many tensors the whole plan uses, compares, drops and ties; ``None`` without a plan.
        misfits: the faults for which a conversion would refuse the plan, a sentence each.
        notes: how names were changed before, and what was not checked.
        values: unusual values in the checkpoint; ``None`` if values were not examined.
    """

    table: Table
    remarks: tuple[RemarkFacts, ...]
    checkpoint: str = ""
    coverage: CoverageFacts | None = None
    planned: Mapping[str, int] | None = None
    misfits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    values: tuple[ValueFinding, ...] | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        """Every fault for which a conversion would be refused, one sentence each; the plan's misfits replace the
        coverage's faults, which they repeat."""
        errors = (remark.sentence for remark in self.remarks if remark.level == "error")
        # A plan that was made proves the coverage.
        left = self.coverage.faults if self.coverage and self.planned is None else ()
        return (*errors, *(self.misfits or left))

    @property
    def warnings(self) -> tuple[RemarkFacts, ...]:
        return tuple(remark for remark in self.remarks if remark.level == "warning")


def check_table(
    path: str | Path, checkpoint: str | Path | None = None, settings: Settings | None = None, values: str = ""
) -> Check:
    """Check a table; ``settings`` are as for a conversion, including ``model`` for the plan of the user's own model.

    Without ``model`` no user code is imported. Arrays are not read, except the small table from which a family that
    comes with wdport may infer its configuration, and, if ``values`` is the dtype of the port, all moved tensors, to
    find unusual values. Raises ``InputError`` for a table or a checkpoint that cannot be read, ``MisfitError`` for a
    table with a fault that hides the rest, ``UsageError`` for settings that do not fit the table.
    """
    settings = replace(settings or Settings(), mapping=path)
    table = load_table(Path(path))
    unknown = _unknown_family(table)
    check = Check(table, (*unknown, *lint(table)))
    if checkpoint is None:
        if settings.model:
            raise UsageError("--keras-model", "needs the tensors of a checkpoint", "name a checkpoint after the table")
        if values:
            raise UsageError("--values", "needs the tensors of a checkpoint", "name a checkpoint after the table")
        return check
    with open_checkpoint(Path(checkpoint), key=settings.key) as opened:
        planned = not unknown and (table.family != CUSTOM or settings.model is not None)
        if values and not planned:
            option = (
                f"`--keras-model {table.keras}`, the model of the table"
                if table.keras
                else "`--keras-model MODULE:FUNCTION`"
            )
            raise UsageError("--values", "needs the whole plan", f"add {option}")
        return _with_checkpoint(check, opened, settings, planned, values)


def _unknown_family(table: Table) -> tuple[RemarkFacts, ...]:
    if table.family == CUSTOM:
        return ()
    try:
        find_family(table.family, table.path)
    except MisfitError as error:
        return (RemarkFacts("error", "", 0, f"family: {error.what}; {error.fix}"),)
    return ()


def _with_checkpoint(
    check: Check, checkpoint: Checkpoint, settings: Settings, planned: bool, values: str = ""
) -> Check:
    """Add the coverage and, if ``planned``, the plan and the unusual ``values`` among the moved tensors."""
    table = check.table
    notes = [*adapt_names(checkpoint, table)]
    # A user's own model has no features; those of a family are known only from its configuration, that is, with a plan.
    features = frozenset[str]() if table.family == CUSTOM else None
    if planned:
        try:
            prepared = planned_from(checkpoint, settings)
        except MisfitError as error:
            misfits = error.details or (f"{error.where}: {error.what}; {error.fix}",)
            check = replace(check, misfits=misfits)
        else:
            features = prepared.family.features(prepared.config)
            odd = find_unusual_values(prepared.plan, checkpoint, values) if values else None
            check = replace(check, planned=_counts(prepared.plan), values=odd)
    elif table.family == CUSTOM:
        option = f"--keras-model {table.keras}" if table.keras else "--keras-model MODULE:FUNCTION"
        notes.append(f"the Keras model's variables were not checked; use {option}")
    coverage = cover(table, checkpoint.tensors, features)
    return replace(check, checkpoint=str(checkpoint.path), coverage=coverage, notes=tuple(notes))


def _counts(plan: Plan) -> dict[str, int]:
    return {
        "used": sum(len(move.sources) for move in plan.moves),
        "variables": len(plan.targets),
        "checked": len(plan.checks),
        "dropped": len(plan.drops),
        "tied": len(plan.ties),
        "filled": len(plan.fills),
    }
