"""Record the calls of a running Keras model's layers, or isolate its layers.

The model is not modified: layers are found by their paths. Weights are arguments of the compiled programs, so later
assignments take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeGuard
from unittest.mock import patch

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.extend.core import get_opaque_trace_state
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

from wdport.base.errors import IncompleteError, MisfitError
from wdport.base.jax_settings import FAST_COMPILE
from wdport.compare.calls import Answers, Call, ExpectedCall, Outputs, call_name, layer_of
from wdport.compare.programs import CompiledProgram, sums_pairwise
from wdport.models.interface import Array, KerasLayer, KerasModel
from wdport.models.keras_inputs import model_arguments
from wdport.models.keras_runtime import (
    call_names,
    exact_float64,
    first_line,
    float32_as_stated,
    layers_by_path,
    variable_values,
)
from wdport.recording.nested import has_names, named_leaves

Tensor = Array | jax.Array
"""A NumPy array, or a JAX array, traced or not."""

Compute = Callable[[Sequence[Tensor]], object]
"""A layer's own computation with other tensors in place of those in its arguments."""

Plain = tuple[dict[str, Array], list[Array]]
"""An answer as an argument of a compiled program: inputs by position, and outputs."""

Handle = Callable[[str, Compute, "CallArguments"], object]
"""Called in place of a layer with the call, its computation and its arguments; returns any nesting of tensors."""

Found = dict[str, tuple[list[object], list[jax.Array], jax.Array | None]]
"""By call, the layer's nested inputs, its output arrays, and the mask of its inputs."""


@contextmanager
def intercepted(layers: Mapping[str, KerasLayer], handle: Handle) -> Iterator[dict[str, str]]:
    """Inside, calls of these layers go to ``handle(call, compute, arguments)``.

    Works eagerly and under tracing by `jax.jit`. A layer's second call is ``path#2``; a product with an embedding's
    weights (``reverse=True``), which PyTorch computes without the embedding, is not a call. Yields, by call, the
    innermost enclosing call; "" is the model. Raises :class:`IncompleteError` if a layer is called within a function
    that is traced separately, such as the step of a loop: its values are not accessible outside.
    """
    paths = {id(layer): path for path, layer in layers.items()}
    count = dict.fromkeys(layers, 0)
    callers: dict[str, str] = {}
    inside, looped = [""], list[str]()
    # The class is patched, not the layers: Python looks `__call__` up on the type.
    original_call, around = keras.layers.Layer.__call__, _traced_by()

    def intercept(self: KerasLayer, *args: object, **kwargs: object) -> object:
        path = paths.get(id(self))
        if path is None or _is_product(self, args, kwargs):
            return original_call(self, *args, **kwargs)
        # Inside `jax.lax.scan` or `while_loop` the values belong to an inner trace, and would leak out of it.
        if _traced_by() != around:
            looped.append(path)  # Keras rewords what is raised inside a layer
            return original_call(self, *args, **kwargs)
        count[path] += 1
        call = call_name(path, count[path])
        callers[call] = inside[-1]
        inside.append(call)
        arguments = CallArguments(self, args, kwargs)

        def compute(values: Sequence[Tensor]) -> object:
            args, kwargs = arguments.with_tensors(values)
            return original_call(self, *args, **kwargs)

        try:
            return handle(call, compute, arguments)
        finally:
            # Also if the layer raises, so that the callers of later calls are right.
            inside.pop()

    with patch.object(keras.layers.Layer, "__call__", intercept):
        yield callers
    if looped:
        what = "runs inside a loop, so its values are not accessible"
        raise IncompleteError(looped[0], what, "let the loop be unrolled (unroll=True), or compare the layer around it")


