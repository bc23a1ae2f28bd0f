"""The name of a pickled global goes in; an inert symbol comes out, or a refusal that names it.

Nothing is imported and nothing of the file is called. The few names below are all that weights need;
what their construction means is restated here over plain data.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wdport.checkpoint.dtypes import TORCH_DTYPES, TORCH_STORAGES
from wdport.checkpoint.faults import STATE_DICT_ONLY, Fault
from wdport.checkpoint.tensor import StorageRef, TensorRef, tensor_ref

Arguments = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Constructor:
    """A callable that the pickle may apply; ``build`` makes its plain counterpart."""

    name: str
    build: Callable[[Arguments], object]


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class, allowed only inside a persistent id."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A harmless object that is only ever named, such as ``torch.float32``."""

    name: str


def resolve(module: str, name: str) -> Constructor | StorageClass | Constant:
    """The symbol for ``module.name``; anything that is not on the list is a :class:`Fault`."""
    symbol = _SYMBOLS.get((module, name))
    if symbol is None:
        reason = _REFUSED.get(name) if module.startswith("torch.") else None
        what = reason or f"the pickle asks for {module}.{name}, which weights do not need"
        raise Fault(what, STATE_DICT_ONLY)
    return symbol


def storage(persistent_id: object) -> StorageRef:
    """The storage that ``("storage", class, key, location, numel)`` stands for."""
    match persistent_id:
        case ("storage", StorageClass(dtype=dtype), str(key), str(), int(numel)) if (
            type(persistent_id) is tuple and type(numel) is int
        ):
            # The key is looked up as data/<key>, and torch counts them: digits leave no room for a path.
            if not (key.isascii() and key.isdigit() and len(key) <= 20):
                raise Fault(f"storage key {key!r} is not a number")
            if numel < 0:
                raise Fault(f"storage {key} of {numel} elements")
            return StorageRef(key, dtype, numel)
    raise Fault("a persistent id is not that of a tensor's storage", STATE_DICT_ONLY)


def _tensor(arguments: Arguments) -> TensorRef:
    """``_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks)``."""
    if len(arguments) != 6:
        raise Fault(f"a tensor is rebuilt from {len(arguments)} arguments instead of 6", STATE_DICT_ONLY)
    source, offset, shape, strides, requires_grad, hooks = arguments
    if not isinstance(source, StorageRef):
        raise Fault("a tensor is rebuilt from something that is not a storage")
    if type(offset) is not int or type(requires_grad) is not bool:
        raise Fault("a tensor is rebuilt from arguments of the wrong type")
    if type(hooks) is not OrderedDict or hooks:
        raise Fault("a tensor carries backward hooks", STATE_DICT_ONLY)
    return tensor_ref(source, offset, _lengths(shape), _lengths(strides))


def _parameter(arguments: Arguments) -> TensorRef:
    """``_rebuild_parameter(tensor, requires_grad, backward_hooks)``: the tensor itself."""
    match arguments:
        case (TensorRef() as tensor, bool(), OrderedDict() as hooks) if not hooks:
            return tensor
    raise Fault("a parameter is rebuilt from arguments of the wrong type", STATE_DICT_ONLY)


def _ordered_dict(arguments: Arguments) -> OrderedDict[object, object]:
    if arguments:
        raise Fault("an OrderedDict is built from arguments, which torch never writes", STATE_DICT_ONLY)
    return OrderedDict()


def _size(arguments: Arguments) -> tuple[int, ...]:
    if len(arguments) != 1:
        raise Fault("a torch.Size is built from the wrong number of arguments")
    return _lengths(arguments[0])


def _lengths(value: object) -> tuple[int, ...]:
    if type(value) is not tuple or not all(type(length) is int for length in value):
        raise Fault("a tensor's size or stride is not a tuple of integers")
    return value


_SYMBOLS: Final[dict[tuple[str, str], Constructor | StorageClass | Constant]] = {
    ("torch._utils", "_rebuild_tensor_v2"): Constructor("torch._utils._rebuild_tensor_v2", _tensor),
    ("torch._utils", "_rebuild_parameter"): Constructor("torch._utils._rebuild_parameter", _parameter),
    ("collections", "OrderedDict"): Constructor("collections.OrderedDict", _ordered_dict),
    ("torch", "Size"): Constructor("torch.Size", _size),
    **{("torch", name): StorageClass(f"torch.{name}", dtype) for name, dtype in TORCH_STORAGES.items()},
    **{("torch", name): Constant(f"torch.{name}") for name in TORCH_DTYPES},
}

_REFUSED: Final = {
    "_rebuild_tensor_v3": "a tensor of a dtype that is not read (uint16 to uint64, float8, ...)",
    "_rebuild_qtensor": "a quantized tensor, which is not read",
    "_rebuild_sparse_tensor": "a sparse tensor, which is not read",
    "_rebuild_sparse_csr_tensor": "a sparse tensor, which is not read",
    "_rebuild_nested_tensor": "a nested tensor, which is not read",
    "_rebuild_meta_tensor_no_storage": "a meta tensor, which has no values",
    "_rebuild_from_type_v2": "a tensor subclass or a tensor with attributes, which is not read",
    "_rebuild_wrapper_subclass": "a tensor subclass, which is not read",
    "_rebuild_parameter_with_state": "a parameter with attributes, which is not read",
}
"""What the other rebuilding functions of torch stand for, said in the words of their user."""
