"""Settings of JAX for the whole process, its persistent compile cache, and options for fast compilation or for fast
programs.

The cache is a setting of the whole process, so only the command line switches it on.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from inspect import ismethod, signature
from itertools import count
from pathlib import Path
from typing import Final, ParamSpec, TypeVar
from weakref import WeakMethod

from wdport.base.file_trust import distrust, replaceable

PRECISION: Final = "jax_default_matmul_precision"
"""The setting that a user of the command line may have chosen for a reason, so it is not reset."""

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
    """Set the defaults, whatever the environment sets: for the command line, which compiles its own programs."""
    _update({**NUMERIC, **DEBUGGING})


def _update(settings: Mapping[str, object]) -> None:
    import jax

    for name, value in settings.items():
        jax.config.update(name, value)


_LOCATIONS: Final[Mapping[str, object]] = {
    "jax_include_full_tracebacks_in_locations": False,
    "jax_hlo_source_file_canonicalization_regex": ".*/",
}


@contextmanager
def without_paths() -> Iterator[None]:
    """Inside, lowered programs name the files of Python code without their folders, which may be private."""
    import jax

    before = {name: getattr(jax.config, name) for name in _LOCATIONS}
    try:
        _update(_LOCATIONS)
        yield
    finally:
        _update(before)


def chosen_numerics() -> dict[str, object] | None:
    """Return the settings that change numbers and are not the defaults, by name; ``None`` if all are."""
    import jax

    # None: JAX chooses the precision for the device, on GPUs and TPUs less than float32.
    defaults = {**NUMERIC, PRECISION: None}
    chosen = {name: getattr(jax.config, name, value) for name, value in defaults.items()}
    return {name: value for name, value in chosen.items() if value != defaults[name]} or None


P = ParamSpec("P")
R = TypeVar("R")
Option = str | bool | int | float

FAST_COMPILE: Mapping[str, Option] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""Options for programs that run a few times: on a CPU they compile three times faster.

Not every jaxlib supports all of them: see :func:`known_options`.
"""

OPTIMIZED: Mapping[str, Option] = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}
"""XLA's own values of the options above, for programs that must compute as users' programs do."""

SHORT_RUN: Mapping[str, Option] = {**FAST_COMPILE, "xla_backend_optimization_level": 1}
"""Options for programs that run for as long as they compile: on a CPU, training the encoder of Context-FID compiles
twice as fast with them, and its steps take as long. At level 0 they take four times as long."""

FAST_RUN: Mapping[str, Option] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,"
    "LIBRARY_FUSION_TYPE_REDUCE",
}
"""Options for programs that run often on a CPU: everything that XLA delegates to YNNPACK, the CPU library of jaxlib,
except convolutions.

With YNNPACK's convolutions, jaxlib 0.10's default, a U-Net's step takes longer: `bench/unet.py`.
"""

NARROW_RUN: Mapping[str, Option] = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""Options for programs with gradients in bfloat16 on a CPU: without YNNPACK, which in jaxlib 0.12 adds up in bfloat16.

The gradients of a small diffusion transformer in mixed_bfloat16 are then off by 0.6 % instead of 3.6 %; those of
`torch.autocast` by 0.4 %.
"""

LARGEST_BYTES = 1 << 30
"""Largest size of the folder; JAX evicts the least recently used entries."""

LEAST_SECONDS = 0.03
"""Programs that compile faster are not cached; the single operations of an eager run take about this long."""

PROGRAMS_BETWEEN = 64
"""Number of programs that are added between two looks at the folder's size: JAX takes one before each, and reads a file
for every program in the folder: 0.11 s of CPU time with 5,000 of them, measured."""

_ENDINGS = ("-cache", "-atime")
_ENTRY = re.compile(r".+-[0-9a-f]{64}(-cache|-atime)", re.DOTALL)
"""Names of JAX's entries."""

VARIABLE = "WDPORT_COMPILE_CACHE"
"""Environment variable with another folder, or "off"."""

JAX_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own variable."""


def fast_compile() -> dict[str, Option]:
    """Return the options of :data:`FAST_COMPILE` that this jaxlib supports."""
    return known_options(FAST_COMPILE)


def known_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return the options that this jaxlib supports; each is tried once per process, on an empty program."""
    return {name: value for name, value in options.items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: Option) -> bool:
    import jax

    try:
        # XLA refuses an option that it does not know only when it compiles.
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0).compile()
    except (jax.errors.JaxRuntimeError, TypeError, ValueError):
        return False
    return True


