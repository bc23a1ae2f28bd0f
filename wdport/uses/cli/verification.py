"""Verify exported files, for `wdport verify` and `wdport export --verify`: reports and exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wdport.base.errors import UsageError, printable
from wdport.base.marked_text import Marked, joined, outcome_line
from wdport.cli.console import console, facts, steps
from wdport.cli.documents import Destination, give, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.verb import given_options
from wdport.files.atomic import make_temporary
from wdport.files.defer_signals import deferred_signals
from wdport.files.outputs import writable
from wdport.uses.cli.model_inputs import model_inputs, open_own
from wdport.uses.exporting.artifact import SUFFIX, is_artifact

if TYPE_CHECKING:
    from wdport.conversion.load import Converted
    from wdport.files.model_target import Target
    from wdport.uses.exporting.verification import Verification

EXPORTED = ("mapping", "model", "inputs", "sha256", "json_file", "force")
"""Options of `wdport verify` that apply to an artifact."""


def verify_exported(files: Sequence[str], options: Mapping[str, Any]) -> int | None:
    """Verify the artifact ``files[1]`` against the converted file ``files[0]``, with options of `wdport verify`, and
    print the report; the exit code, or ``None`` if the second file is no artifact."""
    if not (files[1].endswith(SUFFIX) or is_artifact(Path(files[1]))):
        return None
    for name, option in given_options().items():
        if name not in ("files", *EXPORTED):
            raise UsageError(option, "does not apply to an exported program", "leave it out")
    read = model_inputs(files[0], options["sha256"], exported=files[1], mapping=options["mapping"])
    document = require_document(options["json_file"], read, force=options["force"])
    require_jax()
    start_jax()
    converted = open_own(files[0], options["mapping"], options["model"], options["inputs"])
    verification = verified_artifact(converted, Path(files[1]))
    read.end_reading()
    give_verification(verification, document)
    return verification.exit_code


def verified_artifact(converted: Converted, path: Path) -> Verification:
    """Verify an artifact, with its progress shown."""
    with steps() as show:
        from wdport.uses.exporting.verification import verify_artifact

        return verify_artifact(converted, path, show or (lambda _: None))


@contextmanager
def unverified(target: Target, verify: bool) -> Iterator[Target]:
    """The target itself, or to ``verify`` one of the same name in a temporary folder next to it."""
    if not verify:
        yield target
        return
    folder = make_temporary(target.path, folder=True)
    inner = folder.path / "export"  # writers lock the folder that they write to, and this process holds the outer one
    try:
        inner.mkdir()
        yield replace(target, output=writable(inner / target.path.name))
    finally:
        with deferred_signals():
            folder.discard()


def require_passed(verification: Verification, target: Target, document: Destination) -> None:
    """Print the report of a verified file that does not pass, and exit with its code: ``target`` is not written."""
    verification = replace(verification, exported=str(target.path))
    if not verification:
        give_verification(verification, document)
        console.note(f"{target.path.name} was not written")
        raise click.exceptions.Exit(verification.exit_code)


def verified_row(verification: Verification | None) -> tuple[str, str]:
    """The row of an export's summary."""
    if verification is None:
        return "verified", ""
    worst = max((gate.worst for gate in verification.gates if gate.worst is not None), default=None)
    errors = "" if worst is None else f", errors up to {worst:.2f} times the model's own"
    return "verified", f"{'; '.join(verification.inputs)}{errors if verification.ratios else ''}"


def give_verification(verification: Verification, document: Destination) -> None:
    """Print the report, or the document."""
    give("verification", verification.document, document, lambda: _text(verification),
         verdict=lambda: _line(verification))  # fmt: skip


def _line(verification: Verification) -> Marked:
    ours, theirs = (printable(Path(path).name) for path in (verification.exported, verification.model))
    says = {0: f"is what {theirs} computes", 1: f"is not what {theirs} computes"}
    claim = says.get(verification.exit_code, f"could not be compared with {theirs} completely")
    return outcome_line(verification.exit_code, f"{ours} {claim}")


def _text(verification: Verification) -> Marked:
    from wdport.parity.reports.text import gate_lines

    run = [*(f"{name} {value}" for name, value in verification.environment.items()), f"{verification.seconds:.0f} s"]
    rows = [
        ("compared", "; ".join(verification.inputs)),
        *((what, f"{Path(path).name}, SHA-256 {verification.digests[what]}")
          for what, path in (("model", verification.model), ("exported", verification.exported))),
        ("run", ", ".join(run)),
    ]  # fmt: skip
    lines = [line for gate in verification.gates for line in gate_lines(gate)]
    return joined([_line(verification), "", *lines, "", facts(rows)])
