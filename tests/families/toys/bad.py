"""Functions that ought to build a model and do not."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
from keras import layers

from tests.families.toys import nets, twins


def raises() -> Any:
    raise ValueError("out of\norder")


def number() -> Any:
    return 7


def lambda_layer() -> Any:
    return keras.Sequential([keras.Input((9, 5)), layers.Lambda(lambda x: x), layers.Dense(3)])


def other_inputs() -> Any:
    return keras.Sequential([keras.Input((9, 4)), layers.LSTM(7, name="lstm"), layers.Dense(3, name="other")])


def calls_exit() -> Any:
    raise SystemExit("usage: train.py DATA")


_MADE: list[Any] = []


def the_same_again() -> Any:
    if not _MADE:
        _MADE.append(twins.lstm())
    return _MADE[0]


def dtype_of_its_own() -> Any:
    return keras.Sequential([
        keras.Input((9, 5)),
        layers.LSTM(7, return_sequences=True, name="lstm"),
        layers.Dense(3, name="head", dtype="float32"),
    ])  # fmt: skip


class Broken(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = layers.LSTM(7, return_sequences=True), layers.Dense(3)

    def call(self, x: Any) -> Any:
        raise TypeError("out of\norder")


class Unused(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head, self.other = layers.LSTM(7, return_sequences=True), layers.Dense(3), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.head(self.lstm(x))


class Unkept(keras.Model):
    """Has an argument, and no ``get_config``."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.lstm, self.head = layers.LSTM(units, return_sequences=True), layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.head(self.lstm(x))


broken, unused, unkept = Broken, Unused, partial(Unkept, 7)
of_pytorch = nets.lstm
