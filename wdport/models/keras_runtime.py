"""Keras helpers for our models: the JAX backend, one dtype policy per model, variables by path."""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any, Final, TypeVar
from unittest.mock import patch

if "keras" not in sys.modules:
    # Importing keras imports our models (see wdport.families.backend), and these import this module, which is not
    # complete yet. Removed here, it is imported a second time as a whole, and Python then uses that copy in place of
    # this one.
    del sys.modules[__name__]

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common import dtypes, global_state, tensor_attributes
from keras.src.backend.jax import nn
from keras.src.initializers.random_initializers import RandomInitializer
from keras.src.models.functional import Functional
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR
from keras.src.saving.serialization_lib import ObjectSharingScope

from wdport.base.errors import UsageError
from wdport.models.interface import Array, KerasLayer, KerasModel, KerasVariable
from wdport.recording.errors import one_line

T = TypeVar("T")

_INTRODUCTION: Final = re.compile(
    r"\A(Exception encountered when calling [^\n]*\n\n|.*?Error encountered:\n\n)+", re.DOTALL
)
"""What Keras writes before the message of an error."""

# Keras keeps the masks of traced arrays by id, in a dictionary per thread, and removes one in the thread that frees the
# array. If that is another (the garbage collector runs in any), the mask stays, and the next array with this id has it.
_masks: dict[str, object] = {}
tensor_attributes.global_state = SimpleNamespace(
    get_global_attribute=_masks.get, set_global_attribute=_masks.__setitem__
)


def require_backend(dtype: str) -> None:
    """Raise :class:`UsageError` unless Keras runs on JAX and JAX can hold ``dtype``."""
    if (backend := keras.backend.backend()) != "jax":
        fix = "set KERAS_BACKEND=jax before keras is first imported"
        raise UsageError("keras", f"it runs on the {backend} backend", fix)
    if dtype == "float64" and not getattr(jax.config, "jax_enable_x64"):
        fix = 'call jax.config.update("jax_enable_x64", True) first, or set JAX_ENABLE_X64=1'
        raise UsageError("jax", "float64 is switched off", fix)


def require_policy(dtype: str | None) -> None:
    """Raise :class:`UsageError` for a dtype policy that Keras does not know."""
    try:
        keras.dtype_policies.get(dtype)
    except ValueError:
        fix = "give float32, float64, mixed_bfloat16 or another policy of Keras"
        raise UsageError("dtype", f"{dtype!r:.40} is unknown", fix) from None


@contextmanager
def _changed(change: Callable[[T], object], before: T, value: T) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


def layer_dtype(policy: keras.DTypePolicy) -> AbstractContextManager[None]:
    """Create layers inside the context with ``policy``: Keras would use the global one, not the model's."""
    return _changed(keras.config.set_dtype_policy, keras.config.dtype_policy(), policy)


def deserialized(document: dict[str, Any]) -> KerasModel:
    """The model of a description that Keras has written, not compiled."""
    with ObjectSharingScope():  # for layers that others refer to
        return keras.saving.deserialize_keras_object({**document, "compile_config": None})


def set_variable(variable: KerasVariable, array: Array) -> None:
    """Set a Keras variable to an array's values, in the variable's dtype.

    The array must not change afterwards: on a CPU the variable may share its memory. Passing the array directly to
    Keras compiles a program for every new shape (JAX 0.10), 30 ms each.
    """
    variable.assign(jax.device_put(np.asarray(array, dtype=variable.dtype)))


def seed_dropout(model: KerasModel, seed: int) -> None:
    """Set the state of every layer's random generator, in the order of the layers; Keras draws them at random."""
    layers = model._flatten_layers()
    generators = [generator for layer in layers for generator in getattr(layer, "_seed_generators", ())]
    for index, generator in enumerate(generators):
        # The index is part of the seed: equal states would give the same mask in every layer.
        start = np.random.SeedSequence([seed, index]).generate_state(1)[0]
        generator.state.assign(jax.device_put(np.array([start, 0], generator.state.dtype)))


def layers_by_path(model: KerasModel) -> dict[str, KerasLayer]:
    """Return every layer below ``model`` by path: attributes joined by ``/``, such as ``blocks/1/attention``.

    Layers of a functional or sequential model use their names (see :func:`fresh_names`). A layer that is reachable by
    several attributes has the path of the first.
    """
    layers: dict[str, KerasLayer] = {}

    def visit(layer: KerasLayer, path: str) -> None:
        for name, child in children(layer).items():
            full = f"{path}/{name}".lstrip("/")
            if id(child) not in visited:
                visited.add(id(child))
                layers[full] = child
                visit(child, full)

    visited = {id(model)}
    visit(model, "")
    return layers


