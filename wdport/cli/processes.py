"""The devices and the other processes that a verb uses: --devices and --distributed."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from wdport.cli.console import console
from wdport.cli.signals import end_output
from wdport.errors import MachineError, UsageError, WdportError

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
