"""UNet2DModel as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from wdport.diffusion.scheduler import Scheduler
from wdport.families.ported import PortedFamily
from wdport.families.unet2d.battery import signature
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.resolve import CONFIG, load, resolve
from wdport.families.unet2d.sampled import diffused, to_images, unsampled
from wdport.families.unet2d.stages import attends, down_stages, mid_groups, up_stages
from wdport.model import Array, Diffused, Stated

if TYPE_CHECKING:
    from jax import Array as Tensor
    from torch.nn import Module

    from wdport.diffusion.process import Process
    from wdport.families.keras_denoiser import KerasDenoiser
    from wdport.families.roles import Documented, Family, Referenced, Sampled
    from wdport.families.unet2d.port import UNet2D


class UNet2DFamily(PortedFamily[Config]):
    """An image diffusion in the roles of :mod:`wdport.families.roles`, except training."""

    name = "unet2d"
    configuration = Config
    keras_class = "UNet2D"
    tables: tuple[str, ...] = ()
    read_settings = CONFIG.read
    settings_schema = CONFIG.diffusers_schema
    parse_setting = CONFIG.parse_setting
    load_config = staticmethod(load)
    resolve = staticmethod(resolve)
    signature = staticmethod(signature)

    def features(self, config: Config) -> frozenset[str]:
        """Optional parts of a network, by their names under ``when:`` in the table."""
        return features(config)

    def build_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str) -> Module:
        from wdport.families.unet2d.reference import build_reference

        return build_reference(config, tensors, dtype)

    def stated_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated) -> Module:
        from wdport.families.unet2d.reference import build_reference

        return build_reference(config, tensors, dtype, stated)

    def misread(self, config: Config, stated: Stated, module: Module) -> list[str]:
        from wdport.families.unet2d.library_scheduler import misread_scheduler
        from wdport.families.unet2d.reference import LIBRARY

        return [*LIBRARY.misread(config.to_dict(), module, load), *misread_scheduler(config, stated)]

    def library_of(self, config: Config) -> str:
        from wdport.families.unet2d.reference import LIBRARY

        return LIBRARY.release(config.to_dict())

    def unsampled(self, config: Config) -> str:
        return unsampled(config)

    def process(self, config: Config, table: Callable[[str], Array]) -> Process:
        return (config.scheduler or Scheduler()).process()

    def diffused(self, config: Config) -> Diffused:
        return diffused(config)

    def denoiser(self, config: Config, dtype: str, pad_widths: int = 1) -> KerasDenoiser:
        import keras  # noqa: F401  as in build

        from wdport.families.keras_denoiser import KerasDenoiser

        return KerasDenoiser(partial(self.build, config), dtype, pad_widths, conditioned=config.classes == "table")

    def to_series(self, config: Config, states: Array | Tensor, /) -> Tensor:
        return to_images(states)

    def time_tables(self, embedded: object) -> Iterator[tuple[str, Array]]:
        return iter(())

    def time_layers(self, model: UNet2D, times: Array | Tensor) -> Iterator[tuple[str, Array]]:
        return iter(())


def features(config: Config) -> frozenset[str]:
    """See :meth:`UNet2DFamily.features`."""
    found = {config.time_embedding_type, f"classes_{config.classes or 'none'}"}
    for way, stages in (("down", down_stages(config)), ("up", up_stages(config))):
        found |= {f"{way}_attention" for stage in stages if stage.attention}
        found |= {f"{way}_shortcut" for stage in stages if stage.shortcut}
        found |= {each for stage in stages if stage.step for each in (f"{way}_{stage.step}", f"{way}_step")}
    if config.mid_block_type is not None:
        found.add("mid")
    if attends(config):
        found |= {"mid_attention", *(["mid_norm"] if mid_groups(config) is not None else [])}
    return frozenset(found)


FAMILY = UNet2DFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Referenced, Sampled] = (FAMILY, FAMILY, FAMILY, FAMILY)
