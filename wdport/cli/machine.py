"""What a verb asks of the machine before it computes: that JAX can start here, and a compile cache of one's own.

Some of what is wrong here ends the process from within a library, with a code that means something else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import click

from wdport.compile_cache import Unusable, use_compile_cache
from wdport.errors import MachineError, printable

try:
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
except ImportError:  # Windows
    _LIMITED = False
else:
    _LIMITED = True

JAX_BYTES: Final = 2 << 30
"""Of addresses: a small model was sampled from with 1.75 GiB on two cores; with 1.5 GiB a library ends the process."""

TORCH_BYTES: Final = 3 << 30
"""The same for verify, which has torch and Keras besides: 2.5 GiB did, 2 GiB did not."""

PER_CORE: Final = 128 << 20
"""More for each further core: stacks of threads, and what malloc sets aside for them."""

PARSE: Final = "from jaxlib import xla_client; xla_client.make_cpu_client()"


def require_jax(torch: bool = False) -> None:
    """Raises :class:`MachineError` where XLA would end the process; jax is not imported here."""
    _require_addresses(torch)
    _require_flags()


def start_jax() -> None:
    """Use the compile cache, and find the devices; raises :class:`MachineError` where there are none."""
    try:
        use_compile_cache()
    except Unusable as error:
        click.echo(f"note: {printable(error, None)}: programs are compiled anew", err=True)
    import jax

    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:
        said = str(error) or f"JAX_PLATFORMS is {os.environ.get('JAX_PLATFORMS')}"
        raise MachineError("jax", f"finds no device ({said})", "check JAX_PLATFORMS and the drivers") from error


def address_limit() -> int | None:
    """Bytes of addresses that this process may have, None where there is no limit."""
    if not _LIMITED:
        return None
    limit = getrlimit(RLIMIT_AS)[0]
    return None if limit == RLIM_INFINITY else limit


def _require_addresses(torch: bool) -> None:
    limit, least = address_limit(), TORCH_BYTES if torch else JAX_BYTES
    least += PER_CORE * max(0, (os.cpu_count() or 1) - 2)
    if limit is not None and limit < least:
        what = f"this process may have {limit >> 20} MiB of addresses, {least >> 20} are needed and more for the model"
        raise MachineError("memory", what, "raise the limit (ulimit -v)")


def _require_flags() -> None:
    """XLA ends the process where it does not know one of XLA_FLAGS, so a child reads them first."""
    if not os.environ.get("XLA_FLAGS"):
        return
    tried = subprocess.run([sys.executable, "-c", PARSE], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, text=True, errors="replace", check=False)  # fmt: skip
    said = next((line for line in tried.stderr.splitlines() if "XLA_FLAGS" in line or "Flag" in line), None)
    if tried.returncode and said:
        raise MachineError("XLA_FLAGS", said.rpartition("] ")[2].strip(), "correct or unset it")
