"""`wdport record`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from wdport.base.errors import InputError, UsageError, WdportError, error_of, printable
from wdport.base.options import FORCE_OUTPUT, INPUTS, JSON, KEY, SHA256, Operand, Option
from wdport.checkpoint.checkpoint import open_checkpoint
from wdport.checkpoint.error_context import located
from wdport.checkpoint.expected_hash import require_sha256, require_undamaged
from wdport.checkpoint.experiment import is_archive
from wdport.checkpoint.model_folder import open_folder
from wdport.checkpoint.regular_file import open_regular
from wdport.checkpoint.sniff import HEAD
from wdport.checkpoint.state_dict import EMA, RAW
from wdport.cli.click_options import verb
from wdport.cli.console import facts, size, steps
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_torch
from wdport.files.atomic import track_write
from wdport.files.inputs import InputFiles
from wdport.files.json_document import output_file
from wdport.files.model_target import Target, file_target
from wdport.recording.errors import Refusal
from wdport.recording.input_text import read_inputs
from wdport.recording.inputs import Input
from wdport.recording.record_file import record_file

if TYPE_CHECKING:
    from wdport.cli.results import RecordingDocument


@dataclass(frozen=True, kw_only=True)
class RecordRequest:
    """The command's arguments, the function of the model and the checkpoint, and its options."""

    subject: Annotated[tuple[str, ...], Operand(metavar="[MODULE:FUNCTION] CHECKPOINT", files="checkpoint")]
    mapping: Annotated[str | None, Option(
        "The table of your own model, with the function and the inputs.",
        files="table", group="model")] = None  # fmt: skip
    output: Annotated[str | None, Option(
        "NAME.npz.  [default: NAME.run.npz next to the checkpoint]", files=(".npz",))] = None  # fmt: skip
    leave_out: Annotated[tuple[str, ...], Option("Modules not to record, such as 'ema.*'; repeatable.", "PATTERN")] = ()
    inputs: Annotated[tuple[str, ...], INPUTS] = ()
    key: Annotated[str | None, KEY] = None
    sha256: Annotated[str | None, SHA256] = None
    json_file: Annotated[str | None, JSON] = None
    force: Annotated[bool, FORCE_OUTPUT] = False


@verb("record", RecordRequest, arity=lambda options: (1 if "--mapping" in options else 2, 2))
def command(request: RecordRequest) -> None:
    """Run your own PyTorch model, MODULE:FUNCTION with the weights of CHECKPOINT, and record its outputs.

    `wdport verify CONVERTED --against FILE` compares CONVERTED with the recording, without torch.
    """
    mapping, key = request.mapping, request.key
    reference, checkpoint = _subject(request.subject, mapping)
    require_torch("wdport record")
    read = InputFiles(checkpoint=checkpoint, mapping=mapping)
    target = _target(read, request.output, request.force)
    document = require_document(request.json_file, read, {"-o": target.path}, request.force)
    require_sha256(checkpoint, request.sha256)
    checkpoint = _file(checkpoint, packed=mapping is not None)
    if key in (EMA, RAW):  # the recorder knows only keys of the file
        with open_checkpoint(checkpoint, key=key) as opened:
            key = opened.key
    try:
        arguments = _recorder_arguments(reference, checkpoint, mapping, key, request.inputs)
        notes = arguments.pop("notes", ())
        # The model may print; standard output is for the result.
        with track_write(target.path), redirect_stdout(sys.stderr), steps() as say:
            index = record_file(checkpoint=checkpoint, output=str(target.path), key=key,
                                leave_out=request.leave_out, say=say or (lambda _: None), **arguments)  # fmt: skip
    except Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal
    give("recording", lambda: _document(index, target.path, notes), document, lambda: _text(index, target.path, notes))


_BOTH = "give MODULE:FUNCTION and CHECKPOINT"


