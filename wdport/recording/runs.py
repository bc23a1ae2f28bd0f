"""Runs of a network in which every call is recorded, or every module is given the recorded inputs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Collection, Mapping, Sequence

import numpy as np

from .calls import MOST_CALLS, Call, Calls, Note, Outputs, cast, inside, layer_of, silent
from .float64 import lifted
from .inner_calls import check_recomputed, recompute, steps_of
from .nested import as_tensor, has_names, leaves, named_leaves, tensors_of, to_array
from .torch_functions import by_submodules, equals_in_order, highest_precision
from .watching import fed_arguments, inputs_of, outputs_of, shapes_of, watched, with_tensors

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array, Compute, Given, Nested


@dataclass(frozen=True)
class CaseSweep:
    """Outputs of a module that is fed one number per sample for many numbers: ``exact`` in float64, ``single`` in
    float32, and ``truth`` in float64 from the rounded numbers."""

    exact: Array
    single: Array
    truth: Array


def scalar_fed(inputs: Sequence[Array], calls: Calls) -> dict[str, int]:
    """Modules whose only input is one of the network's inputs of shape (B,), and the index of that input."""
    indices = {}
    for name, call in calls.items():
        arrays = leaves(list(call.inputs))
        for index, value in enumerate(inputs):
            if "#" not in name and len(arrays) == 1 and np.ndim(value) == 1 and np.array_equal(arrays[0], value):
                indices[name] = index
    return indices


def sweep(modules: Mapping[str, Module], names: Collection[str], values: Array) -> dict[str, CaseSweep]:
    """Run each of these submodules alone on ``values`` (n,), float64 or integer."""
    narrow, sweeps = cast(values, np.float32), {}
    double, single = (dict(modules[dtype].named_modules()) for dtype in ("float64", "float32"))
    for name in names:
        with highest_precision():
            rounded = run(single[name], (narrow,))[0]
            with lifted():
                exact, truth = (run(double[name], (points,))[0] for points in (values, cast(narrow, np.float64)))
        sweeps[name] = CaseSweep(exact, rounded, truth)
    return sweeps


def module_names(module: Module) -> list[str]:
    """The paths of all submodules, and of their recorded parts."""
    names = []
    for name, part in module.named_modules():
        if name:
            names += [name, *(f"{name}.{step}" for step in steps_of(part))]
    return names


def record(
    module: Module, inputs: Sequence[Nested], names: Collection[str] | None = None, note: Note = silent,
    output_names: list[str] | None = None,
) -> tuple[Outputs, dict[str, Call]]:  # fmt: skip
    """Run ``module``; returns its outputs, and every call of its submodules in order of completion.

    A submodule that is called too often is not recorded, which is reported to ``note``.
    """
    calls: dict[str, Call] = {}

    def keep(name: str, caller: str, part: Module, compute: Compute, arguments: Given) -> object:
        inputs, input_names = inputs_of(part, *arguments)
        output = compute(*arguments)
        path = layer_of(name)
        steps = [step for step in steps_of(part) if names is None or f"{path}.{step}" in names]
        if steps:
            inner_calls, recomputed = recompute(name, part, arguments, {}, note)
            check_recomputed(name, recomputed, output)
            calls.update({inside(name, step): inner_calls[inside(name, step)] for step in steps if inner_calls})
        calls[name] = Call(inputs, outputs_of(part, output), caller, input_names)
        return output

    parts = {name: part for name, part in module.named_modules() if name and (names is None or name in names)}
    with watched(parts, keep) as too_often:
        outputs = run(module, inputs, output_names)
    for name in too_often:
        note(f"{name} is called more than {MOST_CALLS} times in one pass and not recorded; tap the enclosing layers")
        lost = {name, *(f"{name}.{step}" for step in steps_of(parts[name]))}
        for call in [call for call in calls if layer_of(call) in lost]:
            del calls[call]
    return outputs, calls


def isolate(module: Module, inputs: Sequence[Nested], answers: Calls) -> tuple[Outputs, dict[str, Call]]:
    """Run ``module`` with the calls of ``answers`` isolated (activation patching).

    Each of them computes from its answer's inputs and passes on its answer's outputs. Returns the outputs of the
    module, and for each call its actual inputs and the outputs of its own computation. A call whose inputs have other
    shapes than its answer's is not isolated: rounding may choose other tokens for an expert, for example.
    """
    calls: dict[str, Call] = {}

    def answer(name: str, caller: str, part: Module, compute: Compute, arguments: Given) -> object:
        (inputs, input_names), expected = inputs_of(part, *arguments), answers.get(name)
        if expected is not None and shapes_of(inputs) != shapes_of(expected.inputs):
            expected = None
        if expected is not None:
            arguments = fed_arguments(part, arguments, expected)
        output = compute(*arguments)
        if any(inside(name, step) in answers for step in steps_of(part)):
            inner_calls, recomputed = recompute(name, part, arguments, answers, silent)
            calls.update({step: call for step, call in inner_calls.items() if step in answers})
            output = with_tensors(part, output, recomputed)
        if expected is None:
            return output
        calls[name] = Call(inputs, outputs_of(part, output), caller, input_names)
        return with_tensors(part, output, [as_tensor(value) for value in expected.outputs])

    layers = {layer_of(name) for name in answers}
    owners = {name.rpartition(".")[0] for name in layers}
    parts = {name: part for name, part in module.named_modules()
             if name in layers or (name in owners and steps_of(part))}  # fmt: skip
    with watched(parts, answer):
        outputs = run(module, inputs)
    return outputs, calls


def run(module: Module, inputs: Sequence[Nested], names: list[str] | None = None, fast: bool = False) -> Outputs:
    """The outputs of ``module`` for arrays (or lists of arrays), without gradients; their names in a dictionary or
    similar output are appended to ``names``. ``fast``: as torch runs it where no submodule is looked at."""
    import torch

    with torch.no_grad(), nullcontext() if fast else by_submodules(module), equals_in_order():
        output = module(*(as_tensor(value) for value in inputs))
    if names is not None:
        named = has_names(output)
        names[:] = [name if named else "" for name, _ in named_leaves(output, torch.is_tensor)]
    return tuple(to_array(tensor) for tensor in tensors_of(output))
