"""AutoencoderKLWan as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.families.faults import Group
from wdport.families.wan_vae.battery import BOUNDS, signature
from wdport.families.wan_vae.config import UNUSED, Config
from wdport.families.wan_vae.resolve import load, parse_setting, read_settings, resolve
from wdport.families.wan_vae.stages import down_stages, up_stages
from wdport.mapping.axes import Shape
from wdport.model import Array, Coded, Constant, Document, Function, Resolved, Signature, Source, Stated

if TYPE_CHECKING:
    from torch.nn import Module

    from wdport.families.mutants import Mutant
    from wdport.families.roles import Autoencoder, Documented, Faulty, FaultyAround, Programmed, Referenced
    from wdport.families.wan_vae.port import WanVAE


class WanVaeFamily:
    """A video autoencoder in the roles of :mod:`wdport.families.roles`."""

    name = "wan_vae"
    bounds: Mapping[str, Bound] = BOUNDS
    rests_on: Mapping[str, tuple[str, ...]] = MappingProxyType(dict.fromkeys(UNUSED, ()))
    causes_known = False
    shown: Mapping[str, str] = MappingProxyType({
        "base_dim": "base_dim", "decoder_base_dim": "decoder", "dim_mult": "dim_mult",
        "num_res_blocks": "blocks", "z_dim": "z_dim", "temperal_downsample": "temporal",
        "is_residual": "residual", "patch_size": "patch",
    })  # fmt: skip

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        return read_settings(document, where)

    def settings_schema(self) -> dict[str, object]:
        from wdport.families.wan_vae.form import settings_schema

        return settings_schema()

    def parse_setting(self, key: str, text: str) -> object:
        return parse_setting(key, text)

    def resolve(self, source: Source, config: Document, flags: Document) -> Resolved:
        return resolve(source, config, flags)

    def features(self, config: Config) -> frozenset[str]:
        """Optional parts, by their names under ``when:`` in the table."""
        return features(config)

    def variables(self, config: Config) -> dict[str, Shape]:
        return dict(_variables(config))

    def constants(self, config: Config) -> dict[str, Constant]:
        return {}

    def load_config(self, values: Document) -> Config:
        return load(values)

    def keras_document(self, config: Config) -> dict[str, object]:
        return {
            "module": "wdport.families.wan_vae.port",
            "class_name": "WanVAE",
            "config": {"name": "wan_vae", "dtype": "float32", "config": config.to_dict()},
            "registered_name": "wdport>WanVAE",
            "compile_config": {},
        }

    def signature(self, config: Config) -> Signature:
        return signature(config)

    def build(self, config: Config, dtype: str | None = None) -> WanVAE:
        import keras  # noqa: F401  before our modules that need it: importing it imports the port

        from wdport.families.wan_vae.port import WanVAE
        from wdport.keras_runtime import unfilled

        with unfilled():
            return WanVAE(config, dtype=dtype)

    def unfilled(self) -> AbstractContextManager[None]:
        import keras  # noqa: F401  as in build

        from wdport.keras_runtime import unfilled

        return unfilled()

    def build_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str) -> Module:
        from wdport.families.wan_vae.reference import build_reference

        return build_reference(config, tensors, dtype)

    def stated_reference(self, config: Config, tensors: Mapping[str, Array], dtype: str, stated: Stated) -> Module:
        from wdport.families.wan_vae.reference import build_reference

        return build_reference(config, tensors, dtype, stated)

    def misread(self, config: Config, stated: Stated, module: Module) -> list[str]:
        from wdport.families.wan_vae.reference import LIBRARY

        return LIBRARY.misread(config.to_dict(), module, load)

    def reference_of(self, config: Config) -> str:
        from wdport.families.wan_vae.reference import LIBRARY

        return LIBRARY.described(config.to_dict())

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

    def port_tables(self, model: WanVAE) -> dict[str, Array]:
        return {}

    def mutants(self, config: Config) -> tuple[Mutant, ...]:
        import keras  # noqa: F401  as in build

        from wdport.families.wan_vae.mutants import mutants

        return mutants(config)

    def gates(self, config: Config) -> Sequence[Gate]:
        import keras  # noqa: F401  as in build

        from wdport.families.wan_vae.gates import gates

        return gates(config)

    def faults(self, held: Mapping[str, float], quick: bool = False) -> Iterator[Group]:
        import keras  # noqa: F401  as in build

        from wdport.families.wan_vae.chunk_faults import run_chunk_faults

        yield Group("G", "videos in chunks and as bytes", run_chunk_faults(self.examples(), held))

    def smallest(self) -> Config:
        return next(iter(self.examples().values()))

    def examples(self) -> dict[str, Config]:
        from wdport.families.wan_vae.examples import examples

        return examples()

    def random_tensors(self, config: Config, seed: int) -> dict[str, Array]:
        from wdport.families.wan_vae.examples import random_tensors

        return random_tensors(config, seed)


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


@lru_cache(maxsize=16)
def _variables(config: Config) -> Mapping[str, Shape]:
    """Every variable of the Keras model, which is built once for this, without values."""
    import keras  # noqa: F401  before our modules that need it: importing it imports the port

    from wdport.families.wan_vae.port import WanVAE
    from wdport.keras_runtime import described, variables_by_path

    with described():
        model = WanVAE(config, dtype="float32")
    return {path: tuple(variable.shape) for path, variable in variables_by_path(model).items()}


FAMILY = WanVaeFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Faulty, Documented, Referenced, Autoencoder, Programmed] = (FAMILY,) * 5
    _AROUND: FaultyAround = FAMILY
