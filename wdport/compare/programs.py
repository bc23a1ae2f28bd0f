"""Compiled programs for use by several threads: tracing is serialised, compiling runs in parallel; memory is
released between stages.

A probe patches Keras during a trace, and Python traces on one core anyway; XLA compiles without blocking Python.

A program's sums can be computed pairwise, to tell whether the order of additions is what its rounding errors come from.
On a CPU, a float32 sum by XLA over the axes on both sides of one that is kept, as over the positions and channels of a
group, has 3 to 35 times the error of PyTorch's sum (on an Intel Xeon, of 512 to 32,768 numbers around 5). Relative
errors of sums over adjacent axes were at most 1.2e-7.
"""

from __future__ import annotations

import ctypes
import gc
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from threading import RLock
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, TypeVarTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from wdport.base.errors import MisfitError
from wdport.base.jax_settings import FAST_COMPILE, OPTIMIZED, SHORT_RUN, Option, known_options, weakly
from wdport.compare.activities import spent_on
from wdport.models.interface import Array

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

Key = tuple[jax.tree_util.PyTreeDef, tuple[tuple[tuple[int, ...], str], ...]]
"""The nesting, the shapes and the dtypes of a program's arguments."""

MUCH = 2.5e8
"""Products of float64 convolutions without a library from which on a program is optimized a little: without, two CPU
cores compute 1.5e7 to 1e8 of them a second, and 9 to 38 times as many with. A training step of a ResNet50 with four
images of 96 x 96 compiles in 6 s and runs in 50, or in 9 and 6. Products of matrices and other convolutions are nearly
as fast without, elementwise functions take three times as long, and a transformer of 63 million parameters compiles in
3 s instead of 10."""

# Reentrant: a thread that holds it for an eager run may trace a program inside.
TRACING = RLock()
"""Held while a model's Python code runs and other threads may trace."""


