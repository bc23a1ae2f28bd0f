"""The steps compile while the weights are made ready, once, whatever makes the network."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import wdport
from wdport.conversion.load import open_converted
from wdport.errors import UsageError
from wdport.files.model_files import read_variables
from wdport.sampling.condition import with_known
from wdport.sampling.network import Network, keras_network, stored_network
from wdport.sampling.sampler import Programs, Sampler, plan_of, programs_of
from wdport.shared_types import POLICIES

STEPS = {"jit(_drawn)", "jit(_taped)"}
EVENT = "/jax/core/compile/backend_compile_duration"


@pytest.fixture(scope="module")
def opened(converted: Path) -> Any:
    return open_converted(converted)


def stored(opened: Any, **options: Any) -> Network:
    variables = dict(read_variables(opened.path, opened.variables))
    return stored_network(opened.family, opened.config, variables, **options)


@contextmanager
def compiled(event: threading.Event | None = None) -> Iterator[list[str]]:
    """The programs of steps that are compiled in the block; at each of them ``event`` is set."""
    found: list[str] = []

    def listen(name: str, seconds: float, **facts: Any) -> None:
        if name == EVENT and facts["fun_name"] in STEPS:
            found.append(facts["fun_name"])
            if event:
                event.set()

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def leaves(weights: Any) -> list[Any]:
    """Shape and dtype of every array, and how they are nested."""
    return [jax.tree.structure(weights), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(weights))]


@pytest.mark.parametrize("dtype", POLICIES)
def test_specs_are_those_of_the_weights(opened: Any, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        network = stored(opened, dtype=dtype)
        assert network.specs is not None
        specs = network.specs()
        assert leaves(specs) == leaves(network.weights())
        # Besides weights, the states of dropout's generators, which nothing reads.
        assert {leaf.dtype.name for leaf in jax.tree.leaves(specs)} == {POLICIES[dtype][1], "uint32"}


def test_steps_compile_once_while_the_weights_are_made(opened: Any) -> None:
    network, event = stored(opened), threading.Event()

    def weights() -> Any:
        assert event.wait(60), "the weights were asked for before the steps were compiled"
        return network.weights()

    sampler = Sampler(Programs(replace(network, weights=weights)), plan_of(network, "ddim", 7, 0.5))
    with compiled(event) as programs:
        sampler.run(np.arange(2))
        assert programs == ["jit(_drawn)"]
        sampler.run(np.arange(2, 4))
        assert programs == ["jit(_drawn)"]
        sampler.run(np.arange(3))  # another batch
        assert programs == ["jit(_drawn)"] * 2


@pytest.mark.parametrize("kind", ["keras", "stored", "known", "float64", "taped", "no specs"])
def test_nothing_compiles_twice(opened: Any, kind: str) -> None:
    """What was compiled ahead is what runs."""
    model = wdport.load_model(opened.path) if kind == "keras" else None
    network = keras_network(model) if model else stored(opened, dtype="float64" if kind == "float64" else "float32")
    if kind == "known":
        network = with_known(network, np.full((24, 3), np.nan))
    if kind == "no specs":
        network = replace(network, specs=None)
    plan = plan_of(network, "ddim", 7, 0.5)
    tape = np.zeros((plan.slots, 2, *network.shape)) if kind == "taped" else None
    with compiled() as programs:
        Sampler(Programs(network), plan).run(np.arange(2), tape=tape)
        assert programs == ["jit(_taped)" if kind == "taped" else "jit(_drawn)"]


def test_what_fails_in_the_other_thread_is_raised(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network = stored(opened)
    programs = Programs(network)

    class Broken:
        def compile(self) -> None:
            raise MemoryError("no room to compile")

    monkeypatch.setattr(programs, "lower_ahead", lambda *_: (Broken(),))
    with pytest.raises(MemoryError, match="no room to compile"):
        Sampler(programs, plan_of(network, "ddim", 7)).run(np.arange(2))


def test_variables_are_held_once(opened: Any) -> None:
    variables = dict(read_variables(Path(opened.path), opened.variables))
    network = stored_network(opened.family, opened.config, variables)
    network.weights()
    assert not variables


def test_programs_go_with_their_model(converted: Path) -> None:
    """Machine code that stays would exhaust the mappings of a process that samples from many models."""
    model = wdport.load_model(converted)
    wdport.sample(model, 2, sampler="ddim", steps=2)
    assert programs_of(model) is programs_of(model)
    gone = weakref.ref(model)
    freed = weakref.ref(programs_of(model))
    del model
    gc.collect()
    assert gone() is None
    assert freed() is None


def test_a_model_that_was_deleted_before_its_sampler(converted: Path) -> None:
    model = wdport.load_model(converted)
    network = keras_network(model)
    del model
    gc.collect()
    with pytest.raises(UsageError, match="model: was deleted before its sampler; keep the model while you sample"):
        network.weights()
