"""Functions that ought to build a model and do not."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers


def raises() -> Any:
    raise ValueError("out of\norder")


def number() -> Any:
    return 7


def lambda_layer() -> Any:
    return keras.Sequential([keras.Input((9, 5)), layers.Lambda(lambda x: x), layers.Dense(3)])


def other_inputs() -> Any:
    return keras.Sequential([keras.Input((9, 4)), layers.LSTM(7, name="lstm"), layers.Dense(3, name="other")])
