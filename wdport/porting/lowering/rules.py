"""The rules of functions, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wdport.porting.graph import Node


class NotLoweredError(Exception):
    """A node has no counterpart; the message says why."""


class NotTrustedError(NotLoweredError):
    """What a node reads or changes is not known, and neither is anything after it."""


Rule = Callable[[Any, Node, dict[str, Any]], Any]
"""Lowers one call of a function, given the lowering, the node and its arguments by name; returns where its output is
placed, or several."""

RULES: dict[str, Rule] = {}
"""Rule by canonical name of a function."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Declare the rule of functions."""

    def declare(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return declare


LAYER_RULES: dict[str, Callable[[Any, Node], Any]] = {}
"""Rule of a layer whose call is more than that of one layer of Keras, by its class."""


def lowers_layers(*names: str) -> Callable[[Callable[[Any, Node], Any]], Callable[[Any, Node], Any]]:
    """Declare the rule of layers."""

    def declare(rule: Callable[[Any, Node], Any]) -> Callable[[Any, Node], Any]:
        LAYER_RULES.update(dict.fromkeys(names, rule))
        return rule

    return declare


LAYER = "a layer"
"""The name of the rule that lowers calls of modules that count as a layer."""


def named_arguments(node: Node, names: Sequence[str], **defaults: Any) -> dict[str, Any]:
    """The arguments of a function with parameters of these names."""
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


RANDOM = frozenset((
    "normal", "uniform", "randn", "rand", "randperm", "randint", "empty", "rand_like", "randn_like", "randint_like",
    "empty_like", "new_empty", "bernoulli", "multinomial", "poisson", "exponential", "cauchy", "log_normal",
    "geometric", "random", "gumbel_softmax",
))  # fmt: skip
"""Functions whose values are not the same at every call."""

COMPLEX = frozenset({"mul", "rfft", "irfft", "conj", "real", "imag", "abs"})
"""Functions with a rule for complex numbers, which are a real and an imaginary part."""
