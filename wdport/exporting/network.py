"""Lower what a model computes as functions of its variables: its call, or the functions that its family names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import keras
import numpy as np
from jax import Array as Tensor

from wdport.compare.probe import stateless
from wdport.errors import UsageError
from wdport.exporting.lower import BATCH, Lowerable, Lowered, Lowering
from wdport.families.registry import known_model
from wdport.families.roles import Family, Programmed, Sampled
from wdport.keras_runtime import exact_float64, variables_by_path
from wdport.model import Array, Configuration, Free, Function, KerasModel, Signature, Taken
from wdport.recorder import parse_input

CALL = "call"
"""Name of the function of a model that is used through its call."""


def functions_of(family: Family, config: Configuration, model: KerasModel) -> dict[str, Function]:
    """The functions of a model by name: those of its family, or its call with the inputs of its signature."""
    if isinstance(family, Programmed):
        return dict(family.functions(model))
    return {CALL: _call_of(model, family.signature(config))}


def draws_samples(model: KerasModel) -> bool:
    """Whether a model is a denoiser that :func:`wdport.sample` draws samples with."""
    family, config = known_model(model) or (None, None)
    return isinstance(family, Sampled) and not family.unsampled(config)


def functions_of_model(model: KerasModel, inputs: Sequence[str]) -> tuple[dict[str, Function], Mapping[str, object]]:
    """The functions of a Keras model, and its configuration; ``inputs`` state those of a model that wdport does not
    know, which a functional one need not.

    Raises :class:`UsageError`.
    """
    if (registration := known_model(model)) is not None:
        family, config = registration
        if inputs:
            raise UsageError("inputs", f"a {family.name} model has its own", "leave them out")
        return functions_of(family, config, model), config.to_dict()
    if not isinstance(model, keras.Model):
        what = f"a {type(model).__name__} is not a Keras model"
        raise UsageError("model", what, "give what wdport.load_model returns")
    try:
        ports = tuple(map(parse_input, inputs))
    except ValueError as error:
        raise UsageError("inputs", str(error), "see the guide for your own model") from None
    return {CALL: _call_of(model, Signature(ports))}, {}


def values_of(model: KerasModel) -> dict[str, Array]:
    """The values of a model's variables by path."""
    return {path: np.asarray(variable.value) for path, variable in variables_by_path(model).items()}


def held_as(model: KerasModel, stored: Mapping[str, Array]) -> dict[str, Array]:
    """Stored values in the dtypes of a model's variables."""
    return {path: np.asarray(stored[path], str(variable.dtype)) for path, variable in variables_by_path(model).items()}


def _call_of(model: KerasModel, signature: Signature) -> Function:
    """The model's call with these inputs, or those that it was made with, if none are stated."""
    if not model.built:
        raise UsageError("model", "is not built", "call it once on arrays")
    inputs = _input_specs(signature) if signature.inputs else model_inputs(model)
    if not inputs:
        what = f"the inputs of a {type(model).__name__} are not known"
        raise UsageError("model", what, "state them, such as 'x: b 48 48 3', in its table or as inputs (`--input`)")
    paths = {id(variable): path for path, variable in variables_by_path(model).items()}
    exact = any(str(variable.dtype) == "float64" for variable in model.weights)
    groups = model.trainable_variables, model.non_trainable_variables

    def value(variable: Any, weights: Mapping[str, Tensor]) -> Any:
        """Seeds of random generators are no weights, and nothing reads them here."""
        path = paths.get(id(variable))
        return np.asarray(variable.value) if path is None else weights[path]

    def call(weights: Mapping[str, Tensor], *inputs: Tensor) -> list[Tensor]:
        trained, others = ([value(variable, weights) for variable in group] for group in groups)
        with exact_float64() if exact else nullcontext():
            return list(jax.tree.leaves(stateless(model, trained, others, inputs)))

    return Function(inputs, tuple(port.name for port in signature.outputs), call)