def _cpu_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return the options that this jaxlib supports; none if programs do not run on a CPU."""
    import jax

    return known_options(options) if jax.default_backend() == "cpu" else {}


short_run, narrow_run, fast_run = (partial(_cpu_options, options) for options in (SHORT_RUN, NARROW_RUN, FAST_RUN))


def weakly(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` for :func:`jax.jit`, with the object of a method referenced weakly.

    An object that holds the programs of its own methods is a cycle that the garbage collector frees late, or never,
    since it passes through jaxlib. Linux limits the mappings of a process to 65,530, of which XLA needs thousands for
    the programs of one comparison; beyond, jaxlib crashes.
    """
    if not ismethod(function):
        return function
    held = WeakMethod(function)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        method: Callable[P, R] | None = held()
        assert method is not None, "a program outlives its object"
        return method(*args, **kwargs)

    call.__name__ = function.__name__
    # jax.jit reads the names of the arguments from it, for static and donated ones.
    call.__signature__ = signature(function)  # type: ignore[attr-defined]
    return call


class Unusable(Exception):
    """The reason why a named folder is not used."""


def leave_unsafe_cache() -> None:
    """Take JAX's own cache out of the environment if its folder is not private, or unusable.

    JAX reads the variable when it is imported, and the folder's contents run as machine code as soon as anything is
    compiled. Raises :class:`Unusable`, with the variable removed, and JAX's setting if it has been imported.
    """
    folder = os.environ.get(JAX_VARIABLE, "")
    # With "://" it is a bucket, which has no owner and permission bits to check.
    if folder and "://" not in folder and (reason := _reason_against(Path(folder))):
        del os.environ[JAX_VARIABLE]
        if "jax" in sys.modules:
            import jax
            from jax.experimental.compilation_cache import compilation_cache

            jax.config.update("jax_compilation_cache_dir", None)
            # JAX keeps the cache object that it opened, whatever the setting is later.
            compilation_cache.reset_cache()
        raise Unusable(f"{JAX_VARIABLE}={folder} {reason}")


def cache_folder() -> Path | None:
    """Return the folder of what is kept for this machine, such as compiled programs; it is created if it is missing.

    ``None`` if ``WDPORT_COMPILE_CACHE`` is "off", or if the usual folder is not private: only this user may own,
    replace or write to it. Raises :class:`Unusable` if the variable names a folder that is not private, or cannot be
    created or written to.
    """
    from platformdirs import user_cache_path

    requested = os.environ.get(VARIABLE, "")
    if requested == "off":
        return None
    folder = Path(requested) if requested else user_cache_path("wdport", appauthor=False) / "compiled"
    # JAX evicts by size whatever has the ending of an entry.
    if reason := _reason_against(folder) or _foreign(folder):
        if requested:
            raise Unusable(f"{VARIABLE}={folder} {reason}")
        return None
    return folder


def use_compile_cache() -> Path | None:
    """Enable the cache for this process.

    Leaves a cache that JAX has already, and sets none without a :func:`cache_folder`, which may raise
    :class:`Unusable`: its contents run as machine code. Returns the folder, ``None`` if nothing was changed.
    """
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) or (folder := cache_folder()) is None:
        return None
    _update({
        "jax_compilation_cache_max_size": LARGEST_BYTES,
        "jax_persistent_cache_min_compile_time_secs": LEAST_SECONDS,
        "jax_compilation_cache_dir": str(folder),
    })  # fmt: skip
    _evict_rarely()
    return folder


@cache
def _evict_rarely() -> None:
    """Let JAX look at the folder's size before the first program that it adds, and then before every
    :data:`PROGRAMS_BETWEEN`-th."""
    from jax._src import lru_cache

    evict, added = lru_cache.LRUCache._evict_if_needed, count()

    def sometimes(self: lru_cache.LRUCache, *, additional_size: int = 0) -> None:
        if next(added) % PROGRAMS_BETWEEN == 0:
            evict(self, additional_size=additional_size)

    lru_cache.LRUCache._evict_if_needed = sometimes  # type: ignore[method-assign]


def cache_variables() -> dict[str, str]:
    """Return JAX's cache of this process as environment variables for another one; none if it has no cache."""
    import jax

    names = ("jax_compilation_cache_dir", "jax_compilation_cache_max_size",
             "jax_persistent_cache_min_compile_time_secs")  # fmt: skip
    if not getattr(jax.config, names[0], None):
        return {}
    return {name.upper(): str(getattr(jax.config, name)) for name in names}


def _foreign(folder: Path) -> str | None:
    """Return the complaint about a file that JAX would mistake for a cache entry, and evict; None if there is none."""
    unexpected = (name for name in os.listdir(folder) if name.endswith(_ENDINGS) and not _ENTRY.fullmatch(name))
    name = min(unexpected, default=None)
    return None if name is None else f"has {name}, which is not a compiled program"


def _reason_against(folder: Path) -> str | None:
    """Return why the folder cannot or must not be used, None if it can; a missing folder is created."""
    try:
        # Private from the start: a later chmod would leave time for others to write into it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := distrust(folder.stat(), folder):
            return reason
        if parent := replaceable(folder.resolve()):
            return f"can be replaced by other users, who may write to {parent}"
    except (OSError, ValueError) as error:  # a name with a zero byte
        return f"cannot be created ({getattr(error, 'strerror', None) or error})"
    return None if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "cannot be written to"
