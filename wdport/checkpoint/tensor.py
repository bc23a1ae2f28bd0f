"""Make a symbolic tensor from storage, offset, shape and strides, with every element inside the storage.

No bytes are read here: a :class:`TensorRef` states where a tensor is, and its bounds are checked against the storage
when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from wdport.checkpoint.dtypes import ITEMSIZE
from wdport.checkpoint.faults import LOAD_AND_SAVE, LOAD_CONTIGUOUS, Fault, UnsupportedTensor
from wdport.limits import MAX_RANK


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
    """One of the keys of :data:`wdport.checkpoint.dtypes.NUMPY`."""
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
