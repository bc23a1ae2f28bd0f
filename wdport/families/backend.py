"""Select Keras's JAX backend by default, and register our models with Keras.

Neither imports keras: the backend is set by an environment variable, and the models are registered right after keras
is imported.
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

from wdport.families.shipped import PORTS

if TYPE_CHECKING:
    from importlib.abc import Loader  # at run time it costs 11 ms, and Python needs only the methods


AUTOMATIC = {"floatx": "float32", "epsilon": 1e-07, "backend": "tensorflow", "image_data_format": "channels_last"}
"""Content of the configuration file that Keras writes if there is none, whichever backend it runs on."""


def choose_backend() -> None:
    """Set ``KERAS_BACKEND=jax`` for this process unless the user chose another backend.

    An imported Keras, ``KERAS_BACKEND`` and an entry of ``keras.json`` count as choices; see :func:`configured`.
    """
    # Keras reads the variable when it is imported: afterwards it has no effect.
    if "keras" in sys.modules or os.environ.get("KERAS_BACKEND"):
        return
    if configured() in (None, "jax"):
        os.environ["KERAS_BACKEND"] = "jax"


def use_jax() -> None:
    """Set ``KERAS_BACKEND=jax`` for this process, which runs the command line, unless ``KERAS_BACKEND`` is set."""
    if not os.environ.get("KERAS_BACKEND"):
        os.environ["KERAS_BACKEND"] = "jax"


_OPTIONAL = ("matplotlib", "sklearn")
"""What Keras imports, where it is installed, for plots of images and for its wrappers: its import takes 4.0 s with
them and 2.3 s without (measured)."""


def import_less() -> None:
    """Let Keras be imported as if the packages of :data:`_OPTIONAL` were not installed, in this process, which runs the
    command line. Others can still import them."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _KerasFinder)]
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, _KerasFinder(hidden=_OPTIONAL))


def configured() -> str | None:
    """Return the backend that the user chose in Keras's configuration file; None if the file chooses none.

    Keras writes "tensorflow" to that file automatically (:data:`AUTOMATIC`). So "tensorflow" counts only if the file
    has other changes, and only if TensorFlow is installed.
    """
    try:
        document = json.loads(_configuration_file().read_text(encoding="utf-8"))
        backend = document.get("backend")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    if not isinstance(backend, str) or document == AUTOMATIC:
        return None
    if backend == "tensorflow" and importlib.util.find_spec("tensorflow") is None:
        return None
    return backend


def _configuration_file() -> Path:
    """Return the path of Keras's configuration file."""
    if "KERAS_HOME" in os.environ:
        folder = os.environ["KERAS_HOME"]
    else:
        # The same rule as Keras's: /tmp if the home folder is not writable.
        home = os.path.expanduser("~")
        folder = os.path.join(home if os.access(home, os.W_OK) else "/tmp", ".keras")
    return Path(os.path.expanduser(os.path.join(folder, "keras.json")))


def register_models() -> None:
    """Register our models with `keras.saving.load_model`, now or as soon as keras is imported."""
    if "keras" in sys.modules:
        _import_ports()
    elif not any(isinstance(finder, _KerasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _KerasFinder())


def _import_ports() -> None:
    for name in PORTS:
        import_module(name)


class _KerasFinder:
    """Import hook that finds keras once as Python would, and imports the ports right after it; Keras finds none of the
    ``hidden`` packages."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._hidden = hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "keras":
            return None
        # Before the search, which would otherwise find this finder again.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _KerasLoader(spec.loader, self._hidden))
        return spec


class _Hiding:
    """Import hook for which these packages are not installed."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._packages:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


class _KerasLoader:
    """Runs Keras's loader, then imports the ports."""

    def __init__(self, loader: Loader, hidden: Sequence[str]) -> None:
        self._loader, self._hiding = loader, _Hiding(hidden)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Keras's own loader, for code that looks for its resources; this one is needed once.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        sys.meta_path.insert(0, self._hiding)
        try:
            self._loader.exec_module(module)
        finally:
            sys.meta_path.remove(self._hiding)
        _import_ports()
