"""`wdport port`: write the Keras model of a PyTorch model."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wdport.base.errors import InputError, MisfitError, UsageError
from wdport.base.marked_text import Marked, joined, marked
from wdport.base.options import FORCE, INPUTS, JSON, Operand, Option
from wdport.cli.click_options import verb
from wdport.cli.console import steps
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_torch, start_jax_on_cpu
from wdport.cli.map_suggest import outcome_lines, proof_notes, read_arguments
from wdport.files.atomic import write_text
from wdport.files.inputs import InputFiles
from wdport.files.outputs import require_parent, writable

if TYPE_CHECKING:
    from wdport.parity.proving.port import WrittenPort

UNEQUAL = 1
"""Exit code if something that is written does not compute what PyTorch computes."""

INCOMPLETE = 6
"""Exit code if a step is not written, or not everything could be compared."""


@dataclass(frozen=True, kw_only=True)
class PortRequest:
    """The command's argument and options."""

    target: Annotated[str, Operand(metavar="MODULE:FUNCTION")]
    inputs: Annotated[tuple[str, ...], INPUTS] = ()
    config: Annotated[str | None, Option("Arguments for the function (YAML).", files="table")] = None
    module: Annotated[str | None, Option(
        "Write only this part of the model, such as encoder.layers.0; --input states the inputs of the part.",
        "PATH")] = None  # fmt: skip
    checkpoint: Annotated[str | None, Option(
        "Also convert this checkpoint, and prove the port with its weights.", files="checkpoint")] = None  # fmt: skip
    output: Annotated[str | None, Option(
        "Python file to write; the table and the weights are written beside it.  [default: MODULE_keras.py]",
        files=(".py",))] = None  # fmt: skip
    reproducers: Annotated[str | None, Option(
        "Folder for programs of PyTorch that each compute one step which is not written.", "FOLDER",
        files="folder", group="outputs")] = None  # fmt: skip
    json_file: Annotated[str | None, JSON] = None
    no_proof: Annotated[bool, Option("Skip verify; the port is then not proved.")] = False
    force: Annotated[bool, FORCE] = False


@verb("port", PortRequest, short_help="Write the Keras model of a PyTorch model, with its table, and prove it.")
def command(request: PortRequest) -> int:
    """Write the Keras source of the PyTorch model that MODULE:FUNCTION builds, and its mapping table.

    The model is run on random inputs, and every step that it computes is written in Keras, in a class for every class
    of the PyTorch model and with the names of its code. Then verify proves the port with random weights and, with
    --checkpoint, with those of the checkpoint.
    """
    require_torch("wdport port")
    from wdport.compare.reference import translated
    from wdport.recording.user_code import split_target

    with translated():
        split_target(request.target)
    if request.module and request.checkpoint:
        raise UsageError("--checkpoint", "has the weights of the whole model", "leave out --module, or --checkpoint")
    target = f"{request.target}/{request.module}" if request.module else request.target
    read = InputFiles(checkpoint=request.checkpoint, config=request.config)
    names = [request.target.partition(":")[0].rpartition(".")[2], *(request.module or "").split("."), "keras"]
    stem = "_".join(filter(None, names))
    output = Path(request.output or f"{stem}.py")
    if output.suffix != ".py" or not output.stem.isidentifier():
        raise UsageError(output, "is not the name of a Python module", "name a file such as net_keras.py")
    paths = [output, output.with_suffix(".yaml")]
    paths += [output.with_name(f"{output.stem.removesuffix('_keras')}.keras")] if request.checkpoint else []
    targets = [writable(path, read, request.force) for path in paths]
    outputs = dict(zip(("-o", "the table", "the weights"), (target.path for target in targets), strict=False))
    document = require_document(request.json_file, read, outputs, request.force)
    programs = _folder(request.reproducers, request.force) if request.reproducers else None
    if request.checkpoint and not Path(request.checkpoint).exists():
        raise InputError(request.checkpoint, "no such file", "check the path")
    with steps() as say, redirect_stdout(sys.stderr):
        start_jax_on_cpu()
        from wdport.parity.proving.port import write_port
        from wdport.parity.proving.port_document import port_document
        from wdport.parity.proving.port_proof import prove_port

        tell = say or (lambda _: None)
        arguments = read_arguments(request.config)
        port = write_port(target, request.inputs, output.stem, arguments, request.checkpoint, tell)
        if port.written:
            # A proof can take long, and the source is of use without it.
            write_text(targets[0], port.source)
            write_text(targets[1], port.table)
        if port.missing:
            del paths[2:]  # there is no model yet that could have weights
        elif not request.no_proof:
            tell("converting weights")
            unproved = port.table
            prove_port(port, request.checkpoint, say)
            if port.table != unproved:
                write_text(writable(paths[1], read, force=True), port.table)
        if port.written and request.checkpoint and not port.missing:
            _convert(request.checkpoint, paths, request.config)
        if programs is not None:
            paths += _write_programs(port, programs, read)
    give("port", lambda: port_document(port, [str(path) for path in paths]), document,
         lambda: _text(port, paths, request.checkpoint), asked=not port.proved)  # fmt: skip
    if port.differs:
        return UNEQUAL
    if port.missing:
        return INCOMPLETE
    if port.proved or request.no_proof:
        return 0
    return port.verdict.exit_code if port.verdict is not None else MisfitError.exit_code


