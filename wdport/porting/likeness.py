"""Similarity of the names of one layer on both sides."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache


@lru_cache(maxsize=65536)
def likeness(torch: str, keras: str) -> float:
    """Similarity of two paths, from 0 to 1."""
    first, second = (re.sub(r"[./_]+", " ", path.lower()) for path in (torch, keras))
    path_ratio = SequenceMatcher(None, first, second, autojunk=False).ratio()
    last = SequenceMatcher(None, first.rpartition(" ")[2], second.rpartition(" ")[2], autojunk=False).ratio()
    return path_ratio + last / 2
