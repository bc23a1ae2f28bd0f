"""Programs that several threads ask for at once, and the order of additions as the cause of a float32 error."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax

from wdport.base.errors import MisfitError
from wdport.base.jax_settings import FAST_COMPILE, OPTIMIZED, SHORT_RUN, known_options
from wdport.compare.probe import Probe
from wdport.compare.programs import CompiledProgram, compared_numbers, slow_products, sums_pairwise


class Slow:
    """In place of a jitted function: every step of making a program takes a while, and is counted."""

    def __init__(self, program: CompiledProgram[Any, Any]) -> None:
        self.jitted, self.steps = program._jitted, list[str]()

    def trace(self, *arguments: Any) -> Slow:
        self.steps.append("trace")
        self.jaxpr = self.jitted.trace(*arguments).jaxpr
        time.sleep(0.02)
        return self

    def lower(self) -> Slow:
        return self

    @property
    def out_info(self) -> str:
        time.sleep(0.02)
        return ["shapes"]

    def compile(self, options: Any) -> Any:
        assert options is None
        self.steps.append("compile")
        time.sleep(0.02)
        return lambda x: [2 * x]


def test_threads_that_ask_for_one_program_make_it_once() -> None:
    program, x = CompiledProgram(lambda x: x), np.arange(3.0, dtype=np.float32)
    program._jitted = slow = Slow(program)  # type: ignore[assignment]
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(program if at % 2 else program.result_of, x) for at in range(8)]
        results = [each.result() for each in found]
    assert slow.steps == ["trace", "compile"]
    assert all(np.array_equal(result, 2 * x) for result in results[1::2])
    assert set(results[::2]) == {"shapes"}


PRODUCTS = {
    # Of one axis: 6 positions, 3 of the kernel, 4 channels to 5.
    "1d": (lambda x, w: convolve(x, w), (2, 6, 4), (3, 4, 5), 2 * 6 * 5 * 3 * 4),
    "2d": (lambda x, w: convolve(x, w), (2, 6, 6, 4), (3, 3, 4, 5), 0),
    "2d in groups": (lambda x, w: convolve(x, w, groups=2), (2, 6, 6, 4), (3, 3, 2, 6), 2 * 36 * 6 * 9 * 2),
    "within another program": (jax.jit(lambda x, w: convolve(x, w)), (2, 6, 4), (3, 4, 5), 2 * 6 * 5 * 3 * 4),
    "of a slope": (jax.grad(lambda x, w: convolve(x, w, 2).sum()), (2, 6, 6, 4), (3, 3, 4, 5), 2 * 36 * 4 * 9 * 5),
    "matrices": (lambda x, w: x @ w, (900, 900), (900, 900), 0),
}  # fmt: skip


def convolve(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    letters = "N" + "HW"[: x.ndim - 2] + "C", "HW"[: x.ndim - 2] + "IO"
    return jax.lax.conv_general_dilated(
        x, w, (stride,) * (x.ndim - 2), "SAME", dimension_numbers=(*letters, letters[0]), feature_group_count=groups
    )  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_of_convolutions_without_a_library(case: str) -> None:
    function, shape, kernel, count = PRODUCTS[case]
    for x64, expected in ((True, count), (False, 0)):
        with jax.enable_x64(x64):
            program = jax.make_jaxpr(function)(jnp.ones(shape, float), jnp.ones(kernel, float))
        assert slow_products(program.jaxpr) == expected


@pytest.mark.parametrize(
    ("length", "options", "others"),
    [(9, FAST_COMPILE, known_options(SHORT_RUN)), (8, FAST_COMPILE, None), (9, {}, None), (9, OPTIMIZED, None)],
)
def test_a_program_of_slow_convolutions_is_optimized(
    length: int, options: Any, others: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 27 products at 9 positions, and not one of 24, nor one that has other options."""
    monkeypatch.setattr("wdport.compare.programs.MUCH", 25.0)
    compiled, compile_it = [], jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self, given=None: (
        compiled.append(given), compile_it(self, given))[1])  # fmt: skip
    with jax.enable_x64(True):
        program: CompiledProgram[Any, Any, Any] = CompiledProgram(convolve, options)
        program(np.ones((1, length, 1)), np.ones((3, 1, 1)))
    assert compiled[-1] == others


