"""Data files that declare more than they hold, or unfold to far more than their bytes; numpy is asked as well."""

from __future__ import annotations

import io
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from wdport.base.errors import InputError
from wdport.uses.data import read_series, read_statistics

COLUMNS = 20_000
ONES, TWOS = (",".join([digit] * COLUMNS) for digit in "12")
NAMES = [f"c{number}" for number in range(COLUMNS)]


def npy(shape: str, descr: str = "<f8", data: bytes = b"") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def mat(rows: int, columns: int) -> bytes:
    """Zeros in bytes, deflated."""
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"x": np.zeros((rows, columns), np.uint8)}, do_compression=True)
    return stream.getvalue()


MAT_4 = struct.pack("<5i", 0, 10**9, 2, 0, 2) + b"x\0"
"""The head of a matrix in version 4, and no values."""

WIDE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "csv": ("x.csv", lambda path: path.write_text(f"{','.join(NAMES)}\n{ONES}\n{TWOS}\n")),
    "csv without names": ("x.csv", lambda path: path.write_text(f"{ONES}\n{TWOS}\n")),
    "quoted": ("x.csv", lambda path: path.write_text("\n".join(",".join([f'"{d}"'] * COLUMNS) for d in "12"))),
    "blanks": ("x.txt", lambda path: path.write_text(f"{ONES}\n{TWOS}\n".replace(",", " "))),
    "arff": ("x.arff", lambda path: path.write_text(
        "".join(f"@attribute {name} numeric\n" for name in NAMES) + f"@data\n{ONES}\n{TWOS}\n")),
    "npy": ("x.npy", lambda path: np.save(path, np.array([[1.0] * COLUMNS, [2.0] * COLUMNS]))),
    "mat": ("x.mat", lambda path: scipy.io.savemat(path, {"x": np.array([[1.0] * COLUMNS, [2.0] * COLUMNS])})),
}  # fmt: skip


@pytest.mark.parametrize("kind", WIDE)
def test_many_columns_take_time_in_proportion(kind: str, tmp_path: Path) -> None:
    """25 s before; the bound is on the processor's time."""
    name, write = WIDE[kind]
    write(tmp_path / name)
    start = time.process_time()
    series = read_series(tmp_path / name)
    assert time.process_time() - start < 3.0
    assert series.values.shape == (2, COLUMNS)
    assert series.values.sum(axis=1).tolist() == [COLUMNS, 2 * COLUMNS]


MUCH = 100_001
BAD: dict[str, tuple[str, bytes, str]] = {
    "columns of a csv": ("x.csv", b"1," * MUCH + b"1\n", "more than 100000 columns"),
    "columns between blanks": ("x.txt", b"1 " * MUCH + b"1\n", "more than 100000 columns"),
    "columns in quotes": ("x.csv", b'"1",' * MUCH + b'"1"\n', "more than 100000 columns"),
    "commas below a narrow line": ("x.csv", b"a,b\n" + b"," * MUCH + b"\n", "more than 100000 columns"),
    "attributes": ("x.arff", b"@attribute a real\n" * MUCH + b"@data\n1\n", "more than 100000 columns"),
    "columns of an npy": ("x.npy", npy(f"(1, {MUCH})", "|i1", b"\1" * MUCH), "more than 100000 features"),
    "10^400": ("x.csv", b"a,b\n1" + b"0" * 400 + b",2\n3,4\n", "line 2: column 'a' holds an infinite value"),
    "npy beyond the file": ("x.npy", npy("(1000000000, 1000)"), "declares an array of shape (1000000000, 1000)"),
    "npy one short": ("x.npy", npy("(3,)", data=b"\0" * 23), "declares an array of shape (3,)"),
    "npy of 2^80": ("x.npy", npy(f"({1 << 40}, {1 << 40})"), "declares an array"),
    "npy below zero": ("x.npy", npy("(-1, -8)", data=b"\0" * 64), "declares an array"),
    "npy of nothing": ("x.npy", npy("(1000000000, 0)"), "holds no values"),
    "npy of long text": ("x.npy", npy("(1,)", "<U99999999"), "not real numbers"),
    "npy header": ("x.npy", b"\x93NUMPY\2\0\xf0\xff\xff\xff" + b"{" * 99, "a header of 4294967280 bytes"),
    "npz beyond its member": ("x.npz", npz(a=npy("(10000000000,)")), "declares an array"),
    "npz of zeros": ("x.npz", npz(a=npy("(5000000,)", data=bytes(40_000_000))), "unpacks to 40000"),
    "npz of many": ("x.npz", npz(**{f"a{n:0200}": b"" for n in range(8000)}), "more than 10000 arrays"),
    "mat of zeros": ("x.mat", mat(40_000, 1000), "unpacks to more than 33554432 bytes"),
    "mat of version 4": ("x.mat", MAT_4, "is not a MATLAB file of version 5 to 7"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_declared_and_not_there(case: str, tmp_path: Path) -> None:
    name, content, message = BAD[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_series(tmp_path / name)
    assert message in str(caught.value)


def test_a_mat_file_of_many_variables(tmp_path: Path) -> None:
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"x": np.zeros((2, 2))})
    head, one = stream.getvalue()[:128], stream.getvalue()[128:]
    (tmp_path / "x.mat").write_bytes(head + one * 10_001)
    with pytest.raises(InputError, match="more than 10000 arrays"):
        read_series(tmp_path / "x.mat")


def test_a_mat_file_whose_small_variables_unpack_to_much_together(tmp_path: Path) -> None:
    one = mat(10_000, 1000)
    (tmp_path / "x.mat").write_bytes(one + 4 * one[128:])
    with pytest.raises(InputError, match="unpacks to more than 33554432 bytes"):
        read_series(tmp_path / "x.mat")


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    """numpy takes the last without a word."""
    with zipfile.ZipFile(tmp_path / "s.npz", "w") as archive:
        archive.writestr("mean.npy", npy("(1,)", data=struct.pack("<d", 1.0)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("mean.npy", npy("(1,)", data=struct.pack("<d", 2.0)))
        archive.writestr("std.npy", npy("(1,)", data=struct.pack("<d", 1.0)))
    with np.load(tmp_path / "s.npz") as loaded:
        assert loaded["mean"].tolist() == [2.0]
    with pytest.raises(InputError, match="two arrays named 'mean'"):
        read_statistics(tmp_path / "s.npz")


def test_statistics_that_unpack_to_gigabytes(tmp_path: Path) -> None:
    """2.3 MB took 5.8 GB."""
    zeros = npy("(300000000,)", data=bytes(8 << 20))
    (tmp_path / "s.npz").write_bytes(npz(mean=zeros, std=zeros))
    with pytest.raises(InputError, match=r"mean: unpacks to 83886\d\d bytes"):
        read_statistics(tmp_path / "s.npz")


def test_a_flipped_bit_in_an_archive(tmp_path: Path) -> None:
    """Uncompressed, so that its CRC alone tells."""
    np.savez(tmp_path / "x.npz", a=np.arange(100.0))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[content.index(struct.pack("<d", 50.0)) + 6] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match="CRC"):
        read_series(tmp_path / "x.npz")


def test_what_numpy_writes_in_another_way_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    """In version 2 of its format, and compressed; all else is in `test_arrays.py`."""
    array = np.asfortranarray(np.arange(12, dtype=">f4").reshape(4, 3))
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, array, (2, 0))
    np.savez_compressed(tmp_path / "x.npz", a=array)
    for name in ("x.npy", "x.npz"):
        np.testing.assert_array_equal(read_series(tmp_path / name).values, array)
