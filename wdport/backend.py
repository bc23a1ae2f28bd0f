"""Keras's backend: JAX is chosen where nothing was, and our models are made known to Keras.

Neither costs an import of keras: the choice is an environment variable, and the registration happens
right after somebody imports keras.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from wdport.families.ports import PORTS

if TYPE_CHECKING:
    from importlib.abc import Loader  # at run time it costs 11 ms, and Python asks for the methods alone


def choose_backend() -> None:
    """Set ``KERAS_BACKEND=jax`` for this process unless the user or a running Keras chose already.

    Keras writes "tensorflow" into its configuration file by itself, so only another entry counts.
    """
    if "keras" in sys.modules or os.environ.get("KERAS_BACKEND"):
        return
    home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    try:
        chosen = json.loads((home / "keras.json").read_text()).get("backend")
    except (OSError, ValueError, AttributeError):
        chosen = None
    if chosen in (None, "tensorflow", "jax"):
        os.environ["KERAS_BACKEND"] = "jax"


def register_models() -> None:
    """Make `keras.saving.load_model` know our models, now or as soon as keras is imported."""
    if "keras" in sys.modules:
        _import_ports()
    elif not any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasFinder())


def _import_ports() -> None:
    for name in PORTS:
        import_module(name)


class _KerasFinder:
    """Finds keras as Python would, once, and has the ports imported right after it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _KerasLoader(spec.loader))
        return spec


class _KerasLoader:
    """Keras's own loader, then the ports'."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        _import_ports()
