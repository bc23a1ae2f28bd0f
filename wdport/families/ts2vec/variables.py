"""Path and shape of every variable of the encoder, from the Keras model itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import jax
import keras  # noqa: F401  before our modules that need it: importing it imports the ports

from wdport.families.ts2vec.config import Config
from wdport.families.ts2vec.port import TS2Vec
from wdport.mapping.axes import Shape


@cache
def variables_of(config: Config) -> Mapping[str, Shape]:
    """By path, in the order of creation; no value is allocated."""
    found: dict[str, Shape] = {}

    def build() -> None:
        found.update({variable.path: tuple(variable.shape) for variable in TS2Vec(config, dtype="float32").weights})

    jax.eval_shape(build)
    return MappingProxyType(found)
