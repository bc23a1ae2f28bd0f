"""A condition reaches the sample that it is for, whatever the batch; guidance is the formula; clipping bounds the clean
state."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.uses.sampling.toy import SHAPE, toy_network
from wdport.base.errors import UsageError
from wdport.models.interface import Condition, Windowed, labels_of
from wdport.uses.exporting.api import condition_facts
from wdport.uses.exporting.artifact import export_target, write_artifact
from wdport.uses.exporting.loader import load
from wdport.uses.exporting.lowering import Lowering, lower_sampler
from wdport.uses.sampling.api import one_condition
from wdport.uses.sampling.job import plan_job
from wdport.uses.sampling.network import Network
from wdport.uses.sampling.request import Request
from wdport.uses.sampling.sampler import Programs, Samples, plan_of

CLASSES, NO_CLASS = 4, 3
SETTINGS: dict[str, Any] = {"sampler": "ddim", "steps": 5, "seed": 3}


@cache
def network(no_class: int | None = NO_CLASS) -> Network:
    """Every class has a slope of its own."""
    plain = toy_network()

    def apply(weights: Any, state: Any, time: Any, labels: Any) -> Any:
        slopes = jnp.asarray([0.5, 1.0, -1.0, 0.0], jnp.float32)[labels][:, None, None]
        made: Any = plain.apply(weights, state, time) + slopes * state
        return made

    return replace(plain, apply=apply, about=replace(plain.about, condition=labels_of(CLASSES, no_class)))


SCALE = Condition("scale", "positive", optional=True, statistic="atr_pcts")
STATISTICS = {"atr_pcts": np.array([0.5, 1.5, 4.0], np.float32)}
VECTOR = Condition("text", "real", (2,), null=0.0)


@cache
def conditioned(condition: Condition, held: bool = False) -> Network:
    """Every value of the condition shifts the slope."""
    plain = toy_network()

    def apply(weights: Any, state: Any, time: Any, given: Any) -> Any:
        made: Any = plain.apply(weights, state, time)
        if given is None:
            return made
        return made + jnp.log1p(jnp.abs(given.reshape(given.shape[0], -1))).sum(axis=1)[:, None, None] * state

    windowed = Windowed("ohlc-atr", STATISTICS, 3) if held else None
    return replace(plain, apply=apply, about=replace(plain.about, condition=condition, windowed=windowed))


programs_of = cache(Programs)
"""Of a network, which are compiled once."""


def drawn(net: Network, **given: Any) -> np.ndarray:
    named = {name: given.pop(name) for name in ("labels", "scale", "condition") if name in given}
    job = plan_job(programs_of(net), Request(**SETTINGS, **one_condition(**named), **given))
    return Samples.join(list(job.draw())).coefficients


@pytest.mark.parametrize(
    ("net", "name", "values"),
    [
        (network(), "labels", [2, 0, 1]),
        (conditioned(SCALE), "scale", [0.6, 2.5, 8.0]),
        (conditioned(SCALE), "condition", np.array([0.6, 2.5, 8.0])),
        (conditioned(VECTOR), "condition", [[1.0, 0.0], [0.0, 2.0], [3.0, -1.0]]),
    ],
)
def test_each_sample_has_its_own_condition(net: Network, name: str, values: Any) -> None:
    mixed = drawn(net, count=7, batch=3, **{name: values})
    for at, value in enumerate(values):
        alone = drawn(net, count=7, **{name: [value] if np.ndim(value) else value})
        np.testing.assert_allclose(mixed[at::3], alone[at::3], rtol=1e-5)
    assert np.abs(mixed[0] - drawn(net, count=1, **{name: [values[1]]})[0]).max() > 0.1


def test_a_network_is_called_without_its_condition() -> None:
    plain = toy_network()
    np.testing.assert_array_equal(drawn(conditioned(SCALE), count=3, unconditional=True), drawn(plain, count=3))
    untrained = conditioned(replace(SCALE, trained=False))
    np.testing.assert_array_equal(drawn(untrained, count=3), drawn(plain, count=3))
    null = drawn(conditioned(VECTOR), count=3, condition=[0.0, 0.0])
    np.testing.assert_array_equal(drawn(conditioned(VECTOR), count=3, unconditional=True), null)


def test_the_condition_of_the_training_data_is_drawn_with_the_seed() -> None:
    """A sample's window depends on the seed and its index alone."""
    jobs = [plan_job(Programs(conditioned(SCALE, held=True)),
                     Request(count=count, condition="data", condition_name="scale", **{**SETTINGS, "seed": seed}))
            for count, seed in ((40, 3), (12, 3), (40, 4))]  # fmt: skip
    many, few, other = (job.condition for job in jobs)
    assert many is not None
    assert few is not None
    assert set(many.tolist()) == {0.5, 1.5, 4.0}
    np.testing.assert_array_equal(many[:12], few)
    assert not np.array_equal(many, other)