def _is_product(layer: KerasLayer, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether an embedding is called for the product with its weights, as a tied output layer."""
    if not isinstance(layer, keras.layers.Embedding):
        return False
    return {**dict(zip(call_names(layer), args, strict=False)), **kwargs}.get("reverse") is True


def _traced_by() -> object:
    """An identifier of JAX's current trace."""
    return get_opaque_trace_state(convention="nnx")


class CallArguments:
    """The arguments of one call of a layer, in the order of its signature however they are passed; ``tensors`` are
    those among them."""

    def __init__(self, layer: KerasLayer, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        order = call_names(layer)
        place = {name: position for position, name in enumerate(order)}
        named = sorted(kwargs.items(), key=lambda item: (place.get(item[0], len(place)), item[0]))
        passed = [*zip([*order, *([""] * len(args))], args, strict=False), *named]
        arguments = [(name, jax.tree.map(_value_of, value, is_leaf=_is_variable)) for name, value in passed]
        self._keys, self._positional = [name for name, _ in arguments], len(args)
        self._flat, self._tree = jax.tree.flatten([value for _, value in arguments], is_leaf=lambda leaf: leaf is None)
        self._places = [index for index, leaf in enumerate(self._flat) if is_tensor(leaf)]
        self.tensors = [self._flat[index] for index in self._places]
        self.nested = [_nest(value) for _, value in arguments if _holds(value)]
        """One tensor, or a nested list of tensors, for each argument that has any."""
        self.names = tuple(name for name, value in arguments if _holds(value))
        """The names of those arguments' parameters."""
        masks = [mask for tensor in self.tensors if (mask := get_keras_mask(tensor)) is not None]
        self.mask = masks[0] if masks else None
        """The mask that Keras attached to the first of the tensors that has one."""

    def with_tensors(self, values: Sequence[Tensor]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Positional and named arguments with these tensors in place of their own."""
        filled = list(self._flat)
        for index, value in zip(self._places, values, strict=True):
            filled[index] = value
        arguments = jax.tree.unflatten(self._tree, filled)
        first = self._positional
        return tuple(arguments[:first]), dict(zip(self._keys[first:], arguments[first:], strict=True))


def is_tensor(value: object) -> TypeGuard[jax.Array]:
    """Whether this is an array, traced or not."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_variable(value: object) -> bool:
    return isinstance(value, keras.Variable)


def _value_of(value: object) -> object:
    """The array of a variable, such as a weight that is passed to another layer."""
    return value.value if isinstance(value, keras.Variable) else value


def _holds(value: object) -> bool:
    return any(map(is_tensor, jax.tree.leaves(value)))


def _nest(value: object) -> object:
    if isinstance(value, dict):
        # Sorted, as jax.tree flattens dictionaries, so that both sides agree on the order.
        value = [value[name] for name in sorted(value)]
    return [_nest(item) for item in value if _holds(item)] if isinstance(value, (list, tuple)) else value


class Probe:
    """Probes one Keras model at the layers ``paths``, in evaluation mode, or as it is called without ``training`` if
    that is ``None``.

    ``eager`` runs it eagerly instead of compiled: much faster if the model's code changes between runs. ``pairwise``
    computes sums pairwise, in the whole model and in isolation: see :mod:`wdport.compare.programs`. ``as_stated``
    leaves a float32 that a float64 model's code states.
    """

    def __init__(
        self, model: KerasModel, paths: Collection[str], eager: bool = False, training: bool | None = False, *,
        pairwise: bool = False, as_stated: bool = False,
    ) -> None:  # fmt: skip
        layers = layers_by_path(model)
        self.model, self._training = model, training
        self.layers = {path: layers[path] for path in paths}
        self.output_names: tuple[str, ...] = ()
        """The names of the model's outputs, after a run; empty if they have none."""
        self._callers: dict[str, str] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._as_stated = as_stated
        self._exact = any(str(variable.dtype) == "float64" for variable in model.weights)
        outputs = sums_pairwise(self._outputs) if pairwise else self._outputs
        self._whole = outputs if eager else CompiledProgram(outputs)
        self._record = self._traced_record if eager else CompiledProgram(self._traced_record, FAST_COMPILE)
        isolate = sums_pairwise(self._traced_isolate) if pairwise else self._traced_isolate
        self._isolate = isolate if eager else CompiledProgram(isolate, FAST_COMPILE)

    def whole(self, inputs: tuple[Array, ...]) -> Outputs:
        with user_errors([]):
            return tuple(map(np.asarray, self._whole(*variable_values(self.model), inputs)))

    def record(self, inputs: tuple[Array, ...]) -> tuple[Outputs, dict[str, Call]]:
        """Run the model; returns its outputs, and every call of the layers. If one raises, raises
        :class:`MisfitError`."""
        outputs, calls = self._record(*variable_values(self.model), inputs)
        return tuple(map(np.asarray, outputs)), self._calls(calls)

    def shapes(self, inputs: tuple[Array, ...]) -> tuple[Sequence[Array | jax.ShapeDtypeStruct], dict[str, Call]]:
        """The same with shapes and dtypes in place of arrays; runs nothing unless ``eager``."""
        if isinstance(self._record, CompiledProgram):
            outputs, calls = self._record.result_of(*variable_values(self.model), inputs)
            return outputs, self._calls(calls)
        return self.record(inputs)

    def isolate(self, inputs: tuple[Array, ...], answers: Answers) -> tuple[Outputs, dict[str, Call]]:
        """Run the model with the calls in ``answers`` isolated; see :mod:`wdport.compare.calls`.

        A call that is not made is left out of the result, and thus not compared.
        """
        plain = {call: _plain(answer) for call, answer in answers.items()}
        outputs, calls = self._isolate(*variable_values(self.model), inputs, plain)
        return tuple(map(np.asarray, outputs)), self._calls(calls)

    def isolate_layer(self, path: str, call: Call, answers: Answers) -> dict[str, Call]:
        """Run one layer eagerly, with it and the layers below it isolated; ``call`` is any call of it, for the shapes
        of its inputs."""
        name = layer_of(path)
        inside = {key: layer for key, layer in self.layers.items() if key == name or key.startswith(f"{name}/")}
        plain = {call_name(layer_of(call_path), 1): _plain(answer) for call_path, answer in answers.items()
                 if layer_of(call_path) in inside and (call_path == path or "#" not in call_path)}  # fmt: skip
        calls: Found = {}
        layer = self.layers[name]
        with intercepted(inside, self._answering(plain, calls)) as callers:
            run_layer(layer, call.inputs, call.names)
        self._callers.update({call_path: caller for call_path, caller in callers.items() if call_path != name})
        if path != name and name in calls:
            calls[path] = calls.pop(name)
        return self._calls(calls)

    def _calls(self, calls: Found) -> dict[str, Call]:
        return {
            call: Call(tuple(map(_arrays, inputs)), tuple(map(_arrays, outputs)), self._callers.get(call, ""),
                       self._names.get(call, ()), None if mask is None else _arrays(mask))
            for call, (inputs, outputs, mask) in calls.items()
        }  # fmt: skip

    def _outputs(
        self, trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...]
    ) -> list[jax.Array]:
        dtypes = float32_as_stated(self.model) if self._as_stated else nullcontext()
        with exact_float64() if self._exact else nullcontext(), dtypes:
            output = stateless(self.model, trainable, fixed, inputs, self._training)
        self.output_names = tensor_names(output)
        return tensors(output)

    def _traced_record(
        self, trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...]
    ) -> tuple[list[jax.Array], Found]:
        calls: Found = {}
        within: list[str] = []

        def keep(call: str, compute: Compute, arguments: CallArguments) -> object:
            within.append(call)
            output = compute(arguments.tensors)
            within.pop()
            self._names[call] = arguments.names
            calls[call] = (arguments.nested, self._compared(call, output), arguments.mask)
            return output

        with user_errors(within), intercepted(self.layers, keep) as callers:
            outputs = self._outputs(trainable, fixed, inputs)
        self._callers.update(callers)
        return outputs, calls

    def _traced_isolate(
        self, trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...],
        answers: dict[str, Plain],
    ) -> tuple[list[jax.Array], Found]:  # fmt: skip
        calls: Found = {}
        inside = {path: layer for path, layer in self.layers.items() if any(layer_of(call) == path for call in answers)}
        with intercepted(inside, self._answering(answers, calls)) as callers:
            outputs = self._outputs(trainable, fixed, inputs)
        self._callers.update(callers)
        return outputs, calls

    def _answering(self, answers: Mapping[str, Plain], calls: Found) -> Handle:
        """A handler that feeds every call its answer's inputs and passes on its answer's outputs; ``calls`` gets the
        actual inputs and outputs. A call without an answer is not changed."""

        def answer(call: str, compute: Compute, arguments: CallArguments) -> object:
            replacement = answers.get(call)
            if replacement is None:
                return compute(arguments.tensors)
            fed, outputs = replacement
            values: list[Tensor] = list(arguments.tensors)
            for index, array in fed.items():
                if int(index) < len(values) and _of_one_batch(array, values[int(index)]):
                    values[int(index)] = _masked(array, values[int(index)])
            output = compute(values)
            for tensor, value in zip(arguments.tensors, values, strict=True):
                if get_keras_mask(tensor) is not get_keras_mask(value):
                    set_keras_mask(tensor, get_keras_mask(value))  # a layer may take its input's mask away
            self._names[call] = arguments.names
            compared = self._compared(call, output)
            calls[call] = (arguments.nested, compared, arguments.mask)
            flat, tree = jax.tree.flatten(output)
            fits = len(compared) == len(outputs) and all(map(_of_one_batch, compared, outputs))
            if not fits:
                return output
            replaced = [_masked(a, b) for a, b in zip(outputs, compared, strict=True)]
            return jax.tree.unflatten(tree, [*replaced, *flat[len(replaced) :]])

        return answer

    def _compared(self, call: str, output: object) -> list[jax.Array]:
        """The outputs of a layer; as in the reference, an attention's without its weights, which the model may return
        as they are or averaged over the heads."""
        is_attention = isinstance(self.layers[layer_of(call)], keras.layers.MultiHeadAttention)
        return tensors(output)[: 1 if is_attention else None]


