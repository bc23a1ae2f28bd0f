"""Layer kinds: for each, its tensors and their rules, its layouts, and the hyper-parameters to compare."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from wdport.mapping.kinds import attention, convolutions, dense, norms, recurrent
from wdport.mapping.kinds.kind import Compared, Inner, Kind, Level, Part
from wdport.mapping.kinds.unkinded import KIND_OF, UNKINDED, Alike

__all__ = ["KINDS", "KIND_OF", "UNKINDED", "Alike", "Compared", "Inner", "Kind", "Level", "Part"]

KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for kind in (*dense.ALL, *convolutions.ALL, *norms.ALL, *attention.ALL, *recurrent.ALL)}
)
"""Kind by name."""