@pytest.mark.parametrize("weight", [0.0, 2.5])
def test_guidance_is_the_formula(weight: float) -> None:
    net = network()

    def by_hand(weights: Any, state: Any, time: Any, labels: Any) -> Any:
        made, plain = (net.apply(weights, state, time, each) for each in (labels, jnp.full_like(labels, NO_CLASS)))
        return plain + weight * (made - plain)

    guided = drawn(net, count=4, labels=[0, 1], guidance=weight)
    np.testing.assert_allclose(guided, drawn(replace(net, apply=by_hand), count=4, labels=[0, 1]), rtol=1e-5, atol=1e-6)
    assert np.array_equal(drawn(net, count=4, labels=[0, 1], guidance=1), drawn(net, count=4, labels=[0, 1]))


@pytest.mark.parametrize(
    ("net", "given", "text"),
    [
        (toy_network(), {"scale": 2.5}, "scale: the model takes no scale; leave it out"),
        (toy_network(), {"unconditional": True}, "unconditional: the model takes no condition"),
        (network(), {"scale": 2.5}, "scale: the model takes labels, not scale; leave it out"),
        (network(), {"labels": 0, "scale": 2.5}, "labels and scale: are given together"),
        (network(no_class=None), {"unconditional": True}, "labels: the model was not trained without labels"),
        (
            conditioned(SCALE),
            {},
            "scale: the model takes a condition, scale, and was trained with it; give "
            "scale=NUMBER or data, or unconditional=True",
        ),
        (conditioned(replace(SCALE, trained=None, statistic=None)), {},
         "may have been trained with or without it; give scale=NUMBER, or unconditional=True"),
        (conditioned(SCALE), {"scale": 1.0, "unconditional": True}, "unconditional: scale is given"),
        (conditioned(SCALE), {"scale": [1.0, 0.0]}, "scale: 0 is not positive; give positive numbers"),
        (conditioned(SCALE), {"scale": -1}, "scale: -1 is not positive"),
        (conditioned(SCALE), {"scale": float("nan")}, "scale: has a value that is not finite"),
        (conditioned(SCALE), {"scale": 1e7}, "scale: has the value 1e+07; give numbers of at most 1e+06"),
        (conditioned(SCALE), {"scale": [1.0, 2.0, 3.0]}, "scale: 3 values for 2 samples"),
        (conditioned(SCALE), {"scale": [[1.0], [2.0]]}, "scale: has shape (2, 1); give numbers (n)"),
        (conditioned(SCALE), {"scale": []}, "scale: has shape (0,); give numbers (n)"),
        (conditioned(SCALE), {"scale": "data"}, "scale: the model does not hold scale of its training data"),
        (conditioned(SCALE), {"scale": "much"}, "scale: 'much' is not a number"),
        (conditioned(replace(SCALE, trained=False)), {"scale": 2.0},
         "scale: the model was trained without this condition"),
        (conditioned(VECTOR), {"condition": [1.0]}, "condition: has shape (1,); give numbers (n, 2)"),
        (conditioned(replace(VECTOR, null=None)), {"unconditional": True}, "does not run without its condition, text"),
        (conditioned(SCALE), {"scale": 1.0, "guidance": 2.0}, "guidance: the model was not trained for"),
        (conditioned(SCALE), {"scale": 1.0, "anchor": 100.0}, "anchor=: the model holds no statistics of windows"),
        (conditioned(SCALE), {"scale": 1.0, "transform": "a:B"}, "transform=: the model holds no statistics of"),
        (conditioned(SCALE, held=True), {"scale": 1.0, "transform": "a:B"}, "the model holds no statistics of windows"),
        (toy_network(), {"labels": 0}, "labels: the model has no classes"),
        (toy_network(), {"guidance": 2.0}, "guidance: the model was not trained for classifier-free guidance"),
        (network(no_class=None), {"labels": 0, "guidance": 2.0}, "guidance: the model was not trained for"),
        (network(), {}, "labels: the model draws samples of a class; give one from 0 to 3"),
        (network(), {"labels": 4}, "labels: 4 is not a class of the model; give labels from 0 to 3"),
        (network(), {"labels": -1}, "labels: -1 is not a class of the model"),
        (network(), {"labels": [0.5]}, "labels: are not whole numbers"),
        (network(), {"labels": []}, "labels: are not whole numbers"),
        (network(), {"labels": [0, 1, 2]}, "labels: 3 labels for 2 samples"),
        (network(), {"labels": 0, "guidance": float("inf")}, "guidance: inf is not a finite number"),
        (network(), {"unconditional": True, "guidance": 2.0},
         "guidance: has no condition to follow; leave it out, or unconditional=True"),
    ],
)  # fmt: skip
def test_what_is_refused(net: Network, given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        drawn(net, count=2, **given)
    assert text in str(caught.value)


def exported(net: Network, folder: Path, **facts: Any) -> Any:
    """Its sampler, exported and loaded again."""
    lowered = lower_sampler(net, plan_of(net, "ddim", 5), Lowering(("cpu",), None, "highest"))
    facts |= {"what": "sampler", "platforms": ["cpu"], "batch": None, "dtype": "float32", "sampler": {"slots": 0}}
    target = export_target(folder / "a.stablehlo", force=False, option=None)
    write_artifact(target, facts, lowered.programs, lowered.arrays)
    return load(target.path)


def test_an_exported_sampler_takes_labels(tmp_path: Path) -> None:
    net, labels = network(), np.array([2, 0, 1], np.int32)
    sampler = exported(net, tmp_path, classes=CLASSES)
    states, _ = sampler(3, range(3), labels)
    np.testing.assert_allclose(states, drawn(net, count=3, labels=labels), rtol=1e-5, atol=1e-5)
    init = np.ones((3, *SHAPE), np.float32)
    np.testing.assert_allclose(
        sampler.start_from(init, labels=labels)[0], drawn(net, init=init, labels=labels), rtol=1e-5, atol=1e-5
    )
    for wrong, text in ((None, "missing"), ([0, 1], "not"), ([0, 1, 9], "not")):
        with pytest.raises(ValueError, match=text):
            sampler(3, range(3), wrong)


def test_the_clean_state_is_clipped() -> None:
    """With nothing of the noise left, the last state is the clean one."""
    plain = toy_network()
    clipped = replace(plain, change=lambda _, clean: jnp.clip(clean, -0.25, 0.25))
    assert np.abs(drawn(plain, count=5)).max() > 0.5
    assert np.abs(drawn(clipped, count=5)).max() <= 0.25 * (1 + 1e-5)


@pytest.mark.parametrize("condition", [SCALE, VECTOR])
def test_an_exported_sampler_takes_a_condition(condition: Condition, tmp_path: Path) -> None:
    net, values = conditioned(condition), condition.trial(3)
    sampler = exported(net, tmp_path, **condition_facts(condition))
    states, _ = sampler(3, range(3), condition=values)
    np.testing.assert_allclose(states, drawn(net, count=3, condition=values), rtol=1e-5, atol=1e-5)
    wrong = [(None, "is missing"), (values[:2], "not"), (values * np.nan, "finite")]
    for each, text in [*wrong, *([(-values, "positive")] if condition.kind == "positive" else [])]:
        with pytest.raises(ValueError, match=text):
            sampler(3, range(3), each)