def test_an_array_that_a_thread_with_x64_holds() -> None:
    """JAX keeps one canonical form of a NumPy array for all threads, for as long as somebody holds it."""
    tokens = np.arange(32).reshape(4, 8)

    def held() -> object:
        with jax.enable_x64(True):
            return jax.make_jaxpr(lambda x: x + tokens)(0)

    with ThreadPoolExecutor(1) as pool, jax.enable_x64(False):
        kept = pool.submit(held).result()
        program: CompiledProgram[Any, Any] = CompiledProgram(lambda ids: ids + 1)
        assert np.array_equal(program(tokens), tokens + 1)
    assert kept


def test_an_array_is_an_output_once() -> None:
    """And still stands at all its places in the result."""

    def twice(x: Any) -> Any:
        y = x + 1
        return {"a": [y, x], "b": (y, y * 2)}

    program: CompiledProgram[Any, Any] = CompiledProgram(twice)
    for length in (3, 2, 3):
        x = np.arange(float(length), dtype=np.float32)
        result = program(x)
        assert np.array_equal(result["a"][0], x + 1)
        assert np.array_equal(result["b"][1], 2 * x + 2)
        assert result["a"][0] is result["b"][0]
        assert program.result_of(x)["b"][1].shape == (length,)
        assert len(program.compiled(x)(x)) == 3


def test_programs_are_freed_with_the_last_reference() -> None:
    """Without the garbage collector: what it frees too late exhausts the mappings of a process."""
    probe = Probe(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")]), ["dense"])
    outputs, calls = probe.record((np.ones((1, 3), np.float32),))
    assert outputs[0].shape == (1, 2)
    assert set(calls) == {"dense"}
    freed = weakref.ref(probe)
    gc.disable()
    try:
        del probe
        assert freed() is None
    finally:
        gc.enable()


def everything(x: jax.Array, more: dict[str, float]) -> dict[str, Any]:
    """Sums within loops, branches, derivatives' rules and nested functions; no result, empty sums and keys too."""
    y = jax.nn.relu(x) + jax.nn.softmax(x) + jnp.var(x, axis=(0, 2), keepdims=True)
    y = jax.checkpoint(lambda v: jnp.sin(v).sum(1, keepdims=True) + v)(y)
    mean, _ = lax.scan(lambda carry, v: (carry + v.mean(), v), 0.0, y)
    y = lax.cond(mean > 0, lambda v: v * 2, lambda v: v, y)
    y = lax.while_loop(lambda v: v.sum() < 100, lambda v: v + jnp.abs(v) + 1, y)
    y += jnp.linalg.norm(y) + jax.scipy.special.logsumexp(y) + more["b"]
    y = jnp.einsum("ijk,ikl->ijl", y, jnp.swapaxes(y, 1, 2))
    drawn = jax.random.normal(jax.random.key(0), (3,))
    return {"y": y, "nothing": None, "rest": [drawn, x.sum(), jnp.zeros((0, 3)).sum(0)]}


@pytest.mark.parametrize("shape", [(5, 7, 9), (1, 2, 33), (4, 64, 1)])
def test_the_function_stays_the_same(shape: tuple[int, ...]) -> None:
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=shape)
        expected, found = (jax.jit(function)(x, {"b": 1.0}) for function in (everything, sums_pairwise(everything)))
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-13)
        assert one.dtype == other.dtype


