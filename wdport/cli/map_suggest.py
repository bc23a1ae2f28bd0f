"""`wdport map suggest`: derive a mapping table from two running models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wdport.base.errors import MisfitError, UsageError
from wdport.base.marked_text import Marked, joined, marked
from wdport.base.options import FORCE, INPUTS, JSON, MODEL, Option
from wdport.cli.click_options import verb
from wdport.cli.console import console, counted, steps
from wdport.cli.documents import give, require_document
from wdport.cli.machine import require_torch, start_jax_on_cpu
from wdport.cli.signals import signal_of
from wdport.files.atomic import write_text
from wdport.files.inputs import InputFiles
from wdport.files.outputs import writable

if TYPE_CHECKING:
    from wdport.parity.proving.suggest import Suggestion


PAUSE = 0.3
"""Seconds between checks of the files under --watch."""

GRACE = 1.0
"""Seconds that an interrupted command has to exit."""

ENDS = (0, 130, 143)
"""Exit codes that end --watch: done, interrupted, terminated."""


@dataclass(frozen=True, kw_only=True)
class SuggestRequest:
    """The command's options."""

    reference: Annotated[str | None, Option("The PyTorch model.", "MODULE:FUNCTION", group="model")] = None
    model: Annotated[str | None, replace(MODEL, help="The Keras model.")] = None
    inputs: Annotated[tuple[str, ...], INPUTS] = ()
    config: Annotated[str | None, Option("Arguments for both functions (YAML).", files="table")] = None
    checkpoint: Annotated[str | None, Option(
        "Also prove the table with the weights of this checkpoint.", files="checkpoint")] = None  # fmt: skip
    output: Annotated[str | None, Option("File to write the table to.  [default: print it]", files="table")] = None
    no_proof: Annotated[bool, Option("Skip verify; the table is then not proved.")] = False
    json_file: Annotated[str | None, JSON] = None
    watch: Annotated[bool, Option("Try again whenever a file in the folder of the Keras model is saved.")] = False
    force: Annotated[bool, FORCE] = False


@verb("suggest", SuggestRequest, short_help="Find the mapping table for a PyTorch model and a Keras model.")
def command(request: SuggestRequest) -> int:
    """Find the mapping table for a PyTorch model and a Keras model by running both.

    Both models get the same random weights, layer by layer, in the order in which the Keras model calls its layers. A
    layer is matched to the module that has the same inputs and the same output. Then verify proves the table with other
    weights and inputs. If the two models differ, the command names the first layer that differs.

    Without --reference, the command guesses the table from the names and shapes in the checkpoint, without proof.
    """
    reference, model, checkpoint, config = request.reference, request.model, request.checkpoint, request.config
    if not model:
        raise UsageError("--keras-model", "is missing", "name the function of the Keras model, as MODULE:FUNCTION")
    if not reference and not checkpoint:
        raise UsageError("--reference", "is missing", "name the function of the PyTorch model, or give --checkpoint")
    if reference:
        require_torch("wdport map suggest")
    read = InputFiles(checkpoint=checkpoint, config=config)
    target = writable(Path(request.output), read, request.force) if request.output else None
    path = target.path if target else None
    document = require_document(request.json_file, read, {"-o": path}, request.force)
    if request.watch:
        return _watch(model)
    start_jax_on_cpu()
    from wdport.parity.proving.proof import prove
    from wdport.parity.proving.suggest import Models, loads_itself, suggest, suggestion_document

    models = Models(reference or "", model, request.inputs, read_arguments(config), checkpoint)
    if not reference:
        from wdport.parity.proving.by_names import suggest_by_names

        guessed = suggest_by_names(models)
        if target is not None:
            write_text(target, guessed.text())
        give("suggestion", lambda: suggestion_document(guessed), document, lambda: _text(guessed, path),
             asked=target is None)  # fmt: skip
        return 0
    with steps() as say, redirect_stdout(sys.stderr):
        suggestion = suggest(models, say)
        if not request.no_proof:
            prove(suggestion, say=say)
            if checkpoint and suggestion.proved and not loads_itself(models):
                prove(suggestion, checkpoint, say=say)
    if target is not None and suggestion.stop is None:
        write_text(target, suggestion.text())
    asked = target is None or not suggestion.proved
    give("suggestion", lambda: suggestion_document(suggestion), document, lambda: _text(suggestion, path), asked)
    if suggestion.stop is not None:
        return MisfitError.exit_code
    if suggestion.proved or request.no_proof:
        return 0
    return suggestion.verdict.exit_code if suggestion.verdict is not None else MisfitError.exit_code


