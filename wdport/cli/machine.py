"""What a verb needs of the machine: that JAX can start, a private compile cache, devices (--devices), and the other
processes of a run (--distributed).

Some of these faults would end the process inside a library, with a misleading exit code.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from wdport.base.errors import MachineError, UsageError, WdportError, printable
from wdport.base.jax_settings import Unusable, reset_jax, use_compile_cache
from wdport.cli.console import console
from wdport.cli.signals import end_output

JAX_BYTES: Final = 2 << 30
"""Of address space: sampling a small model takes 1.75 GiB on two cores; with 1.5 GiB a library ends the process."""

TORCH_BYTES: Final = 3 << 30
"""The same for verify, which also loads torch and Keras: 2.5 GiB is enough, 2 GiB is not."""

PER_CORE: Final = 128 << 20
"""More for each further core: thread stacks and malloc arenas."""

PARSE: Final = "from jaxlib import xla_client; xla_client.make_cpu_client()"


def require_jax(torch: bool = False) -> None:
    """Raise :class:`MachineError` if XLA would end the process; jax is not imported here."""
    limit, least = address_limit(), TORCH_BYTES if torch else JAX_BYTES
    least += PER_CORE * max(0, (os.cpu_count() or 1) - 2)
    if limit is not None and limit < least:
        what = f"address space is limited to {limit >> 20} MiB; {least >> 20} are needed, and more for the model"
        raise MachineError("memory", what, "raise the limit (ulimit -v)")
    _require_flags()


def require_torch(where: str, instead: str = "") -> None:
    """Raise :class:`MachineError` if torch is not installed; it is not imported here, since that takes seconds."""
    if find_spec("torch") is None:
        what = "the PyTorch model runs in torch, which is not installed"
        raise MachineError(where, what, f"pip install 'wdport[torch]'{instead}")


def prepare_cache(prepare: Callable[[], object]) -> None:
    """Call a function of :mod:`wdport.base.jax_settings`; an unusable cache gives a note."""
    try:
        prepare()
    except Unusable as error:
        console.note(f"{printable(error, None)}: it is not used")


def start_jax_on_cpu() -> None:
    """:func:`start_jax` on the CPU, unless JAX_PLATFORMS is set: for comparisons.

    XLA compiles many small programs for a comparison, which takes minutes for a GPU.
    """
    if not os.environ.get("JAX_PLATFORMS"):
        os.environ["JAX_PLATFORMS"] = "cpu"  # also for processes that this one starts
        if "jax" in sys.modules:  # otherwise it reads the variable when it is imported, after the cache is checked
            sys.modules["jax"].config.update("jax_platforms", "cpu")
    start_jax()


def start_jax(dtype: str = "float32") -> None:
    """Enable the compile cache, and float64 for that dtype, and find the devices; raises :class:`MachineError` if there
    are none.

    A command compiles its own programs, so settings of JAX that are for other code have no effect: see
    :mod:`wdport.base.jax_settings`.
    """
    prepare_cache(use_compile_cache)
    import jax

    # Tracing creates many objects, and the collector would traverse those of jax, keras and torch repeatedly, for a
    # tenth of the time of `verify`.
    gc.set_threshold(20_000, 20, 20)
    reset_jax()
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:
        message = str(error) or f"JAX_PLATFORMS is {os.environ.get('JAX_PLATFORMS')}"
        raise MachineError("jax", f"finds no device ({message})", "check JAX_PLATFORMS and the drivers") from error


def address_limit() -> int | None:
    """The address-space limit of this process in bytes; None without a limit."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
    except ImportError:  # Windows
        return None
    limit = getrlimit(RLIMIT_AS)[0]
    return None if limit == RLIM_INFINITY else limit


def _require_flags() -> None:
    """Check XLA_FLAGS in a child process, since XLA ends the process at an unknown flag."""
    if not os.environ.get("XLA_FLAGS"):
        return
    tried = subprocess.run([sys.executable, "-P", "-c", PARSE], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, text=True, errors="replace", check=False)  # fmt: skip
    message = next((line for line in tried.stderr.splitlines() if "XLA_FLAGS" in line or "Flag" in line), None)
    if tried.returncode and message:
        raise MachineError("XLA_FLAGS", message.rpartition("] ")[2].strip(), "correct or unset it")


PATIENCE: Final = 20
"""Seconds without a heartbeat after which a process counts as dead; jax waits for 100, and at the end for 300. A
process that is alive sends heartbeats from a separate thread, whatever it computes."""

_PLACE = re.compile(r"(?P<address>[^,]+:[0-9]{1,5}),(?P<process>[0-9]{1,6})/(?P<processes>[0-9]{1,6})")


def parse_devices(
    devices: str | None, distributed: str | None, shard_weights: bool = False
) -> tuple[int | str | None, Callable[[], None]]:
    """The ``devices`` argument of :func:`wdport.sample`, and a function that joins the other processes, if any.

    All devices of each process are used if only ``distributed`` is given. Raises :class:`UsageError`, also if weights
    are to be sharded on a single device.
    """
    if devices not in (None, "all") and not re.fullmatch(r"[1-9][0-9]{0,5}", devices or ""):
        raise UsageError("--devices", f"invalid device count {devices!r}", "give a whole number of at least 1, or all")
    count: int | str | None = int(devices) if devices and devices != "all" else devices
    if distributed is not None:
        return count or "all", _joining(distributed)
    if shard_weights and count is None:
        raise UsageError("--shard-weights", "needs several devices", "add --devices all")
    return count, lambda: None


def _joining(text: str) -> Callable[[], None]:
    if text == "auto":
        return lambda: _join()
    place = _PLACE.fullmatch(text)
    port = int(place["address"].rpartition(":")[2]) if place else 0
    if not place or not 0 < port < 1 << 16 or not int(place["process"]) < int(place["processes"]):
        raise UsageError("--distributed", f"invalid process {text!r}", "write for example 127.0.0.1:7801,0/2")
    return lambda: _join(place["address"], int(place["processes"]), int(place["process"]))


def _join(*where: Any) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    parameters = inspect.signature(jax.distributed.initialize).parameters
    options: dict[str, Any] = {name: PATIENCE for name in ("heartbeat_timeout_seconds", "shutdown_timeout_seconds")
                               if name in parameters}  # fmt: skip
    if where and where[-1] == 0:  # the first process, which would listen on every interface
        options["coordinator_bind_address"] = where[0]
    try:
        jax.distributed.initialize(*where, **options)
    except (RuntimeError, ValueError) as error:
        what = f"the processes did not connect ({str(error).splitlines()[0]})"
        raise MachineError("--distributed", what, "check the address, and that every process was started") from error


def leave(error: WdportError) -> NoReturn:
    """Print the error and exit at once: at a normal exit, jax would wait for processes that have ended, and abort."""
    console.error(error.command_line)
    end_output()
    os._exit(error.exit_code)