class CompiledProgram(Generic[*Arguments, Result]):
    """``function`` of arrays, compiled once for every combination of argument shapes and dtypes.

    Compiler ``options`` that this jaxlib does not know are ignored. NumPy arrays of 64 bits become ones of 32 bits
    here where JAX's x64 is off: JAX 0.10 remembers by the array alone, for all threads, what it made of it, so a
    thread with x64 on and one with x64 off must not pass it the same array.

    A method's object is referenced weakly: see :func:`~wdport.base.jax_settings.weakly`. The arrays of the arguments
    ``donated``, by position, are deleted by a call, which uses their memory.
    """

    def __init__(
        self, function: Callable[[*Arguments], Result], options: Mapping[str, Option] | None = None,
        donated: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._forms: dict[Key, tuple[jax.tree_util.PyTreeDef, list[int]]] = {}
        self._function, self._options, self._donated = _distinct(function, self._forms), options or {}, donated
        self._jitted = self._jit()
        self._lowered: dict[Key, jax.stages.Lowered] = {}
        self._slow: dict[Key, float] = {}
        self._results: dict[Key, list[object]] = {}
        self._compiled: dict[Key, jax.stages.Compiled] = {}
        self._settling = RLock()  # several threads may ask for one program

    def optimize(self) -> bool:
        """Compile with XLA's own options from now on, as users do; returns whether that is another program.

        Without optimization, XLA's programs for a CPU may compute a number twice with other roundings. The gradient of
        a maximum, for one, then finds no place that is equal to it: that of ``max(relu(batch_norm(dense(x))))`` is off
        by a third.
        """
        with self._settling:
            if self._options == OPTIMIZED:
                return False
            self._options = OPTIMIZED
            self._compiled.clear()
            self._lowered.clear()
            self._jitted = self._jit()
        return True

    def _jit(self) -> jax.stages.Wrapped:
        return jax.jit(self._function, compiler_options=known_options(self._options), donate_argnums=self._donated)

    def __call__(self, *arguments: *Arguments) -> Result:
        fitting: tuple[*Arguments] = jax.tree.map(_canonical, arguments)
        # Numbers of the code that float32 does not hold become infinite, which the result shows.
        with np.errstate(over="ignore"), _callback_errors():
            result: Result = self._nested(_key(fitting), self.compiled(*fitting)(*fitting))
        return result

    def _nested(self, key: Key, distinct: Sequence[object]) -> Any:
        """The function's result from its distinct arrays."""
        tree, places = self._forms[key]
        return jax.tree.unflatten(tree, [distinct[index] for index in places])

    def compiled(self, *arguments: *Arguments) -> jax.stages.Compiled:
        """The program for arguments like these."""
        key = _key(arguments)
        with self._settling:
            if key not in self._compiled:
                self.trace(*arguments)
                # The lowered program holds the whole module, and is not needed again.
                with spent_on("compiling"):
                    # Other options for a program whose run would take longer than its compilation saves.
                    slow = self._options == FAST_COMPILE and self._slow[key] > MUCH
                    others: Any = known_options(SHORT_RUN) if slow else None
                    lowered = self._lowered.pop(key)
                    self._compiled[key] = lowered.compile(others)
            return self._compiled[key]

    def trace(self, *arguments: *Arguments) -> None:
        """Trace the Python code for arguments like these, if not done before, without compiling."""
        key = _key(arguments)
        with self._settling:
            if key not in self._compiled and key not in self._lowered:
                with TRACING, spent_on("tracing"):
                    traced = self._jitted.trace(*arguments)
                    self._lowered[key], self._slow[key] = traced.lower(), slow_products(traced.jaxpr.jaxpr)
                self._results[key] = self._lowered[key].out_info

    def result_of(self, *arguments: *Arguments) -> Any:
        """Shapes and dtypes of the function's result for arguments like these, in its nesting; runs nothing."""
        self.trace(*arguments)
        return self._nested(_key(arguments), self._results[_key(arguments)])


@contextmanager
def _callback_errors() -> Iterator[None]:
    """Convert what a Python function raises that a compiled program calls, as ``jax.pure_callback`` makes one."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "CpuCallback" not in str(error):
            raise
        what = f"a callback of it raises {str(error).strip().splitlines()[-1]}"
        raise MisfitError("the Keras model", what, "compute it with keras.ops or jax.numpy") from error


def _distinct(
    function: Callable[[*Arguments], Result], forms: dict[Key, tuple[jax.tree_util.PyTreeDef, list[int]]]
) -> Callable[[*Arguments], list[object]]:
    """``function`` with each array of its result once: XLA has a buffer for every output, and a layer's output is the
    input of the next. Adds to ``forms`` what :meth:`Program._nested` needs."""
    compute = weakly(function)

    def distinct(*arguments: *Arguments) -> list[object]:
        leaves, tree = jax.tree.flatten(compute(*arguments))
        unique = list({id(leaf): leaf for leaf in leaves}.values())
        place = {id(leaf): index for index, leaf in enumerate(unique)}
        forms[_key(arguments)] = tree, [place[id(leaf)] for leaf in leaves]
        return unique

    return distinct


def _canonical(leaf: object) -> object:
    """The array that JAX would make of this NumPy array with its present setting of x64; other values as they are."""
    return leaf.astype(_dtype(leaf), copy=False) if isinstance(leaf, np.ndarray) else leaf


def _dtype(leaf: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(leaf.dtype) if isinstance(leaf, np.ndarray) else leaf.dtype


def _key(arguments: tuple[object, ...]) -> Key:
    flat, tree = jax.tree.flatten(arguments)
    return tree, tuple((leaf.shape, str(_dtype(leaf))) for leaf in flat)


class Pending(Protocol):
    """A result that may not have been computed yet."""

    def result(self) -> Any: ...


class Deferred:
    """A result that is computed in this thread when it is needed: the code of an eager port is patched meanwhile."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._compute = cache(partial(function, *arguments))

    def result(self) -> Any:
        """Compute it, once."""
        return self._compute()


def release_memory() -> None:
    """Collect garbage and return freed memory to the system.

    The C library keeps freed blocks of less than 32 MB, the size of most weights: 2 GB in all after a backward pass
    at the released size.
    """
    gc.collect()
    trim_memory()


def trim_memory() -> None:
    """Only return freed memory; collecting garbage takes 0.4 s with two models and torch loaded."""
    with suppress(OSError, AttributeError, TypeError):  # only glibc has this function, and Windows has no such handle
        ctypes.CDLL(None).malloc_trim(0)


P = ParamSpec("P")
R = TypeVar("R")

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""Primitives that run another program once, with the parameter that holds it. Loops and branches are left as they
are."""


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def program_text(program: Jaxpr) -> str:
    """A traced program as text, without addresses, by which alone two traces of the same code differ."""
    return _ADDRESS.sub("", str(program))


def _called(equation: JaxprEqn) -> Iterator[ClosedJaxpr]:
    """The programs that an equation calls: the bodies of loops, the branches, the functions."""
    for inner in jax.tree.leaves(list(equation.params.values())):
        if isinstance(inner, (ClosedJaxpr, Jaxpr)):
            yield inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, [])


def slow_products(program: Jaxpr) -> float:
    """The products of float64 convolutions for which XLA has no library on a CPU, also in the programs that it calls:
    of other than two axes, of groups, and with steps of less than one, which a gradient by an image has."""
    count = 0.0
    for equation in program.eqns:
        parameters = equation.params
        if equation.primitive.name == "conv_general_dilated":
            result, kernel = cast(ShapedArray, equation.outvars[0].aval), cast(ShapedArray, equation.invars[1].aval)
            groups = parameters["feature_group_count"] * parameters["batch_group_count"]
            steps = parameters["lhs_dilation"]
            if result.dtype == np.float64 and (len(steps) != 2 or groups > 1 or any(step > 1 for step in steps)):
                count += result.size * kernel.size / kernel.shape[parameters["dimension_numbers"].rhs_spec[0]]
        count += sum(slow_products(inner.jaxpr) for inner in _called(equation))
    return count


def constants(program: ClosedJaxpr) -> Iterator[Array]:
    """Yield the arrays that a traced program holds, also in the programs that it calls; its text does not have them."""
    for constant in program.consts:
        is_key = jnp.issubdtype(jnp.result_type(constant), jax.dtypes.prng_key)
        yield np.asarray(jax.random.key_data(constant) if is_key else constant)
    for equation in program.jaxpr.eqns:
        for inner in _called(equation):
            yield from constants(inner)


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SAME_NUMBER = ("broadcast_in_dim", "convert_element_type", "reshape", "copy")


def compared_numbers(
    program: Jaxpr, scalars: Mapping[Any, float] | None = None, fixed: Collection[Any] = ()
) -> Iterator[float]:
    """Yield the numbers that a program compares arrays with, also in the loops, branches and programs that it calls,
    but not what it compares positions with; ``scalars`` are the values of those of its variables that are known, and
    ``fixed`` are its arguments that depend on no input."""
    values, varying = dict(scalars or {}), set(program.invars) - set(fixed)

    def value(atom: Any) -> float | None:
        if isinstance(atom, Literal):
            return _scalar(atom.val)
        return values.get(atom)

    def varies(atom: Any) -> bool:
        return not isinstance(atom, Literal) and atom in varying

    for equation in program.eqns:
        inputs = [value(atom) for atom in equation.invars]
        if any(map(varies, equation.invars)):
            varying.update(equation.outvars)
        if equation.primitive.name in _COMPARISONS and any(map(varies, equation.invars)):
            yield from (number for number in inputs if number is not None)
        if equation.primitive.name in _SAME_NUMBER and inputs[0] is not None:
            values[equation.outvars[0]] = inputs[0]
        for inner in _called(equation):
            called = inner.jaxpr
            # From the last on: a branch is called without the number that chooses it.
            pairs = [*zip(reversed(called.invars), reversed(inputs), strict=False),
                     *zip(called.constvars, map(_scalar, inner.consts), strict=False)]  # fmt: skip
            arguments = zip(reversed(called.invars), reversed(equation.invars), strict=False)
            still = [name for name, atom in arguments if equation.primitive.name in _CALLS and not varies(atom)]
            numbers = {name: number for name, number in pairs if number is not None}
            yield from compared_numbers(called, numbers, still)


_SAME_VALUES = (*_SAME_NUMBER, "transpose", "squeeze", "stop_gradient")
_SUMS = ("reduce_sum", "dot_general")


def narrow_softmaxes(program: Jaxpr) -> list[str]:
    """The scopes, which are paths of layers, in which a program computes a softmax in 16 bits: exponentials of which it
    takes the sum. An activation, such as Mish, has exponentials without a sum."""
    scopes: dict[str, None] = {}
    _sum_powers(program, {}, "", scopes)
    return list(scopes)


def _sum_powers(program: Jaxpr, handed: Mapping[Any, str], scope: str, scopes: dict[str, None]) -> dict[Any, str]:
    """Add to ``scopes`` those of exponentials in 16 bits that are summed; ``handed`` are the program's arguments that
    hold such exponentials, with their scopes. Returns them with all others of the program."""
    powers = dict(handed)
    for equation in program.eqns:
        inputs = [None if isinstance(atom, Literal) else powers.get(atom) for atom in equation.invars]
        origin = next((place for place in inputs if place is not None), None)
        inside = "/".join(filter(None, (scope, str(equation.source_info.name_stack))))
        kind = equation.primitive.name
        if kind in ("exp", "exp2") and getattr(equation.invars[0].aval, "dtype", None) in (jnp.bfloat16, jnp.float16):
            powers[equation.outvars[0]] = inside
        elif origin is not None and kind in _SUMS:
            scopes[origin] = None
        elif origin is not None and kind in _SAME_VALUES:
            powers[equation.outvars[0]] = origin
        for called in (inner.jaxpr for inner in _called(equation)):
            pairs = zip(reversed(called.invars), reversed(inputs), strict=False)
            passed = {name: place for name, place in pairs if place is not None}
            after = _sum_powers(called, passed, inside, scopes)
            results = zip(equation.outvars, called.outvars, strict=False) if kind in _CALLS else ()
            powers |= {name: after[atom] for name, atom in results
                       if not isinstance(atom, Literal) and atom in after}  # fmt: skip
    return powers


def _scalar(constant: Any) -> float | None:
    # Not np.asarray of others: a key of a random generator is no array of numbers.
    is_number = any(jnp.issubdtype(jnp.result_type(constant), kind) for kind in (jnp.floating, jnp.integer))
    return float(constant) if is_number and jnp.ndim(constant) == 0 else None


def sums_pairwise(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` of arrays, to be traced, with its sums computed pairwise."""

    def pairwise(*args: P.args, **kwargs: P.kwargs) -> R:
        program, result = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
        values = _evaluated(program.jaxpr, program.consts, jax.tree.leaves((args, kwargs)))
        outputs: R = jax.tree.unflatten(jax.tree.structure(result), values)
        return outputs

    return pairwise


def _evaluated(program: Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values = dict(zip((*program.constvars, *program.invars), (*constants, *arguments), strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        name, inputs = equation.primitive.name, [value(atom) for atom in equation.invars]
        inner = equation.params.get(_CALLS.get(name, ""))
        if name == "reduce_sum":
            results = [_pairwise(inputs[0], equation.params["axes"])]
        elif name in _PRODUCTS:
            results = [_PRODUCTS[name](partial(_bound, equation), *inputs, equation.params)]
        elif isinstance(inner, ClosedJaxpr):
            results = _evaluated(inner.jaxpr, inner.consts, inputs)
        else:
            result = _bound(equation, *inputs)
            results = result if equation.primitive.multiple_results else [result]
        values.update(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in program.outvars]


def _bound(equation: Any, *inputs: Any, **changed: Any) -> Any:
    """The results of an equation on these inputs, with some of its parameters changed."""
    return equation.primitive.bind(*inputs, **equation.primitive.get_bind_params({**equation.params, **changed}))


BLOCK = 32
"""Products that are added in XLA's order where sums are computed pairwise."""


def _product(compute: Callable[..., Any], left: Any, right: Any, params: Mapping[str, Any]) -> Any:
    """A product of matrices as the pairwise sum of those of blocks of its longest contracted axis."""
    (lefts, rights), (left_batch, right_batch) = params["dimension_numbers"]
    place = max(range(len(lefts)), key=lambda index: left.shape[lefts[index]], default=None)
    if place is None or left.shape[lefts[place]] <= BLOCK:
        return compute(left, right)
    # Axes of blocks come last, and are batched first.
    left, right = _blocks(left, lefts[place], BLOCK), _blocks(right, rights[place], BLOCK)
    batch = ((left.ndim - 1, *left_batch), (right.ndim - 1, *right_batch))
    return _pairwise(compute(left, right, dimension_numbers=((lefts, rights), batch), out_sharding=None), (0,))


def _convolution(compute: Callable[..., Any], images: Any, kernel: Any, params: Mapping[str, Any]) -> Any:
    """A convolution as the pairwise sum of those of blocks of its channels."""
    numbers = params["dimension_numbers"]
    (_, channels, *_), (_, fed, *spatial) = numbers.lhs_spec, numbers.rhs_spec
    size = max(BLOCK // math.prod(kernel.shape[axis] for axis in spatial), 1)
    if params["feature_group_count"] > 1 or params["batch_group_count"] > 1 or kernel.shape[fed] <= size:
        return compute(images, kernel)
    blocks = (_blocks(images, channels, size), _blocks(kernel, fed, size))
    return _pairwise(jax.vmap(compute, in_axes=-1)(*blocks), (0,))


_PRODUCTS: Mapping[str, Callable[..., Any]] = {"dot_general": _product, "conv_general_dilated": _convolution}


def _blocks(array: Any, axis: int, size: int) -> Any:
    """The array with an axis of at least ``size`` divided into blocks of this size, the axis of which comes last; zeros
    fill the last one."""
    count = -(-array.shape[axis] // size)
    widths = [(0, count * size - array.shape[axis] if index == axis else 0) for index in range(array.ndim)]
    array = jnp.pad(array, widths)
    divided = array.reshape(*array.shape[:axis], count, size, *array.shape[axis + 1 :])
    return jnp.moveaxis(divided, axis, -1)


def _pairwise(summed: Any, axes: Sequence[int]) -> Any:
    """The sum over ``axes``: the two halves of an axis are added until one number is left."""
    for axis in sorted(axes, reverse=True):
        summed = jnp.moveaxis(summed, axis, 0)
        while (size := summed.shape[0]) > 1:
            halves = summed[: size // 2] + summed[size // 2 : size // 2 * 2]
            summed = jnp.concatenate([halves, summed[-1:]]) if size % 2 else halves
        summed = summed[0] if summed.shape[0] else jnp.zeros(summed.shape[1:], summed.dtype)
    return summed
