"""`wdport verify`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from wdport.cli.options import key_option, mapping_option, steps
from wdport.errors import MachineError


@click.command(name="verify")
@click.argument("checkpoint")
@click.argument("converted")
@mapping_option
@key_option
@click.option("--json", "json_file", metavar="FILE", help="Write everything that was compared to FILE as JSON.")
def command(checkpoint: str, converted: str, mapping: str | None, key: str | None, json_file: str | None) -> int:
    """Compare CONVERTED with the CHECKPOINT that it came from, both running, layer by layer.

    Exits 0 if they are equal, 1 if not, 6 if something could not be compared.
    """
    from wdport.load import open_converted
    from wdport.prepare import Settings, prepare

    # Both files are looked at before torch, keras and jax are imported, so that a refusal is instant.
    open_converted(converted)
    with prepare(checkpoint, Settings(mapping=mapping, key=key)):
        pass
    with steps() as say:
        from wdport.parity.verify import verify

        verdict = verify(checkpoint, converted, mapping=mapping, key=key, say=say)
    if json_file:
        try:
            Path(json_file).write_text(
                json.dumps(verdict.to_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise MachineError(json_file, f"could not be written ({error.strerror})", "give another file") from None
    from wdport.parity.report import render

    click.echo(render(verdict))
    return verdict.exit_code
