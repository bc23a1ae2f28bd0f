"""How a Keras model takes its inputs: as separate arguments, or as one list or dictionary, in which they are found by
their names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import keras

from wdport.base.errors import MisfitError
from wdport.models.interface import KerasModel
from wdport.models.keras_runtime import call_names
from wdport.recording.fitted_inputs import by_parameter
from wdport.recording.inputs import Input, given
from wdport.recording.nested import named_leaves

_STATED: WeakKeyDictionary[KerasModel, tuple[Input, ...]] = WeakKeyDictionary()


def state_inputs(model: KerasModel, inputs: Sequence[Input]) -> None:
    """State the inputs with which a model is called from now on, in this order, by their names in Keras."""
    _STATED[model] = tuple(replace(spec, name=spec.keras_name or spec.name) for spec in inputs)


def stated_inputs(model: KerasModel) -> tuple[Input, ...]:
    """The inputs of :func:`state_inputs`; empty if none are stated."""
    return _STATED.get(model, ())


def symbolic_inputs(model: KerasModel) -> list[Any]:
    """The inputs of a functional or sequential model, in the order in which they are stated or, if they are not, of its
    definition; none for others. Raises :class:`MisfitError` as :func:`model_arguments` does."""
    struct = getattr(model, "_inputs_struct", None)
    if struct is None:
        return list(getattr(model, "inputs", None) or ())
    leaves = [leaf for _, leaf in _leaves(struct)]
    return [leaves[place] for place in _places(model, struct)]


def model_arguments(model: KerasModel, inputs: Sequence[object]) -> tuple[object, ...]:
    """Arguments for a model's call: a single input, or several as one structure or as separate arguments. Raises
    :class:`MisfitError` if their names are not those of a dictionary."""
    struct = _structure(model)
    if len(inputs) == 1 and not isinstance(struct, dict):
        return tuple(inputs)
    if struct is not None:
        return (_filled(model, struct, inputs),)
    # A functional model takes its inputs as one structure; a subclass, as separate arguments of its `call`.
    if isinstance(model, keras.Sequential) or getattr(model, "_functional", None) is not None:
        return (list(inputs),)
    specs = given(stated_inputs(model), len(inputs))
    names = [name for name in call_names(model) if name != "training"]
    # Keras has a mask of its own, which is an input if it is stated, or if its place is that of a boolean array.
    is_last = names[len(inputs) - 1 : len(inputs)] == ["mask"] and str(getattr(inputs[-1], "dtype", "")) == "bool"
    if not is_last and all(spec.name != "mask" for spec in specs):
        names = [name for name in names if name != "mask"]
    chosen = by_parameter(specs, names) if len(specs) == len(inputs) else None
    if chosen is not None:
        values, parameters = dict(zip(chosen, inputs, strict=True)), inspect.signature(model.call).parameters
        last = max(map(list(parameters).index, chosen))
        return tuple(values.get(name, parameters[name].default) for name in list(parameters)[: last + 1])
    return tuple(inputs) if len(names) >= len(inputs) else (tuple(inputs),)


def _structure(model: KerasModel) -> Any:
    """The structure of all inputs of a model that takes them as one argument; ``None`` if it takes them otherwise, or
    if that is not known."""
    if (struct := getattr(model, "_inputs_struct", None)) is not None:
        return struct
    # What a subclass was built with: the shapes of a dictionary of arrays.
    shapes = list((getattr(model, "_build_shapes_dict", None) or {}).values())
    return shapes[0] if len(shapes) == 1 and isinstance(shapes[0], dict) else None


def _is_leaf(value: object) -> bool:
    """Whether this is an input of a structure, or its shape."""
    is_shape = isinstance(value, tuple) and all(size is None or isinstance(size, int) for size in value)
    return is_shape or hasattr(value, "shape")


def _leaves(struct: object) -> list[tuple[str, Any]]:
    """The inputs by their paths, in the order of the definition: Keras sorts dictionaries by their keys."""
    return named_leaves(struct, _is_leaf)


def _places(model: KerasModel, struct: object) -> list[int]:
    """The place in a structure of every stated input, or the order of the definition if none are stated."""
    leaves, stated = _leaves(struct), [spec.name for spec in stated_inputs(model)]
    paths = [path for path, _ in leaves]
    own_names = [str(getattr(leaf, "name", "")) for _, leaf in leaves]
    for names in (paths, [path.rpartition(".")[2] for path in paths], own_names):
        if stated and len(set(names)) == len(names) and set(stated) <= set(names):
            return [names.index(name) for name in stated]
    # Lists have an order, and of one input there is nothing to be mistaken for.
    if not stated or len(leaves) < 2 or all(path.isdecimal() for path in paths):
        return list(range(len(leaves)))
    what = f"takes the inputs {', '.join(paths)}, and those stated are {', '.join(stated)}"
    raise MisfitError(model.name, what, "state both names, as in 'ids -> tokens: b 12, below 40'")


def _filled(model: KerasModel, struct: object, inputs: Sequence[object]) -> object:
    """The structure with these inputs, None for those that are left out."""
    places, specs = _places(model, struct), stated_inputs(model)
    if len(inputs) < len(places) and len(specs) == len(places):
        places = [place for place, spec in zip(places, specs, strict=True) if not spec.optional]
    if len(inputs) != len(places):
        what = f"takes the inputs {', '.join(path for path, _ in _leaves(struct))}, and is called with {len(inputs)}"
        raise MisfitError(model.name, what, "state all of them")
    by_place = dict(zip(places, inputs, strict=True))

    def fill(value: Any, count: Iterator[int]) -> object:
        if _is_leaf(value):
            return by_place.get(next(count))
        if isinstance(value, dict):
            return {key: fill(item, count) for key, item in value.items()}
        return type(value)(fill(item, count) for item in value)

    return fill(struct, iter(range(len(_leaves(struct)))))
