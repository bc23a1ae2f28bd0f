"""`wdport record`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from glob import escape
from pathlib import Path
from typing import Any

import click

from wdport.checkpoint.known import require_sha256, require_undamaged
from wdport.cli.options import facts, key_option, sha256_option, size
from wdport.cli.progress import steps
from wdport.errors import UsageError, WdportError, error_of
from wdport.files.writable import by_name, require_writable
from wdport.files.written import noticing
from wdport.recorder import Input


@click.command(name="record")
@click.argument("subject", nargs=-1, required=True, metavar="[MODULE:FACTORY] CHECKPOINT")
@click.option("--mapping", metavar="FILE", help="The table of your own model, which names the function and the inputs.")
@click.option("-o", "--output", metavar="FILE", help="NAME.npz.  [default: NAME.run.npz beside the checkpoint]")
@click.option(
    "--leave-out", metavar="PATTERN", multiple=True, help="Modules not to record, such as 'ema.*'; repeatable."
)
@click.option("--input", "inputs", metavar="'NAME: AXES'", multiple=True, help="One input, such as 'x: b 3 48 48'.")
@key_option
@sha256_option
@click.option("--force", is_flag=True, help="Replace an existing output; never a symbolic link.")
def command(
    subject: tuple[str, ...],
    mapping: str | None,
    output: str | None,
    leave_out: tuple[str, ...],
    inputs: tuple[str, ...],
    key: str | None,
    sha256: str | None,
    force: bool,
) -> int:
    """Run your own PyTorch model, MODULE:FACTORY with the weights of CHECKPOINT, and record what it computes.

    `wdport verify CONVERTED --against FILE` compares with the recording where torch is not installed.
    """
    from wdport.recorder import Refusal, record_file

    reference, checkpoint = _subject(subject, mapping)
    target = _target({"checkpoint": Path(checkpoint), **by_name(mapping=mapping)}, output, force)
    require_sha256(checkpoint, sha256)
    try:
        known = _known(reference, checkpoint, mapping, key, inputs)
        notes = known.pop("notes", ())
        with (
            noticing(target),
            redirect_stdout(sys.stderr),
            steps() as say,
        ):  # a model may print; standard output is for what is said here
            index = record_file(checkpoint=checkpoint, output=str(target), key=key, leave_out=leave_out,
                                say=say or (lambda _: None), **known)  # fmt: skip
    except Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal
    click.echo(_text(index, target, notes))
    return 0


def _subject(subject: tuple[str, ...], mapping: str | None) -> tuple[str | None, str]:
    """The function, unless the table names it, and the checkpoint."""
    if len(subject) == 2:
        return subject[0], subject[1]
    if mapping is None or len(subject) != 1:
        fix = "give MODULE:FACTORY and CHECKPOINT, or CHECKPOINT and --mapping FILE"
        raise UsageError("record", f"{len(subject)} arguments are given", fix)
    return None, subject[0]


def _known(
    reference: str | None, checkpoint: str, mapping: str | None, key: str | None, inputs: tuple[str, ...]
) -> dict[str, Any]:
    """What is recorded, and how it is built: arguments of the recorder."""
    from wdport.recorder import read_input

    told = [read_input(text) for text in inputs]
    if mapping is None:
        require_undamaged(checkpoint)  # torch reads it, and does not look at its CRCs
        return {"target": reference, "inputs": told or _known_inputs(checkpoint, key)}
    from wdport.conversion.recordable import recordable

    own = recordable(checkpoint, mapping, key=key, reference=reference, inputs=inputs)
    return {"target": own.reference, "inputs": own.inputs, "tensors": own.tensors, "arguments": own.arguments,
            "keep": [escape(name) for name in own.calculated], "only": own.is_tapped, "notes": own.notes}  # fmt: skip


def _known_inputs(checkpoint: str, key: str | None) -> tuple[Input, ...]:
    """The inputs of a family that the checkpoint belongs to, if there is one."""
    from wdport.conversion.prepare import Settings, signature_of

    try:
        return signature_of(checkpoint, Settings(key=key)).inputs
    except WdportError:  # a model of the user's own, or a file that torch alone reads
        return ()


def _target(read: dict[str, Path], output: str | None, force: bool) -> Path:
    checkpoint = read["checkpoint"]
    target = Path(output) if output else checkpoint.with_name(f"{checkpoint.stem}.run.npz")
    if target.suffix != ".npz":
        raise UsageError(target, "unknown output format", "end the name in .npz")
    require_writable(target, read, force)
    return target


def _text(index: dict[str, Any], target: Path, notes: Sequence[str] = ()) -> str:
    """A few lines for a person: what was recorded, how, and what deserves notice."""
    environment, count = index["environment"], len(index["names"])
    rows = [
        ("model", f"{index['reference']}, {len(index['tensors'])} tensors, {count} modules and insides of attention"),
        ("run", f"torch {environment['torch']}, matmul {environment['torch_matmul']}"),
        ("repeats", "" if index["repeats"] else "not bit for bit: a comparison with it will fail"),
        ("mode", "" if index["evaluating"] else "not evaluation: a comparison with it will fail"),
        *(("note", note) for note in (*notes, *index["notes"])),
        ("wrote", f"{target} ({size(target.stat().st_size)})"),
    ]
    return f"{index['checkpoint']['name']}: recorded\n{facts(rows)}"
