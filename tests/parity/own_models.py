"""Convert and verify a model of a test's own module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import wdport
from wdport.parity.verdict_api import Verdict


def verify_own(
    folder: Path, table: str, module: nn.Module, reference: str, port: str, suffix: str = "keras", **options: Any
) -> Verdict:
    """The verdict of ``port`` with the weights of ``module``; ``reference`` and ``port`` are ``module:function``."""
    mapping, checkpoint = folder / "own.yaml", folder / "net.pt"
    mapping.write_text(table)
    torch.save(module.state_dict(), checkpoint)
    output = wdport.convert(checkpoint, folder / f"net.{suffix}", mapping=mapping, model=port).output
    return wdport.verify(checkpoint, output, mapping=mapping, model=port, reference=reference, **options)
