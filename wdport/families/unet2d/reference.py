"""The PyTorch network that a port is compared with: the released class of diffusers.

In float64 it is built and called lifted, because it explicitly computes its time embedding in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import nn

from wdport.families.diffusers_class import DiffusersClass
from wdport.families.unet2d.config import Config
from wdport.model import Array, Stated

LIBRARY: Final = DiffusersClass("UNet2DModel", Config().to_dict(), ("scheduler",))


def build_reference(
    config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated | None = None
) -> nn.Module:
    """The network in evaluation mode with these weights, every one of them used; ``dtype`` float32 or float64. The
    library reads the configuration itself where it is ``stated``. Raises :class:`MachineError` without diffusers."""
    return LIBRARY.filled(config.to_dict(), tensors, dtype, stated)
