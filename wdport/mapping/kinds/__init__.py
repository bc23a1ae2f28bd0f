"""The catalogue of layer kinds: each with its classes in both libraries, its tensors and their rules, its layouts, and
the hyper-parameters to compare.

A kind is declared once, in a module of this folder. Tables, the check of settings, ``map suggest`` and ``map outline``
read it. Nothing here imports torch or keras: classes are texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from wdport.mapping.kinds import (
    activations,
    attention,
    convolutions,
    dense,
    norms,
    pooling,
    recurrent,
    resizing,
    weightless,
)
from wdport.mapping.kinds.kind import Kind, TorchClass, TorchFunction

_TABLED = (dense, pooling, activations, weightless, convolutions, norms, attention, recurrent)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for module in _TABLED for kind in module.ALL})
"""Kind by name: those that a table may name."""

CATALOGUE: tuple[Kind, ...] = (*KINDS.values(), *resizing.ALL)
"""All kinds."""

FUNCTIONS: Mapping[str, TorchFunction] = MappingProxyType(
    {function.name: function for kind in CATALOGUE for function in kind.functions}
)
"""Function of ``torch.nn.functional`` by name."""

MODULES: Mapping[str, TorchClass] = MappingProxyType(
    # Reversed: of two kinds with one class the first one in the catalogue is written last, and stays.
    {torch_class.short: torch_class for kind in reversed(CATALOGUE) for torch_class in kind.torch}
)
"""Class of ``torch.nn`` by name; one of several kinds as the first declares it."""

_TORCH: dict[str, list[tuple[TorchClass, str]]] = {}
_KERAS: dict[str, list[tuple[int, str]]] = {}
for _kind in CATALOGUE:
    for _class in _kind.torch if _kind.evident else ():
        _TORCH.setdefault(_class.short, []).append((_class, _kind.name))
    for _at, _name in enumerate(_kind.keras if _kind.evident else ()):
        _KERAS.setdefault(_name, []).append((_at, _kind.name))

_NAMED: dict[str, dict[str, int]] = {}
for _kind in CATALOGUE:
    for _at, _name in (*((0, name.short) for name in _kind.torch), *enumerate(_kind.keras)):
        _NAMED.setdefault(_name.casefold(), {}).setdefault(_kind.name, _at)


def kinds_named(text: str) -> tuple[str, ...]:
    """Return the kinds that a text means: a class of either library (``nn.Linear``, ``BatchNormalization``,
    ``max_pooling2d``), or a kind without its number of axes (``conv``); none for any other text."""
    word = text.rpartition(".")[2].replace("_", "").casefold()
    sized = (kind.name for kind in CATALOGUE if re.fullmatch(rf"{re.escape(word)}\dd", kind.name.replace("_", "")))
    ranks = _NAMED.get(word, {})
    return tuple(kind for kind, rank in ranks.items() if rank == min(ranks.values())) or tuple(sized)


def kinds_of_module(module: object) -> tuple[str, ...]:
    """Return the possible kinds of a PyTorch module by its class and settings; none for a user's own class."""
    # A user's subclass of Conv2d counts as a Conv2d; its own name is not looked up, since it may be any.
    for base in type(module).__mro__:
        if base.__module__.startswith("torch.nn") and base.__name__ in _TORCH:
            return tuple(
                kind
                for torch_class, kind in _TORCH[base.__name__]
                if torch_class.when is None or torch_class.when(module)
            )
    return ()


def kinds_of_layer(layer: object) -> tuple[str, ...] | None:
    """Return the possible kinds of a Keras layer by its class, the most likely first; ``None`` for a user's own class.

    A layer of Keras without tensors to convert has none.
    """
    for base in type(layer).__mro__:
        if base.__module__.startswith("keras.") and base.__name__ in _KERAS:
            return tuple(kind for _, kind in sorted(_KERAS[base.__name__], key=lambda pair: pair[0]))
    return () if type(layer).__module__.startswith("keras.src.layers") else None
