"""The document of ``wdport port --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from wdport.base.shared_types import Count, about
from wdport.parity.proving.port import WrittenPort
from wdport.parity.verdict import VerdictDocument


@dataclass(frozen=True)
class MissingStep:
    """A step of the PyTorch model that has no counterpart."""

    step: Annotated[str, about("The call in PyTorch.")]
    why: Annotated[str, about("Why it is not written.")]
    places: Annotated[Sequence[str], about("Files and lines of the PyTorch code that calls it, as far as known.")]
    method: Annotated[str, about("The method that is left to write, such as `Net.cdist`; empty without a source.")]
    count: Annotated[Count, about("How often the step is computed.")]


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
    source: Annotated[str, about("The Keras source; empty if it could not be written.")]
    table: Annotated[str, about("The mapping table; empty if it could not be written.")]
    missing: Annotated[Sequence[MissingStep], about("The steps without a counterpart; without a source, the one that "
                                                    "stopped the command.")]  # fmt: skip
    differs: Annotated[str, about("A step that is written but does not compute what PyTorch computes; empty if there "
                                  "is none. It is known if steps are missing.")]  # fmt: skip
    notes: Annotated[Sequence[str], about("What the proof leaves out, one sentence each.")]
    failure: Annotated[str, about("Why the proof could not run; empty if it ran, or if there was none.")]
    verdict: Annotated[VerdictDocument | None, about("The proof; null if there is none.")]


def port_document(port: WrittenPort, files: Sequence[str]) -> PortDocument:
    """A port and the files that were written of it."""
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
        missing=[MissingStep(one.step, one.why, one.places, one.method, one.count) for one in port.missing],
        differs=port.differs,
        notes=port.notes,
        failure=port.failure,
        verdict=None if port.verdict is None else port.verdict.document(),
    )