def _subject(subject: tuple[str, ...], mapping: str | None) -> tuple[str | None, str]:
    """The function, unless the table names it, and the checkpoint."""
    if len(subject) == 2:
        if Path(subject[0]).is_file() and ":" in subject[1] and not Path(subject[1]).exists():
            words = [printable(word, 60) for word in subject]
            fix = f"give MODULE:FUNCTION first: wdport record {words[1]} {words[0]}"
            raise UsageError("wdport record", f"swapped? {words[0]} is a file", fix)
        return subject[0], subject[1]
    if len(subject) > 2:
        raise UsageError("wdport record", f"unexpected argument {printable(subject[2], 60)!r}", _BOTH)
    if not subject:
        raise UsageError("wdport record", "MODULE:FUNCTION and CHECKPOINT are missing", "see wdport record --help")
    if mapping is None:
        raise UsageError("wdport record", "MODULE:FUNCTION or CHECKPOINT is missing", f"{_BOTH}, or add --mapping FILE")
    return None, subject[0]


def _recorder_arguments(
    reference: str | None, checkpoint: str, mapping: str | None, key: str | None, inputs: tuple[str, ...]
) -> dict[str, Any]:
    """Arguments of the recorder: the model, and how to build it."""
    parsed_inputs = read_inputs(inputs)
    if mapping is None:
        require_undamaged(checkpoint)  # torch reads it without checking its CRCs
        return {"target": reference, "inputs": parsed_inputs or _known_inputs(checkpoint, key)}
    from wdport.conversion.recordable import recordable

    model = recordable(checkpoint, mapping, key=key, reference=reference, inputs=inputs)
    return {"target": model.reference, "inputs": model.inputs, "tensors": model.tensors, "arguments": model.arguments,
            "keep": [escape(name) for name in model.calculated], "only": model.is_tapped, "notes": model.notes,
            "spare": model.spare, "carried": model.carried}  # fmt: skip


def _known_inputs(checkpoint: str, key: str | None) -> tuple[Input, ...]:
    """The inputs of the family of the checkpoint, if it is a known one."""
    from wdport.conversion.prepare import Settings, signature_of

    try:
        return signature_of(checkpoint, Settings(key=key)).inputs
    except WdportError:  # a user's own model, or a file that only torch reads
        if key is None and _known_inputs(checkpoint, RAW):
            raise  # a known one with two sets of weights
        return ()


def _file(checkpoint: str, packed: bool) -> str:
    """The file of a checkpoint, which may be in a folder; torch reads no archive of one, which may be ``packed``
    otherwise."""
    path = Path(checkpoint)
    if path.is_dir():
        with located(path):
            return str(open_folder(path).weights)
    if path.is_file() and not packed:
        with located(path), open_regular(path) as file:
            if is_archive(file.read(HEAD)):
                raise InputError(path, "is an archive, which torch does not read", "unpack it, and give the checkpoint")
    return checkpoint


def _target(read: dict[str, Path], output: str | None, force: bool) -> Target:
    checkpoint = read["checkpoint"]
    if not checkpoint.name:
        raise InputError(checkpoint, "is a directory", "give a checkpoint file")
    target = Path(output) if output else checkpoint.with_name(f"{checkpoint.stem}.run.npz")
    return file_target(target, (".npz",), read, force)


def _document(index: dict[str, Any], target: Path, notes: Sequence[str]) -> RecordingDocument:
    """What was recorded."""
    from wdport.cli.results import RecordingDocument

    return RecordingDocument(
        reference=index["reference"], checkpoint=index["checkpoint"], output=output_file(target),
        recording_format=index["schema"], tensors=len(index["tensors"]), modules=list(index["names"]),
        repeats=bool(index["repeats"]), evaluating=bool(index["evaluating"]), notes=[*notes, *index["notes"]],
        environment=index["environment"],
    )  # fmt: skip


def _text(index: dict[str, Any], target: Path, notes: Sequence[str] = ()) -> str:
    """A short text summary: what was recorded, how, and notes."""
    environment, count = index["environment"], len(index["names"])
    rows = [
        ("model", f"{index['reference']}, {len(index['tensors'])} tensors; the outputs of {count} modules"),
        ("run", f"torch {environment['torch']}, matmul {environment['torch_matmul']}"),
        ("repeats", "" if index["repeats"] else "not bit for bit: a comparison with it will fail"),
        ("mode", "" if index["evaluating"] else "not evaluation: a comparison with it will fail"),
        *(("note", note) for note in (*notes, *index["notes"])),
        ("wrote", f"{target} ({size(target.stat().st_size)})"),
    ]
    return f"{printable(index['checkpoint']['name'], None)}: recorded\n{facts(rows)}"
