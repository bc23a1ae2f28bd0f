"""Settings of JAX for the whole process that change what programs compute, or stop them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PRECISION: Final = "jax_default_matmul_precision"
"""The one that a user of the command line may have chosen for a reason."""

NUMERIC: Final[Mapping[str, object]] = {
    "jax_enable_x64": False,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
}
"""Defaults of settings that change numbers."""

DEBUGGING: Final[Mapping[str, object]] = {
    "jax_disable_jit": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_debug_nans": False,
    "jax_debug_infs": False,
    "jax_transfer_guard": "allow",
}
"""Defaults of settings that are for debugging other code."""


def reset_jax() -> None:
    """Set the defaults, whatever the environment says: for the command line, which compiles its own programs."""
    import jax

    for name, value in {**NUMERIC, **DEBUGGING}.items():
        jax.config.update(name, value)


def chosen_numerics() -> dict[str, object] | None:
    """Return the settings that change numbers and are not the defaults, by name; ``None`` if all are."""
    import jax

    defaults = {**NUMERIC, PRECISION: None}
    chosen = {name: getattr(jax.config, name, value) for name, value in defaults.items()}
    return {name: value for name, value in chosen.items() if value != defaults[name]} or None
