"""Devices of one process or several: which ones are used, along which axis a weight is sharded, and what processes
exchange. Start processes with ``jax.distributed.initialize``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from zlib import crc32

import jax
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import MachineError, UsageError
from wdport.base.options import COUNT
from wdport.models.interface import Array

WHERE: Final = "--distributed"


class LostProcess(MachineError):
    """One of the processes that share a job no longer answers."""


def local_devices(devices: int | str) -> list[jax.Device]:
    """The devices of this process that are used: "all", or the first N.

    Raises :class:`UsageError` if there are fewer, or processes have different numbers of them.
    """
    here: list[jax.Device] = jax.local_devices()
    if devices != "all":
        if isinstance(devices, str) or devices not in COUNT:
            raise UsageError("devices", f"invalid device count {devices!r}", 'give 1 or more, or "all"')
        if devices > len(here):
            raise UsageError("devices", f"{devices} devices asked for, {len(here)} found", 'give fewer, or "all"')
        here = here[:devices]
    # A mesh has the same number of devices in every process.
    if len(jax.devices()) != jax.process_count() * jax.local_device_count():
        raise UsageError("devices", "processes have different numbers of them", "give every process the same")
    return here


def sharded_axis(shape: tuple[int, ...], count: int) -> int | None:
    """The first axis that ``count`` divides, for matrices and higher ranks; vectors are replicated."""
    if len(shape) < 2:
        return None
    return next((axis for axis, size in enumerate(shape) if size and size % count == 0), None)


def gathered(values: Array | Tensor, progress_note: str) -> Array:
    """Concatenate the values of all processes along axis 0; all processes must call it together.

    Raises :class:`LostProcess`, see :func:`answering`.
    """
    from jax.experimental.multihost_utils import process_allgather

    local = np.asarray(values)
    with answering(progress_note):
        return np.asarray(process_allgather(local, tiled=True))


@contextmanager
def answering(progress_note: str) -> Iterator[None]:
    """Raise :class:`LostProcess` if a collective operation in the block fails; ``progress_note`` states what is not
    lost."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # as gloo's are, of either kind
        what = f"another process has ended ({str(error).splitlines()[0]})"
        raise LostProcess(WHERE, what, f"see its output, and start all processes again: {progress_note}") from error


def require_same(facts: Mapping[str, object], progress_note: str) -> None:
    """Raise :class:`UsageError` in all processes unless they were started with the same ``facts``, JSON values."""
    if jax.process_count() > 1:
        text = json.dumps(facts, sort_keys=True)
        # Shifted by one bit, since the checksum is unsigned and int32 is not.
        if len(set(gathered(np.array([crc32(text.encode()) >> 1], np.int32), progress_note).tolist())) > 1:
            what = "the processes have different commands, models or devices"
            raise UsageError(WHERE, what, "start all of them alike")
