"""The name of a pickled global goes in; a symbol comes out: known, inert, or a refusal.

Nothing is imported. The known names are those that weights need; a name that only an attack needs is refused
(:mod:`wdport.checkpoint.hostile`); every other is an inert leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wdport.checkpoint import rebuild
from wdport.checkpoint.dtypes import TORCH_DTYPES, TORCH_STORAGES
from wdport.checkpoint.hostile import refuse_hostile
from wdport.checkpoint.inert import Inert, unknown
from wdport.checkpoint.rebuild import Constructor


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class, which stands only inside a persistent id."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A harmless object that is only ever named, such as ``torch.float32``."""

    name: str


Symbol = Constructor | StorageClass | Constant | Inert


def resolve(module: str, name: str) -> Symbol:
    """The symbol for ``module.name``; a name that only an attack needs is a :class:`Fault`."""
    known = _SYMBOLS.get((module, name))
    if known is not None:
        return known
    refuse_hostile(module, name)
    return unknown(module, name)


_CONSTRUCTORS: Final = (
    ("torch._utils", "_rebuild_tensor", rebuild.plain_tensor),
    ("torch._utils", "_rebuild_tensor_v2", rebuild.tensor),
    ("torch._utils", "_rebuild_parameter", rebuild.parameter),
    ("torch._utils", "_rebuild_parameter_with_state", rebuild.parameter_with_state),
    ("torch._tensor", "_rebuild_from_type_v2", rebuild.tensor_of_type),
    ("torch.nn.parameter", "Parameter", rebuild.parameter),
    ("collections", "OrderedDict", rebuild.ordered_dict),
    ("torch", "Size", rebuild.size),
    ("__builtin__", "set", rebuild.text_set),
    ("builtins", "set", rebuild.text_set),
)

_STORAGES: Final = (
    *(("torch", name, dtype) for name, dtype in TORCH_STORAGES.items()),
    *(("torch.cuda", name, dtype) for name, dtype in TORCH_STORAGES.items()),
    ("torch.storage", "UntypedStorage", "untyped"),
)

_SYMBOLS: Final[dict[tuple[str, str], Symbol]] = {
    **{(module, name): Constructor(f"{module}.{name}", build) for module, name, build in _CONSTRUCTORS},
    **{(module, name): StorageClass(f"{module}.{name}", dtype) for module, name, dtype in _STORAGES},
    **{("torch", name): Constant(f"torch.{name}") for name in TORCH_DTYPES},
}
