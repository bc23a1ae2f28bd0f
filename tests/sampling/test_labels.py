"""Labels reach the sample that they are for, whatever the batch; guidance is the formula; clipping bounds the clean
state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling.toy import SHAPE, toy_network
from wdport.errors import UsageError
from wdport.exporting.artefact import export_target, write_artefact
from wdport.exporting.loader import load
from wdport.exporting.lower import Lowering, lower_sampler
from wdport.sampling.job import plan_job
from wdport.sampling.network import Network
from wdport.sampling.programs import Programs
from wdport.sampling.request import Request
from wdport.sampling.sampler import plan_of
from wdport.sampling.samples import Samples

CLASSES, NO_CLASS = 4, 3
SETTINGS: dict[str, Any] = {"sampler": "ddim", "steps": 5, "seed": 3}


def network(dtype: str = "float32", no_class: int | None = NO_CLASS) -> Network:
    """Every class has a slope of its own."""
    plain = toy_network(dtype)

    def apply(weights: Any, state: Any, time: Any, labels: Any) -> Any:
        slopes = jnp.asarray([0.5, 1.0, -1.0, 0.0], dtype)[labels][:, None, None]
        made: Any = plain.apply(weights, state, time) + slopes * state
        return made

    return replace(plain, apply=apply, about=replace(plain.about, classes=CLASSES, no_class=no_class))


def drawn(net: Network, **given: Any) -> np.ndarray:
    job = plan_job(Programs(net), Request(**SETTINGS, **given))
    return Samples.join(list(job.draw())).coefficients


def test_each_sample_has_its_own_label() -> None:
    mixed = drawn(network(), count=7, labels=[2, 0, 1], batch=3)
    for label in range(3):
        alone = drawn(network(), count=7, labels=label)
        np.testing.assert_allclose(mixed[[2, 0, 1].index(label) :: 3], alone[[2, 0, 1].index(label) :: 3], rtol=1e-5)
    assert np.abs(mixed[0] - drawn(network(), count=1, labels=1)[0]).max() > 0.1


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
    ],
)
def test_what_is_refused(net: Network, given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        drawn(net, count=2, **given)
    assert text in str(caught.value)


def test_an_exported_sampler_takes_labels(tmp_path: Any) -> None:
    net = network()
    labels = np.array([2, 0, 1], np.int32)
    lowered = lower_sampler(net, plan_of(net, "ddim", 5), Lowering(("cpu",), None, "highest"))
    facts = {"what": "sampler", "platforms": ["cpu"], "batch": None, "dtype": "float32", "classes": CLASSES,
             "sampler": {"slots": 0}}  # fmt: skip
    target = export_target(tmp_path / "a.stablehlo", force=False, option=None)
    write_artefact(target, facts, lowered.programs, lowered.arrays)
    sampler = load(target.path)
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
