"""Read untrusted checkpoint files as ``{name: array}`` without executing anything in them.

It needs only numpy and the standard library. From the file to the array::

    model_folder -> source -> sniff -> torch_file (zip_archive, pickle_machine) -> state_dict, modules -> reading
                                    -> safetensors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wdport.checkpoint.checkpoint import Checkpoint as Checkpoint
    from wdport.checkpoint.checkpoint import open_checkpoint as open_checkpoint


def __getattr__(name: str) -> object:
    # On first use: every command imports a module of this package, and the reader costs it 40 ms.
    if name not in ("Checkpoint", "open_checkpoint"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wdport.checkpoint import checkpoint

    return getattr(checkpoint, name)
