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

from wdport.cli.failures import postponed, raise_first
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import (
    Report,
    force_option,
    key_option,
    mapping_option,
    parse_values,
    reports,
    require_reports,
    sha256_option,
)
from wdport.cli.progress import steps
from wdport.errors import UsageError, WdportError
from wdport.files.writable import by_name, require_apart, with_manifests
from wdport.parity.repro_files import KINDS


@click.command(name="verify")
@click.argument("files", nargs=-1, required=True, metavar="[CHECKPOINT] CONVERTED")
@mapping_option
@click.option("--config", metavar="FILE", help="The training configuration, to hold CONVERTED's to it.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One value of it, such as num_heads=8.")
@click.option("--norm-stats", metavar="FILE", help="Mean and std per feature (JSON, NPZ), likewise.")
@click.option("--model", metavar="MODULE:FUNCTION", help="Your own Keras model, if the table does not name it.")
@click.option("--input", "inputs", metavar="'NAME: AXES'", multiple=True, help="One input, such as 'x: b 3 48 48'.")
@key_option
@sha256_option
@click.option("--full", is_flag=True, help="Compare bfloat16, gradients, optimiser steps and sampling as well.")
@click.option("--reference", metavar="MODULE:FACTORY", help="Your own PyTorch model, in place of ours.")
@click.option("--against", metavar="FILE", help="A recording by `wdport record`, in place of CHECKPOINT; no torch.")
@click.option("--json", "json_file", metavar="FILE", help="Write everything that was compared to FILE as JSON.")
@click.option("--html", metavar="FILE", help="Write a report to look at.")
@click.option("--junit", metavar="FILE", help="Write a test report for CI servers.")
@click.option("--markdown", metavar="FILE", help="Write a summary for CI pages and pull requests.")
@click.option("--policy", metavar="FILE", help="Bounds and waivers, such as parity.toml.")
@click.option("--baseline", metavar="FILE", help="Errors of an earlier run, such as parity-baseline.json.")
@click.option("--update-baseline", is_flag=True, help="Write this run's errors to the baseline.")
@click.option("--no-canary", is_flag=True, help="Under a policy or baseline: do not try known faults first.")
@click.option("--repro", metavar="DIR", help="Write the first faulty layer, its weights and inputs, and a script.")
@force_option
def command(
    files: tuple[str, ...],
    mapping: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    norm_stats: str | None,
    model: str | None,
    inputs: tuple[str, ...],
    key: str | None,
    sha256: str | None,
    full: bool,
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
    """Compare CONVERTED with the CHECKPOINT that it came from, both running, layer by layer.

    Exits 0 if they are equal, 1 if not, 6 if something could not be compared.
    """
    checkpoint, converted = _files(files, against, reference, full, config or pairs or norm_stats)
    values = parse_values(pairs)
    if update_baseline and not baseline:
        raise UsageError("--update-baseline", "there is no baseline to update", "name one with --baseline FILE")
    wanted = reports(("--json", "json", json_file), ("--html", "html", html), ("--junit", "junit", junit),
                     ("--markdown", "markdown", markdown),
                     ("--baseline", "baseline", baseline if update_baseline else None))  # fmt: skip
    wanted += _repro_files(repro)
    read = by_name(checkpoint=checkpoint, converted=converted, mapping=mapping, config=config, norm_stats=norm_stats,
                   against=against, policy=policy, baseline=None if update_baseline else baseline,
                   **_module_files(reference), **_module_files(model, "model"))  # fmt: skip
    require_reports(wanted, with_manifests(read, ["converted"]), force)
    require_apart(by_name(GITHUB_STEP_SUMMARY=os.environ.get("GITHUB_STEP_SUMMARY")).items(), read)
    from wdport.checkpoint import open_checkpoint
    from wdport.checkpoint.known import require_sha256
    from wdport.conversion.load import open_converted
    from wdport.conversion.prepare import Settings, prepare
    from wdport.families.choice import own_model
    from wdport.parity.recording import open_recording

    # Everything small is looked at before torch, keras and jax are imported, so that a refusal is instant.
    require_sha256(files[0], sha256)
    own = own_model(mapping, model, reference, inputs)
    open_converted(converted, own)
    if checkpoint and own is not None:  # planning would build the model, so only the files are looked at
        with open_checkpoint(Path(checkpoint), key=key) as opened:
            require_apart([(each.option, each.path) for each in wanted], opened.files)
    elif checkpoint:
        with prepare(checkpoint, Settings(mapping=mapping, key=key)) as prepared:
            require_apart([(each.option, each.path) for each in wanted], prepared.checkpoint.files)
    else:
        with open_recording(Path(str(against))):
            pass
    today = datetime.now(UTC).date()
    from wdport.parity.gated import judge, read_terms
    from wdport.parity.gated import update_baseline as write

    terms = read_terms(policy, None if update_baseline else baseline, today)
    require_jax(torch=checkpoint is not None)
    # A user's model may print while it is imported, built and run; standard output is for the report.
    with redirect_stdout(sys.stderr), steps() as show:
        from wdport.parity.verify import verify, verify_recording

        start_jax()
        say = show or (lambda _: None)
        canaries = _canaries(terms.policy, say) if terms.any and not no_canary else None
        if checkpoint:
            verdict = verify(checkpoint, converted, mapping=mapping, key=key, reference=reference, full=full,
                             repro=repro, say=say, model=model, inputs=inputs, config=config, values=values,
                             norm_stats=norm_stats)  # fmt: skip
        else:
            verdict = verify_recording(converted, str(against), mapping=mapping, repro=repro, say=say,
                                       model=model, inputs=inputs)  # fmt: skip
    verdict = judge(verdict, terms, today, canaries)
    from wdport.parity.reports import append_step_summary, render_markdown, write_reports
    from wdport.parity.reports.text import render_text

    failed: list[WdportError] = []  # told at the end: the verdict took minutes, and is not lost for a report
    for kind, file in {"json": json_file, "junit": junit, "markdown": markdown, "html": html}.items():
        with postponed(failed):
            write_reports(verdict, **{kind: file}, force=force)
    with postponed(failed):
        append_step_summary(render_markdown(verdict))
    click.echo(render_text(verdict))
    if update_baseline:
        with postponed(failed):
            write(Path(str(baseline)), verdict)
            click.echo(f"wrote {baseline}")
    raise_first(failed)
    return verdict.exit_code


def _canaries(policy: Policy | None, say: Callable[[str], None]) -> Gate:
    """The gate of the known faults."""
    from wdport.parity.selftest.canaries import canary_gate

    say("trying known faults")
    return canary_gate(policy)


def _files(
    files: tuple[str, ...], against: str | None, reference: str | None, full: bool, told: object
) -> tuple[str | None, str]:
    """The checkpoint, unless a recording stands for it, and the converted file."""
    if against is None:
        if len(files) != 2:
            raise UsageError("verify", f"{len(files)} files are given", "give CHECKPOINT and CONVERTED")
        return files[0], files[1]
    if len(files) != 1:
        raise UsageError("--against", "a recording stands for the checkpoint", "give CONVERTED alone")
    for flag, given in (("--reference", reference), ("--full", full)):
        if given:
            raise UsageError(flag, "a recording has no running reference", "leave out --against, or this")
    if told:
        fix = "leave out --config, --set and --norm-stats"
        raise UsageError("--against", "no checkpoint tells the configuration anew", fix)
    return None, files[0]


def _repro_files(folder: str | None) -> list[Report]:
    """What will be written into ``folder``."""
    if not folder:
        return []
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UsageError(folder, "is no directory", "give another name with --repro")
    files = KINDS.items() if Path(folder).is_dir() else ()
    return [Report("--repro", kind, Path(folder, name)) for name, kind in files]


def _module_files(target: str | None, what: str = "reference") -> dict[str, Path]:
    """Where the module of MODULE:FUNCTION may be, in the folder that is searched first."""
    stem = Path(*(target or "").partition(":")[0].split("."))
    return {what: stem.with_suffix(".py"), f"the {what}'s package": stem / "__init__.py"} if stem.name else {}
