"""`wdport map outline`: a PyTorch model as a porter reads it."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from wdport.errors import UsageError


@click.command(name="outline")
@click.argument("checkpoint", required=False)
@click.option("--reference", metavar="MODULE:FUNCTION", help="The function that builds your PyTorch model.")
@click.option("--input", "inputs", metavar="'NAME: AXES'", multiple=True, help="One input, such as 'x: b 3 48 48'.")
@click.option("--mapping", metavar="FILE", help="A table that names the function and the inputs, in place of both.")
@click.option(
    "--config", metavar="FILE", help="What the function is called with (YAML or JSON), where a table says so."
)
@click.option("--rows", "every", is_flag=True, help="List every block, also those of one structure.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON instead of text.")
def command(
    checkpoint: str | None,
    reference: str | None,
    inputs: tuple[str, ...],
    mapping: str | None,
    config: str | None,
    every: bool,
    as_json: bool,
) -> int:
    """List every layer and function of your PyTorch model in call order, with the Keras layers that compute the same.

    The model is run, in float64, on drawn inputs. CHECKPOINT is for a function that takes the path of one.
    """
    from wdport.cli.map_outline_text import outline_json, outline_text
    from wdport.mapping.strict_yaml import read_yaml
    from wdport.porting.outline.make import outline, outline_of_table

    if reference is None and mapping is None:
        raise UsageError("map outline", "nothing names the model", "give --reference MODULE:FUNCTION, or --mapping")
    known = read_yaml(Path(config), "give a file of NAME: VALUE").plain() if config else {}
    with redirect_stdout(sys.stderr):  # a model may print
        if mapping is not None:
            found = outline_of_table(mapping, reference, inputs, known, checkpoint)
        else:
            found = outline(reference or "", inputs, known, checkpoint)
    click.echo(json.dumps(outline_json(found), indent=1, allow_nan=False) if as_json else outline_text(found, every))
    return 0
