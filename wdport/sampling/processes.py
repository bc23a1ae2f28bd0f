"""What the processes of a job agree on before they draw: that their commands are the same, and where to begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np

from wdport.devices import require_same
from wdport.errors import MachineError
from wdport.sampling.sampler import Sampler

HALF = 1 << 20
"""Numbers are sent between processes in two halves: jax has 32 bits for each."""


def check_same(sampler: Sampler, facts: Mapping[str, object]) -> None:
    """Raise :class:`UsageError` in all processes unless they were started with the same ``facts``."""
    if sampler.spread is not None:
        require_same({**facts, "devices": len(sampler.spread.devices)}, "nothing is lost")


def agreed(sampler: Sampler, done: int, batch: int) -> tuple[int, int]:
    """The first process's number of finished samples, and its batch size.

    Raises :class:`MachineError` if the first process reports that it cannot begin, see :func:`announced`.
    """
    if sampler.spread is None:
        return done, batch
    numbers = sampler.spread.gather(np.array([*divmod(done, HALF), *divmod(batch, HALF)], np.int32)).tolist()
    if numbers[0] < 0:
        raise MachineError("--distributed", "the first process cannot begin", "see its output")
    return numbers[0] * HALF + numbers[1], numbers[2] * HALF + numbers[3]


@contextmanager
def announced(sampler: Sampler) -> Iterator[None]:
    """Report to the other processes what the first one raises before drawing, as they would wait for it otherwise."""
    try:
        yield
    except BaseException:
        if sampler.spread is not None:
            with suppress(MachineError):
                agreed(sampler, -1, 0)
        raise
