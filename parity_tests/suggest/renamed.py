"""The PyTorch models of all pairs with other names: ``NAME_misleading`` and ``NAME_meaningless`` build them."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from wdport.families.user_functions import find_function

from .corpus import PAIRS
from .names import HOW, renaming


def __getattr__(attribute: str) -> Callable[[], nn.Module]:
    pair, _, how = attribute.rpartition("_")
    if pair not in PAIRS or how not in HOW:
        raise AttributeError(attribute)
    return renaming(find_function(PAIRS[pair].reference("honest")), how)
