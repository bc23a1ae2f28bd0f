"""A class, function, call or object that the file names, kept only as a leaf with its name.

Nothing is imported, called or set. The arguments of an object are kept only for whole modules, whose tables of
tensors are plain data (:mod:`wdport.checkpoint.modules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from wdport.checkpoint.faults import ASK_FOR_TENSORS, GATHER, LOAD_AND_SAVE, OTHER_DTYPE, SCALED, Fault

Form = Literal["name", "object", "call", "key"]


@dataclass(eq=False, slots=True, repr=False)
class UnloadedObject:
    """A leaf of the tree; two leaves are never equal, so one may replace the key of a dict."""

    module: str
    name: str
    form: Form
    reason: str = ""
    """A description for the user, if known; the leaf then replaces a tensor."""
    fix: str = ""
    arguments: tuple[object, ...] = ()
    """The arguments of a call."""
    state: object = None
    """The state that BUILD passed to the object."""
    altered: bool = False
    """Whether the pickle changed it in other ways, so that ``state`` is incomplete."""

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name

    @property
    def described(self) -> str:
        """``class a.b.C`` for an object, ``call of a.b.f``, or the reason why a tensor is not read."""
        if self.reason:
            return self.reason
        if self.form in ("call", "object") and (self.form == "object" or self.name.lstrip("_")[:1].isupper()):
            return f"class {self.full_name}"
        return {"call": f"call of {self.full_name}", "key": f"key of type {self.name}"}.get(
            self.form, f"name {self.full_name}"
        )

    def __repr__(self) -> str:
        return f"<not read: {self.described}>"


_QUANTIZED: Final = ("a quantized tensor, which is not read", ASK_FOR_TENSORS)
_SPARSE: Final = ("a sparse tensor, which is not read", OTHER_DTYPE)
_SUBCLASS: Final = ("a tensor subclass, which is not read", ASK_FOR_TENSORS)
_META: Final = ("a meta tensor, which has no values", "take a checkpoint that was saved with its weights loaded")
_SHARD: Final = ("one shard of a distributed tensor, which is not read", GATHER)
_DEVICE: Final = ("a tensor of another device, saved through numpy, which is not read", LOAD_AND_SAVE)

_TENSORS: Final = {
    "_rebuild_tensor_v3": ("a tensor of a dtype that is not read (uint16 to uint64, float8, ...)", SCALED),
    "_rebuild_qtensor": _QUANTIZED,
    "_rebuild_sparse_tensor": _SPARSE,
    "_rebuild_sparse_csr_tensor": _SPARSE,
    "_rebuild_nested_tensor": ("a nested tensor, which is not read", OTHER_DTYPE),
    "_rebuild_meta_tensor_no_storage": _META,
    "_rebuild_from_type": _SUBCLASS,
    "_rebuild_from_type_v2": _SUBCLASS,
    "_rebuild_wrapper_subclass": _SUBCLASS,
    "_rebuild_device_tensor_from_numpy": _DEVICE,
    "_rebuild_device_tensor_from_cpu_tensor": _DEVICE,
    "_rebuild_parameter_with_state": ("a parameter with custom attributes, which is not read", LOAD_AND_SAVE),
    "ShardedTensor": _SHARD,
    "ShardedTensorMetadata": _SHARD,
    "DTensor": _SHARD,
}
"""Descriptions, for users, of torch's other functions that make tensors."""


def unknown(module: str, name: str) -> UnloadedObject:
    """Return the leaf for a global that is not in the list of :mod:`wdport.checkpoint.symbols`."""
    tensor = _TENSORS.get(name) if module.startswith("torch.") else None
    reason, fix = tensor or ("", "")
    return UnloadedObject(module, name, "name", reason, fix)


def unreadable(fault: Fault) -> UnloadedObject:
    return UnloadedObject("torch", "Tensor", "call", fault.what, fault.fix)


def applied(function: UnloadedObject, arguments: tuple[object, ...], form: Form) -> UnloadedObject:
    """Return the leaf for the result that calling ``function`` would have."""
    # Other arguments are dropped: they may be as large as the file, and nothing reads them.
    attributes = arguments if function.full_name == GRAPH_MODULE else ()
    shard = _sharded(arguments) if function.reason and function.reason == _SUBCLASS[0] else None
    reason, fix = shard or (function.reason, function.fix)
    return UnloadedObject(function.module, function.name, form, reason, fix, attributes)


GRAPH_MODULE: Final = "torch.fx.graph_module.reduce_graph_module"
"""Makes a module from ``(its attributes, the source of its imports)``; the source is ignored."""


def _sharded(arguments: tuple[object, ...]) -> tuple[str, str] | None:
    """Return the description if a tensor is rebuilt as a distributed tensor, otherwise None."""
    names = (item for item in arguments if isinstance(item, UnloadedObject))
    return _SHARD if any(item.module.startswith("torch.distributed") for item in names) else None
