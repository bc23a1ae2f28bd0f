"""Modules that have other names now: imports under the earlier names give the same modules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Final

_ROOMS = ("data", "diffusion", "evaluation", "exporting", "generation", "sampling", "training", "wavelets")
_FAMILIES = ("masked_lm", "ts2vec", "unet2d", "wan_vae", "waveletdiff", "custom_sampled", "diffusers_class",
             "library_config")  # fmt: skip

_BASE = ("errors", "extensions", "fields", "jax_settings", "limits", "options", "platforms", "shared_types", "version")

MOVED: Final = {
    **{f"wdport.{name}": f"wdport.base.{name}" for name in _BASE},
    **{f"wdport.{name}": f"wdport.models.{name}" for name in ("keras_inputs", "keras_runtime")},
    "wdport.model": "wdport.models.interface",
    "wdport.recorder": "wdport.recording.input_text",
    "wdport.port": "wdport.parity.port",
    "wdport.proving": "wdport.parity.proving",
    "wdport.devices": "wdport.uses.devices",
    **{f"wdport.{name}": f"wdport.uses.{name}" for name in _ROOMS},
    **{f"wdport.families.{name}": f"wdport.uses.{name}" for name in _FAMILIES},
    **{f"wdport.parity.{name}": f"wdport.uses.gates.{name}" for name in ("end_to_end", "trajectories")},
    "wdport.training.converted_optimizer": "wdport.conversion.converted_optimizer",
    "wdport.training.recipe": "wdport.optimizers.recipe",
}
"""Earlier names of packages and modules, with the present ones."""


def present_name(name: str) -> str | None:
    """The present name of a module; None if ``name`` is no earlier name."""
    if not name.startswith("wdport."):
        return None
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        if (present := MOVED.get(".".join(parts[:length]))) is not None:
            return ".".join([present, *parts[length:]])
    return None


class _MovedFinder:
    """Import hook for earlier names; a module that is found replaces itself by the present one.

    It is asked first: others would find the modules of a package that has moved by the earlier name once more.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if present_name(fullname) is None else spec_from_loader(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty one."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = import_module(str(present_name(name)))


def find_moved() -> None:
    """Let Python find modules by their earlier names."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedFinder())
