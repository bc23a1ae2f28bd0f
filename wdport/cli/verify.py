"""`wdport verify`; its options are in wdport/parity/verify_options.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import click

from wdport.base.errors import UsageError, WdportError, printable
from wdport.base.options import Operand
from wdport.checkpoint.regular_file import state_of
from wdport.cli.click_options import parameters, parse_values, request_of
from wdport.cli.completion import CHECKPOINTS, CONVERTED
from wdport.cli.console import console, steps, width_of
from wdport.cli.documents import STDOUT, Report, reports, require_reports
from wdport.cli.foreign_errors import postponed, raise_first
from wdport.cli.machine import require_jax, require_torch, start_jax_on_cpu
from wdport.cli.verb import Verb
from wdport.families.shipped import provided
from wdport.files.inputs import InputFiles
from wdport.files.model_target import KERAS, format_at
from wdport.files.outputs import is_replaceable, require_apart
from wdport.files.report_formats import FORMATS
from wdport.parity.verify_options import REPRO_KINDS, Pair, PairOptions, RunOptions

if TYPE_CHECKING:
    from wdport.parity.verdict import Verdict


@dataclass(frozen=True)
class Arguments:
    """The command's arguments."""

    files: Annotated[tuple[str, ...], Operand(
        metavar="[CHECKPOINT] CONVERTED", files=(*CHECKPOINTS, *CONVERTED, ".stablehlo"))]  # fmt: skip


VerifyExported = Callable[[Sequence[str], Mapping[str, Any]], int | None]
"""Verifies the second file, if it is a program that was exported from the first, and returns the exit code; ``None`` if
it is none."""


