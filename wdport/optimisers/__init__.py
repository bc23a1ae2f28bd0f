"""Optimisers with PyTorch's arithmetic, and its learning-rate schedules; they know no model."""
