"""Programs that several threads ask for at once."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import keras
import numpy as np

from wdport.compare.probe import Probe
from wdport.compare.programs import CompiledProgram


class Slow:
    """In place of a jitted function: every step of making a program takes a while, and is counted."""

    def __init__(self, program: CompiledProgram[Any, Any]) -> None:
        self.jitted, self.steps = program._jitted, list[str]()

    def lower(self, *arguments: Any) -> Slow:
        self.steps.append("lower")
        self.jitted.lower(*arguments)
        time.sleep(0.02)
        return self

    @property
    def out_info(self) -> str:
        time.sleep(0.02)
        return ["shapes"]

    def compile(self) -> Any:
        self.steps.append("compile")
        time.sleep(0.02)
        return lambda x: [2 * x]


def test_threads_that_ask_for_one_program_make_it_once() -> None:
    program, x = CompiledProgram(lambda x: x), np.arange(3.0, dtype=np.float32)
    program._jitted = slow = Slow(program)  # type: ignore[assignment]
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(program if at % 2 else program.result_of, x) for at in range(8)]
        results = [each.result() for each in found]
    assert slow.steps == ["lower", "compile"]
    assert all(np.array_equal(result, 2 * x) for result in results[1::2])
    assert set(results[::2]) == {"shapes"}


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
