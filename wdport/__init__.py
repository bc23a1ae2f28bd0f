"""wdport: trained PyTorch models in Keras 3 on JAX, with a proof that nothing changed.

Everything public is here and imported on first use: `import wdport` costs milliseconds, selects
Keras's JAX backend where nothing was chosen, and lets `keras.saving.load_model` open our files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wdport.backend import choose_backend, register_models
from wdport.errors import WdportError
from wdport.version import VERSION as __version__

if TYPE_CHECKING:
    from wdport.conversion import Conversion, convert
    from wdport.load import load_model
    from wdport.parity import Verdict, verify

_LAZY = {
    "Conversion": "wdport.conversion",
    "convert": "wdport.conversion",
    "load_model": "wdport.load",
    "Verdict": "wdport.parity",
    "verify": "wdport.parity",
}

__all__ = ["Conversion", "Verdict", "WdportError", "__version__", "convert", "load_model", "verify"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'wdport' has no attribute {name!r}")


choose_backend()
register_models()
