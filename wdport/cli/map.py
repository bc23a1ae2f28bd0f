"""`wdport map`: outline a model, check a mapping table, explain where a variable comes from, compare two of either."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import click

from wdport.cli.options import key_option, mapping_option, parse_values
from wdport.errors import MisfitError, UsageError

if TYPE_CHECKING:
    from wdport.conversion.prepare import Settings

_config = click.option("--config", metavar="FILE", help="Configuration (YAML), as for convert.")
_set = click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One value of it; repeatable.")
_model = click.option(
    "--model", metavar="MODULE:FUNCTION", help="Your own Keras model; it is built, to know its variables."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON instead of text.")


_APART = {"outline": "wdport.cli.map_outline", "suggest": "wdport.cli.map_suggest"}


class _Verbs(click.Group):
    """Subcommands with modules of their own are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_APART])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _APART:
            command: click.Command = import_module(_APART[cmd_name]).command
            return command
        return super().get_command(ctx, cmd_name)


@click.group(name="map", cls=_Verbs, no_args_is_help=False)
def command() -> None:
    """Outline a PyTorch model; find, check, explain and compare mapping tables. Nothing is converted."""


@command.command(name="check")
@click.argument("table")
@click.argument("checkpoint", required=False)
@_model
@_config
@_set
@key_option
@click.option("--strict", is_flag=True, help="Warnings are faults as well.")
@click.option("--rows", "every", is_flag=True, help="List every row and the number of tensors that it claims.")
@click.option("--values", is_flag=True, help="Read the weights, too, and tell what is odd about their values.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="For --values: what the port keeps them in.",
)
@click.option("--settings", is_flag=True, help="Build your two models and compare their hyper-parameters.")
@click.option("--reference", metavar="MODULE:FUNCTION", help="For --settings: your own PyTorch model.")
@_json
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
    as_json: bool,
) -> int:
    """Look for faults in TABLE by itself; with CHECKPOINT also for tensors that it leaves over.

    With --model, or where the table is of a model that wdport comes with, the whole plan is made, as convert does. What
    --values and --settings tell makes no table unsound.
    """
    from wdport.cli.map_text import check_json, check_text
    from wdport.conversion.check import check_table
    from wdport.conversion.unlike import told_differently

    if reference and not settings:
        raise UsageError("--reference", "goes with --settings", "add it")
    given = _settings(None, model if checkpoint or not settings else None, config, pairs, key)
    found = check_table(table, checkpoint, given, dtype if values else "")
    report = told_differently(table, replace(given, model=model, reference=reference), checkpoint) if settings else None
    sound = not found.faults and not (strict and found.warnings)
    if as_json:
        click.echo(json.dumps(check_json(found, sound, report), indent=1))
    else:
        click.echo(check_text(found, sound, every, report))
    return 0 if sound else MisfitError.exit_code


@command.command(name="explain")
@click.argument("name")
@click.argument("file", metavar="CHECKPOINT|CONVERTED")
@mapping_option
@_model
@_config
@_set
@key_option
@_json
def explain(
    name: str,
    file: str,
    mapping: str | None,
    model: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    key: str | None,
    as_json: bool,
) -> int:
    """Tell where the variable or tensor NAME comes from and goes to, by which rule and line of the table.

    Of a converted file its manifest tells; for a checkpoint the plan is made, as convert does.
    """
    from wdport.cli.map_text import explain_json, explain_text
    from wdport.conversion.explain import routes_of

    routes = routes_of(file, _settings(mapping, model, config, pairs, key))
    found = routes.explain(name)
    click.echo(json.dumps(explain_json(name, routes, found), indent=1) if as_json else explain_text(name, found))
    return 0


@command.command(name="diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--key-a", metavar="NAME", help="Key of the state_dict in A where it holds several.")
@click.option("--key-b", metavar="NAME", help="The same in B.")
@_json
def diff(first: str, second: str, key_a: str | None, key_b: str | None, as_json: bool) -> int:
    """Compare two tables, two checkpoints or two converted files by name, shape and dtype. Ends with 0 either way."""
    from wdport.cli.map_text import diff_json, diff_text
    from wdport.conversion.differences import compare_files

    found = compare_files(first, second, (key_a, key_b))
    click.echo(json.dumps(diff_json(found), indent=1) if as_json else diff_text(found, first, second))
    return 0


def _settings(
    mapping: str | None, model: str | None, config: str | None, pairs: tuple[str, ...], key: str | None
) -> Settings:
    from wdport.conversion.prepare import Settings

    return Settings(config, parse_values(pairs), mapping, key, model=model)