def _input_specs(signature: Signature) -> tuple[Taken, ...]:
    free = signature.free

    def size(axis: str, sizes: Mapping[str, int]) -> int | Free:
        if axis == "b":
            return BATCH
        return Free(f"axis{axis}" if axis.startswith("_") else axis, free[axis]) if axis in free else sizes[axis]

    return tuple(Taken(port.name, tuple(size(axis, port.sizes) for axis in port.keras_axes), port.kind)
                 for port in signature.inputs)  # fmt: skip


def model_inputs(model: KerasModel) -> tuple[Taken, ...]:
    """The inputs of a functional or sequential model; none for others."""
    kinds = {"i": "int", "u": "int", "b": "bool"}

    def size(size: int | None, name: str, axis: int) -> int | Free:
        return size if size is not None else Free(f"{name}_{axis}") if axis else BATCH

    return tuple(
        Taken(tensor.name, tuple(size(length, f"n{place}", axis) for axis, length in enumerate(tensor.shape)),
              kinds.get(str(tensor.dtype)[0], "float"))
        for place, tensor in enumerate(getattr(model, "inputs", None) or ())
    )  # fmt: skip


def lower_functions(
    functions: Mapping[str, Function], variables: Mapping[str, Array], dtype: str, lowering: Lowering
) -> Lowered:
    """Lower functions of these values; floating-point inputs have this dtype, integers int32.

    Raises :class:`UsageError` if jax cannot trace one of them with sizes that vary.
    """
    _require_known(functions, lowering)
    kinds = {"float": dtype, "int": "int32", "bool": "bool"}
    lowerables: dict[str, Lowerable] = {
        name: (function.call, [(spec.sizes, kinds[spec.kind]) for spec in function.inputs])
        for name, function in functions.items()
    }
    varying = sorted(set(_names(functions)) - set(lowering.sizes) - ({"b"} if lowering.batch else set()))
    with jax.enable_x64(dtype == "float64"):
        try:
            return lowering.serialise(dict(variables), lowerables)
        except Exception as error:
            if not varying:
                raise
            first = str(error).strip().partition("\n")[0][:200]
            fix = " ".join("--batch N" if name == "b" else f"--size {name}=N" for name in varying)
            what = f"cannot be exported for any {', '.join(varying)}: {first or type(error).__name__}"
            raise UsageError("model", what, f"fix sizes, with {fix}") from error


def described(functions: Mapping[str, Function], lowering: Lowering, lowered: Lowered, dtype: str) -> dict[str, object]:
    """Inputs and outputs of the functions as JSON values; sizes that vary as text."""
    kinds = {"float": dtype, "int": "int32", "bool": "bool"}
    programs: dict[str, object] = {}
    for name, function in functions.items():
        results = lowered.results[name]
        inputs = [{"name": spec.name, "dtype": kinds[spec.kind], "shape": lowering.shape(spec.sizes)}
                  for spec in function.inputs]  # fmt: skip
        outputs = [{"name": output, "dtype": kind, "shape": shape}
                   for output, (shape, kind) in zip(_outputs(function, len(results)), results, strict=True)
                   ]  # fmt: skip
        programs[name] = {"inputs": inputs, "outputs": outputs}
    return programs


def _outputs(function: Function, count: int) -> Sequence[str]:
    named = function.outputs
    if len(named) == count:
        return named
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


def _names(functions: Mapping[str, Function]) -> list[str]:
    sizes = (size for function in functions.values() for spec in function.inputs for size in spec.sizes)
    return list(dict.fromkeys(size.name for size in sizes if isinstance(size, Free)))


def _require_known(functions: Mapping[str, Function], lowering: Lowering) -> None:
    names = [name for name in _names(functions) if name != BATCH.name]
    for name, value in lowering.sizes.items():
        if name not in names:
            fix = f"give {', '.join(names)}" if names else "leave it out: its sizes are fixed"
            raise UsageError(f"--size {name}", "is no size of this model that varies", fix)
        if value < 1:
            raise UsageError(f"--size {name}", f"invalid size {value}", "give 1 or more")
