"""Calls of modules in one pass of a network, with the arrays that go in and come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping, Tuple, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from .shared_types import Array, Nested


@dataclass(frozen=True)
class Call:
    """One call of one layer: its inputs (arrays, or lists of arrays), its outputs, the innermost enclosing watched call
    ("" is the network), the names of its inputs if they are the parameters of a function, and the mask (B, T) that
    Keras passes on with an input, true at the steps that count."""

    inputs: tuple[Nested, ...]
    outputs: tuple[Array, ...]
    caller: str = ""
    names: tuple[str, ...] = ()
    mask: Array | None = None


Calls = Mapping[str, Call]
"""Calls by layer path; the second call of X in one pass is ``X#2``."""

MOST_CALLS = 64
"""Maximum number of recorded calls of one layer in one pass; more are a loop, and the enclosing layer is compared."""


def call_name(name: str, count: int) -> str:
    """The name of the ``count``-th call of ``name``."""
    return name if count == 1 else f"{name}#{count}"


def layer_of(call: str) -> str:
    """The layer that was called: ``X`` for ``X#2``."""
    return call.partition("#")[0]


def inside(call: str, part: str) -> str:
    """The part of a layer in one of its calls: ``X.query#2`` for ``X#2``."""
    name, mark, count = call.partition("#")
    return f"{name}.{part}{mark}{count}"


@overload
def cast(value: Call, dtype: DTypeLike) -> Call: ...
@overload
def cast(value: Array, dtype: DTypeLike) -> Array: ...
@overload
def cast(value: tuple[Array, ...], dtype: DTypeLike) -> tuple[Array, ...]: ...
@overload
def cast(value: tuple[Nested, ...], dtype: DTypeLike) -> tuple[Nested, ...]: ...
def cast(value: Any, dtype: DTypeLike) -> Any:
    """Cast floating-point arrays in lists, tuples and calls to ``dtype``."""
    if isinstance(value, Call):
        return Call(cast(value.inputs, dtype), cast(value.outputs, dtype), value.caller, value.names)
    if isinstance(value, (list, tuple)):
        return type(value)(cast(item, dtype) for item in value)
    array = np.asarray(value)
    return _rounded(array, dtype) if array.dtype.kind == "f" else array


def _rounded(array: Array, dtype: DTypeLike) -> Array:
    """Finite values stay finite: a mask that adds the lowest float64 number adds the lowest float32 number."""
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except FloatingPointError:
        with np.errstate(over="ignore"):
            converted = np.asarray(array.astype(dtype))
        largest = np.finfo(converted.dtype).max
        return np.where(np.isinf(converted) & np.isfinite(array), np.copysign(largest, converted), converted)


Note = Callable[[str], None]


def silent(_: str) -> None:
    """Take a note and drop it."""


Outputs = Tuple["Array", ...]


MASKING = 1e30
"""Values from here on are masks: they are neither rounded nor amplified."""
