"""The supported dtype policies, under Keras's names; does not import jax, for the command line."""

from __future__ import annotations

POLICIES = {
    "float32": ("float32", "float32"),
    "mixed_bfloat16": ("bfloat16", "float32"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "float64": ("float64", "float64"),
}
"""The compute dtype and the dtype of the weights."""
