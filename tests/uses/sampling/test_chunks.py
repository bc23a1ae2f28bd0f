"""Samples depend on the seed and their own number alone; the steps compile once, while the weights are made ready."""

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
from tests.uses.sampling.toy import SHAPE, toy_network, toy_programs
from wdport.base.errors import UsageError
from wdport.base.shared_types import POLICIES
from wdport.conversion.load import open_converted
from wdport.files.model_files import read_variables
from wdport.uses.diffusion.noise import lay_out, sample_keys, step_noise
from wdport.uses.diffusion.plans import make_plan
from wdport.uses.diffusion.run_plan import plan_rows, run_plan
from wdport.uses.diffusion.schedules import noise_schedule, step_list
from wdport.uses.sampling.condition import with_known
from wdport.uses.sampling.job import Job
from wdport.uses.sampling.network import Network, keras_network, stored_network
from wdport.uses.sampling.sampler import SEGMENT, Programs, Sampler, Samples, plan_of, programs_of, segment_length

SCHEDULE = noise_schedule("exponential")
PLANS = {
    "ddpm": make_plan("ddpm", SCHEDULE, step_list(50)),
    "ddim": make_plan("ddim", SCHEDULE, step_list(50), eta=0.5),
    "heun": make_plan("heun", SCHEDULE, step_list(25)),
}
"""All of 51 rows, so that they share their programs."""


def together(
    sampler: Sampler, count: int, batch: int, chunk: int | None = None, start: int = 0, **given: np.ndarray
) -> Samples:
    return Samples.join(list(Job(sampler, count, batch, **given).draw(chunk, start)))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 64])
def test_chunks_change_no_bit(name: str, chunk: int) -> None:
    sampler = Sampler(toy_programs(), PLANS[name], seed=5)
    parts = list(Job(sampler, 10, 4).draw(chunk))
    assert [len(part) for part in parts] == [min(chunk, 10 - begin) for begin in range(0, 10, chunk)]
    whole, split = together(sampler, 10, 4), Samples.join(parts)
    assert np.array_equal(split.coefficients, whole.coefficients)
    assert np.array_equal(split.series, whole.series)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_any_batch_gives_the_same_samples(name: str, batch: int) -> None:
    sampler = Sampler(toy_programs(), PLANS[name], seed=5)
    whole, split = together(sampler, 10, 10), together(sampler, 10, batch)
    assert whole.coefficients.shape == split.coefficients.shape == (10, *SHAPE)
    np.testing.assert_allclose(split.coefficients, whole.coefficients, rtol=2e-5, atol=1e-5)
    assert np.array_equal(split.series, 2.0 * split.coefficients)


def test_the_noise_itself_is_the_same_bit_for_bit() -> None:
    drawn = [
        np.concatenate([np.asarray(step_noise(sample_keys(5, part), step, SHAPE, "float32"))
                        for part in np.split(np.arange(12, dtype=np.uint32), pieces)])
        for pieces in (1, 3, 12) for step in (0, 7)
    ]  # fmt: skip
    assert all(np.array_equal(drawn[i], drawn[i + 2]) for i in range(4))
    assert not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("setting", "value"),
    [("jax_random_seed_offset", 5), ("jax_threefry_partitionable", False), ("jax_default_prng_impl", "rbg")],
)
def test_no_setting_of_jax_changes_the_noise(setting: str, value: object) -> None:
    """A run that resumes under another setting would mix two streams."""
    indices = np.arange(4, dtype=np.uint32)

    def draw() -> np.ndarray:
        return np.asarray(jax.jit(lambda seed: step_noise(sample_keys(seed, indices), 7, SHAPE, "float32"))(5))

    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5, impl="threefry2x32"), 2), 7)
    assert np.array_equal(draw()[2], jax.random.normal(key, SHAPE, np.float32))
    before, plain = getattr(jax.config, setting), draw()
    try:
        jax.config.update(setting, value)
        assert np.array_equal(draw(), plain)
    finally:
        jax.config.update(setting, before)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("start", [1, 4, 6, 9])
def test_samples_go_on_where_others_stopped(start: int, chunk: int | None) -> None:
    """Also within a batch."""
    sampler = Sampler(toy_programs(), PLANS["ddim"])
    whole, rest = together(sampler, 10, 4), together(sampler, 10, 4, chunk, start=start)
    assert np.array_equal(rest.coefficients, whole.coefficients[start:])
    assert [len(part) for part in Job(sampler, 10, 4).draw()] == [4, 4, 2]


