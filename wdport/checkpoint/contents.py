"""What every format boils down to: a tree that refers to storages, and where their bytes are."""

from __future__ import annotations

from dataclasses import dataclass, field

from wdport.checkpoint.source import Source, Span


@dataclass(frozen=True)
class Contents:
    """One checkpoint before its layout is known."""

    format: str
    """``"torch-zip"``, ``"torch-legacy"``, ``"torchscript"``, ``"torch-sharded"``, ``"safetensors"`` or
    ``"safetensors-sharded"``."""
    tree: object
    """Plain containers with ``TensorRef`` and inert leaves; for safetensors and shards a flat dict of tensors."""
    spans: dict[str, Span]
    """Storage key to its bytes."""
    sources: list[Source]
    """Open files, the one that was asked for first; whoever takes the contents closes them."""
    metadata: dict[str, object] = field(default_factory=dict)
    """Plain facts that stand outside the tree."""
