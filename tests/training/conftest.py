"""Fixtures of the tests of training."""

from __future__ import annotations

from tests.training.points import points

__all__ = ["points"]