def _watch(model: str) -> int:
    """Run the command in a separate process until it finds a table, again whenever a Python file in the folder of the
    Keras model is saved."""
    from wdport.recording.user_code import search_modules_in

    search_modules_in(os.getcwd())
    spec = find_spec(model.partition(":")[0])
    if spec is None or not spec.origin:
        raise UsageError(model, "its file is not found", "run in your project's folder and environment")
    folder, words = Path(spec.origin).parent, sys.argv[sys.argv.index("suggest", 1) + 1 :]
    repeated = [sys.executable, "-m", "wdport", "map", "suggest", *(word for word in words if word != "--watch")]
    while True:
        before = _times(folder)
        done = _try(repeated)
        if done in ENDS:
            return done
        console.note(f"watching {folder}; save the model to try again, or press Ctrl-C")
        while _times(folder) == before:
            time.sleep(PAUSE)


def _try(command: list[str]) -> int:
    """The exit code of a command, which reports an interruption itself: Ctrl-C is sent to it as well."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt as error:
            number = signal_of(error) or signal.SIGINT
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:  # sent only to this process
                process.send_signal(number)
            process.wait()
            return 128 + number


def _times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*.py")) if path.is_file()}


def read_arguments(config: str | None) -> dict[str, object]:
    if config is None:
        return {}
    from wdport.mapping.strict_yaml import read_yaml

    values = read_yaml(Path(config), "give a file of `name: value` pairs").plain()
    if not isinstance(values, dict):
        raise MisfitError(Path(config), "is not a list of `name: value` pairs", "write it as one")
    return values


def _text(suggestion: Suggestion, target: Path | None) -> Marked:
    runs = f"{counted(suggestion.passes, 'run')} of the Keras model, {suggestion.seconds:.1f} s"
    if suggestion.stop is not None:
        return joined(_stopped(suggestion, runs))
    lines = [f"found {suggestion.layers} layers in {runs}", *outcome_lines(suggestion)]
    lines += [marked(f"doubt: {doubt}", "doubt:", "doubtful") for doubt in suggestion.doubts]
    lines += proof_notes(suggestion)
    lines.append(f"wrote {target}" if target is not None else f"\n{suggestion.text()}")
    return joined(lines)


def outcome_lines(suggestion: Suggestion) -> list[Marked | str]:
    """The outcome of the proof, with what differs or was not compared."""
    if suggestion.verdict is None:
        return [_unproved(suggestion.failure)] if suggestion.failure else []
    if suggestion.proved:
        return [marked("proved: verify finds the two models equal with other weights and inputs", "proved", "good")]
    differs = suggestion.verdict.exit_code == 1
    lines: list[Marked | str]
    lines = [_unproved("verify finds a difference" if differs else "verify could not compare everything")]
    for fault in suggestion.verdict.faults[:3]:
        fed = f", in what it feeds {fault.feeds}" if fault.feeds else ""
        error = f"float64 error {fault.logic:.2g}"
        if fault.logic <= suggestion.verdict.bound("logic"):
            error = f"float32 error {fault.ratio:.2g} times PyTorch's"
        lines.append(f"  {fault.candidate or 'the network itself'}{fed}: {error}")
    failed = [finding for gate in suggestion.verdict.gates for finding in gate.findings if not finding.notice]
    lines += [] if suggestion.verdict.faults else [f"  {finding}" for finding in failed[:1]]
    for gate in [gate for gate in suggestion.verdict.gates if not gate.complete][:2]:
        lines.append(f"  {gate.title}: {gate.compared} of {gate.expected} compared")
        lines += [f"    {finding}" for finding in gate.findings[:3]]
    return lines


def _unproved(reason: str) -> Marked:
    return marked(f"NOT proved: {reason}", "NOT proved", "bad")


def proof_notes(suggestion: Suggestion) -> list[Marked]:
    """What the search did not examine, and the preflight gate's notes on the proof as a whole, such as on numbers in
    the code that no size reached."""
    preflight = suggestion.verdict.gates[0].findings if suggestion.verdict is not None and suggestion.proved else ()
    limits = (str(finding) for finding in preflight if finding.notice and not finding.subject)
    return [marked(f"note: {note}", "note:", "note") for note in (*suggestion.notes, *limits)]


def _stopped(suggestion: Suggestion, runs: str) -> list[str]:
    stop = suggestion.stop
    assert stop is not None
    lines = [f"stopped after {suggestion.layers} layers, {runs}{'' if suggestion.exhausted else ', with guesses left'}"]
    if stop.last.keras:
        lines.append(f"  the last layer that agrees:  {stop.last.keras} = {stop.last.torch}")
    else:
        lines.append("  no layer agrees")
    first = " = ".join(name for name in (stop.first.keras or "the model's outputs", stop.first.torch) if name)
    lines.append(f"  the first that does not:     {first}")
    lines.append(f"    {stop.what}")
    lines += [f"    {stop.wanted}"] if stop.wanted else []
    lines += [f"    probably: {cause}" for cause in stop.causes]
    lines += proof_notes(suggestion)
    return lines