def _of_one_batch(one: Tensor, other: Tensor) -> bool:
    """Whether both arrays have as many axes and samples: a port may call a layer once for what the reference splits."""
    return one.ndim == other.ndim and one.shape[:1] == other.shape[:1]


def _masked(value: Tensor, like: Tensor) -> Tensor:
    """A value with the implicit mask of the tensor that it replaces: Keras attaches masks to tensors."""
    if (mask := get_keras_mask(like)) is None:
        return value
    value = jnp.array(value)  # others may share the array itself
    set_keras_mask(value, mask)
    return value


@contextmanager
def user_errors(within: Sequence[str]) -> Iterator[None]:
    """Convert what the code of a model raises to a :class:`MisfitError` that names the innermost layer ``within``."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, NotImplementedError) as error:
        where = within[-1] if within else "the Keras model"
        raise MisfitError(where, f"running it raises {first_line(error)}", "correct the layer") from error


def run_layer(layer: KerasLayer, inputs: Sequence[object], names: Sequence[str] = ()) -> object:
    """Run a layer on the inputs of a :class:`Call`, eagerly and in evaluation mode."""
    mode = {"training": False} if layer._call_has_training_arg else {}
    if len(names) == len(inputs) and all(names[1:]):
        return layer(*inputs[:1], **dict(zip(names[1:], inputs[1:], strict=True)), **mode)
    return layer(*inputs, **mode)


def stateless(
    model: KerasModel, trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...],
    training: bool | None = False,
) -> object:  # fmt: skip
    """The output of :func:`stateless_call`."""
    return stateless_call(model, trainable, fixed, inputs, training)[0]


def stateless_call(
    model: KerasModel, trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...],
    training: bool | None = False,
) -> tuple[object, list[jax.Array]]:  # fmt: skip
    """Run a model on ``inputs`` with these values of its variables, in evaluation mode, or without stating a mode if
    ``training`` is ``None``; return the output, and the values of the variables ``fixed`` afterwards."""
    mode = {"training": training} if model._call_has_training_arg and training is not None else {}
    arguments = model_arguments(model, inputs)
    output, after = model.stateless_call(trainable, fixed, *arguments, **mode)
    return output, list(after)


def training_call(
    model: KerasModel, trainable: list[jax.Array], fixed: list[jax.Array], inputs: tuple[Tensor, ...]
) -> tuple[object, list[jax.Array], list[jax.Array]]:
    """Run a model in training mode, as `fit` does; return the output, the values of the variables ``fixed`` afterwards,
    and the penalties of regularizers."""
    # Layers are in training mode only if the model's call has, and passes on, the argument.
    mode = {"training": True} if model._call_has_training_arg else {}
    arguments = model_arguments(model, inputs)
    output, after, penalties = model.stateless_call(trainable, fixed, *arguments, **mode, return_losses=True)
    return output, list(after), list(penalties)


def tensors(value: object) -> list[jax.Array]:
    """The arrays of an output, in order; those of a dictionary by name."""
    return [leaf for leaf in jax.tree.leaves(value) if is_tensor(leaf)]


def tensor_names(value: object) -> tuple[str, ...]:
    """The names of the arrays of :func:`tensors` in dictionaries; empty if there are none."""
    if not has_names(value):
        return ()
    # JAX sorts dictionaries by their keys.
    return tuple(name for name, _ in named_leaves(_sorted(value), is_tensor))


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in sorted(value.items())}
    return [_sorted(item) for item in value] if isinstance(value, (list, tuple)) else value


def _plain(answer: ExpectedCall) -> Plain:
    return {str(index): array for index, array in answer.inputs.items()}, list(answer.outputs)


def _arrays(value: object) -> Any:
    if isinstance(value, list):
        return [_arrays(item) for item in value]
    return value if isinstance(value, jax.ShapeDtypeStruct) else np.asarray(value)
