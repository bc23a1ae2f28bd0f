"""Symbolic tensors: the storages that a pickle declares, tensors with every element inside their storage, and dtypes.

No bytes are read here: a :class:`TensorRef` states where a tensor is, and its bounds are checked against the storage
when it is made. A dtype that is known but not supported (complex, quantized) keeps its name for the error message.

torch takes the type and length of a storage from the first id that names it and ignores those of later ones. Ids that
contradict each other are refused here, so that no two readers see different tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

from wdport.base.limits import MAX_RANK
from wdport.checkpoint.faults import LOAD_AND_SAVE, LOAD_CONTIGUOUS, NOT_WRITTEN_BY_TORCH, Fault, UnsupportedTensor
from wdport.checkpoint.unloaded_object import UnloadedObject

NUMPY: Final = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "bfloat16": "<u2",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "|i1",
    "uint8": "|u1",
    "bool": "|u1",
    "complex64": "<c8",
    "complex128": "<c16",
}
"""The little-endian numpy type of the stored bytes of each supported dtype.

numpy has no bfloat16, so its bits are read as uint16; the bytes of a bool are checked to be 0 or 1
before conversion. Complex tensors are read, but no rule converts them.
"""

ITEMSIZE: Final = {
    **{dtype: int(kind[2:]) for dtype, kind in NUMPY.items()},
    "complex32": 4,
    "quint8": 1,
    "qint8": 1,
    "qint32": 4,
    "quint4x2": 1,
    "quint2x4": 1,
    "untyped": 1,
}
"""Bytes of one element, for supported dtypes and for those that are only named."""

HALF_ROUNDING: Final = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Relative spacing of values stored in 16 bits; it ruins tables (alpha_bar[0..3] = 1.0 in bfloat16)."""

TORCH_STORAGES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QUInt8Storage": "quint8",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
}
"""Storage classes of module ``torch`` that a persistent id may name."""

TORCH_DTYPES: Final = frozenset({*NUMPY, "complex32"})
"""``torch.<name>`` objects that may occur in a file as inert constants, for instance among options."""

SAFETENSORS: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}
"""Tags of the safetensors header."""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class, which occurs only inside a persistent id."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class StorageRef:
    """A flat range of ``numel`` elements, stored under ``key``.

    ``first`` is the stored element at which it begins: 0, except for the views of a storage that torch
    before 0.4 wrote.
    """

    key: str
    dtype: str
    numel: int
    first: int = 0

    @property
    def nbytes(self) -> int:
        return self.numel * ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A strided view of a storage; ``offset`` and ``strides`` count elements. Made by :func:`tensor_ref`."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.storage.dtype

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Logical bytes, ``numel * itemsize``."""
        return self.numel * ITEMSIZE[self.dtype]

    @property
    def extent(self) -> int:
        """Number of elements from the first to the last one of the view, inclusive; 0 for an empty tensor."""
        return _extent(self.shape, self.strides)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps; axes of length 1 may have any stride."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return self.numel == 0
            expected *= size
        return True


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a state_dict: its names, dtype, shape and place."""

    name: str
    """Name without the wrapper's prefixes."""
    dtype: str
    """One of the keys of :data:`wdport.checkpoint.tensor.NUMPY`."""
    shape: tuple[int, ...]
    nbytes: int
    """Logical bytes, ``numel * itemsize``, as stored."""
    stored_name: str
    """Key in the stored state_dict."""
    ref: TensorRef = field(repr=False)


