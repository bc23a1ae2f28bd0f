"""The PyTorch model that a port is compared with: the released class of diffusers, with a forward that returns mean,
log-variance and the video decoded of the mean.
"""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from wdport.uses.diffusers_class import DiffusersClass
from wdport.uses.wan_vae.config import Config


class Opaque:
    """A list that is not one: the library's modules take what they keep of past frames as lists and change these in
    place, so that a recorder would take them for inputs, and feed copies."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __getitem__(self, index: int) -> Any:
        return self.values[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.values[index] = value


def _opaque(name: str) -> property:
    """An attribute whose lists are kept as :class:`Opaque`."""

    def get(self: Any) -> Any:
        return self.__dict__[f"{name}_held"]

    def put(self: Any, value: list[Any]) -> None:
        self.__dict__[f"{name}_held"] = Opaque(value)

    return property(get, put)


def _forward(self: Any, video: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    posterior = self.encode(video).latent_dist
    # The mode is the mean: a sample would be random.
    return posterior.mean, posterior.logvar, self.decode(posterior.mode()).sample


def _watchable(library: type[nn.Module]) -> type[nn.Module]:
    """The library's class with our forward, which encodes and decodes."""
    names = ("_feat_map", "_conv_idx", "_enc_feat_map", "_enc_conv_idx")
    return type(library.__name__, (library,), {"forward": _forward, **{name: _opaque(name) for name in names}})


LIBRARY: Final = DiffusersClass("AutoencoderKLWan", Config().to_dict(), changed=_watchable)
build_reference = LIBRARY.build_reference
