"""UNet2DModel as a family: the object through which the rest of wdport uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from wdport.compare.bounds import Bound
from wdport.compare.findings import Gate
from wdport.diffusion.scheduler import Scheduler
from wdport.families.unet2d.battery import signature
from wdport.families.unet2d.config import Config
from wdport.families.unet2d.resolve import load, parse_setting, read_settings, resolve
from wdport.families.unet2d.sampled import diffused, to_images, unsampled
from wdport.families.unet2d.stages import attends, down_stages, mid_groups, up_stages
from wdport.mapping.axes import Shape
from wdport.model import Array, Constant, Diffused, Document, Resolved, Signature, Source, Stated

if TYPE_CHECKING:
    from jax import Array as Tensor
    from torch.nn import Module

    from wdport.diffusion.process import Process
    from wdport.families.keras_denoiser import KerasDenoiser
    from wdport.families.mutants import Mutant
    from wdport.families.roles import Documented, Faulty, Referenced, Sampled
    from wdport.families.unet2d.port import UNet2D


class UNet2DFamily:
    """An image diffusion in the roles of :mod:`wdport.families.roles`, except training."""

    name = "unet2d"
    bounds: Mapping[str, Bound] = MappingProxyType({})
    rests_on: Mapping[str, tuple[str, ...]] = MappingProxyType({
        "dropout": (), "sample_size": (), "scheduler": ("E",),
    })  # fmt: skip
    tables: tuple[str, ...] = ()
    causes_known = False
    shown: Mapping[str, str] = MappingProxyType({
        "sample_size": "sample_size", "in_channels": "in_channels", "out_channels": "out_channels",
        "block_out_channels": "channels", "layers_per_block": "layers", "time_embedding_type": "time",
        "num_class_embeds": "classes",
    })  # fmt: skip

    def read_settings(self, document: Document, where: str | Path) -> dict[str, object]:
        return read_settings(document, where)

    def settings_schema(self) -> dict[str, object]:
        from wdport.families.unet2d.form import settings_schema

        return settings_schema()

    def parse_setting(self, key: str, text: str) -> object:
        return parse_setting(key, text)

    def resolve(self, source: Source, config: Document, flags: Document) -> Resolved:
        return resolve(source, config, flags)

    def features(self, config: Config) -> frozenset[str]:
        """Optional parts of a network, by their names under ``when:`` in the table."""
        return features(config)

    def variables(self, config: Config) -> dict[str, Shape]:
        return dict(_variables(config))

    def constants(self, config: Config) -> dict[str, Constant]:
        return {}

    def load_config(self, values: Document) -> Config:
        return load(values)

    def keras_document(self, config: Config) -> dict[str, object]:
        return {
            "module": "wdport.families.unet2d.port",
            "class_name": "UNet2D",
            "config": {"name": "unet2d", "dtype": "float32", "config": config.to_dict()},
            "registered_name": "wdport>UNet2D",
            "compile_config": {},
        }

    def signature(self, config: Config) -> Signature:
        return signature(config)

    def build(self, config: Config, dtype: str | None = None) -> UNet2D:
        import keras  # noqa: F401  before our modules that need it: importing it imports the port

        from wdport.families.unet2d.port import UNet2D
        from wdport.keras_runtime import unfilled

        with unfilled():
            return UNet2D(config, dtype=dtype)

    def unfilled(self) -> AbstractContextManager[None]:
        import keras  # noqa: F401  as in build

        from wdport.keras_runtime import unfilled

        return unfilled()

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

    def reference_of(self, config: Config) -> str:
        from wdport.families.unet2d.reference import LIBRARY

        return LIBRARY.described(config.to_dict())

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

    def port_tables(self, model: UNet2D) -> dict[str, Array]:
        return {}

    def mutants(self, config: Config) -> tuple[Mutant, ...]:
        import keras  # noqa: F401  as in build

        from wdport.families.unet2d.mutants import mutants

        return mutants(config)

    def gates(self, config: Config) -> Sequence[Gate]:
        return ()

    def smallest(self) -> Config:
        return next(iter(self.examples().values()))

    def examples(self) -> dict[str, Config]:
        from wdport.families.unet2d.examples import examples

        return examples()

    def random_tensors(self, config: Config, seed: int) -> dict[str, Array]:
        from wdport.families.unet2d.examples import random_tensors

        return random_tensors(config, seed)


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


@lru_cache(maxsize=16)
def _variables(config: Config) -> Mapping[str, Shape]:
    """Every variable of the Keras model, which is built once for this, without values."""
    import keras  # noqa: F401  before our modules that need it: importing it imports the port

    from wdport.families.unet2d.port import UNet2D
    from wdport.keras_runtime import described, variables_by_path

    with described():
        model = UNet2D(config, dtype="float32")
    return {path: tuple(variable.shape) for path, variable in variables_by_path(model).items()}


FAMILY = UNet2DFamily()

if TYPE_CHECKING:  # checked by mypy
    _ROLES: tuple[Faulty, Documented, Referenced, Sampled] = (FAMILY, FAMILY, FAMILY, FAMILY)
