"""Make the outline of a PyTorch model: build it, run it with two batch sizes, and describe its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wdport import recorder
from wdport.errors import MisfitError, UsageError, error_of
from wdport.families.choice import own_model
from wdport.porting.outline.result import Outline
from wdport.recorder import CASES, Input

if TYPE_CHECKING:
    import torch

    from wdport.model import Array

BATCHES = (CASES[0].batch, CASES[0].batch - 1)
"""The batch sizes of the two runs."""


def outline_of_table(
    mapping: str,
    reference: str | None = None,
    inputs: Sequence[str] = (),
    arguments: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
) -> Outline:
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
    target: str,
    inputs: Sequence[str] = (),
    arguments: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
) -> Outline:
    """The outline of the model of ``module:function``, called with ``arguments``, or with ``checkpoint`` if it takes a
    path. ``inputs`` are strings such as ``x: b 3 48 48``. Raises :class:`WdportError`."""
    try:
        declared = [recorder.read_input(text) for text in inputs]
    except recorder.Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal
    return _outline(target, declared, arguments, checkpoint)


def _outline(
    target: str, declared: Sequence[Input], arguments: Mapping[str, object] | None, checkpoint: str | None
) -> Outline:
    try:
        module, make_inputs = recorder.build_alone(target, checkpoint, arguments)
        input_function = None if declared else make_inputs
        first, second = (
            recorder.checked_inputs(input_function, replace(CASES[0], batch=batch), target, declared)
            for batch in BATCHES
        )
    except recorder.Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal
    return outline_of(module, target, declared, first, second)


def outline_of(
    module: torch.nn.Module, target: str, declared: Sequence[Input], first: Sequence[Array], second: Sequence[Array]
) -> Outline:
    """The outline of a float64 module, run on inputs of two batch sizes."""
    import keras
    import torch

    from wdport.porting.outline.batch import Batches, CallMismatchError, merge
    from wdport.porting.outline.flow import Flow
    from wdport.porting.outline.settings import settings_of, torch_class, torch_text
    from wdport.porting.outline.steps import Steps, is_layer
    from wdport.porting.outline.trace import trace

    names = [model_input.name for model_input in declared] or [f"input_{index}" for index in range(len(first))]
    run, notes = trace(module, names, first, is_layer), []
    try:
        merge(run, trace(module, names, second, is_layer), Batches(*BATCHES))
    except CallMismatchError:
        notes.append(f"with a batch of {BATCHES[1]} it calls other functions: all sizes are those of {BATCHES[0]}")
    root = Steps(run, Flow(run, declared)).root()
    reads = "reads values of tensors, so another input may take another way through its code"
    notes += [f"{path or 'the model'} {reads}" for path in run.reads]
    called = {step.path.partition("#")[0] for step in root.walk() if step.what == "layer"}
    uncalled = {name: torch_text(torch_class(part), settings_of(part))
                for name, part in module.named_modules() if is_layer(part) and not _covered(name, called)}  # fmt: skip
    return Outline(
        target, root, root.inputs, uncalled, sum(p.numel() for p in module.parameters()), BATCHES[0], tuple(notes),
        {"torch": torch.__version__, "keras": keras.__version__},
    )  # fmt: skip


def _covered(name: str, called: Collection[str]) -> bool:
    """Whether a layer was called, or is part of one that was."""
    return name in called or any(name.startswith(f"{layer}.") for layer in called)