def test_sums_are_more_precise() -> None:
    """16 x 16 x 16 numbers around 5."""
    x = (np.random.default_rng(0).normal(size=(64, 16, 16, 16)) + 5).astype(np.float32)
    exact = x.sum((1, 2, 3), dtype=np.float64)
    error = np.max(np.abs(np.asarray(jax.jit(sums_pairwise(lambda v: v.sum((1, 2, 3))))(x)) / exact - 1))
    assert error <= 13 * 2.0**-24  # 12 additions, one after the other, and the result


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "many channels": ((2, 9, 9, 70), (3, 3, 70, 5), {"padding": "SAME"}),
    "with a stride": ((2, 9, 9, 66), (2, 2, 66, 5), {"padding": "VALID", "window_strides": (2, 2)}),
    "with a dilation": ((2, 9, 9, 40), (3, 3, 40, 5), {"padding": "SAME", "rhs_dilation": (2, 2)}),
    "transposed": ((2, 9, 9, 40), (3, 3, 40, 5), {"padding": ((2, 2), (1, 2)), "lhs_dilation": (2, 2)}),
    "in groups": ((2, 9, 9, 64), (3, 3, 16, 8), {"padding": "SAME", "feature_group_count": 4}),
    "of large patches": ((2, 16, 16, 3), (8, 8, 3, 5), {"padding": "VALID", "window_strides": (8, 8)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_blocks_stay_the_same(name: str) -> None:
    images, kernel, settings = CONVOLUTIONS[name]

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, **{"window_strides": (1, 1), **settings}, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=images), rng.normal(size=kernel)
    with jax.enable_x64(True):
        expected, found = (jax.jit(function)(x, w) for function in (convolved, sums_pairwise(convolved)))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_products_are_more_precise() -> None:
    """4,096 products, which are added in blocks of 32."""
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(1, 2, shape).astype(np.float32) for shape in ((4, 64, 64), (64, 64, 3)))
    exact = np.einsum("bij,ijo->bo", x.astype(np.float64), w.astype(np.float64))
    product = partial(jnp.einsum, "bij,ijo->bo", precision="highest")
    convolution = partial(lax.conv, window_strides=(1, 1), padding="VALID", precision="highest")
    images, kernel = np.moveaxis(x, 2, 1)[:, :, None], w.transpose(2, 1, 0)[:, :, None]
    for found in (sums_pairwise(product)(x, w), sums_pairwise(convolution)(images, kernel)[..., 0, 0]):
        assert np.max(np.abs(found / exact - 1)) <= 20 * 2.0**-24  # at most 64 products, and 6 or 7 additions


def _compares(x: jax.Array) -> jax.Array:
    """Compares with 1 to 8, in everything that calls a program."""
    y = jax.jit(lambda x: jnp.where(x == 1.0, 0.0, x))(x)
    y = jax.lax.scan(lambda held, row: (held, jnp.where(row > 2.0, row, held)), y[0], y)[1]
    y = jax.lax.cond(y.sum() < 3.0, lambda y: y, lambda y: jnp.where(y != 4.0, y, 0.0), y)
    y = jax.lax.while_loop(lambda y: y[0, 0] > 5.0, lambda y: jnp.where(y >= 6.0, y / 2.0, y), y)
    y = jax.vmap(jax.checkpoint(lambda row: jnp.where(row <= jnp.full(3, 7.0), row, 1.0)))(y)
    return jnp.where(y.astype(int) == 8, 0.0, y)


def test_numbers_that_a_program_compares_with() -> None:
    assert set(compared_numbers(jax.make_jaxpr(_compares)(jnp.ones((2, 3))).jaxpr)) == set(range(1, 9))


def test_other_numbers_are_not_compared_with() -> None:
    def compares(x: jax.Array) -> jax.Array:
        return jnp.where(jnp.logical_and(jnp.arange(9) < 7, jnp.arange(9) % 8 == 2), jnp.clip(x * 3 + 4, -5, 6), 0.0)

    assert not set(compared_numbers(jax.make_jaxpr(compares)(jnp.ones(9)).jaxpr)) - {0.0}


def test_what_a_callback_raises_is_said_of_the_model() -> None:
    def raising(_: object) -> None:
        raise ValueError("no row of the table")

    program = CompiledProgram(lambda x: jax.pure_callback(raising, jax.ShapeDtypeStruct((), np.float32), x))
    with pytest.raises(MisfitError, match="a callback of it raises ValueError: no row of the table; compute it with"):
        program(np.float32(1.0))
