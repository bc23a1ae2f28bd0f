"""The documents of ``wdport map``: a table that was checked, a tensor's route that was explained, and a comparison
of two files by their headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from wdport.base.errors import UsageError, printable
from wdport.base.shared_types import Count, about
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.error_context import located
from wdport.compare.setting_values import SettingsReport
from wdport.conversion.explain import RouteFacts, is_converted
from wdport.conversion.load import open_account, open_converted
from wdport.conversion.values import ValueFinding
from wdport.mapping.coverage import CoverageFacts
from wdport.mapping.diff import DifferenceDocument, Properties, difference, table_facts, table_listing
from wdport.mapping.lint import RemarkFacts
from wdport.mapping.table import load_table

if TYPE_CHECKING:
    from wdport.conversion.check import Check
    from wdport.conversion.explain import Routes

Kind = Literal["table", "checkpoint", "converted file"]

_TABLES: Final = (".yaml", ".yml")


def kind_of(path: str | Path) -> Kind:
    """Return the kind of a file, by its name and, for safetensors, by whether it contains a manifest."""
    file = Path(path)
    if file.suffix in _TABLES:
        return "table"
    return "converted file" if is_converted(file) else "checkpoint"


def compare_files(
    a: str | Path, b: str | Path, keys: tuple[str | None, str | None] = (None, None)
) -> DifferenceDocument:
    """Compare two files of one kind; ``keys`` are those of the state_dicts. Raises ``UsageError`` for two kinds."""
    kinds = kind_of(a), kind_of(b)
    if kinds[0] != kinds[1]:
        for path in (Path(a), Path(b)):
            with located(path):
                # A file that is missing counts as a checkpoint by its name; the error should be that it is missing.
                path.stat()
        what = f"is a {kinds[1]}, and {printable(Path(a).name or a)} a {kinds[0]}"
        raise UsageError(Path(b), what, "give two files of one kind")
    if kinds[0] == "table":
        tables = load_table(Path(a)), load_table(Path(b))
        facts = table_facts(tables[0]), table_facts(tables[1])
        return difference(table_listing(tables[0]), table_listing(tables[1]), ".", facts)
    if kinds[0] == "converted file":
        return difference(_variables(Path(a)), _variables(Path(b)), "/")
    left, right = _tensors(Path(a), keys[0]), _tensors(Path(b), keys[1])
    return difference(left[0], right[0], ".", (left[1], right[1]))


def _tensors(path: Path, key: str | None) -> tuple[dict[str, Properties], dict[str, str]]:
    with open_checkpoint(path, key=key) as checkpoint:
        listing = {name: _properties(info.shape, info.dtype) for name, info in checkpoint.tensors.items()}
        return listing, {"prefix that was left out": "".join(checkpoint.prefixes)}


def _variables(path: Path) -> dict[str, Properties]:
    """Return the variables by the manifest in the file, or, if Keras saved it, by its configuration as float32."""
    account, _ = open_account(path)
    variables = account.variables if account is not None else open_converted(path).variables
    dtypes = account.dtypes if account is not None else {}
    return {name: _properties(shape, dtypes.get(name, "float32")) for name, shape in variables.items()}


def _properties(shape: Sequence[int], dtype: str) -> Properties:
    return {"shape": tuple(shape), "dtype": dtype}


@dataclass(frozen=True)
class CheckDocument:
    """What ``wdport map check --json`` prints."""

    table: Annotated[str, about("Path of the table.")]
    family: Annotated[str, about("Model family.")]
    variant: Annotated[str, about("Key layout; empty if the table names none.")]
    sound: Annotated[bool, about(
        "Whether no faults were found and, with `--warnings-as-faults`, no warnings. The exit code is 0 if so, and 4 "
        "otherwise.")]  # fmt: skip
    faults: Annotated[Sequence[str], about("Reasons for rejecting a conversion, one sentence each.")]
    remarks: Annotated[Sequence[RemarkFacts], about("Remarks on the table itself.")]
    checkpoint: Annotated[str | None, about("Path of the checkpoint; null without one.")]
    coverage: Annotated[CoverageFacts | None, about(
        "Which row claims which tensor; null without a checkpoint.")]  # fmt: skip
    plan: Annotated[Mapping[str, Count] | None, about(
        "Numbers of tensors that are used, checked, dropped and tied, and of variables and those `filled` with a "
        "constant, by name; null if there is no plan.")]  # fmt: skip
    misfits: Annotated[Sequence[str], about("Errors in the conversion plan, one sentence each.")]
    notes: Annotated[Sequence[str], about("Notes for the reader, one sentence each.")]
    values: Annotated[Sequence[ValueFinding] | None, about(
        "Findings on unusual values; null without `--values`.")]  # fmt: skip
    settings: Annotated[SettingsReport | None, about(
        "Comparison of the hyper-parameters; null without `--settings`.")]  # fmt: skip


@dataclass(frozen=True)
class ExplanationDocument:
    """What ``wdport map explain --json`` prints."""

    name: Annotated[str, about("Name of the requested tensor or variable.")]
    file: Annotated[str, about("Path of the checkpoint or converted file.")]
    prefixes: Annotated[Sequence[str], about("Prefixes that were removed from every name.")]
    routes: Annotated[Sequence[RouteFacts], about("Destinations of the tensor, or sources of the variable.")]


def check_document(check: Check, sound: bool, report: SettingsReport | None = None) -> CheckDocument:
    """The result of checking a table that is ``sound`` or not, and the settings that differ."""
    table = check.table
    return CheckDocument(
        table=table.path,
        family=table.family,
        variant=table.variant,
        sound=sound,
        faults=check.faults,
        remarks=[replace(remark, file=remark.file or table.path) for remark in check.remarks],
        checkpoint=check.checkpoint or None,
        coverage=check.coverage,
        plan=check.planned,
        misfits=check.misfits,
        notes=check.notes,
        values=check.values,
        settings=report,
    )


def explanation(name: str, routes: Routes, matches: Sequence[RouteFacts]) -> ExplanationDocument:
    """The routes ``matches`` of a tensor or variable of this name."""
    return ExplanationDocument(name, routes.file, routes.prefixes, matches)
