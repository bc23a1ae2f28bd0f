"""The document of ``wdport port --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from wdport.parity.verdict import VerdictDocument
from wdport.porting.port import WrittenPort
from wdport.shared_types import Count, about


@dataclass(frozen=True)
class MissingStep:
    """A step of the PyTorch model that has no counterpart."""

    step: Annotated[str, about("Name of the function or layer in PyTorch.")]
    why: Annotated[str, about("Why it is not written.")]
    place: Annotated[str, about("File and line of the PyTorch code that calls it; empty if unknown.")]


@dataclass(frozen=True)
class PortDocument:
    """What ``wdport port --json`` prints."""

    written: Annotated[bool, about("Whether the source and the table were written.")]
    proved: Annotated[bool, about("Whether `verify` found the two models equal.")]
    files: Annotated[Sequence[str], about("Paths of the files that were written: the source, the table and, with a "
                                          "checkpoint, the weights.")]  # fmt: skip
    classes: Annotated[Count, about("Number of classes in the source.")]
    lines: Annotated[Count, about("Number of lines of the source.")]
    torch_lines: Annotated[Count, about("Number of lines of the PyTorch classes that are called.")]
    steps: Annotated[Count, about("Number of steps of the PyTorch model.")]
    inputs: Annotated[Sequence[str], about("The inputs as the table states them.")]
    source: Annotated[str, about("The Keras source; empty if a step is missing.")]
    table: Annotated[str, about("The mapping table; empty if a step is missing.")]
    missing: Annotated[MissingStep | None, about("The first step without a counterpart; null if there is none.")]
    notes: Annotated[Sequence[str], about("What the proof leaves out, one sentence each.")]
    failure: Annotated[str, about("Why the proof could not run; empty if it ran, or if there was none.")]
    verdict: Annotated[VerdictDocument | None, about("The proof; null if there is none.")]


def port_document(port: WrittenPort, files: Sequence[str]) -> PortDocument:
    """A port and the files that were written of it."""
    missing = port.missing
    return PortDocument(
        written=port.written,
        proved=port.proved,
        files=files if port.written else (),
        classes=port.classes,
        lines=port.lines,
        torch_lines=port.torch_lines,
        steps=port.steps,
        inputs=port.inputs,
        source=port.source,
        table=port.table,
        missing=None if missing is None else MissingStep(missing.step, missing.why, missing.place),
        notes=port.notes,
        failure=port.failure,
        verdict=None if port.verdict is None else port.verdict.document(),
    )