def flattened_shapes(model: KerasModel) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes, without the batch, of what a ``Flatten`` made the input of each layer from, by path; between
    may be layers without weights, such as ``Dropout``.

    Only functional and sequential models, and those within others, state which layer follows which.
    """
    shapes: dict[str, tuple[int | None, ...]] = {}
    for path, layer in layers_by_path(model).items():
        # Private: a layer's nodes, of which the public attributes show one tensor only if there is one node.
        node = next(iter(layer._inbound_nodes), None)
        while node is not None and len(node.input_tensors) == 1:
            history = node.input_tensors[0]._keras_history
            before, node = history.operation, history.operation._inbound_nodes[history.node_index]
            if isinstance(before, keras.layers.Flatten):
                shapes[path] = tuple(node.input_tensors[0].shape[1:])
            if not isinstance(before, keras.layers.Layer) or before.weights or path in shapes:
                break
    return shapes


def children(layer: KerasLayer) -> dict[str, KerasLayer]:
    """Return a layer's direct sublayers, by the names that :func:`layers_by_path` uses."""
    # Private: of Keras's layers only models have a public `layers`.
    direct = [child for child in layer._flatten_layers(include_self=False, recursive=False)
              if not isinstance(child, keras.layers.InputLayer)]  # fmt: skip
    named = {} if isinstance(layer, (keras.Sequential, Functional)) else _attributes(layer)
    by_name: dict[str, KerasLayer] = {}
    for child in direct:
        name = named.get(id(child)) or child.name
        while name in by_name:
            name += "_"
        by_name[name] = child
    return by_name


def variables_by_path(model: KerasModel) -> dict[str, KerasVariable]:
    """Return every variable of a model by path, in the order of its layers, without seeds of random generators."""
    by_path: dict[str, KerasVariable] = {}
    visited: set[int] = set()
    for path, layer in {"": model, **layers_by_path(model)}.items():
        named = _attributes(layer)
        # The layer's own variables only; `weights` would include those of its sublayers.
        for variable in (*layer._trainable_variables, *layer._non_trainable_variables):
            if id(variable) not in visited:
                visited.add(id(variable))
                name = f"{path}/{named.get(id(variable)) or variable.name}".lstrip("/")
                while name in by_path:
                    name += "_"
                by_path[name] = variable
    return by_path


def frozen_weights(model: KerasModel) -> list[str]:
    """Where a functional model may compute with weights as they were when it was built, one sentence each: what is
    called outside of all layers on a variable, or on an array, has its value then.

    The variables must have been made by :func:`unfilled`, so that such values are zeros.
    """
    if not isinstance(model, Functional):
        return []
    paths = {tuple(sorted(variable.shape)): path for path, variable in variables_by_path(model).items()}
    zeros = [(operation.name, leaf.shape)
             for operation in model.operations for node in operation._inbound_nodes
             for leaf in jax.tree.leaves((node.arguments.args, node.arguments.kwargs))
             if isinstance(leaf, jax.Array) and leaf.ndim and leaf.dtype.kind == "f" and not np.any(leaf)]  # fmt: skip
    fix = "compute it in the `call` of a layer"
    what = [(name, paths.get(tuple(sorted(shape)), f"an array {shape}")) for name, shape in zeros]
    return [f"{name} uses {array} as it was when the model was built; {fix}" for name, array in what]


def variable_values(model: KerasModel) -> tuple[list[jax.Array], list[jax.Array]]:
    """The values of a model's trainable variables, and of the others."""
    return [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]


def shapes_by_path(model: KerasModel) -> dict[str, tuple[int, ...]]:
    """The shape of every variable of a model, by path."""
    return {path: tuple(variable.shape) for path, variable in variables_by_path(model).items()}


def call_names(layer: KerasLayer) -> tuple[str, ...]:
    """Return the names of a layer's positional arguments."""
    try:
        parameters = inspect.signature(layer.call).parameters.items()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, parameter in parameters if parameter.kind in positional)


def said_by(error: BaseException) -> str:
    """What an error of a model says on one line, without Keras's paragraphs before and after it."""
    paragraph = _INTRODUCTION.sub("", str(error)).partition("\n\n")[0]
    return one_line(paragraph.rpartition("is incompatible with the layer: ")[2])


def first_line(error: BaseException) -> str:
    """The class of an error of a model, and what it says."""
    return f"{type(error).__name__}: {said_by(error)}"


