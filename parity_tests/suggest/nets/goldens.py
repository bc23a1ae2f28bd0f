"""wdport's own families as pairs: reference and port of the configuration that a golden checkpoint has.

The goldens are next to the project, as for ``parity_tests/test_golden.py``; ``WDPORT_GOLDEN`` names another folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wdport.conversion.prepare import Settings, prepare
from wdport.families.roles import Family
from wdport.mapping.table import Table
from wdport.models.interface import Array

ROOT = Path(__file__).parents[3]
GOLDEN = Path(os.environ.get("WDPORT_GOLDEN", ROOT.parent / "shared" / "golden"))


@dataclass(frozen=True)
class Opened:
    """What is known of a golden checkpoint once it is planned."""

    family: Family
    config: Any
    table: Table
    tensors: Mapping[str, Array]


@cache
def opened(name: str) -> Opened:
    """Read a checkpoint of :data:`GOLDEN`, with its configuration."""
    config = GOLDEN / f"{name.split('.')[0]}.config.yaml"
    with prepare(GOLDEN / name, Settings(config=config if config.exists() else None)) as prepared:
        tensors = {each: prepared.checkpoint.read(each) for each in prepared.checkpoint.tensors}
        return Opened(prepared.family, prepared.config, prepared.table, tensors)


def table(name: str) -> Table:
    """The shipped table of a golden."""
    return opened(name).table


def inputs(name: str) -> tuple[str, ...]:
    """What the network takes, as text."""
    found = opened(name)
    texts = []
    for each in found.family.signature(found.config).inputs:
        sizes = " ".join(axis if axis == "b" else str(each.sizes[axis]) for axis in each.axes)
        numbers = " ".join(str(int(number)) for number in each.numbers)
        texts.append(f"{each.name}: {sizes}" + (f", {each.draw} {numbers}" if each.draw != "normal" else ""))
    return tuple(texts)


def known(name: str) -> tuple[dict[str, tuple[int, ...]], frozenset[str]]:
    """Shapes of the family's constants, and the features of the configuration."""
    found = opened(name)
    constants = found.family.constants(found.config)
    return {each: tuple(told.shape) for each, told in constants.items()}, found.family.features(found.config)


def __getattr__(attribute: str) -> Callable[[], Any]:
    """``NAME_torch`` builds the reference of the pair of this name, ``NAME_keras`` its port."""
    pair, _, side = attribute.rpartition("_")
    if side not in ("torch", "keras"):
        raise AttributeError(attribute)
    from parity_tests.suggest.corpus import PAIRS

    found = opened(PAIRS[pair].golden)
    return partial(_torch if side == "torch" else _keras, found)


def _torch(found: Opened) -> nn.Module:
    dtype = str(torch.get_default_dtype()).removeprefix("torch.")
    return found.family.build_reference(found.config, found.tensors, dtype)


def _keras(found: Opened) -> Any:
    from wdport.models.keras_runtime import layers_by_path

    model = found.family.build(found.config)
    for layer in layers_by_path(model).values():
        layer.built = layer.built or not layer.weights  # constants alone: nothing is left to build
    return model
