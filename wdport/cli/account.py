"""The summary that -v adds at the end of a run: machine, versions, time and memory."""

from __future__ import annotations

import os
import platform
import sys
import time
from contextlib import suppress

from wdport.cli.console import console
from wdport.version import VERSION

LIBRARIES = ("numpy", "jax", "keras", "torch", "h5py", "safetensors", "click")
"""Packages whose versions are shown if they were imported."""


def tell_run() -> None:
    """Print the summary on standard error under -v."""
    if not console.verbose:
        return
    with suppress(OSError):
        for line in _lines():
            console.detail(line)


def _lines() -> list[str]:
    seconds = time.monotonic() - console.started
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    lines = [
        f"  wdport    {VERSION}, {os.path.dirname(os.path.dirname(__file__))}",
        f"  python    {machine}",
        f"  versions  {', '.join(_versions())}",
        f"  folder    {_folder()}",
    ]
    if "jax" in sys.modules:
        lines.append(f"  programs  {_cache()}")
    return [*lines, f"  total     {seconds:.2f} s{_memory()}"]


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in LIBRARIES:
        if name in sys.modules:
            with suppress(PackageNotFoundError):
                found.append(f"{name} {version(name)}")
    return found


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "removed"


def _cache() -> str:
    import jax

    folder = getattr(jax.config, "jax_compilation_cache_dir")
    return f"compiled programs are kept in {folder}" if folder else "compiled programs are not kept"


def _memory() -> str:
    """The peak memory use; "" if the system does not report it."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return ""
    most = getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f", peak memory {most / 1e9:.2f} GB"