def _attributes(layer: KerasLayer) -> dict[int, str]:
    """Map the id of every object that a layer holds to its public attribute, or to its place in a list or
    dictionary."""
    names: dict[int, str] = {}

    def visit(value: object, name: str, depth: int) -> None:
        if isinstance(value, (keras.layers.Layer, keras.Variable)):
            # The first attribute counts, as in a file that Keras writes.
            names.setdefault(id(value), name)
        elif isinstance(value, (list, tuple)) and depth < 3:
            for index, element in enumerate(value):
                visit(element, f"{name}/{index}", depth + 1)
        elif isinstance(value, dict) and depth < 3:
            for key, element in value.items():
                visit(element, f"{name}/{key}", depth + 1)

    for name, value in vars(layer).items():
        if not name.startswith("_"):
            visit(value, name, 0)
    return names


class _Shared:
    """A context for several threads: the first to enter makes the changes, and the last to leave undoes them.

    Two threads must not each restore what they found: the second would restore the first one's changes.
    """

    def __init__(self, changes: Callable[[], Iterator[AbstractContextManager[object]]]) -> None:
        self._changes, self._lock, self._threads, self._entered = changes, Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                for change in self._changes():
                    self._entered.enter_context(change)
        try:
            yield
        finally:
            with self._lock:
                self._threads -= 1
                if self._threads == 0:
                    self._entered.close()


@contextmanager
def _in_thread(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


_INITIALIZE: ContextVar[Callable[[KerasVariable, Callable[..., object]], None]] = ContextVar(
    "initialize", default=keras.Variable._initialize_with_initializer
)
"""How a thread gives its new variables their values; that of Keras outside the contexts below."""


@_Shared
def _initialization() -> Iterator[AbstractContextManager[object]]:
    def initialize(variable: KerasVariable, initializer: Callable[..., object]) -> None:
        _INITIALIZE.get()(variable, initializer)

    yield patch.object(keras.Variable, "_initialize_with_initializer", initialize)


@contextmanager
def unfilled() -> Iterator[None]:
    """Create randomly initialised variables inside the context as zeros, for models whose weights are set afterwards.

    Keras's initialisers, those of zeros and ones included, compile a JAX program for every shape, 30 to 120 ms each.
    Like :func:`described`, it affects only the thread that enters it.
    """
    original = _INITIALIZE.get()

    def initialize(variable: KerasVariable, initializer: Callable[..., object]) -> None:
        if isinstance(initializer, (RandomInitializer, keras.initializers.Zeros)):
            initializer = _zeros
        # Constants, and initialisers of the user's own, compute what they do elsewhere.
        original(variable, _ones if isinstance(initializer, keras.initializers.Ones) else initializer)

    with _initialization(), _in_thread(_INITIALIZE, initialize):
        yield


@contextmanager
def described() -> Iterator[None]:
    """Create variables inside the context with shapes but no values, for a model that is only inspected."""

    def describe(variable: KerasVariable, _: object) -> None:
        shape = jax.ShapeDtypeStruct(variable._shape, jnp.dtype(variable._dtype))
        variable._initialize(shape)

    # A ShapeDtypeStruct has what Keras asks of a value: a shape and a dtype.
    with _initialization(), _in_thread(_INITIALIZE, describe):
        yield


def traced_model(build: Callable[[], KerasModel]) -> KerasModel:
    """Return the model that ``build`` makes, with variables that have only a shape and a dtype.

    It runs under JAX's abstract evaluation, where nothing has a value: no memory is allocated, and a function that
    depends on values raises a JAX error.
    """
    seeds = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    models: list[KerasModel] = []

    def run() -> int:
        models.append(build())
        return 0

    try:
        with _in_thread(_ARRAYS, jnp):
            jax.eval_shape(run)
    finally:
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, seeds)  # one that is made inside has no value
    return models[0]


_ARRAYS: ContextVar[ModuleType] = ContextVar("arrays", default=np)
"""The module that makes zeros and ones: JAX's while a model is traced."""


def _zeros(shape: tuple[int, ...], dtype: str | None = None) -> object:
    return _ARRAYS.get().zeros(shape, jnp.dtype(dtype or "float32"))


def _ones(shape: tuple[int, ...], dtype: str | None = None) -> object:
    return _ARRAYS.get().ones(shape, jnp.dtype(dtype or "float32"))


def fresh_names() -> AbstractContextManager[None]:
    """Give unnamed layers inside the context the names that they get in a new process."""
    name = "object_name_uids"
    before = global_state.get_global_attribute(name, defaultdict(int))
    return _changed(partial(global_state.set_global_attribute, name), before, defaultdict(int))


_AS_STATED: ContextVar[bool] = ContextVar("as_stated", default=False)


