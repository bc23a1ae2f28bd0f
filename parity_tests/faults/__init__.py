"""Known faults of every family's ports, which `wdport selftest` puts into correct small models, one at a time.

Each is bound to layers of the Keras model by their paths, or to a function by its name. The faults of the canary are in
wdport itself, since `verify` tries them wherever it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wdport.families.faults import Bounds, FaultSet
    from wdport.parity.selftest.result import GroupResult, Variant

FAMILIES = ("waveletdiff", "unet2d", "masked_lm", "wan_vae")
"""Each has a module here with its ``FAULTS``, which is imported on first use."""


def fault_set(family: str) -> FaultSet:
    """The faults of one of :data:`FAMILIES`."""
    faults: FaultSet = import_module(f"{__name__}.{family}").FAULTS
    return faults


def run_faults(family: str, held: Bounds, say: Callable[[str], None]) -> tuple[list[GroupResult], list[Variant], bool]:
    """As :func:`parity_tests.faults.run.run_faults`, which is imported here since it needs JAX."""
    from parity_tests.faults import run

    return run.run_faults(family, held, say)