class Verify(Verb):
    """The verb, which removes reports of an earlier run also if its command line is refused."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        with _no_other_reports(reports(**{kind: _value_of(f"--{kind}", words) for kind in FORMATS})):
            return super().parse_args(ctx, args)


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """The value that an option has on a command line that may be refused; ``None`` if it is not there."""
    for word, following in zip(words, [*words[1:], STDOUT], strict=False):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


@click.command(name="verify", cls=Verify, arity=lambda options: (1, 1) if "--against" in options else (2, 2),
               params=parameters(Arguments, PairOptions, RunOptions))  # fmt: skip
def command(files: tuple[str, ...], **options: Any) -> int:
    """Compare CONVERTED with the CHECKPOINT that it came from, by running both models layer by layer.

    `wdport verify CONVERTED NAME.stablehlo` compares an exported program with the model that it came from.

    Exits with 0 if they are equal, with 1 if they differ or the policy or baseline is not met, and with 6 if something
    could not be compared.
    """
    from wdport.parity.verify_options import is_fresh

    run = request_of(RunOptions, options)
    if len(files) == 2 and options["against"] is None:
        verify_exported = cast(VerifyExported, provided("artifacts"))
        if (code := verify_exported(files, options)) is not None:
            return code
    old, new = (None, run.baseline) if run.update_baseline else (run.baseline, None)
    verdicts, others = _verdict_reports(run), reports(baseline=new)
    with _no_other_reports(verdicts):
        checkpoint, converted = _files(files, options["against"])
        values = tuple(parse_values(options["values"]).items())
        fresh = is_fresh(options["fresh"], run.no_fresh, run.policy, options["against"])
        pair = request_of(Pair, options, converted=converted, checkpoint=checkpoint, values=values, fresh=fresh)
        pair.require_consistent()
        if run.update_baseline and not run.baseline:
            raise UsageError("--update-baseline", "needs a baseline", "name it with --baseline FILE")
        others += _repro_files(run.repro)
        read = InputFiles(**pair.files, policy=run.policy, baseline=old)
        require_reports([*verdicts, *others], read.with_manifests("converted"), run.force)
        require_apart(InputFiles(GITHUB_STEP_SUMMARY=os.environ.get("GITHUB_STEP_SUMMARY")).items(), read)
        today = datetime.now(UTC).date()
        with _no_other_reports(others):
            # Small files are checked before torch, keras and jax are imported, so that errors are instant.
            require_apart([(report.option, report.path) for report in (*verdicts, *others)], pair.look())
            verdict = _judged(pair, run, old, today)
    return _give(verdict, run, new)


def _verdict_reports(run: RunOptions) -> list[Report]:
    """The files that the verdict is written to."""
    return reports(**run.reports)


def _judged(pair: Pair, run: RunOptions, baseline: str | None, today: date) -> Verdict:
    """Compare the pair, and judge it by the policy and the baseline."""
    from wdport.parity.policy.judge import read_terms

    terms = read_terms(run.policy, baseline, today)
    require_jax(torch=pair.checkpoint is not None)
    # A user's model may print while it is imported, built and run; standard output is for the report.
    with redirect_stdout(sys.stderr), steps() as show:
        from wdport.parity.pair_verdict import judged_pair
        from wdport.parity.selftest.known_faults import KnownFaults

        start_jax_on_cpu()
        known_faults = None if run.no_canary else KnownFaults()
        return judged_pair(pair, terms, today, known_faults, show, run.repro)


def _give(verdict: Verdict, run: RunOptions, baseline: str | None) -> int:
    """Write the reports and a new baseline, print the verdict, and return its exit code."""
    from wdport.parity.policy.judge import update_baseline
    from wdport.parity.reports import append_step_summary, render_json, render_markdown, write_reports
    from wdport.parity.reports.text import render_line, render_text

    failed: list[WdportError] = []  # raised at the end: the verdict took minutes, and is not lost for a failed report
    for name, file in run.reports.items():
        with postponed(failed):
            write_reports(verdict, **{name: file}, force=run.force)
    with postponed(failed):
        append_step_summary(render_markdown(verdict))
    if run.json_file == STDOUT:
        click.echo(render_json(verdict), nl=False)
    else:
        console.show(render_line(verdict) if console.quiet else render_text(verdict, width_of(sys.stdout)))
    for activity, seconds in verdict.times.items():
        console.detail(f"{seconds:8.2f} s  {activity}, all threads")
    if baseline is not None:
        with postponed(failed):
            update_baseline(Path(baseline), verdict, run.force)
            console.account(f"wrote {baseline}")
    raise_first(failed)
    return verdict.exit_code


@contextmanager
def _no_other_reports(requested: Sequence[Report]) -> Iterator[None]:
    """If the block ends without a verdict, remove reports that something else wrote, and if it is refused, also those
    of an earlier run, which would be taken for reports of this one.

    A converted model's code that runs here may write a report that passes; a verdict would be written over it.
    """
    before = {report.path: state_of(report.path) if report.path.exists() else None for report in requested}
    try:
        yield
    except BaseException as error:
        for report in requested:
            with suppress(OSError):
                forged = state_of(report.path) != before[report.path]
                # With --help, click exits.
                refused = isinstance(error, Exception) and not isinstance(error, click.exceptions.Exit)
                if forged or (refused and _is_verdict(report)):
                    os.unlink(report.path)
                    if not forged:
                        console.detail(f"removed {report.path}, the report of an earlier run")
        raise


def _is_verdict(report: Report) -> bool:
    """Whether the file is a report of wdport that states a verdict."""
    return report.kind in FORMATS and report.path.is_file() and is_replaceable(report.path, report.kind)


def _files(files: tuple[str, ...], against: str | None) -> tuple[str | None, str]:
    """The checkpoint, unless a recording replaces it, and the converted file. Only file names are checked, so that it
    is instant; requires torch for a checkpoint."""
    if against is not None:
        if len(files) != 1:
            raise UsageError("--against", "the recording replaces CHECKPOINT", "give only CONVERTED")
        return None, files[0]
    if len(files) < 2:
        only = "CHECKPOINT" if files and format_at(Path(files[0])) in KERAS else "CONVERTED"
        missing = f"{only} is missing" if files else "CHECKPOINT and CONVERTED are missing"
        fix = "give both, or CONVERTED and --against RECORDING" if files else "see wdport verify --help"
        raise UsageError("wdport verify", missing, fix)
    if len(files) > 2:
        what = f"unexpected argument {printable(files[2], 60)!r}"
        raise UsageError("wdport verify", what, "give CHECKPOINT and CONVERTED")
    checkpoint, converted = files
    if format_at(Path(checkpoint)) in KERAS and format_at(Path(converted)) is None:
        first, second = (printable(file, 60) for file in files)
        fix = f"give CHECKPOINT first: wdport verify {second} {first}"
        raise UsageError("wdport verify", f"swapped? {first} is a converted model", fix)
    require_torch("wdport verify", ", or use a recording: wdport verify CONVERTED --against FILE")
    return checkpoint, converted


def _repro_files(folder: str | None) -> list[Report]:
    """The files that will be written to ``folder``."""
    if not folder:
        return []
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UsageError(folder, "is not a directory", "give another name with --repro")
    files = REPRO_KINDS.items() if Path(folder).is_dir() else ()
    return [Report("--repro", kind, Path(folder, name)) for name, kind in files]
