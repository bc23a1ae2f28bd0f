"""The processes that run PyTorch: the reference's side, from the checkpoint; and the comparison of layers.

They are not confined: the reference is the user's own code, and the layers are compared as :func:`wdport.verify` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from wdport.base.errors import WdportError
from wdport.compare.calls import Case
from wdport.compare.reference import Live, translated
from wdport.models.interface import Array
from wdport.parity.file_pair import BothFiles, both_files
from wdport.parity.fresh.process import BrokenMessage, from_json, receive, send, to_json
from wdport.parity.model_pair import own_reference, source_tensors, user_reference
from wdport.parity.planned_items import expected
from wdport.parity.verify import compare_files
from wdport.parity.verify_options import Pair, described
from wdport.recorder import (
    CASES,
    cast,
    checked_inputs,
    conditioning,
    float32_errors,
    highest_precision,
    lifted,
    one_line,
    run,
)


class ReferenceModel:
    """The reference of both files, with the checkpoint's weights or those that it is given."""

    def __init__(self, files: BothFiles) -> None:
        self._files, prepared = files, files.prepared
        tensors = source_tensors(prepared, files.converted)
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
        """What each input's masks leave out, see :func:`wdport.recorder.with_keys`."""
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


def _pair(job: Mapping[str, Any]) -> Pair:
    return from_json(Pair, job["arguments"]["pair"])


def serve_reference(job: Mapping[str, Any], _: list[str], questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer every question; an error of wdport ends the process after its answer."""
    try:
        pair = _pair(job)
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


def serve_layers(job: Mapping[str, Any], _: list[str], __: IO[bytes], answers: IO[bytes]) -> None:
    """Send progress, and then the verdict of :func:`wdport.verify` or its error.

    For the role ``names``, send the names of gates and layers.
    """
    arguments: Mapping[str, Any] = job["arguments"]
    try:
        if job["role"] == "names":
            send(answers, asdict(expected(_pair(job))))
            return
        resume = Path(arguments["resume"]) if arguments["resume"] else None
        verdict = compare_files(_pair(job), lambda text: send(answers, {"say": text}), arguments["repro"], resume)
        send(answers, {"verdict": to_json(verdict)})
    except WdportError as error:
        send(answers, {"error": error.as_data})
