"""Make the outline of a PyTorch model: run it with two batch sizes, describe its steps, and fold blocks of the same
structure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from wdport.base.errors import MisfitError, UsageError
from wdport.compare.reference import translated
from wdport.families.registry import own_model
from wdport.porting.graph import with_sources
from wdport.porting.outline.counterparts import LAYERS
from wdport.porting.outline.flow import AxisFlow
from wdport.porting.outline.result import Outline, Step
from wdport.porting.outline.steps import Steps, is_layer
from wdport.porting.settings import torch_text
from wdport.recording.cases import CASES
from wdport.recording.fitted_inputs import call_by_name, checked_inputs
from wdport.recording.input_text import read_inputs
from wdport.recording.inputs import Input
from wdport.recording.user_model import build_alone

if TYPE_CHECKING:
    import torch

    from wdport.models.interface import Array

MOST_STEPS = 8
"""Maximum number of steps in one repetition."""

LEAST_SAVED = 3
"""Minimum number of lines saved."""

_NUMBER = re.compile(r"\d+")
_CALL = re.compile(r"#\d+")
_PICKING = ("getitem", "select", "narrow")
"""Functions that may read another index in each repetition."""


@dataclass(frozen=True)
class Folded:
    """Steps that are repeated ``times`` times; ``names`` are their names with ``<n>`` for the number that starts at
    ``first`` and grows by ``by``, if there is one; ``chained``: each repetition reads the output of the previous
    one."""

    steps: tuple[Step, ...]
    times: int
    names: tuple[str, ...]
    first: int = 0
    by: int = 1
    chained: bool = False

    @property
    def range(self) -> str:
        """``n 0 to 11``; "" if the names have no number."""
        step = f" by {self.by}" if self.by != 1 else ""
        span = f"n {self.first} to {self.first + self.by * (self.times - 1)}{step}"
        return span if any("<n>" in name for name in self.names) else ""


def fold(steps: Sequence[Step]) -> list[Folded]:
    """Fold the repetitions in these steps; a step without repetitions has ``times`` 1."""
    signatures, sizes = [_signature(step) for step in steps], [_lines(step) for step in steps]
    folded, position = [], 0
    while position < len(steps):
        best = Folded((steps[position],), 1, (steps[position].name,))
        saved = LEAST_SAVED - 1
        for period in range(1, min(MOST_STEPS, (len(steps) - position) // 2) + 1):
            candidate = _repeated(steps, signatures, position, period)
            gain = (candidate.times - 1) * sum(sizes[position : position + period])
            if gain > saved:
                best, saved = candidate, gain
        folded.append(best)
        position += best.times * len(best.steps)
    return folded


def _repeated(steps: Sequence[Step], signatures: Sequence[object], position: int, period: int) -> Folded:
    """Fold the consecutive repetitions of the steps from ``position`` on whose names have increasing numbers."""
    times, by = 1, 0
    names = [step.name for step in steps[position : position + period]]
    while position + (times + 1) * period <= len(steps):
        start = position + times * period
        if signatures[start : start + period] != signatures[position : position + period]:
            break
        shift = _shift(names, [step.name for step in steps[start : start + period]])
        # Every repetition must be as far from the first as the second is, times its number.
        if shift is None or shift < 0 or (times > 1 and shift != by * times):
            break
        by = shift if times == 1 else by
        times += 1
    if times == 1:
        return Folded(tuple(steps[position : position + period]), 1, tuple(names))
    patterns, first = _patterns(names, [step.name for step in steps[position + period : position + 2 * period]])
    inputs = steps[position + period].inputs
    chained = bool(inputs) and inputs[0].source.partition("[")[0] == steps[position + period - 1].name
    return Folded(tuple(steps[position : position + period]), times, patterns, first, by or 1, chained)


def _numbers(name: str) -> list[int]:
    """The numbers in a path, without the number of the call."""
    return [int(number) for number in _NUMBER.findall(name.partition("#")[0])]


def _shift(names: Sequence[str], others: Sequence[str]) -> int | None:
    """The common difference of the numbers that differ, if there is one."""
    pairs = [pair for a, b in zip(names, others, strict=True) for pair in zip(_numbers(a), _numbers(b), strict=True)]
    shifts = {b - a for a, b in pairs if a != b}
    return None if len(shifts) > 1 else next(iter(shifts), 0)


def _patterns(names: Sequence[str], others: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The names with ``<n>`` for the number that changes, and its first value."""
    first, templates = 0, []
    for name, other in zip(names, others, strict=True):
        pairs = list(zip(_numbers(name), _numbers(other), strict=True))
        first = next((a for a, b in pairs if a != b), first)
        numbers = ["<n>" if a != b else str(a) for a, b in pairs]
        path, call, count = name.partition("#")
        parts = zip(_NUMBER.split(path), [*numbers, ""], strict=True)
        templates.append("".join(text for pair in parts for text in pair) + call + count)
    return tuple(templates), first