def _folder(name: str, force: bool) -> Path:
    """A folder for several files, which is new or empty if none may be replaced."""
    folder = Path(name)
    require_parent(folder, " with `--reproducers`")
    if folder.exists() and not folder.is_dir():
        raise UsageError(folder, "is not a folder", "give another name with `--reproducers`")
    if not force and folder.exists() and any(folder.iterdir()):
        raise UsageError(folder, "has files already", "give an empty folder, or `--force` to replace files")
    return folder


def _write_programs(port: WrittenPort, folder: Path, read: InputFiles) -> list[Path]:
    paths = [folder / f"{step.method.replace('.', '_') or 'step'}.py" for step in port.missing if step.program]
    if paths:
        folder.mkdir(exist_ok=True)
    for path, step in zip(paths, (step for step in port.missing if step.program), strict=True):
        write_text(writable(path, read, option="--reproducers"), step.program)
    return paths


def _convert(checkpoint: str, targets: list[Path], config: str | None) -> None:
    from wdport.conversion.convert import convert

    sys.path.insert(0, str(targets[0].parent))
    convert(checkpoint, targets[2], mapping=targets[1], config=config, force=True)


def _text(port: WrittenPort, targets: list[Path], checkpoint: str | None) -> Marked:
    if not port.written:
        return joined([f"not written: {port.missing[0]}"])
    torch = f" (torch: {port.torch_lines})" if port.torch_lines else ""
    size = f"{port.classes} {'class' if port.classes == 1 else 'classes'}, {port.lines} lines{torch}"
    stated = " ".join(f"--input '{one}'" for one in port.chosen)
    lines: list[Marked | str] = [
        *([f"inputs {stated}"] if stated else []),
        f"wrote {targets[0]}  {size}: {port.steps - sum(one.count for one in port.missing)} of {port.steps} steps",
        f"wrote {targets[1]}  the table",
    ]
    if port.missing:
        lines += [f"wrote {path}  a step alone, in PyTorch" for path in targets[2:]]
        lines += [marked(f"to write: {one}", "to write:", "doubtful") for one in port.missing]
        if port.differs:
            lines.append(
                marked(f"NOT equal: {port.differs} does not compute what PyTorch computes", "NOT equal", "bad")
            )
        else:
            lines.append(marked("equal: every other step computes what PyTorch computes", "equal", "good"))
        return joined(lines)
    lines += [f"wrote {targets[2]}  the weights of {checkpoint}"] if len(targets) > 2 else []
    if port.suggestion is not None:
        lines += [*outcome_lines(port.suggestion), *proof_notes(port.suggestion)]
    lines += [marked(f"note: {note}", "note:", "note") for note in port.notes]
    if port.verdict is None and not port.failure:
        weights = f"{checkpoint} {targets[2]}" if checkpoint and len(targets) > 2 else "CHECKPOINT CONVERTED"
        text = f"not proved: verify was skipped; wdport verify {weights} --mapping {targets[1]} compares the two models"
        lines.append(marked(text, "not proved", "doubtful"))
    return joined(lines)
