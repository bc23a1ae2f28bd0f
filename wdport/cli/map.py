"""`wdport map`: outline a model, check a mapping table, explain where a variable comes from, compare two tables or
files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from wdport.cli.completion import CHECKPOINTS, CONVERTED, TABLES, File
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.options import CHECKPOINT, TABLE, key_option, mapping_option, parse_values
from wdport.cli.verb import OneOf, Verbs
from wdport.errors import MisfitError, UsageError, printable
from wdport.files.inputs import InputFiles

if TYPE_CHECKING:
    from wdport.conversion.prepare import Settings

ANY = File([*CHECKPOINTS, *CONVERTED, *TABLES])

_config = click.option("--config", metavar="FILE", type=TABLE, help="Configuration (YAML), as for convert.")
_set = click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One configuration value; repeatable.")
_model = click.option(
    "--model", metavar="MODULE:FUNCTION", help="Function of your own Keras model; it is built to list its variables."
)


class _Verbs(Verbs):
    """Verbs in separate modules are imported when called."""

    modules: ClassVar = {"outline": "wdport.cli.map_outline", "suggest": "wdport.cli.map_suggest"}


@click.group(name="map", cls=_Verbs, no_args_is_help=False)
def command() -> None:
    """Outline a PyTorch model; find, check, explain and compare mapping tables. Nothing is converted."""


@command.command(name="check", short_help="Look for faults in a table, and for tensors that it does not map.")
@click.argument("table", type=TABLE)
@click.argument("checkpoint", required=False, type=CHECKPOINT)
@_model
@_config
@_set
@key_option
@click.option("--strict", is_flag=True, help="Treat warnings as faults.")
@click.option("--rows", "every", is_flag=True, help="List every row and the number of tensors that it matches.")
@click.option("--values", is_flag=True, help="Also read the weights, and report unusual values.")
@click.option(
    "--dtype",
    type=OneOf(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="With --values: the dtype of the port.",
)
@click.option("--settings", is_flag=True, help="Build your two models and compare their hyper-parameters.")
@click.option("--reference", metavar="MODULE:FUNCTION", help="With --settings: your own PyTorch model.")
@json_option
def check(
    table: str,
    checkpoint: str | None,
    model: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    key: str | None,
    strict: bool,
    every: bool,
    values: bool,
    dtype: str,
    settings: bool,
    reference: str | None,
    json_file: str | None,
) -> int:
    """Look for faults in TABLE; with CHECKPOINT also for tensors that it does not map.

    With --model, or for a table of a model that wdport ships, the complete plan is made, as convert does. Findings of
    --values and --settings do not make a table unsound.
    """
    from wdport.cli.map_text import check_count, check_line, check_text
    from wdport.conversion.check import check_table
    from wdport.conversion.table_documents import check_document
    from wdport.conversion.unlike import told_differently

    if reference and not settings:
        raise UsageError("--reference", "requires --settings", "add --settings, or leave it out")
    document = require_document(json_file, InputFiles(table=table, checkpoint=checkpoint, config=config))
    given = _settings(None, model if checkpoint or not settings else None, config, pairs, key)
    found = check_table(table, checkpoint, given, dtype if values else "")
    report = told_differently(table, replace(given, model=model, reference=reference), checkpoint) if settings else None
    sound = not found.faults and not (strict and found.warnings)
    give("check", lambda: check_document(found, sound, report), document,
         lambda: check_text(found, sound, every, report), verdict=lambda: check_line(found, sound))  # fmt: skip
    if not sound:
        fix = "correct the table" + (", or leave out --strict" if not found.faults else "")
        raise MisfitError(Path(table), f"is not sound: {check_count(found)}", fix)
    return 0


@command.command(name="explain", short_help="Show where a variable or tensor comes from and goes to.")
@click.argument("name")
@click.argument("file", metavar="CHECKPOINT|CONVERTED", type=ANY)
@mapping_option
@_model
@_config
@_set
@key_option
@json_option
def explain(
    name: str,
    file: str,
    mapping: str | None,
    model: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    key: str | None,
    json_file: str | None,
) -> int:
    """Show where the variable or tensor NAME comes from and goes to, and the rule and line of the table.

    For a converted file, the manifest is read; for a checkpoint, the plan is made, as convert does.
    """
    from wdport.cli.map_text import explain_text
    from wdport.conversion.explain import routes_of
    from wdport.conversion.table_documents import explanation

    if Path(name).exists() and not Path(file).exists():
        fix = f"give the tensor's name first: wdport map explain {printable(file, 60)} {printable(name, 60)}"
        raise UsageError("wdport map explain", f"swapped? {printable(name, 60)} is a file", fix)

    document = require_document(json_file, InputFiles(file=file, mapping=mapping, config=config).with_manifests("file"))
    routes = routes_of(file, _settings(mapping, model, config, pairs, key))
    found = routes.explain(name)
    give("explanation", lambda: explanation(name, routes, found), document, lambda: explain_text(name, found),
         asked=True)  # fmt: skip
    return 0


@command.command(name="diff", short_help="Compare two tables, checkpoints or converted files.")
@click.argument("first", metavar="A", type=ANY)
@click.argument("second", metavar="B", type=ANY)
@click.option("--key-a", metavar="NAME", help="Key of the state_dict in A if it holds several.")
@click.option("--key-b", metavar="NAME", help="The same in B.")
@json_option
def diff(first: str, second: str, key_a: str | None, key_b: str | None, json_file: str | None) -> int:
    """Compare two tables, two checkpoints or two converted files by name, shape and dtype. Exits 0 with or without
    differences."""
    from wdport.cli.map_text import diff_text
    from wdport.conversion.differences import compare_files
    from wdport.conversion.table_documents import difference_document

    document = require_document(json_file, InputFiles(first=first, second=second).with_manifests("first", "second"))
    found = compare_files(first, second, (key_a, key_b))
    give(
        "difference", lambda: difference_document(found), document, lambda: diff_text(found, first, second), asked=True
    )
    return 0


def _settings(
    mapping: str | None, model: str | None, config: str | None, pairs: tuple[str, ...], key: str | None
) -> Settings:
    from wdport.conversion.prepare import Settings

    return Settings(config, parse_values(pairs), mapping, key, model=model)
