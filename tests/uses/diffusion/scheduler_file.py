"""Read a ``scheduler_config.json`` of a diffusion in steps."""

from __future__ import annotations

from collections.abc import Mapping

from wdport.uses.diffusion.scheduler_config import Scheduler, read_scheduler


def read_steps(document: Mapping[str, object]) -> Scheduler:
    found = read_scheduler(document)
    assert isinstance(found, Scheduler)
    return found
