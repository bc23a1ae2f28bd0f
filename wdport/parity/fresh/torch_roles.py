"""The processes that run PyTorch: the reference's side, from the checkpoint; the comparison of layers; and the known
faults.

They are not confined: the reference is the user's own code, and the layers are compared as :func:`wdport.verify` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from wdport.base.errors import WdportError
from wdport.base.jax_settings import reset_jax
from wdport.compare.activities import Say
from wdport.compare.calls import Case
from wdport.compare.reference import Live, translated
from wdport.conversion.values import source_tensors
from wdport.models.interface import Array
from wdport.parity.file_pair import BothFiles, both_files
from wdport.parity.fresh.process import BrokenMessage, from_json, receive, send, to_json
from wdport.parity.model_pair import own_reference, user_reference
from wdport.parity.planned_items import expected
from wdport.parity.selftest.run import canary_gate
from wdport.parity.verify import compare_files
from wdport.parity.verify_options import Pair, described
from wdport.recording.calls import cast
from wdport.recording.cases import CASES
from wdport.recording.conditioning import conditioning, float32_errors
from wdport.recording.errors import one_line
from wdport.recording.fitted_inputs import checked_inputs
from wdport.recording.float64 import lifted
from wdport.recording.runs import run
from wdport.recording.torch_functions import highest_precision


class ReferenceModel:
    """The reference of both files, with the checkpoint's weights or those that it is given."""

    def __init__(self, files: BothFiles) -> None:
        self._files, prepared = files, files.prepared
        tensors = source_tensors(prepared, files.converted.rounded, files.converted.path)
        self.live: Live = (
            user_reference(files.target, prepared, files.pair.key, tensors if files.converted.rounded else None)
            if files.target
            else own_reference(prepared, tensors)
        )
        self._tensors = tensors

    def inputs(self, case: Case) -> tuple[Array, ...]:
        """The inputs of the user's own function; none if they are drawn as the table or the family states."""
        if self.live.make_inputs is None:
            return ()
        with translated():
            return checked_inputs(self.live.make_inputs, case, "the reference")

    def masks(self) -> list[tuple[bool | None, bool]]:
        """What each input's masks leave out, see :func:`wdport.recording.fitted_inputs.with_keys`."""
        if any(spec.draw == "mask" for spec in self.live.drawn):
            self.live.cases(CASES)
        return [(spec.hides, spec.right) for spec in self.live.drawn]

    def use(self, names: Sequence[str], arrays: Sequence[Array]) -> list[str]:
        """Take these tensors as weights; returns the names that the reference does not have."""
        changed = dict(zip(names, arrays, strict=True))
        if not self._files.target:
            self.live = own_reference(self._files.prepared, {**self._tensors, **changed})
            return []
        import torch

        missing: set[str] = set()
        for module in self.live.modules.values():
            state = module.state_dict()
            missing |= changed.keys() - state.keys()
            for name in changed.keys() & state.keys():
                # In place, so that tied parameters stay one tensor. torch warns of arrays that are not writable.
                state[name].copy_(torch.from_numpy(changed[name].copy()))
        return sorted(missing)

    def run(self, inputs: tuple[Array, ...]) -> tuple[list[Array], int, list[str]]:
        """The float64 outputs, then the float32 ones and the float64 ones of the rounded inputs; their number, and
        their names."""
        double, single = self.live.modules["float64"], self.live.modules["float32"]
        rounded, names = cast(inputs, np.float32), list[str]()
        with highest_precision():
            narrow = run(single, rounded)
            with lifted():
                exact, truth = run(double, inputs, names), run(double, cast(rounded, np.float64))
        return [*exact, *narrow, *truth], len(exact), names

    def spread(self, inputs: tuple[Array, ...], dtype: str) -> list[Array]:
        """How far every value of the outputs moves under one rounding; for "float32", the largest errors of the
        reference itself."""
        case = Case(0, 1, 1.0)  # only its seed and gain are used
        if dtype == "float32":
            return list(float32_errors(self.live.modules, case, inputs).outputs)
        return list(conditioning(self.live.modules["float64"], case, inputs).outputs)


def _pair(arguments: Mapping[str, Any]) -> Pair:
    return from_json(Pair, arguments["pair"])


def serve_reference(job: Mapping[str, Any], _: list[str], questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every question; an error of wdport ends the process after its answer."""
    try:
        pair = _pair(job["arguments"])
        with both_files(pair, described(pair.converted, pair.own)) as files:
            _answer(ReferenceModel(files), questions, answers)
    except WdportError as error:
        send(answers, {"error": error.as_data})


def _answer(model: ReferenceModel, questions: IO[bytes], answers: IO[bytes]) -> None:
    while True:
        try:
            asked = receive(questions)
        # The process that asks has ended, or closed its side.
        except BrokenMessage:
            return
        facts: Mapping[str, Any] = asked.facts
        if facts["do"] == "inputs":
            send(answers, {}, model.inputs(Case(facts["seed"], facts["batch"], facts["scale"])))
        elif facts["do"] == "masks":
            send(answers, {"masks": model.masks()})
        elif facts["do"] == "use":
            send(answers, {"missing": model.use(facts["names"], asked.arrays)})
        elif facts["do"] == "spread":
            send(answers, {}, model.spread(asked.arrays, facts["dtype"]))
        else:
            try:
                outputs, count, names = model.run(asked.arrays)
            # The user's code may raise anything.
            except Exception as error:
                send(answers, {"failure": one_line(error)})
            else:
                send(answers, {"count": count, "names": names}, outputs)


def serve_task(job: Mapping[str, Any], _: list[str], questions: IO[bytes], answers: IO[bytes]) -> None:
    """Wait for the message to begin, then send progress, and then the result of the one task or its error."""
    # Imported while the port runs alone. Its code is not run here before that has ended: it could compute right answers
    # for the process that must not know them.
    import torch  # noqa: F401

    try:
        receive(questions)
    except BrokenMessage:  # the process that waits for the result has ended
        return
    reset_jax()
    try:
        send(answers, TASKS[job["role"]](job["arguments"], lambda text: send(answers, {"say": text})))
    except WdportError as error:
        send(answers, {"error": error.as_data})


def _layers(arguments: Mapping[str, Any], say: Say) -> dict[str, object]:
    """The verdict of :func:`wdport.verify`."""
    resume = Path(arguments["resume"]) if arguments["resume"] else None
    return {"verdict": to_json(compare_files(_pair(arguments), say, arguments["repro"], resume))}


def _names(arguments: Mapping[str, Any], _: Say) -> dict[str, object]:
    """The names of gates and layers."""
    return asdict(expected(_pair(arguments)))


def _known_faults(arguments: Mapping[str, Any], _: Say) -> dict[str, object]:
    """The gate of the known faults."""
    return {"gate": to_json(canary_gate(arguments["loose"], arguments["source"]))}


TASKS: Final[Mapping[str, Callable[[Mapping[str, Any], Say], dict[str, object]]]] = {
    "layers": _layers,
    "names": _names,
    "known faults": _known_faults,
}
"""By role, the task of a process that has only one, which returns its result."""
