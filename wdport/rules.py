"""Rules applied to arrays, under the name by which other rooms know it: see :mod:`wdport.mapping.arrays`."""

from __future__ import annotations

from wdport.mapping.arrays import Array, apply_rule

__all__ = ["Array", "apply_rule"]
