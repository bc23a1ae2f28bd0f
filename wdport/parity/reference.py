"""Build the reference of a comparison: a module of wdport's, of a library's or of the user's own with these weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wdport.compare.reference import Live, translated
from wdport.conversion.prepare import Prepared
from wdport.errors import MachineError, MisfitError, UsageError
from wdport.model import Array
from wdport.recorder import build


def family_reference(prepared: Prepared, tensors: Mapping[str, Array]) -> Live:
    """wdport's implementation of the checkpoint's family with these weights."""
    signature = prepared.family.signature(prepared.config)
    try:
        return Live({dtype: prepared.family.build_reference(prepared.config, tensors, dtype)
                     for dtype in ("float64", "float32")}, signature.make, drawn=signature.inputs)  # fmt: skip
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
    for name, tensor in subject.modules["float32"].state_dict().items() if rounded else ():
        if name in state and not np.array_equal(tensor.numpy(), state[name].astype(np.float32), equal_nan=True):
            what = f"loads other values for {name} than those given, and the converted file is rounded to 16 bits"
            raise MisfitError(target, what, "return the module without weights, or verify a float32 conversion")
    if not (subject.make_inputs or signature.inputs):
        fix = "add `inputs:` to the table, give --input 'x: b 3 48 48', or return (module, make_inputs)"
        raise UsageError(target, "the model's inputs are not known", fix)
    drawn = () if subject.make_inputs else signature.inputs
    return Live(subject.modules, subject.make_inputs or signature.make, subject.notes, target, drawn)
