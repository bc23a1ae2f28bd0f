"""`wdport map outline`: list the layers of a PyTorch model for porting."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from wdport.cli.console import width_of
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.machine import require_torch
from wdport.cli.options import CHECKPOINT, TABLE
from wdport.cli.verb import Verb
from wdport.errors import UsageError
from wdport.files.inputs import InputFiles


@click.command(name="outline", cls=Verb, short_help="List the layers of a PyTorch model, and their Keras layers.")
@click.argument("checkpoint", required=False, type=CHECKPOINT)
@click.option("--reference", metavar="MODULE:FUNCTION", help="Function that builds your PyTorch model.")
@click.option("--input", "inputs", metavar="'NAME: AXES'", multiple=True, help="One input, such as 'x: b 3 48 48'.")
@click.option("--mapping", metavar="FILE", type=TABLE, help="A table that names the function and the inputs.")
@click.option(
    "--config",
    metavar="FILE",
    type=TABLE,
    help="Arguments of the function (YAML or JSON), if a table says so.",
)
@click.option("--rows", "every", is_flag=True, help="List every block, including those with the same structure.")
@json_option
def command(
    checkpoint: str | None,
    reference: str | None,
    inputs: tuple[str, ...],
    mapping: str | None,
    config: str | None,
    every: bool,
    json_file: str | None,
) -> int:
    """List every layer and function of your PyTorch model in call order, with the Keras layers that compute the same.

    The model is run in float64 on random inputs. CHECKPOINT is for a function that takes a checkpoint path.
    """
    from wdport.cli.map_outline_text import outline_text
    from wdport.mapping.strict_yaml import read_yaml
    from wdport.porting.outline.document import outline_document
    from wdport.porting.outline.make import outline, outline_of_table

    if reference is None and mapping is None:
        raise UsageError(
            "wdport map outline", "no model is named", "give --reference MODULE:FUNCTION, or --mapping FILE"
        )
    require_torch("wdport map outline")
    document = require_document(json_file, InputFiles(checkpoint=checkpoint, mapping=mapping, config=config))
    known = read_yaml(Path(config), "give a file of NAME: VALUE").plain() if config else {}
    with redirect_stdout(sys.stderr):  # the model may print
        if mapping is not None:
            found = outline_of_table(mapping, reference, inputs, known, checkpoint)
        else:
            found = outline(reference or "", inputs, known, checkpoint)
    give(
        "outline",
        lambda: outline_document(found),
        document,
        lambda: outline_text(found, every, width_of(sys.stdout)),
        asked=True,
    )
    return 0
