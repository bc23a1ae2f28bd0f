"""The documents of ``wdport map``: a table that was checked, a tensor's route that was explained, and a comparison
of two files by their headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta

from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.error_context import located
from wdport.compare.setting_values import SettingsReport
from wdport.conversion.explain import is_converted
from wdport.conversion.load import open_account, open_converted
from wdport.conversion.manifest_schema import JsonShape
from wdport.conversion.values import ValueFinding
from wdport.errors import UsageError, printable
from wdport.mapping.diff import Difference, Properties, difference, table_facts, table_listing
from wdport.mapping.table import load_table
from wdport.shared_types import Count, Positive

if TYPE_CHECKING:
    from wdport.conversion.check import Check
    from wdport.conversion.explain import End, Route, Routes

Kind = Literal["table", "checkpoint", "converted file"]

_TABLES: Final = (".yaml", ".yml")


def kind_of(path: str | Path) -> Kind:
    """Return the kind of a file, by its name and, for safetensors, by whether it contains a manifest."""
    file = Path(path)
    if file.suffix in _TABLES:
        return "table"
    return "converted file" if is_converted(file) else "checkpoint"


def compare_files(a: str | Path, b: str | Path, keys: tuple[str | None, str | None] = (None, None)) -> Difference:
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


def _tensors(path: Path, key: str | None) -> tuple[dict[str, Properties], Properties]:
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
class RemarkFacts:
    """A remark on one line of a mapping table."""

    level: Annotated[Literal["error", "warning", "note"], Meta(description=
        "`error`: no checkpoint can fit the table. `warning`: the table may nevertheless be correct.")]  # fmt: skip
    file: Annotated[str, Meta(description="Path of the table, or of an included table.")]
    line: Annotated[Count, Meta(description="Line number; 0 for the table as a whole.")]
    what: Annotated[str, Meta(description="The remark in one sentence.")]


@dataclass(frozen=True)
class ClaimFacts:
    """A row and the tensors that it claims."""

    file: Annotated[str, Meta(description="File that contains the row.")]
    line: Annotated[Count, Meta(description="Line of the row.")]
    torch: Annotated[str, Meta(description="Patterns of the PyTorch names that the row matches.")]
    becomes: Annotated[str, Meta(description="Summary of what the row does with the tensors.")]
    when: Annotated[str | None, Meta(description="Feature that the row requires; null if it requires none.")]
    tensors: Annotated[Sequence[str], Meta(description="Names of the tensors that the row claims.")]


@dataclass(frozen=True)
class CoverageFacts:
    """Which row claims which tensor."""

    rows: Annotated[Sequence[ClaimFacts], Meta(description="Every row.")]
    unclaimed: Annotated[Sequence[str], Meta(description="Tensors that no row claims.")]
    doubled: Annotated[Mapping[str, Sequence[str]], Meta(description=
        "Tensors that more than one row claims, each with the locations of those rows.")]  # fmt: skip
    idle: Annotated[Sequence[str], Meta(description="Locations of the rows that match nothing.")]
    incomplete: Annotated[
        Sequence[str], Meta(description="Descriptions of the rows that list several tensors of which only some exist.")
    ]


@dataclass(frozen=True)
class CheckDocument:
    """What ``wdport map check --json`` prints."""

    table: Annotated[str, Meta(description="Path of the table.")]
    family: Annotated[str, Meta(description="Model family.")]
    variant: Annotated[str, Meta(description="Key layout; empty if the table names none.")]
    sound: Annotated[bool, Meta(description=
        "Whether the table is free of errors. The exit code is 0 if it is, and 4 otherwise.")]  # fmt: skip
    faults: Annotated[Sequence[str], Meta(description="Reasons for rejecting a conversion, one sentence each.")]
    remarks: Annotated[Sequence[RemarkFacts], Meta(description="Remarks on the table itself.")]
    checkpoint: Annotated[str | None, Meta(description="Path of the checkpoint; null without one.")]
    coverage: Annotated[CoverageFacts | None, Meta(description=
        "Which row claims which tensor; null without a checkpoint.")]  # fmt: skip
    plan: Annotated[Mapping[str, Count] | None, Meta(description=
        "Number of tensors that are used, checked, dropped and tied, and number of variables; null if there is no "
        "plan.")]  # fmt: skip
    misfits: Annotated[Sequence[str], Meta(description="Errors in the conversion plan, one sentence each.")]
    notes: Annotated[Sequence[str], Meta(description="Notes for the reader, one sentence each.")]
    values: Annotated[Sequence[ValueFinding] | None, Meta(description=
        "Findings on unusual values; null without `--values`.")]  # fmt: skip
    settings: Annotated[SettingsReport | None, Meta(description=
        "Comparison of the hyper-parameters; null without `--settings`.")]  # fmt: skip


@dataclass(frozen=True)
class EndFacts:
    """A tensor or a variable."""

    name: Annotated[str, Meta(description="Name of the tensor or variable.")]
    shape: Annotated[JsonShape | None, Meta(description="Shape; null if unknown.")]
    dtype: Annotated[str | None, Meta(description="Dtype; null if unknown.")]


@dataclass(frozen=True)
class RouteFacts:
    """The destination of tensors, or the source of variables."""

    fate: Annotated[Literal["moved", "checked", "dropped", "tied", "ignored"], Meta(description=
        "How the tensors are used; if they are `moved`, they fill variables.")]  # fmt: skip
    sources: Annotated[Sequence[EndFacts], Meta(description="The tensors, in the order of the rule.")]
    targets: Annotated[Sequence[EndFacts], Meta(description="The variables.")]
    rule: Annotated[str | None, Meta(description="Name of the rule; null unless tensors are moved.")]
    axes: Annotated[str | None, Meta(description="The rule written out; null unless tensors are moved.")]
    inverse: Annotated[str | None, Meta(description="The inverse of the rule; null unless tensors are moved.")]
    sizes: Annotated[Mapping[str, Count], Meta(description=
        "Sizes of the rule's axes; empty if the shapes do not determine them.")]  # fmt: skip
    combine: Annotated[
        str, Meta(description="Arithmetic that combines the tensors before the rule is applied; empty for none.")
    ]
    table: Annotated[str | None, Meta(description="File that contains the row; null unless tensors are moved.")]
    line: Annotated[Positive | None, Meta(description="Line of the row; null if there is none.")]
    reason: Annotated[str | None, Meta(description=
        "For a checked tensor, the constant; for a tied tensor, the other tensor; for a dropped or ignored tensor, the "
        "reason; null if tensors are moved.")]  # fmt: skip
    notes: Annotated[Sequence[str], Meta(description="Notes for the reader, one sentence each.")]


@dataclass(frozen=True)
class ExplanationDocument:
    """What ``wdport map explain --json`` prints."""

    name: Annotated[str, Meta(description="Name of the requested tensor or variable.")]
    file: Annotated[str, Meta(description="Name of the file.")]
    prefixes: Annotated[Sequence[str], Meta(description="Prefixes that were removed from every name.")]
    routes: Annotated[Sequence[RouteFacts], Meta(description="Destinations of the tensor, or sources of the variable.")]


@dataclass(frozen=True)
class RenamedFacts:
    """A name that was probably renamed."""

    a: Annotated[str, Meta(description="Name in A.")]
    b: Annotated[str, Meta(description="Name in B.")]
    of: Annotated[tuple[int, int], Meta(description=
        "Number of names with these properties that are only in A, and number of those that are only in "
        "B.")]  # fmt: skip


@dataclass(frozen=True)
class DifferenceDocument:
    """What ``wdport map diff --json`` prints: how B differs from A."""

    same: Annotated[bool, Meta(description="Whether there are no differences between A and B.")]
    alike: Annotated[Count, Meta(description="Number of names that have the same properties in both.")]
    facts: Annotated[Mapping[str, tuple[str, str]], Meta(description=
        "Properties of the whole file that differ, with their values in A and in B; \"\" for a missing "
        "property.")]  # fmt: skip
    prefix: Annotated[tuple[str, str] | None, Meta(description=
        "The common prefix of the names in A, and the prefix that replaces it in B; null if it did not "
        "change.")]  # fmt: skip
    only_a: Annotated[Mapping[str, Mapping[str, str | JsonShape]], Meta(description=
        "Names that B lacks, with their properties: a tensor's shape and dtype, or what a row of a table "
        "does.")]  # fmt: skip
    only_b: Annotated[Mapping[str, Mapping[str, str | JsonShape]], Meta(description=
        "Names that A lacks, with their properties.")]  # fmt: skip
    changed: Annotated[Mapping[str, Mapping[str, tuple[str | JsonShape, str | JsonShape]]], Meta(description=
        "Properties that differ, by the name in B, with their values in A and in B; \"\" for a missing "
        "property.")]  # fmt: skip
    renamed: Annotated[Sequence[RenamedFacts], Meta(description="Names that were probably renamed.")]


def check_document(check: Check, sound: bool, report: SettingsReport | None = None) -> CheckDocument:
    """The result of checking a table that is ``sound`` or not, and the settings that differ."""
    table, coverage = check.table, check.coverage
    return CheckDocument(
        table=table.path,
        family=table.family,
        variant=table.variant,
        sound=sound,
        faults=check.faults,
        remarks=[
            RemarkFacts(remark.level, remark.file or table.path, remark.line, remark.what) for remark in check.remarks
        ],
        checkpoint=check.checkpoint or None,
        coverage=None if coverage is None else CoverageFacts(
            rows=[
                ClaimFacts(claim.file or table.path, claim.line, claim.torch, claim.becomes, claim.when, claim.tensors)
                for claim in coverage.claims
            ],
            unclaimed=coverage.unclaimed,
            doubled=coverage.doubled,
            idle=coverage.idle,
            incomplete=coverage.incomplete,
        ),
        plan=check.planned,
        misfits=check.misfits,
        notes=check.notes,
        values=check.values,
        settings=report,
    )  # fmt: skip


def explanation(name: str, routes: Routes, matches: Sequence[Route]) -> ExplanationDocument:
    """The routes ``matches`` of a tensor or variable of this name."""
    return ExplanationDocument(name, routes.file, routes.prefixes, [_route(route) for route in matches])


def _route(route: Route) -> RouteFacts:
    rule = route.rule
    return RouteFacts(
        fate=route.fate,
        sources=[_end(end) for end in route.sources],
        targets=[_end(end) for end in route.targets],
        rule=None if rule is None else rule.name,
        axes=None if rule is None else str(rule),
        inverse=None if rule is None else str(rule.inverse()),
        sizes=route.sizes,
        combine=route.combine,
        table=route.table or None,
        line=route.line or None,
        reason=route.reason or None,
        notes=route.notes,
    )


def _end(end: End) -> EndFacts:
    return EndFacts(end.name, end.shape, end.dtype or None)


def difference_document(difference: Difference) -> DifferenceDocument:
    """How B differs from A."""
    return DifferenceDocument(
        same=difference.none,
        alike=difference.same,
        facts={name: (str(a), str(b)) for name, (a, b) in difference.facts.items()},
        prefix=difference.prefix or None,
        only_a=difference.only_a,
        only_b=difference.only_b,
        changed=difference.changed,
        renamed=[RenamedFacts(pair.old, pair.new, pair.of) for pair in difference.renamed],
    )