def test_dtypes_see_the_same_noise() -> None:
    single, double = (together(Sampler(toy_programs(dtype), PLANS["ddpm"]), 2, 2) for dtype in ("float32", "float64"))
    assert double.coefficients.dtype == np.float64
    np.testing.assert_allclose(single.coefficients, double.coefficients, rtol=1e-3, atol=1e-3)


def test_a_tape_is_what_the_seed_would_have_drawn() -> None:
    """The slots of the tape are the noise of the noisy steps, in their order."""
    plan, indices = PLANS["ddim"], np.arange(4, dtype=np.uint32)
    keys = sample_keys(9, indices)
    init = np.asarray(step_noise(keys, 0, SHAPE, "float32"))
    noisy = plan.steps[plan.noisy]
    tape = np.stack([np.asarray(step_noise(keys, int(step), SHAPE, "float32")) for step in noisy])
    assert len(tape) == plan.slots == 50
    drawn = together(Sampler(toy_programs(), plan, seed=9), 4, 4)
    given = together(Sampler(toy_programs(), plan, seed=1), 4, 3, init=init, tape=tape)
    np.testing.assert_allclose(given.coefficients, drawn.coefficients, rtol=1e-5, atol=1e-5)


def test_a_laid_out_tape_has_its_slots_in_the_noisy_rows() -> None:
    noisy = np.array([True, False, True, False])
    laid = lay_out(np.array([[[[1.0]]], [[[2.0]]], [[[3.0]]]]), noisy)
    assert laid[:, 0, 0, 0].tolist() == [1.0, 0.0, 2.0, 0.0]


def test_plans_of_equal_length_share_one_program() -> None:
    programs = Programs(toy_network())
    for name, eta in (("ddim", 0.0), ("ddim", 0.7), ("ddim-textbook", 0.3), ("dpm++2m", 0.0), ("euler", 0.0)):
        Sampler(programs, plan_of(programs.network, name, 50, eta), seed=3).run(np.arange(4))
    assert programs.drawn._cache_size() == 1


@pytest.mark.parametrize("count", [1, 51, 64, 65, 101, 129, 334, 1000, 1999])
def test_segments_are_of_one_length_and_waste_little(count: int) -> None:
    length = segment_length(count)
    assert length <= SEGMENT
    assert -count % length <= 0.02 * count


def test_segments_change_nothing() -> None:
    """101 rows are two segments and one row that changes nothing; the scan in one go is the truth."""
    network, reports = toy_network("float64"), []
    plan, start = plan_of(network, "dpm++2m", 100), np.random.default_rng(0).standard_normal((2, *SHAPE))
    assert len(plan.steps) == 101
    with jax.enable_x64(True):
        sampler = Sampler(Programs(network), plan)
        found = sampler.run(np.arange(2), start, report=lambda *report: reports.append(report))
        weights = network.weights()
        whole = jax.jit(lambda rows: run_plan(lambda x, t: network.apply(weights, x, t), rows, start,
                                              np.zeros((101, *start.shape))))  # fmt: skip
        np.testing.assert_allclose(found.coefficients, whole(plan_rows(plan, "float64")), rtol=1e-11)
    assert reports == [(0, 101), (51, 101), (101, 101)]  # the first when all is compiled


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
    """What was compiled ahead is what runs, and no step begins before."""
    model = wdport.load_model(opened.path) if kind == "keras" else None
    network = keras_network(model) if model else stored(opened, dtype="float64" if kind == "float64" else "float32")
    if kind == "known":
        network = with_known(network, np.full((24, 3), np.nan))
    if kind == "no specs":
        network = replace(network, specs=None)
    plan = plan_of(network, "ddim", 7, 0.5)
    tape = np.zeros((plan.slots, 2, *network.shape)) if kind == "taped" else None
    compiled_at_reports: list[int] = []
    with compiled() as programs:
        Sampler(Programs(network), plan).run(
            np.arange(2), tape=tape, report=lambda *_: compiled_at_reports.append(len(programs))
        )
        assert programs == ["jit(_taped)" if kind == "taped" else "jit(_drawn)"]
    assert compiled_at_reports[0] == 1


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
