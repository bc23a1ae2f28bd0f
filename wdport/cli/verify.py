"""`wdport verify`."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from wdport.compare.findings import Gate
    from wdport.parity.policy import Policy

from wdport.cli.completion import CHECKPOINTS, CONVERTED, File, Folder
from wdport.cli.console import console, width_of
from wdport.cli.documents import STDOUT, file_of, json_option
from wdport.cli.failures import postponed, raise_first
from wdport.cli.machine import require_jax, require_torch, start_jax
from wdport.cli.options import (
    TABLE,
    Report,
    force_option,
    key_option,
    mapping_option,
    parse_values,
    reports,
    require_reports,
    sha256_option,
    units_options,
)
from wdport.cli.progress import steps
from wdport.cli.verb import Verb, Whole
from wdport.cli.verification import verify_exported
from wdport.errors import UsageError, WdportError, printable
from wdport.files.inputs import InputFiles
from wdport.files.target import KERAS, format_at
from wdport.files.writable import require_apart
from wdport.limits import MAX_CASES, MAX_SEED
from wdport.parity.repro_files import KINDS


@click.command(name="verify", cls=Verb, arity=lambda given: (1, 1) if "--against" in given else (2, 2))
@click.argument(
    "files", nargs=-1, type=File([*CHECKPOINTS, *CONVERTED, ".stablehlo"]), metavar="[CHECKPOINT] CONVERTED"
)
@mapping_option
@click.option("--config", metavar="FILE", type=TABLE, help="Training configuration, to compare with that of CONVERTED.")
@click.option(
    "--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One configuration value, such as num_heads=8."
)
@units_options
@click.option(
    "--model", metavar="MODULE:FUNCTION", help="Function of your own Keras model, if the table does not name it."
)
@click.option("--input", "inputs", metavar="'NAME: AXES'", multiple=True, help="One input, such as 'x: b 3 48 48'.")
@key_option
@sha256_option
@click.option("--full", is_flag=True, help="Also compare bfloat16, gradients, optimiser steps and sampling.")
@click.option("--resume", is_flag=True,
              help="Also compare training steps from the optimizer's state (convert --with-optimizer).")  # fmt: skip
@click.option("--schedule", metavar="MODULE:CLASS",
              help="Class of the checkpoint's learning-rate schedule, for --resume.")  # fmt: skip
@click.option("--seed", type=Whole(0, MAX_SEED), default=0, show_default=True, help="Random seed of the inputs.")
@click.option("--cases", metavar="N", type=Whole(0, MAX_CASES), default=0, show_default=True,
              help="Also compare on N more random inputs.")  # fmt: skip
@click.option(
    "--fresh",
    is_flag=True,
    help="Also compare on new inputs and weights, the port alone in a process. [default with --policy]",
)
@click.option("--no-fresh", is_flag=True, help="With a policy: leave this out.")
@click.option(
    "--reference", metavar="MODULE:FACTORY", help="Your own PyTorch model, instead of the built-in reference."
)
@click.option(
    "--against",
    metavar="FILE",
    type=File([".npz"]),
    help="A recording by `wdport record`, instead of CHECKPOINT; needs no torch.",
)
@json_option
@click.option("--html", metavar="FILE", type=File([".html"]), help="Write an HTML report.")
@click.option("--junit", metavar="FILE", type=File([".xml"]), help="Write a JUnit report for CI servers.")
@click.option(
    "--markdown", metavar="FILE", type=File([".md"]), help="Write a Markdown summary for CI pages and pull requests."
)
@click.option("--policy", metavar="FILE", type=File([".toml"]), help="Bounds and waivers, such as parity.toml.")
@click.option(
    "--baseline", metavar="FILE", type=File([".json"]), help="Errors of an earlier run, such as parity-baseline.json."
)
@click.option("--update-baseline", is_flag=True, help="Write this run's errors to the baseline.")
@click.option("--no-canary", is_flag=True, help="With a policy or baseline: skip the check of known faults.")
@click.option(
    "--repro",
    metavar="DIR",
    type=Folder(),
    help="Write the first faulty layer, its weights and inputs, and a script.",
)
@force_option
def command(
    files: tuple[str, ...],
    mapping: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    norm_stats: str | None,
    data: str | None,
    transform: str | None,
    model: str | None,
    inputs: tuple[str, ...],
    key: str | None,
    sha256: str | None,
    full: bool,
    resume: bool,
    schedule: str | None,
    seed: int,
    cases: int,
    fresh: bool,
    no_fresh: bool,
    reference: str | None,
    against: str | None,
    json_file: str | None,
    html: str | None,
    junit: str | None,
    markdown: str | None,
    policy: str | None,
    baseline: str | None,
    update_baseline: bool,
    no_canary: bool,
    repro: str | None,
    force: bool,
) -> int:
    """Compare CONVERTED with the CHECKPOINT that it came from: run both, layer by layer.

    `wdport verify CONVERTED NAME.stablehlo` compares an exported program with the model that it came from.

    Exits 0 if they are equal, 1 if not, 6 if something could not be compared.
    """
    from wdport.exporting.artefact import is_artefact
    from wdport.parity.pair import Pair, is_fresh

    if len(files) == 2 and against is None and is_artefact(Path(files[1])):
        return verify_exported(files, mapping, model, inputs, sha256, json_file, force)
    checkpoint, converted = _files(files, against)
    pair = Pair(converted, checkpoint, against=against, mapping=mapping, model=model, inputs=inputs, config=config,
                values=tuple(parse_values(pairs).items()), norm_stats=norm_stats, data=data,
                transform=transform, reference=reference, key=key,
                sha256=sha256, full=full, resume=resume, schedule=schedule, seed=seed, cases=cases,
                fresh=is_fresh(fresh, no_fresh, policy, against))  # fmt: skip
    pair.require_consistent()
    if update_baseline and not baseline:
        raise UsageError("--update-baseline", "needs a baseline", "name it with --baseline FILE")
    wanted = reports(("--json", "json", file_of(json_file)), ("--html", "html", html), ("--junit", "junit", junit),
                     ("--markdown", "markdown", markdown),
                     ("--baseline", "baseline", baseline if update_baseline else None))  # fmt: skip
    wanted += _repro_files(repro)
    read = InputFiles(**pair.files, policy=policy, baseline=None if update_baseline else baseline)
    require_reports(wanted, read.with_manifests("converted"), force)
    require_apart(InputFiles(GITHUB_STEP_SUMMARY=os.environ.get("GITHUB_STEP_SUMMARY")).items(), read)
    # Small files are checked before torch, keras and jax are imported, so that errors are instant.
    require_apart([(each.option, each.path) for each in wanted], pair.look())
    today = datetime.now(UTC).date()
    from wdport.parity.gated import judge, read_terms
    from wdport.parity.gated import update_baseline as write

    terms = read_terms(policy, None if update_baseline else baseline, today)
    require_jax(torch=checkpoint is not None)
    # A user's model may print while it is imported, built and run; standard output is for the report.
    with redirect_stdout(sys.stderr), steps() as show:
        from wdport.parity.verify import verify_pair

        start_jax()
        say = show or (lambda _: None)
        canaries = _canaries(terms.policy, say) if terms.any and not no_canary else None
        compared = verify_pair(pair, say, repro)
    verdict = judge(compared, terms, today, canaries)
    from wdport.parity.reports import append_step_summary, render_json, render_markdown, write_reports
    from wdport.parity.reports.text import render_line, render_text

    failed: list[WdportError] = []  # raised at the end: the verdict took minutes, and is not lost for a failed report
    for kind, file in {"json": file_of(json_file), "junit": junit, "markdown": markdown, "html": html}.items():
        with postponed(failed):
            write_reports(verdict, **{kind: file}, force=force)
    with postponed(failed):
        append_step_summary(render_markdown(verdict))
    if json_file == STDOUT:
        click.echo(render_json(verdict), nl=False)
    else:
        console.show(render_line(verdict) if console.quiet else render_text(verdict, width_of(sys.stdout)))
    if update_baseline:
        with postponed(failed):
            write(Path(str(baseline)), verdict, force)
            console.account(f"wrote {baseline}")
    raise_first(failed)
    return verdict.exit_code


def _canaries(policy: Policy | None, say: Callable[[str], None]) -> Gate:
    """The known-faults gate."""
    from wdport.parity.selftest.run import canary_gate

    say("trying known faults")
    return canary_gate(policy)


def _files(files: tuple[str, ...], against: str | None) -> tuple[str | None, str]:
    """The checkpoint, unless a recording replaces it, and the converted file."""
    if against is None:
        _require_pair(files)
    elif len(files) != 1:
        raise UsageError("--against", "the recording replaces CHECKPOINT", "give only CONVERTED")
    return (files[0] if against is None else None), files[-1]


def _require_pair(files: tuple[str, ...]) -> None:
    """Refuse anything but CHECKPOINT and CONVERTED in this order; require torch.

    Only file names are checked, so that it is instant.
    """
    if len(files) < 2:
        only = "CHECKPOINT" if files and format_at(Path(files[0])) in KERAS else "CONVERTED"
        missing = f"{only} is missing" if files else "CHECKPOINT and CONVERTED are missing"
        fix = "give both, or CONVERTED and --against RECORDING" if files else "see wdport verify --help"
        raise UsageError("wdport verify", missing, fix)
    if len(files) > 2:
        what = f"unexpected argument {printable(files[2], 60)!r}"
        raise UsageError("wdport verify", what, "give CHECKPOINT and CONVERTED")
    first, second = (format_at(Path(file)) for file in files)
    if first in KERAS and second is None:
        shown = [printable(file, 60) for file in files]
        fix = f"give CHECKPOINT first: wdport verify {shown[1]} {shown[0]}"
        raise UsageError("wdport verify", f"swapped? {shown[0]} is a converted model", fix)
    require_torch("wdport verify", ", or use a recording: wdport verify CONVERTED --against FILE")


def _repro_files(folder: str | None) -> list[Report]:
    """The files that will be written to ``folder``."""
    if not folder:
        return []
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UsageError(folder, "is not a directory", "give another name with --repro")
    files = KINDS.items() if Path(folder).is_dir() else ()
    return [Report("--repro", kind, Path(folder, name)) for name, kind in files]