def _lines(step: Step) -> int:
    return 1 + sum(map(_lines, step.steps))


def _signature(step: Step) -> object:
    """A key that is equal for repetitions of a step."""
    texts = step.relative if step.what == "function" else (step.torch, step.keras_text)
    plain = [_CALL.sub("", text) for text in texts]
    if not step.number or step.name in _PICKING:
        plain = [_NUMBER.sub("#", text) for text in plain]
    settings = {} if step.name in _PICKING else dict(step.settings)
    sizes = [value.sizes for value in (*step.inputs, *step.outputs)]
    notes = [_NUMBER.sub("#", note) for note in step.notes]
    name = _NUMBER.sub("#", _CALL.sub("", step.name))
    return step.what, name, step.type, step.kind, repr(settings), plain, sizes, notes, [*map(_signature, step.steps)]


# Sizes that differ between the runs depend on the batch.
BATCHES = (CASES[0].batch, CASES[0].batch - 1)
"""The batch sizes of the two runs."""


def outline_of_table(
    mapping: str, reference: str | None = None, inputs: Sequence[str] = (),
    arguments: Mapping[str, object] | None = None, checkpoint: str | None = None,
) -> Outline:  # fmt: skip
    """The outline of the model that a table names; ``arguments`` hold the values that its ``config`` requires."""
    family = own_model(mapping, None, reference, inputs)
    if family is None or not family.reference:
        fix = "add `torch: MODULE:FUNCTION`, or give `--reference`"
        raise UsageError(Path(mapping), "does not name a PyTorch model of your own", fix)
    values = arguments or {}
    if missing := [key for key in family.table.config if key not in values]:
        what = f"{', '.join(missing)} not given, but required by the table"
        raise MisfitError(Path(mapping), what, "give `--config FILE`")
    return _outline(family.reference, family.told(), {key: values[key] for key in family.table.config}, checkpoint)


def outline(
    target: str, inputs: Sequence[str] = (), arguments: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
) -> Outline:  # fmt: skip
    """The outline of the model of ``module:function``, called with ``arguments``, or with ``checkpoint`` if it takes a
    path. ``inputs`` are strings such as ``x: b 3 48 48``. Raises :class:`WdportError`."""
    with translated():
        declared = read_inputs(inputs)
    return _outline(target, declared, arguments, checkpoint)


def _outline(
    target: str, declared: Sequence[Input], arguments: Mapping[str, object] | None, checkpoint: str | None
) -> Outline:
    with translated():
        module, make_inputs = build_alone(target, checkpoint, arguments)
        call_by_name(module, declared)
        input_function, cases = None if declared else make_inputs, [replace(CASES[0], batch=batch) for batch in BATCHES]
        first, second = (checked_inputs(input_function, case, target, declared) for case in cases)
    return outline_of(module, target, declared, first, second)


def outline_of(
    module: torch.nn.Module, target: str, declared: Sequence[Input], first: Sequence[Array], second: Sequence[Array]
) -> Outline:
    """The outline of a float64 module, run on inputs of two batch sizes."""
    import keras
    import torch

    from wdport.porting.tracing import Batches, CallMismatchError, merge, trace

    names = [model_input.name for model_input in declared] or [f"input_{index}" for index in range(len(first))]
    run, notes = with_sources(trace(module, names, first, is_layer)), []
    try:
        merge(run, with_sources(trace(module, names, second, is_layer)), Batches(*BATCHES))
    except CallMismatchError:
        notes.append(f"with a batch of {BATCHES[1]} it calls other functions: all sizes are those of {BATCHES[0]}")
    root = Steps(run, AxisFlow(run, declared)).root()
    reads = "reads values of tensors, so another input may take another way through its code"
    notes += [f"{path or 'the model'} {reads}" for path in run.reads]
    called = {step.path.partition("#")[0] for step in root.walk() if step.what == "layer"}
    inside = tuple(f"{layer}." for layer in called)
    uncalled = {name: torch_text(part.torch, part.settings) for name, part in run.modules.items()
                if part.torch in LAYERS and name not in called and not name.startswith(inside)}  # fmt: skip
    weights = sum(prod(tensor.shape) for tensor in run.tensors.values()
                  if tensor.kind == "parameter" and not tensor.same_as)  # fmt: skip
    return Outline(
        target, root, root.inputs, uncalled, weights, BATCHES[0], tuple(notes),
        {"torch": torch.__version__, "keras": keras.__version__},
    )  # fmt: skip
