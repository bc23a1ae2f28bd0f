"""What a pair is, and the decorator that makes two functions one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from parity_tests.port.entries import import_torchvision

PAIRS: dict[str, Pair] = {}
"""Every pair by name, as the modules ``text`` and ``images`` declare them."""


@dataclass(frozen=True)
class Pair:
    """A PyTorch model and a Keras model in small configurations, with random weights.

    Attributes:
        name: unique.
        torch: the class of the PyTorch model with its library.
        keras: the class of the Keras model with its library.
        inputs: what ``--input`` takes, one each.
        reference: what ``--reference`` takes.
        model: what ``--keras-model`` takes.
        table: the name of the table that comes with wdport; empty if there is none.
    """

    name: str
    torch: str
    keras: str
    inputs: tuple[str, ...]
    reference: str
    model: str
    table: str = ""


def pair(torch: str, keras: str, *inputs: str, table: str = "") -> Callable[[type], type]:
    """A class whose static methods ``torch`` and ``keras`` build the two models becomes a pair."""

    def decorated(holder: type) -> type:
        name = holder.__name__
        holder.torch = staticmethod(_seeded(holder.torch))
        path = f"{holder.__module__}:{name}"
        PAIRS[name] = Pair(name, torch, keras, inputs, f"{path}.torch", f"{path}.keras", table)
        return holder

    return decorated


def _seeded(function: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The same random weights on every call, in evaluation mode."""

    @functools.wraps(function)
    def build() -> nn.Module:
        import_torchvision()
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            return function().eval()

    return build
