"""Ask the port, alone in its process, for its outputs in every case, before the reference computes anything."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from wdport.model import Array
from wdport.parity.fresh.confinement import FRAMEWORKS
from wdport.parity.fresh.messages import BrokenMessage, Message
from wdport.parity.fresh.process import Worker

RUNS: Final = (("float64", "plain"), ("float64", "compiled"), ("float32", "plain"), ("float32", "compiled"))
"""Every run of a case: its dtype, and how the model is called."""


@dataclass(frozen=True)
class Answered:
    """What the port answered in one run: outputs with their names, or why there are none."""

    outputs: tuple[Array, ...] = ()
    names: tuple[str, ...] = ()
    failure: str = ""


class PortAlone:
    """The port's process. Whatever it says, only arrays and the names of outputs are taken from it.

    ``failure`` says why it does not answer, "" if it does. ``enforced`` is what the kernel enforces, which it says
    before it imports the port.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.failure = ""
        self.enforced: tuple[str, ...] = ()
        self.input_shapes: list[list[int | None]] = []
        try:
            facts: Mapping[str, Any] = worker.answer().facts
            self.enforced = tuple(map(str, facts.get("enforced") or ()))
            opened: Mapping[str, Any] = worker.ask({"do": "open"}).facts
            self.failure = _failure(opened)
            self.input_shapes = [[None if size is None else int(size) for size in shape]
                                 for shape in opened.get("inputs") or ()]  # fmt: skip
        except (BrokenMessage, TypeError, ValueError) as error:
            self.failure = f"its process gives {error}"

    def use(self, dtype: str, names: Sequence[str], arrays: Sequence[Array]) -> None:
        """Give it weights, or, without names, those of the converted file."""
        if not self.failure:
            try:
                self.failure = _failure(
                    self._worker.ask({"do": "use", "dtype": dtype, "names": list(names)}, arrays).facts
                )
            except BrokenMessage as error:
                self.failure = f"its process gives {error}"

    def run(self, dtype: str, mode: str, inputs: Sequence[Array]) -> Answered:
        """One run."""
        if self.failure:
            return Answered(failure=self.failure)
        try:
            return _answered(self._worker.ask({"do": "run", "dtype": dtype, "how": mode}, inputs))
        except BrokenMessage as error:
            return Answered(failure=f"its process gives {error}")


def _failure(facts: Mapping[str, Any]) -> str:
    return f"it raises {str(facts['failure'])[:300]}" if facts.get("failure") is not None else ""


def _answered(message: Message) -> Answered:
    failure, names = _failure(message.facts), message.facts.get("names")
    if failure or not message.arrays:
        return Answered(failure=failure or "it returns no array")
    output_names = tuple(map(str, names)) if isinstance(names, list) else ()
    return Answered(message.arrays, output_names if len(set(output_names)) == len(message.arrays) else ())


def hidden_paths(files: Collection[object]) -> list[str]:
    """What the port's process cannot read: these files of the reference, and PyTorch."""
    return [*(os.path.abspath(str(file)) for file in files), *_frameworks()]


def _frameworks() -> Iterator[str]:
    for name in FRAMEWORKS:
        spec = find_spec(name)
        yield from (spec.submodule_search_locations or () if spec is not None else ())


def confinement_notice(enforced: Sequence[str]) -> str:
    """How the port's process was confined, as a sentence."""
    by = f"by {' and '.join(enforced)} and Python's audit hooks" if enforced else "by Python's audit hooks alone"
    return f"the port ran without PyTorch, the reference's files, other programs and network, {by}"
