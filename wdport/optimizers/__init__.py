"""Optimizers with PyTorch's arithmetic, and its learning-rate schedules; independent of any model."""

from __future__ import annotations
