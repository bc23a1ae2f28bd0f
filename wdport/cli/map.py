"""`wdport map`: outline a model, check a mapping table, explain where a variable comes from, compare two tables or
files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from wdport.base.errors import MisfitError, UsageError, printable
from wdport.base.marked_text import Marked, joined, outcome_line
from wdport.base.options import JSON, KEY, MAPPING, MODEL, SET, Operand, Option
from wdport.cli.click_options import verb
from wdport.cli.console import LONGEST_FACT, counted, facts, first_of
from wdport.cli.documents import give, require_document
from wdport.cli.verb import Verbs
from wdport.files.inputs import InputFiles

if TYPE_CHECKING:
    from wdport.compare.setting_values import SettingsReport
    from wdport.conversion.check import Check
    from wdport.conversion.explain import EndFacts, RouteFacts
    from wdport.mapping.diff import DifferenceDocument, Properties, Property

MOST = 20
"""Lines printed per kind; all are in the JSON."""

BUILDER = replace(MODEL, help="Function that builds your own Keras model; called to list the variables.")
CONFIG = Option("Configuration (YAML), as for convert.", files="table")


@click.group(name="map", cls=Verbs, no_args_is_help=False, modules={
    **{name: f"wdport.cli.map_{name}:command" for name in ("outline", "suggest")},
    **{name: f"wdport.cli.map:{name}" for name in ("check", "diff", "explain")},
})  # fmt: skip
def command() -> None:
    """Outline a PyTorch model; find, check, explain and compare mapping tables. Nothing is converted."""


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The arguments and options of `wdport map check`."""

    table: Annotated[str, Operand(files="table")]
    checkpoint: Annotated[str | None, Operand(files="checkpoint")] = None
    model: Annotated[str | None, BUILDER] = None
    config: Annotated[str | None, CONFIG] = None
    values: Annotated[dict[str, str], SET]
    key: Annotated[str | None, KEY] = None
    strict: Annotated[bool, Option(
        "Treat warnings as faults.", names=("--warnings-as-faults",), former=("--strict",))] = False  # fmt: skip
    every: Annotated[bool, Option(
        "List every row and the number of tensors that it matches.", names=("--rows",))] = False  # fmt: skip
    read: Annotated[bool, Option("Also read the weights, and report unusual values.", names=("--values",))] = False
    dtype: Annotated[str, Option(
        "With --values, the dtype of the port.", choices=("float32", "bfloat16", "float16"))] = "float32"  # fmt: skip
    settings: Annotated[bool, Option("Build your two models and compare their hyper-parameters.")] = False
    reference: Annotated[str | None, Option(
        "With --settings, your own PyTorch model.", "MODULE:FUNCTION", group="model")] = None  # fmt: skip
    json_file: Annotated[str | None, JSON] = None


@verb("check", CheckRequest, short_help="Look for faults in a table, and for tensors that it does not map.")
def check(request: CheckRequest) -> None:
    """Look for faults in TABLE and, with CHECKPOINT, for tensors that it does not map.

    With --keras-model, or for a table of a model that wdport ships, the command plans the complete conversion, as
    convert does. Findings of --values and --settings do not count as faults of the table.
    """
    from wdport.conversion.check import check_table, settings_report
    from wdport.conversion.prepare import Settings
    from wdport.conversion.table_documents import check_document

    if request.reference and not request.settings:
        raise UsageError("--reference", "requires --settings", "add --settings, or leave it out")
    inputs = InputFiles(table=request.table, checkpoint=request.checkpoint, config=request.config)
    document = require_document(request.json_file, inputs)
    model = request.model if request.checkpoint or not request.settings else None
    settings = Settings(request.config, request.values, key=request.key, model=model)
    table_check = check_table(request.table, request.checkpoint, settings, request.dtype if request.read else "")
    report = None
    if request.settings:
        models = replace(settings, model=request.model, reference=request.reference)
        report = settings_report(request.table, models, request.checkpoint)
    sound = not table_check.faults and not (request.strict and table_check.warnings)
    give("check", lambda: check_document(table_check, sound, report), document,
         lambda: _check_text(table_check, sound, request.every, report),
         verdict=lambda: _check_line(table_check, sound))  # fmt: skip
    if not sound:
        fix = "correct the table" + (", or leave out --warnings-as-faults" if not table_check.faults else "")
        raise MisfitError(Path(request.table), f"is not sound: {_check_count(table_check)}", fix)


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """The arguments and options of `wdport map explain`."""

    name: Annotated[str, Operand()]
    file: Annotated[str, Operand(metavar="CHECKPOINT|CONVERTED", files="any")]
    mapping: Annotated[str | None, MAPPING] = None
    model: Annotated[str | None, BUILDER] = None
    config: Annotated[str | None, CONFIG] = None
    values: Annotated[dict[str, str], SET]
    key: Annotated[str | None, KEY] = None
    json_file: Annotated[str | None, JSON] = None


