"""Known bugs of the gated network: its two halves, its activation."""

from __future__ import annotations

from collections.abc import Callable

from keras import ops

from parity_tests.faults.masked_lm.places import MLP, swapped, without_bias
from wdport.families.faults import Mutant, calling, setting
from wdport.families.masked_lm.config import Config
from wdport.model import KerasTensor

FUNCTIONS: dict[str, Callable[[KerasTensor], KerasTensor]] = {
    "silu": ops.silu,
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
}


def feed_forward_mutants(config: Config) -> list[Mutant]:
    """The mutants of every gated network."""
    act = tuple(f"{place}/act" for place in MLP)
    found = [
        Mutant("gate: activation of the other half", MLP, calling(lambda s, x: s.down(s.gate(x) * s.act(s.up(x)))),
               quick=True),
        Mutant("gate: weights of the halves swapped", MLP, swapped("gate", "up"), shares=True),
        Mutant("gate: no activation", MLP, calling(lambda s, x: s.down(s.gate(x) * s.up(x))), gate="0", quick=True),
        Mutant("gate: added, not multiplied", MLP, calling(lambda s, x: s.down(s.act(s.gate(x)) + s.up(x)))),
        Mutant("gate: activation of the product", MLP, calling(lambda s, x: s.down(s.act(s.gate(x) * s.up(x))))),
        Mutant("gate: left out", MLP, calling(lambda s, x: s.down(s.act(s.up(x)))), gate="0"),
    ]  # fmt: skip
    found += [
        Mutant(f"activation: {name} for {config.hidden_act}", act, setting(activation=function), quick=name == "gelu")
        for name, function in FUNCTIONS.items() if name != config.hidden_act
    ]  # fmt: skip
    if config.mlp_bias:
        places = tuple(f"{place}/{part}" for place in MLP for part in ("gate", "up", "down"))
        found.append(Mutant("gate: bias dropped", places, without_bias))
    return found
