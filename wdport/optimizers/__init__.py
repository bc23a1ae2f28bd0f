"""Optimisers with PyTorch's arithmetic, and its learning-rate schedules; they know no model."""

from __future__ import annotations
