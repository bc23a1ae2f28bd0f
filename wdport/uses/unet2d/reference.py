"""The PyTorch network that a port is compared with: the released class of diffusers.

In float64 it is built and called lifted, because it explicitly computes its time embedding in float32.
"""

from __future__ import annotations

from typing import Final

from wdport.uses.diffusers_class import DiffusersClass
from wdport.uses.unet2d.config import Config

LIBRARY: Final = DiffusersClass("UNet2DModel", Config().to_dict(), ("scheduler", "no_class"))
build_reference = LIBRARY.build_reference
