"""Map the name of a storage class or a safetensors tag to a dtype name, item size and numpy type.

A dtype that is known but not supported (complex, quantized) keeps its name for the error message.
"""

from __future__ import annotations

from typing import Final

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
}
"""The little-endian numpy type of the stored bytes of each supported dtype.

numpy has no bfloat16, so its bits are read as uint16; the bytes of a bool are checked to be 0 or 1
before conversion.
"""

ITEMSIZE: Final = {
    **{dtype: int(kind[2:]) for dtype, kind in NUMPY.items()},
    "complex128": 16,
    "complex64": 8,
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

TORCH_DTYPES: Final = frozenset({*NUMPY, "complex128", "complex64", "complex32"})
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
}
"""Tags of the safetensors header."""
