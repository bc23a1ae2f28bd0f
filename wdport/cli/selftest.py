"""`wdport selftest`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from wdport.cli.failures import postponed, raise_first
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import force_option, reports, require_reports
from wdport.cli.progress import steps
from wdport.errors import UsageError, WdportError


@click.command(name="selftest")
@click.option("--quick", is_flag=True, help="A dozen faults, in seconds; no diagnosis, no correct variants.")
@click.option("--edits", is_flag=True, help="Edits of wdport's own source in place of known faults (slow).")
@click.option("--family", metavar="NAME", default="", help="Only this family's faults, such as unet2d.")
@click.option("--rules", is_flag=True, help="Show what fixed tolerances would have found in the same runs.")
@click.option("--json", "json_file", metavar="FILE", help="Write everything that was measured to FILE as JSON.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write the same as Markdown to FILE.")
@force_option
def command(
    quick: bool,
    edits: bool,
    family: str,
    rules: bool,
    json_file: str | None,
    markdown_file: str | None,
    force: bool,
) -> int:
    """Measure what verify can find: known faults put into correct small models, one at a time.

    No file is needed; the whole of it takes some minutes. Exits 0 if every fault is killed by the gate that ought
    to at the place where it is, most of them with their cause, and no correct variant fails; 1 if not; 6 if nothing
    was run. With --edits every fault must be killed, 95 % of them at the right place, and no cause may be wrong.
    """
    if quick and edits:
        raise UsageError("--edits", "--quick is given, too", "give one of them")
    if quick and family:
        raise UsageError("--family", "--quick has faults of one family alone", "leave one of them out")
    wanted = reports(("--json", "json", json_file), ("--markdown", "markdown", markdown_file))
    require_reports(wanted, {}, force)
    require_jax(torch=True)
    with steps() as say:
        from wdport.parity.selftest.run import run_selftest

        start_jax()
        result = run_selftest(quick, say=say, edits=edits, family=family)
    from wdport.files.atomic import write_text
    from wdport.parity.selftest.markdown import render_markdown
    from wdport.parity.selftest.text import render

    failed: list[WdportError] = []
    if json_file:
        with postponed(failed):
            write_text(Path(json_file), json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n")
    if markdown_file:
        with postponed(failed):
            write_text(Path(markdown_file), render_markdown(result))
    click.echo(render(result, rules))
    raise_first(failed)
    return result.exit_code
