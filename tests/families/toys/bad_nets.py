"""Functions that ought to build a PyTorch model and do not."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.families.toys.nets import Lstm


def raises() -> Any:
    raise ValueError("out of\norder")


def number() -> Any:
    return 7


def calls_exit() -> Any:
    raise SystemExit("usage: train.py DATA")


class Broken(Lstm):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("out of\norder")


class Two(Lstm):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(x) + y


broken, two_inputs = Broken, Two


def of_keras() -> Any:
    from tests.families.toys import twins

    return twins.lstm()