@verb("explain", ExplainRequest, short_help="Show where a variable comes from, or where a tensor goes.")
def explain(request: ExplainRequest) -> None:
    """Show where the variable NAME comes from, or where the tensor NAME goes, with the rule and the line of the table.

    Reads the manifest of a converted file; for a checkpoint, plans the conversion as convert does.
    """
    from wdport.conversion.explain import routes_of
    from wdport.conversion.prepare import Settings
    from wdport.conversion.table_documents import explanation

    name, file = request.name, request.file
    if Path(name).exists() and not Path(file).exists():
        fix = f"give the tensor's name first: wdport map explain {printable(file, 60)} {printable(name, 60)}"
        raise UsageError("wdport map explain", f"swapped? {printable(name, 60)} is a file", fix)
    inputs = InputFiles(file=file, mapping=request.mapping, config=request.config).with_manifests("file")
    document = require_document(request.json_file, inputs)
    settings = Settings(request.config, request.values, request.mapping, request.key, model=request.model)
    routes = routes_of(file, settings)
    matches = routes.explain(name)
    give("explanation", lambda: explanation(name, routes, matches), document, 
         lambda: "\n".join([printable(name, LONGEST_FACT), *(facts(_route(match)) for match in matches)]),
         asked=True)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DiffRequest:
    """The arguments and options of `wdport map diff`."""

    first: Annotated[str, Operand(metavar="A", files="any")]
    second: Annotated[str, Operand(metavar="B", files="any")]
    key_a: Annotated[str | None, Option("Key of the state_dict in A, if A has several.", "NAME")] = None
    key_b: Annotated[str | None, Option("Key of the state_dict in B, if B has several.", "NAME")] = None
    json_file: Annotated[str | None, JSON] = None


@verb("diff", DiffRequest, short_help="Compare two tables, checkpoints or converted files.")
def diff(request: DiffRequest) -> None:
    """Compare two tables, two checkpoints or two converted files by name, shape and dtype.

    Exits with 0 whether or not there are differences.
    """
    from wdport.conversion.table_documents import compare_files, kind_of

    inputs = InputFiles(first=request.first, second=request.second).with_manifests("first", "second")
    document = require_document(request.json_file, inputs)
    difference = compare_files(request.first, request.second, (request.key_a, request.key_b))
    give("difference", lambda: difference, document,
         lambda: _diff_text(difference, request.first, request.second, kind_of(request.first) == "table"),
         asked=True)  # fmt: skip


def _check_text(table_check: Check, sound: bool, every: bool, report: SettingsReport | None = None) -> Marked:
    table, coverage, plan = table_check.table, table_check.coverage, table_check.planned
    variant = f", {table.variant} layout" if table.variant else ""
    layers = len({row.layer.number for row in table.rows if row.layer})
    single = sum(row.layer is None for row in table.rows)
    rows = [
        ("family", f"{table.family}{variant}"),
        ("rows", f"{layers} layers with tensors, {single} rows for tensors; {len(table.taps)} outputs compared"),
        ("includes", ", ".join(table.includes)),
        ("checkpoint", table_check.checkpoint),
        ("claimed", _claimed(table_check)),
        ("plan", plan and f"{plan['used']} tensors fill {plan['variables']} variables"
                          + f", of which {plan['filled']} get a constant" * bool(plan["filled"])
                          + f"; {plan['checked']} checked, {plan['dropped']} dropped, {plan['tied']} tied"),
        *(("note", note) for note in table_check.notes),
    ]  # fmt: skip
    lines = [_check_line(table_check, sound), facts(rows)]
    if every and coverage:
        claims = [
            (
                f"{'line' if claim.file == table.path else claim.file} {claim.line}",
                f"{len(claim.tensors):>5}  {claim.torch} -> {claim.becomes}",
            )
            for claim in coverage.rows
        ]
        lines += ["rows", facts(claims)]
    lines += _listed("faults", table_check.faults)
    lines += _listed("warnings", [warning.sentence for warning in table_check.warnings])
    lines += _listed("notes", [remark.sentence for remark in table_check.remarks if remark.level == "note"])
    if table_check.values is not None:
        values = _listed("values", [f"{finding.level}: {finding.text}" for finding in table_check.values])
        lines += values or ["values", "  nothing is odd"]
    lines += _settings_lines(report) if report is not None else []
    return joined(lines)


def _settings_lines(report: SettingsReport) -> list[str]:
    """Hyper-parameters that differ between the two models."""
    count = f"settings: {report.compared} compared at {counted(report.layers, 'layer')}"
    differ, training = (
        [f"{setting.candidate}: {setting.text}" for setting in report.of(kind)] for kind in ("differs", "training")
    )
    return [*(_listed(count, differ) or [f"{count}; none differ"]), *_listed("read only in training", training)]


