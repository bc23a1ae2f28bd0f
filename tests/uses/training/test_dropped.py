"""Which samples lose their condition in training, how often, and what replaces it: by what the network gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from tests.edits import edit
from tests.uses.sampling.toy import ABOUT
from wdport.models.interface import LossPart, labels_of
from wdport.uses.diffusion.loss import DiffusionLoss
from wdport.uses.diffusion.noise import FlowNoising
from wdport.uses.training.model import DiffusionTraining

NONE, RATE, COUNT = 2, 0.2, 5000
LABELS = np.arange(COUNT) % 2


class Watched(keras.Model):
    """Keeps the labels that it gets."""

    labels: Any = None

    def call(self, x: Any, t: Any, label: Any) -> Any:
        self.labels = np.asarray(label)
        return x


def seen(training: bool) -> list[np.ndarray]:
    """The labels that a network gets in two steps."""
    network = Watched()
    network.built = True
    about = replace(ABOUT, shape=(2,), condition=labels_of(4, NONE))
    loss = DiffusionLoss(FlowNoising("velocity", "linear"), (LossPart("state", 2, 1.0),))
    model = DiffusionTraining(network, about, loss, seed=1, dropped=RATE)
    states = np.zeros((COUNT, 2), np.float32)
    steps = []
    for _ in range(2):
        model.call((states, LABELS.astype(np.int32)), training=training)
        steps.append(network.labels)
    return steps


def check() -> None:
    first, second = seen(training=True)
    for step in (first, second):
        dropped = step != LABELS
        assert (step[dropped] == NONE).all()
        # Of each label; the bound is five standard deviations of a binomial distribution.
        for label in (0, 1):
            share = dropped[label == LABELS].mean()
            assert share == pytest.approx(RATE, abs=5 * (RATE * (1 - RATE) / (COUNT / 2)) ** 0.5)
    # Each sample by itself, and anew in every step.
    both = ((first == NONE) & (second == NONE)).mean()
    assert both == pytest.approx(RATE**2, abs=5 * (RATE**2 / COUNT) ** 0.5)
    neighbours = ((first[1:] == NONE) & (first[:-1] == NONE)).mean()
    assert neighbours == pytest.approx(RATE**2, abs=8 * (RATE**2 / COUNT) ** 0.5)
    assert all((step == LABELS).all() for step in seen(training=False))


def test_conditions_are_dropped_as_stated() -> None:
    check()


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        (DiffusionTraining.call, "bernoulli(other, self.dropped,", "bernoulli(other, 1.0 - self.dropped,"),
        (DiffusionTraining.call, "bernoulli(other, self.dropped,", "bernoulli(other, 0.5 * self.dropped,"),
        (DiffusionTraining.call, "clean.shape[:1])", "(1,))"),
        (DiffusionTraining.call, "key = self.key(training)", "key = self.key(False)"),
        (DiffusionTraining.call, "self.dropped and training is not False", "self.dropped"),
        (DiffusionTraining._without, "jnp.asarray(null, condition.dtype)", "jnp.zeros((), condition.dtype)"),
    ],
)
def test_an_edit_of_dropping_is_found(place: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(monkeypatch, place, old, new)
    with pytest.raises(AssertionError):
        check()
