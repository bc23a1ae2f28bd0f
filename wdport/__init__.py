"""wdport: convert trained PyTorch models to Keras 3 on JAX, and verify that the outputs agree.

All public names are defined here and imported on first use. `import wdport` takes milliseconds, selects Keras's JAX
backend unless the user chose a backend, and registers the models so that `keras.saving.load_model` opens our files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wdport.backend import choose_backend, register_models
from wdport.errors import WdportError
from wdport.version import VERSION as __version__

if TYPE_CHECKING:
    from wdport.conversion.convert import Conversion, convert
    from wdport.conversion.load import load_model
    from wdport.evaluation.api import evaluate
    from wdport.evaluation.result import Evaluation
    from wdport.evaluation.sweep import Sweep, sweep
    from wdport.exporting.api import Exported, export
    from wdport.exporting.to_torch import to_torch
    from wdport.generation import Generated, generate
    from wdport.parity.verdict_api import Verdict
    from wdport.parity.verify import verify, verify_recording
    from wdport.port import Port
    from wdport.proving.api import write_port
    from wdport.proving.port import WrittenPort
    from wdport.sampling import Samples, sample
    from wdport.training.converted_optimizer import load_optimizer, save_optimizer
    from wdport.training.model import new_model, training_model
    from wdport.training.run import TrainingRun, train

_LAZY = {
    "Conversion": "wdport.conversion.convert",
    "convert": "wdport.conversion.convert",
    "Evaluation": "wdport.evaluation.result",
    "evaluate": "wdport.evaluation.api",
    "Exported": "wdport.exporting.api",
    "export": "wdport.exporting.api",
    "Generated": "wdport.generation",
    "generate": "wdport.generation",
    "load_model": "wdport.conversion.load",
    "load_optimizer": "wdport.training.converted_optimizer",
    "new_model": "wdport.training.model",
    "Port": "wdport.port",
    "Samples": "wdport.sampling",
    "sample": "wdport.sampling",
    "save_optimizer": "wdport.training.converted_optimizer",
    "Sweep": "wdport.evaluation.sweep",
    "sweep": "wdport.evaluation.sweep",
    "to_torch": "wdport.exporting.to_torch",
    "TrainingRun": "wdport.training.run",
    "train": "wdport.training.run",
    "training_model": "wdport.training.model",
    "Verdict": "wdport.parity.verdict_api",
    "verify": "wdport.parity.verify",
    "verify_recording": "wdport.parity.verify",
    "write_port": "wdport.proving.api",
    "WrittenPort": "wdport.proving.port",
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