def _claimed(table_check: Check) -> str:
    coverage = table_check.coverage
    if coverage is None:
        return ""
    claimed = {name for claim in coverage.rows for name in claim.tensors}
    silent = sum(not claim.tensors for claim in coverage.rows)
    return (
        f"{len(claimed)} of {len(claimed) + len(coverage.unclaimed)} tensors; {len(coverage.doubled)} claimed twice; "
        f"{silent} of {len(coverage.rows)} rows for tensors match nothing, {len(coverage.idle)} of which must"
    )


def _check_line(table_check: Check, sound: bool) -> Marked:
    """The verdict in one line."""
    path = printable(table_check.table.path, None)
    if not sound:
        return outcome_line(1, f"{path} is not sound: {_check_count(table_check)}")
    return outcome_line(0, f"{path} is sound" + ("" if table_check.checkpoint else ", as far as the table alone shows"))


def _check_count(table_check: Check) -> str:
    """How many faults and warnings there are."""
    return f"{counted(len(table_check.faults), 'fault')}, {counted(len(table_check.warnings), 'warning')}"


def _listed(title: str, lines: Iterable[str]) -> list[str]:
    """A title and indented lines; nothing without lines."""
    visible = first_of(list(lines), MOST)
    return [title, *(f"  {printable(line, LONGEST_FACT)}" for line in visible)] if visible else []


_FATES = {
    "checked": "compared with the constant {}, and then left out",
    "dropped": "left out: {}",
    "tied": "the same as {}, bit for bit, and then left out",
    "ignored": "not the network's: {}",
    "filled": "filled with {}: PyTorch has no tensor for it",
}


def _route(route: RouteFacts) -> list[tuple[str, str]]:
    rows = [("from", _end(end)) for end in route.sources]
    if route.rule is None:
        is_ = ("is", _FATES[route.fate].format(route.reason))
        if route.fate == "filled":
            return [("to", _end(route.targets[0])), is_, ("table", f"{route.table}, line {route.line or 0}")]
        return [*rows, is_]
    arithmetic = f"{route.combine} of them, then " if route.combine else ""
    named = f" ({route.rule})" if route.rule != route.axes else ""
    back = f", then apart again by choice ({route.combine})" if route.combine else ""
    return [
        *rows,
        *(("to", _end(end)) for end in route.targets),
        ("rule", f"{arithmetic}{route.axes}{named}"),
        ("back", f"{route.inverse}{back}"),
        ("sizes", ", ".join(f"{axis} {size}" for axis, size in route.sizes.items())),
        ("table", f"{route.table}, line {route.line or 0}"),
        *(("note", note) for note in route.notes),
    ]


def _end(end: EndFacts) -> str:
    shape = "" if end.shape is None else f"  {end.dtype} {end.shape}"
    return f"{end.name}{shape}"


def _diff_text(difference: DifferenceDocument, a: str, b: str, tables: bool) -> str:
    lines = [f"A {printable(a, None)}", f"B {printable(b, None)}"]
    all_facts = {**difference.facts, **({"prefix of all names": difference.prefix} if difference.prefix else {})}
    lines += [f"  {printable(f'{name}: {_pair(*pair)}', LONGEST_FACT)}" for name, pair in all_facts.items()]
    for key in dict.fromkeys(key for changes in difference.changed.values() for key in changes):
        title = {"shape": "reshaped", "dtype": "another dtype"}.get(key, f"another {key!r}")
        sentences = [
            f"{name}: {_pair(*changes[key])}" for name, changes in difference.changed.items() if key in changes
        ]
        lines += _listed(f"{title} ({len(sentences)})", sentences)
    renamed = [f"{renaming.a} -> {renaming.b}{_rivals(*renaming.of)}" for renaming in difference.renamed]
    lines += _listed(f"probably renamed ({len(renamed)})", renamed)
    for side, only in (("A", difference.only_a), ("B", difference.only_b)):
        names = (f"{name}: {_described(properties)}" for name, properties in only.items())
        lines += _listed(f"only in {side} ({len(only)})", names)
    end = "no difference" if difference.same else f"{difference.alike} the same in both"
    if not tables:
        end += " in names, shapes and dtypes; values are not compared"
    return "\n".join([*lines, end])


def _described(properties: Properties) -> str:
    """A tensor's dtype and shape, or how a row maps its tensor."""
    if "shape" in properties:
        return f"{properties['dtype']} {properties['shape']}"
    return "; ".join(str(properties[key]) for key in ("becomes", "kind", "rule") if properties.get(key))


def _rivals(a: int, b: int) -> str:
    return "" if (a, b) == (1, 1) else f"  (by its name; {a} alike in A, {b} in B)"


def _pair(a: Property, b: Property) -> str:
    return f"{'nothing' if a == '' else a} -> {'nothing' if b == '' else b}"
