"""`wdport selftest`."""

from __future__ import annotations

import click

from wdport.cli.completion import File, Suggested
from wdport.cli.documents import STDOUT, file_of, give, json_option
from wdport.cli.failures import postponed, raise_first
from wdport.cli.machine import require_jax, require_torch, start_jax
from wdport.cli.options import force_option, reports, require_reports
from wdport.cli.progress import steps
from wdport.cli.verb import Verb
from wdport.errors import UsageError, WdportError


def _families() -> list[str]:
    from wdport.parity.selftest.checkout import all_faults

    every = all_faults()
    return [] if every is None else list(every.FAMILIES)


@click.command(name="selftest", cls=Verb)
@click.option("--quick", is_flag=True, help="Run a few faults, in seconds; no diagnosis, no correct variants.")
@click.option("--edits", is_flag=True, hidden=True)
@click.option(
    "--family",
    metavar="NAME",
    type=Suggested(_families),
    default="",
    help="Run only this family's faults, such as unet2d.",
)
@click.option("--rules", is_flag=True, help="Show what fixed tolerances would have found in the same runs.")
@json_option
@click.option(
    "--markdown", "markdown_file", metavar="FILE", type=File([".md"]), help="Also write the result as Markdown to FILE."
)
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

    No file is needed; the full run takes an hour or more, --family a part of it. It needs a source checkout: elsewhere
    the faults of --quick are tried. Exits 0 if every fault is killed by
    the expected gate at the faulty place, most of them with their cause, and no correct variant fails; 1 if not; 6 if
    nothing was run.
    """
    if edits:
        raise UsageError(
            "--edits", "needs a source checkout of wdport", "run there: python -m parity_tests.edits -o FILE"
        )
    if quick and family:
        raise UsageError("--family", "--quick has faults of only one family", "leave one of them out")
    wanted = reports(("--json", "json", file_of(json_file)), ("--markdown", "markdown", markdown_file))
    outputs = require_reports(wanted, {}, force)
    require_torch("wdport selftest")
    require_jax(torch=True)
    with steps() as say:
        from wdport.parity.selftest.run import run_selftest

        start_jax()
        result = run_selftest(quick, say=say, family=family)
    from wdport.files.atomic import write_text
    from wdport.parity.selftest.markdown import render_markdown
    from wdport.parity.selftest.text import render, verdict_lines

    failed: list[WdportError] = []
    if markdown_file:
        with postponed(failed):
            write_text(outputs["--markdown"], render_markdown(result))
    with postponed(failed):
        give(
            "selftest",
            result.document,
            STDOUT if json_file == STDOUT else outputs.get("--json"),
            lambda: render(result, rules),
            verdict=lambda: verdict_lines(result),
        )
    raise_first(failed)
    return result.exit_code
