"""Build the reference of a comparison: a module of wdport, of a library or of the user with these weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wdport.compare.reference import Live, translated
from wdport.conversion.prepare import Prepared
from wdport.errors import MachineError, MisfitError, UsageError
from wdport.families.roles import Referenced
from wdport.model import Array, Signature
from wdport.recorder import CASES, LONGEST, Input, build, checked_inputs, highest_precision, lifted, run

if TYPE_CHECKING:
    import torch


def family_reference(prepared: Prepared, tensors: Mapping[str, Array]) -> Live:
    """The reference of the checkpoint's family with these weights: a library's released class, or wdport's own code.

    Raises :class:`MachineError` if torch or the library is not installed.
    """
    family, config, stated = prepared.family, prepared.config, prepared.stated

    def build_module(dtype: str) -> torch.nn.Module:
        if isinstance(family, Referenced) and stated is not None:
            return family.stated_reference(config, tensors, dtype, stated)
        return family.build_reference(config, tensors, dtype)

    try:
        modules = {dtype: build_module(dtype) for dtype in ("float64", "float32")}
        return Live(modules, drawn=family.signature(config).inputs)
    except ModuleNotFoundError as error:
        what = f"the reference needs {error.name}, which is not installed"
        raise MachineError("verify", what, "install wdport[torch]") from None


def user_reference(
    target: str, prepared: Prepared, key: str | None = None, rounded: Mapping[str, Array] | None = None
) -> Live:
    """The model of the user's ``module:factory`` with the weights of the checkpoint, or the ``rounded`` ones; raises
    :class:`MisfitError` if they do not fit."""
    signature = prepared.family.signature(prepared.config)
    with translated():
        state = rounded or {name: prepared.checkpoint.read(name) for name in prepared.checkpoint.tensors}
        arguments = getattr(prepared.config, "arguments", {})
        subject = build(target, str(prepared.checkpoint.path), key, state, arguments, prepared.plan.drops)
    # A factory that loads the checkpoint itself would undo the rounding.
    for name, tensor in subject.modules["float32"].state_dict().items() if rounded else ():
        if name in state and not np.array_equal(tensor.numpy(), state[name].astype(np.float32), equal_nan=True):
            what = f"loads other values for {name} than those given, and the converted file is rounded to 16 bits"
            raise MisfitError(target, what, "return the module without weights, or verify a float32 conversion")
    if not (subject.make_inputs or signature.inputs):
        fix = "add `inputs:` to the table, give `--input 'x: b 3 48 48'`, or return (module, make_inputs)"
        raise UsageError(target, "the model's inputs are not known", fix)
    drawn = () if subject.make_inputs else longest_inputs(signature, subject.modules["float64"])
    return Live(subject.modules, subject.make_inputs, subject.notes, target, drawn)


def longest_inputs(signature: Signature, module: torch.nn.Module) -> tuple[Input, ...]:
    """The inputs with the greatest length up to :data:`LONGEST` positions, and at least twice the stated one, that the
    reference accepts along the first free axis of each of them; it is that of a batch of one.

    Inputs whose free axes have the same name and size have the same length; the lengths of others differ.
    """
    sizes, steps = {}, {**signature.longer, **signature.free}
    unequal = tuple(map(_unequal, signature.inputs))
    inputs = unequal if unequal != signature.inputs and _accepts(module, unequal) else signature.inputs
    for spec in inputs:
        free = [axis for axis in spec.axes if axis in steps]
        if free and not spec.alone:
            size = spec.sizes[free[0]]
            positions = math.prod(spec.sizes[axis] for axis in free)
            sizes[free[0], size] = max(2 * size, LONGEST * size // positions)
    for index, ((axis, size), limit) in enumerate(sizes.items()):
        step = steps[axis]
        # Different lengths for different axes: equal ones would hide axes that are exchanged.
        limit = max(size, limit - 2 * index * step)
        least, beyond = size, limit + step
        # Bisection: the limit first, which most models accept, then the middle, in multiples of the step.
        while least + step < beyond:
            middle = limit if beyond > limit else least + (beyond - least) // 2 // step * step
            longer = tuple(_with_length(spec, axis, size, middle) for spec in inputs)
            least, beyond = (middle, beyond) if _accepts(module, longer) else (least, middle)
        inputs = tuple(_with_length(spec, axis, size, least) for spec in inputs) if least > size else inputs
    return inputs


def _unequal(spec: Input) -> Input:
    """The input with the greatest size along only one of the axes of equal sizes, such as height and width."""
    axis_by_size: dict[tuple[int, int], str] = {}
    for axis, limit in spec.alone.items():
        axis_by_size.setdefault((spec.sizes[axis], limit), axis)
    return replace(spec, alone={axis: limit for (_, limit), axis in axis_by_size.items()})


def _with_length(spec: Input, axis: str, size: int, length: int) -> Input:
    return replace(spec, alone={**spec.alone, axis: length}) if spec.sizes.get(axis) == size else spec


def _accepts(module: torch.nn.Module, inputs: tuple[Input, ...]) -> bool:
    """Whether a float64 module runs on a batch of one."""
    case = next(case for case in CASES if case.batch == 1)
    try:
        with highest_precision(), lifted():
            return all(np.all(np.isfinite(output)) for output in run(module, checked_inputs(None, case, "", inputs)))
    except Exception:  # whatever the user's code raises
        return False
