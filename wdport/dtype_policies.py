"""The dtype policies that networks are offered in, under Keras's names; no jax, for the command line."""

from __future__ import annotations

POLICIES = {
    "float32": ("float32", "float32"),
    "mixed_bfloat16": ("bfloat16", "float32"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "float64": ("float64", "float64"),
}
"""What is computed in, and what weights are held in."""
