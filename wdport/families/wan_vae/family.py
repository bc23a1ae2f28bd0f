"""AutoencoderKLWan as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.families.ported import PortedFamily
from wdport.families.wan_vae.battery import BOUNDS, signature
from wdport.families.wan_vae.config import Config
from wdport.families.wan_vae.resolve import CONFIG, load, resolve
from wdport.families.wan_vae.stages import down_stages, up_stages
from wdport.model import Array, Coded, Function, Stated

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.families.roles import Autoencoder, Documented, Family, Programmed, Referenced
    from wdport.families.wan_vae.port import WanVAE


class WanVaeFamily(PortedFamily[Config]):
    """A video autoencoder in the roles of :mod:`wdport.families.roles`."""

    name = "wan_vae"
    configuration = Config
    keras_class = "WanVAE"
    bounds: Mapping[str, Bound] = BOUNDS
    read_settings = CONFIG.read
    settings_schema = CONFIG.diffusers_schema
    parse_setting = CONFIG.parse_setting
    load_config = staticmethod(load)
    resolve = staticmethod(resolve)
    signature = staticmethod(signature)

    def features(self, config: Config) -> frozenset[str]:
        """Optional parts, by their names under ``when:`` in the table."""
        return features(config)

    def build_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str) -> Module:
        from wdport.families.wan_vae.reference import build_reference

        return build_reference(config, tensors, dtype)

    def stated_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated) -> Module:
        from wdport.families.wan_vae.reference import build_reference

        return build_reference(config, tensors, dtype, stated)

    def misread(self, config: Config, stated: Stated, module: Module) -> list[str]:
        from wdport.families.wan_vae.reference import LIBRARY

        return LIBRARY.misread(config.to_dict(), module, load)

    def library_of(self, config: Config) -> str:
        from wdport.families.wan_vae.reference import LIBRARY

        return LIBRARY.release(config.to_dict())

    def coded(self, config: Config) -> Coded:
        pixels = config.patch**2
        return Coded(config.in_channels // pixels, config.out_channels // pixels, config.z_dim, config.frames,
                     config.pixels, config.normalises)  # fmt: skip

    def coder(self, model: WanVAE) -> WanVAE:
        return model

    def functions(self, model: WanVAE) -> Mapping[str, Function]:
        from wdport.families.wan_vae.whole import functions

        return functions(model)

    def gates(self, config: Config) -> Sequence[Gate]:
        import keras  # noqa: F401  as in build

        from wdport.families.wan_vae.gates import gates

        return gates(config)


def features(config: Config) -> frozenset[str]:
    """See :meth:`WanVaeFamily.features`."""
    kind = "residual" if config.is_residual else "plain"
    found = {kind}
    if any(config.temperal_downsample):
        found.add(f"{kind}_temporal")
    if any(stage.shortcut for stage in down_stages(config)):
        found.add(f"{kind}_down_shortcut")
    if any(stage.shortcut for stage in up_stages(config)):
        found.add("up_shortcut")
    return frozenset(found)


FAMILY = WanVaeFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Family, Documented, Referenced, Autoencoder, Programmed] = (FAMILY,) * 5
