"""Every pair of ``parity_tests/conformance`` as two small models that a mapping table names.

``net_7`` builds the seventh pair's PyTorch model, ``port_7`` its port and ``port_7_0`` that of its first mutant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import torch
from torch import nn

from parity_tests.conformance.engine import first
from parity_tests.conformance.pair import OF_THE_PAIR, Pair
from parity_tests.conformance.suite import PAIRS

NAMES = list(PAIRS)


def spread(pair: Pair, inputs: Sequence[Any]) -> list[Any]:
    """The layer's arguments: one array several times where the pair says so."""
    return [inputs[at] for at in pair.arrays]


class Net(nn.Module):
    """The layer between what feeds it and what reads it, with a tensor of its own where the layer has none."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair, self.m, self.gain = pair, pair.torch(), nn.Parameter(torch.ones(1))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(first(self.m(*spread(self.pair, inputs))) * self.gain / 8)


class Port(keras.Model):  # type: ignore[misc]
    def __init__(self, pair: Pair, layer: Any) -> None:
        super().__init__()
        self.pair, self.k, self.gain = pair, layer, self.add_weight(shape=(1,), name="gain")

    def call(self, x: Any, y: Any = None, z: Any = None) -> Any:
        inputs = [each for each in (x, y, z) if each is not None]
        return keras.ops.tanh(first(self.k(*spread(self.pair, inputs))) * self.gain / 8)


def port(pair: Pair, mutant: str = "") -> Any:
    changes = pair.mutants[mutant] if mutant else {}
    return Port(pair, pair.keras(**{key: value for key, value in changes.items() if key not in OF_THE_PAIR}))


def inputs(pair: Pair) -> list[str]:
    """The inputs as a table states them."""
    left, _, right = pair.axes.partition(" -> ")
    found = []
    # A name that stands twice would mean equal sizes.
    for name, letters, shape in zip("xyz", ("defg", "hijk", "lmno"), pair.shapes, strict=False):
        axes = left.split() if right else ["b", *letters[: len(shape) - 1]]
        sized = [axis if axis == "b" else f"{axis}={size}" for axis, size in zip(axes, shape, strict=True)]
        # Equal sizes do not tell the layout.
        same = " ".join(axes) if pair.channels_first and len(shape) > 2 and len({*shape[1:]}) == 1 else ""
        arrow = f" -> {right or same}" if right or same else ""
        draw = f", below {pair.below}" if pair.below else ""
        found.append(f"{name}: {' '.join(sized)}{arrow}{draw}")
    return found


def table(pair: Pair, mutant: str = "") -> str:
    at = NAMES.index(pair.name)
    suffix = f"_{list(pair.mutants).index(mutant)}" if mutant else ""
    own = dict(pair.mutants[mutant]).get("row", pair.row) if mutant else pair.row
    layout = f'axes: "{pair.axes}"' if pair.axes and not pair.kind else ""
    more = [f"kind: {pair.kind}" if pair.kind else "", layout, own]
    row = ", ".join([f"torch: m{pair.at[0]}", f"keras: k{pair.at[1]}", *filter(None, more)])
    here = "tests.families.toys.conformed"
    return f"""format: 2
torch: {here}:net_{at}
keras: {here}:port_{at}{suffix}
inputs: {inputs(pair)}
layers:
  - {{{row}}}
tensors:
  - {{torch: gain, keras: gain, rule: identity}}
"""


def __getattr__(name: str) -> Any:
    kind, *numbers = name.split("_")
    if kind not in ("net", "port") or not numbers or not all(each.isdecimal() for each in numbers):
        raise AttributeError(name)
    pair = PAIRS[NAMES[int(numbers[0])]]
    if kind == "net":
        return partial(Net, pair)
    return partial(port, pair, list(pair.mutants)[int(numbers[1])] if len(numbers) > 1 else "")
