"""wdport: convert trained PyTorch models to Keras 3 on JAX, and verify that the outputs agree.

All public names are defined here and imported on first use. `import wdport` takes milliseconds, selects Keras's JAX
backend unless the user chose a backend, and registers the models so that `keras.saving.load_model` opens our files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wdport.base.errors import WdportError
from wdport.base.former_names import find_moved
from wdport.base.version import VERSION as __version__
from wdport.families.backend import choose_backend, register_models

if TYPE_CHECKING:
    from wdport.conversion.convert import Conversion, convert
    from wdport.conversion.converted_optimizer import load_optimizer, save_optimizer
    from wdport.conversion.load import load_model
    from wdport.parity.port import Port
    from wdport.parity.proving.api import write_port
    from wdport.parity.proving.port import WrittenPort
    from wdport.parity.verdict_api import Verdict
    from wdport.parity.verify import verify, verify_recording
    from wdport.uses.evaluation.api import evaluate
    from wdport.uses.evaluation.result import Evaluation
    from wdport.uses.evaluation.sweep import Sweep, sweep
    from wdport.uses.exporting.api import Exported, export
    from wdport.uses.exporting.to_torch import to_torch
    from wdport.uses.generation import Generated, generate
    from wdport.uses.sampling import Samples, sample
    from wdport.uses.training.model import new_model, training_model
    from wdport.uses.training.run import TrainingRun, train

_LAZY = {
    "Conversion": "wdport.conversion.convert",
    "convert": "wdport.conversion.convert",
    "Evaluation": "wdport.uses.evaluation.result",
    "evaluate": "wdport.uses.evaluation.api",
    "Exported": "wdport.uses.exporting.api",
    "export": "wdport.uses.exporting.api",
    "Generated": "wdport.uses.generation",
    "generate": "wdport.uses.generation",
    "load_model": "wdport.conversion.load",
    "load_optimizer": "wdport.conversion.converted_optimizer",
    "new_model": "wdport.uses.training.model",
    "Port": "wdport.parity.port",
    "Samples": "wdport.uses.sampling",
    "sample": "wdport.uses.sampling",
    "save_optimizer": "wdport.conversion.converted_optimizer",
    "Sweep": "wdport.uses.evaluation.sweep",
    "sweep": "wdport.uses.evaluation.sweep",
    "to_torch": "wdport.uses.exporting.to_torch",
    "TrainingRun": "wdport.uses.training.run",
    "train": "wdport.uses.training.run",
    "training_model": "wdport.uses.training.model",
    "Verdict": "wdport.parity.verdict_api",
    "verify": "wdport.parity.verify",
    "verify_recording": "wdport.parity.verify",
    "write_port": "wdport.parity.proving.api",
    "WrittenPort": "wdport.parity.proving.port",
}

__all__ = [
    "Conversion",
    "Evaluation",
    "Exported",
    "Generated",
    "Port",
    "Samples",
    "Sweep",
    "TrainingRun",
    "Verdict",
    "WdportError",
    "WrittenPort",
    "__version__",
    "convert",
    "evaluate",
    "export",
    "generate",
    "load_model",
    "load_optimizer",
    "new_model",
    "sample",
    "save_optimizer",
    "sweep",
    "to_torch",
    "train",
    "training_model",
    "verify",
    "verify_recording",
    "write_port",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'wdport' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


choose_backend()
register_models()
find_moved()