def tensor_ref(storage: StorageRef, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorRef:
    """Return the view; raises :class:`Fault` if any of its elements would be outside ``storage``."""
    if len(shape) > MAX_RANK:
        raise UnsupportedTensor(f"tensor of {len(shape)} axes (at most {MAX_RANK} are read)", LOAD_AND_SAVE)
    if len(shape) != len(strides):
        raise Fault(f"tensor with {len(shape)} axes and {len(strides)} strides")
    if offset < 0 or min(shape, default=0) < 0 or min(strides, default=0) < 0:
        raise Fault("tensor with a negative size, stride or offset")
    # numpy counts the bytes of even an empty array in 64 bits, taking zero lengths as one.
    if prod(max(size, 1) for size in shape) * ITEMSIZE[storage.dtype] >= 1 << 62:
        raise Fault("tensor with an impossible shape")
    # torch lets an empty view begin past the end, as in x[4:, :, 2:] of four rows: it reads nothing.
    last = offset + _extent(shape, strides) if 0 not in shape else 0
    if last > storage.numel:
        raise Fault(f"tensor reaches element {last} of a storage that has {storage.numel}")
    if prod(shape) > storage.numel:
        what = f"expanded tensor of {prod(shape)} elements over {storage.numel} stored ones"
        raise UnsupportedTensor(what, LOAD_CONTIGUOUS)
    return TensorRef(storage, offset, shape, strides)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous array of ``shape``."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


_KEY_DIGITS = 20


@dataclass
class Storages:
    """The storages that one pickle declares. ``legacy`` ids have a sixth element and may also denote a module's
    class."""

    legacy: bool = False
    roots: dict[str, StorageRef] = field(default_factory=dict)
    """The whole storage by key, as first declared."""
    views: dict[str, StorageRef] = field(default_factory=dict)
    """The part of a storage by the key of a view (torch before 0.4)."""

    def persistent(self, persistent_id: object) -> object:
        """Resolve ``("storage", class, key, location, numel[, view])`` or ``("module", class, ...)``.

        The location, such as ``"cuda:0"``, is the device that the storage was on; it is not used.
        """
        # The patterns below accept any subclass: True would match `int()`.
        if type(persistent_id) is tuple and not any(type(part) is bool for part in persistent_id):
            match persistent_id:
                case ("storage", StorageClass() as cls, str(key), str(), int(numel)) if not self.legacy:
                    return self._root(cls, key, numel)
                case ("storage", StorageClass() as cls, str(key), str(), int(numel), view) if self.legacy:
                    root = self._root(cls, key, numel)
                    return root if view is None else self._view(root, view)
                case ("module", UnloadedObject(form="name") as cls, (None | str()), (None | str())) if self.legacy:
                    return cls
        raise Fault("a persistent id is not that of a tensor's storage", NOT_WRITTEN_BY_TORCH)

    def _root(self, cls: StorageClass, key: str, numel: int) -> StorageRef:
        _check_key(key)
        if numel < 0:
            raise Fault(f"storage {key} of {numel} elements")
        storage = StorageRef(key, cls.dtype, numel)
        declared = self.roots.setdefault(key, storage)
        # Declarations without elements may differ: torch does not check the type of a storage whose pointer is null.
        if (declared != storage and (declared.numel or numel)) or key in self.views:
            what = f"storage {key} is declared as {numel} {cls.dtype} and as {declared.numel} {declared.dtype}"
            raise Fault(what, NOT_WRITTEN_BY_TORCH)
        return storage

    def _view(self, root: StorageRef, view: object) -> StorageRef:
        match view:
            case (str(key), int(first), int(count)) if type(view) is tuple and {type(first), type(count)} == {int}:
                _check_key(key)
                if first < 0 or count < 0 or first + count > root.numel:
                    raise Fault(f"a view of elements {first} to {first + count} of a storage that has {root.numel}")
                storage = replace(root, first=first, numel=count)
                if self.views.setdefault(key, storage) != storage or key in self.roots:
                    raise Fault(f"storage view {key} is declared in two ways", NOT_WRITTEN_BY_TORCH)
                return storage
        raise Fault("a storage view is not a key, an offset and a length", NOT_WRITTEN_BY_TORCH)


def _check_key(key: str) -> None:
    """Check a key, which is looked up as ``data/<key>``: torch numbers them, and digits cannot form a path."""
    if len(key) > _KEY_DIGITS or not (key.isascii() and key.isdigit()):
        raise Fault(f"storage key {key[:40]!r} is not a number")
