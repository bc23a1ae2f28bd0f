"""`wdport selftest`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wdport.base.errors import UsageError, WdportError
from wdport.base.options import FORCE, JSON, Option
from wdport.cli.click_options import verb
from wdport.cli.console import steps
from wdport.cli.documents import STDOUT, give, reports, require_reports
from wdport.cli.foreign_errors import postponed, raise_first
from wdport.cli.machine import require_jax, require_torch, start_jax_on_cpu
from wdport.parity.selftest.checkout import all_faults


def _families() -> list[str]:
    every = all_faults()
    return [] if every is None else list(every.FAMILIES)


@dataclass(frozen=True, kw_only=True)
class SelftestRequest:
    """The command's options."""

    quick: Annotated[bool, Option("Try a few faults, in seconds, without diagnosis or correct variants.")] = False
    edits: Annotated[bool, Option("", hidden=True)] = False
    family: Annotated[str, Option(
        "Try only this family's faults, such as unet2d.",
        "NAME", completions=_families, show_default=False)] = ""  # fmt: skip
    rules: Annotated[bool, Option("Show what fixed tolerances would have found in the same runs.")] = False
    json_file: Annotated[str | None, JSON] = None
    markdown_file: Annotated[str | None, Option(
        "Also write the result as Markdown to FILE.", names=("--markdown",), files=(".md",))] = None  # fmt: skip
    force: Annotated[bool, FORCE] = False


@verb("selftest", SelftestRequest)
def command(request: SelftestRequest) -> int:
    """Measure what verify can find: inject known faults into correct small models, one at a time.

    No file is needed. The full run needs a source checkout, and takes at least an hour, or less with --family. Without
    a source checkout, only the faults of --quick are tried. Exits with 0 if the expected gate finds every fault and
    names the faulty layer, most faults are reported with their cause, and no correct variant fails; with 1 if not; with
    6 if nothing was run.
    """
    if request.edits:
        fix = "run there: python -m parity_tests.edits -o FILE"
        raise UsageError("--edits", "needs a source checkout of wdport", fix)
    if request.quick and request.family:
        raise UsageError("--family", "--quick has faults of only one family", "leave one of them out")
    outputs = require_reports(reports(json=request.json_file, markdown=request.markdown_file), {}, request.force)
    require_torch("wdport selftest")
    require_jax(torch=True)
    with steps() as say:
        from wdport.parity.selftest.run import run_selftest

        start_jax_on_cpu()
        result = run_selftest(request.quick, say=say, family=request.family)
    from wdport.files.atomic import write_text
    from wdport.parity.selftest.text import render, render_markdown, verdict_lines

    failed: list[WdportError] = []
    if request.markdown_file:
        with postponed(failed):
            write_text(outputs["--markdown"], render_markdown(result))
    with postponed(failed):
        document = STDOUT if request.json_file == STDOUT else outputs.get("--json")
        give("selftest", result.document, document, lambda: render(result, request.rules),
             verdict=lambda: verdict_lines(result))  # fmt: skip
    raise_first(failed)
    return result.exit_code
