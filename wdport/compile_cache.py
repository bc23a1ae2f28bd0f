"""How programs are compiled: kept between processes by JAX's own cache, soon where they run a few times, and to run
fast where they run often.

The cache is a setting of the whole process, so only the command line switches it on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from wdport.owners import distrust

Option = str | bool | int | float

FAST_COMPILE: Mapping[str, Option] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""Options for programs that run a few times: on a CPU they compile three times sooner than they would otherwise.

Not every jaxlib knows each of them: see :func:`known_options`.
"""

FAST_RUN: Mapping[str, Option] = {
    "xla_cpu_experimental_ynn_fusion_type": ",".join(
        f"LIBRARY_FUSION_TYPE_{kind}" for kind in ("DOT", "INDIVIDUAL_DOT", "REDUCE")
    ),
}
"""Options for programs that run often on a CPU: all that XLA leaves to its library YNNPACK, but not convolutions.

With YNNPACK's convolutions, as jaxlib 0.10 has it by default, a U-Net's step takes longer: `bench/unet.py`.
"""

LARGEST_BYTES = 1 << 30
"""Of the folder; JAX drops what was not used for the longest time."""

LEAST_SECONDS = 0.03
"""What compiles sooner is not worth a file; the single operations of an eager run take about this long."""

VARIABLE = "WDPORT_COMPILE_CACHE"
"""Names another folder, or "off"."""


def fast_compile() -> dict[str, Option]:
    """Those of :data:`FAST_COMPILE` that are known here."""
    return known_options(FAST_COMPILE)


def fast_run() -> dict[str, Option]:
    """Those of :data:`FAST_RUN` that are known here; none where programs run on another device than a CPU."""
    import jax

    return known_options(FAST_RUN) if jax.default_backend() == "cpu" else {}


def known_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """The options that this jaxlib knows; each is tried once in a process, on a program of nothing."""
    return {name: value for name, value in options.items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: Option) -> bool:
    import jax

    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0).compile()
    except (jax.errors.JaxRuntimeError, TypeError, ValueError):
        return False
    return True


class Unusable(Exception):
    """Why a folder that was named is not used, in words."""


def use_compile_cache() -> Path | None:
    """Switch the cache on for this process, which has compiled nothing yet.

    Not where the program around has set JAX's own, or ``WDPORT_COMPILE_CACHE`` is "off". Returns the folder, ``None``
    where nothing was changed. What is in it runs as machine code, so it must be this user's alone. Raises
    :class:`Unusable` where ``WDPORT_COMPILE_CACHE`` names a folder that is not, or cannot be made or written to.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off":
        return None
    import jax
    from platformdirs import user_cache_path

    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return None
    folder = Path(wanted) if wanted else user_cache_path("wdport", appauthor=False) / "compiled"
    if reason := _reason_against(folder):
        if wanted:
            raise Unusable(f"{VARIABLE}={folder} {reason}")
        return None
    settings = {
        "jax_compilation_cache_max_size": LARGEST_BYTES,
        "jax_persistent_cache_min_compile_time_secs": LEAST_SECONDS,
        "jax_compilation_cache_dir": str(folder),
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    return folder


def _reason_against(folder: Path) -> str | None:
    """Why the folder cannot or must not be used; it is made where it is missing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := distrust(folder.stat(), folder):
            return reason
    except (OSError, ValueError) as error:  # a name with a zero byte
        return f"cannot be made ({getattr(error, 'strerror', None) or error})"
    return None if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "cannot be written to"