class _Lifted(str):
    """The float64 that a stated float32 is; Keras keeps it in operations such as the casts of functional models."""


class _Lifting(dict[object, object]):
    """Keras's table of dtypes by their names in code, in which float32 is float64 in threads that have float64."""

    def get(self, key: object, default: object = None) -> object:
        stated = key == "float32" if isinstance(key, str) else key is np.float32 or key is jnp.float32
        # Other threads may run a float32 model meanwhile.
        if stated and not _AS_STATED.get() and jax.dtypes.canonicalize_dtype("float64") == "float64":
            return _Lifted("float64")
        return "float32" if isinstance(key, _Lifted) and _AS_STATED.get() else super().get(key, default)


@_Shared
def _exactness() -> Iterator[AbstractContextManager[object]]:
    yield default_float("float64")
    # Keras's promotion maps 64-bit types to 32-bit ones by this table.
    yield patch.dict(dtypes.BIT64_TO_BIT32_DTYPE, {"float64": "float64"})
    # Keras looks every dtype that code states up in this table.
    yield patch.object(dtypes, "PYTHON_DTYPES_MAP", _Lifting(dtypes.PYTHON_DTYPES_MAP))
    # Keras's backend calls it by this name; its softmax is always float32.
    yield patch.object(jax.nn, "dot_product_attention", _explicit_attention)
    # It logs a traceback before Keras tries another way.
    yield patch.object(nn.logging, "exception", lambda *_, **__: None)


@contextmanager
def float32_as_stated(model: KerasModel) -> Iterator[None]:
    """Inside, a float64 model computes in float32 what its code states so, in a cast or as the dtype of a layer, which
    :func:`exact_float64` makes float64 otherwise. No other thread may run the model."""
    policies = [layer.dtype_policy for layer in model._flatten_layers() if layer.dtype_policy.name == "float32"]
    lifted = {id(policy): policy for policy in policies if policy.compute_dtype == "float64"}
    with _in_thread(_AS_STATED, True), ExitStack() as stack:
        for policy in lifted.values():
            stack.enter_context(patch.object(policy, "_compute_dtype", "float32"))
        yield


def plain_float32() -> AbstractContextManager[object]:
    """Inside, float32 stays float32 in this thread, whatever :func:`exact_float64` makes of it in others."""
    context: AbstractContextManager[object] = jax.enable_x64(False)
    return context


def exact_float64() -> AbstractContextManager[None]:
    """Compute in true float64 inside the context, for any Keras model built or called there, with JAX's x64 enabled.

    Keras's type promotion treats float64 as float32 on JAX, and its attention computes a softmax in float32. The
    promotion table is private, so its effect is checked at every tap by the share of values that float32 can represent.
    A float32 that a layer states, as a dtype or in a cast, is float64 too, as in the PyTorch model
    (:func:`wdport.recording.float64.lifted`): such a layer computes nothing else in float32.

    It applies to the whole process until the last thread leaves such a context.
    """
    return _exactness()


@contextmanager
def float64() -> Iterator[None]:
    """Keras and JAX in true float64, and layers that begin to count their names anew."""
    policy = keras.DTypePolicy("float64")
    precise = (jax.enable_x64(True), jax.default_matmul_precision("highest"))
    with precise[0], precise[1], exact_float64(), layer_dtype(policy), fresh_names():
        yield


def default_float(dtype: str) -> AbstractContextManager[None]:
    """Make this the dtype of what has none, such as a model's inputs, whatever the user's `keras.config.floatx` is."""
    keras.config.dtype_policy()  # Keras makes it of the floatx of its first use, and keeps it
    return _changed(keras.config.set_floatx, keras.config.floatx(), dtype)


def _explicit_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array | None = None, mask: jax.Array | None = None,
    *, scale: float | None = None, is_causal: bool = False, **_: object,
) -> jax.Array:  # fmt: skip
    """``jax.nn.dot_product_attention`` of (B, T, N, H) in the dtype of its inputs throughout."""
    # Fewer heads of keys than of queries: each is read by a group of queries.
    groups = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(tensor, groups, axis=2) if groups > 1 else tensor for tensor in (key, value))
    logits = jnp.einsum("btnh,bsnh->bnts", query * (query.shape[-1] ** -0.5 if scale is None else scale), key)
    if bias is not None:
        logits = logits + bias
    # Not -inf: a row without visible keys would become NaN.
    least = float(np.finfo(logits.dtype).min)
    if mask is not None:
        logits = jnp.where(mask, logits, least)
    if is_causal:
        logits = jnp.where(jnp.tril(jnp.ones(logits.shape[-2:], bool)), logits, least)
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(logits, axis=-1), value)
