"""Zip archives that are not what PyTorch writes, and tensors that do not fit their storages."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from wdport.base.errors import InputError
from wdport.checkpoint import open_checkpoint

from . import forge
from .bad import refuse, refuse_bytes
from .forge import (
    DICT,
    GOOD_PICKLE,
    LIST,
    ORDERED,
    SIX_FLOATS,
    Member,
    altered,
    archive,
    members,
    number,
    pickled,
    storage,
    table,
    tensor,
    text,
    write_zip,
)
from .legacy import legacy

GOOD = archive()


def with_member(*added: Member) -> bytes:
    return write_zip([*members().values(), *added])


def one(value: bytes) -> bytes:
    return archive(pickled(table({"w": value})))


def repacked() -> bytes:
    """By Python, without compression, with the sizes in the local headers and no descriptors."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for member in members().values():
            with packed.open(zipfile.ZipInfo(member.name), "w", force_zip64=True) as target:
                target.write(member.data)
    return buffer.getvalue()


DESCRIPTOR = struct.pack("<4s3L", b"PK\7\x08", zlib.crc32(SIX_FLOATS), 24, 24)


def described(wide: bool = False, crc: int | None = None, size: int = 24, head: bytes = b"PK\7\x08") -> bytes:
    """With a data descriptor after the tensor."""
    crc = zlib.crc32(SIX_FLOATS) if crc is None else crc
    descriptor = struct.pack("<4sL2Q" if wide else "<4s3L", head, crc, size, size)
    return altered("data/0", flags=8, descriptor=descriptor)


def wide_end(**changes: int) -> bytes:
    """With the 64-bit end records, as PyTorch writes them."""
    count, size, start = struct.unpack("<HLL", GOOD[-12:-2])
    fields = {"count": count, "size": size, "start": start, "at": len(GOOD) - 22, "disks": 1} | changes
    sizes = (fields["count"], fields["count"], fields["size"], fields["start"])
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0, 0, 0, 0, *sizes)
    return GOOD[:-22] + record + struct.pack("<4sLQL", b"PK\6\7", 0, fields["at"], fields["disks"]) + GOOD[-22:]


GOODS = {
    "that all others are altered from": GOOD,
    "a tensor of Python 2, whose hooks are None": one(tensor(hooks=forge.NONE)),
    "repacked by Python": repacked(),
    "data descriptors": described(),
    "wide data descriptors": described(wide=True),
    "wide end records": wide_end()[:-14] + b"\xff" * 12 + GOOD[-2:],
    "no byte order, which means little": write_zip(part for key, part in members().items() if key != "byteorder"),
}


@pytest.mark.parametrize("case", GOODS)
def test_a_good_archive(case: str, tmp_path: Path) -> None:
    path = tmp_path / "good.pt"
    path.write_bytes(GOODS[case])
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("w").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


ARCHIVES = {
    "junk before": (write_zip(members().values(), before=b"PK\3\4"), "before the first zip member"),
    "junk between": (altered("byteorder", gap=b"junk"), "4 bytes after it belong to no zip member"),
    "four bytes": (b"PK\3\4", "cut short"),
    "compressed": (altered("data.pkl", method=8), "data.pkl: zip member is compressed"),
    "two sizes": (altered("data.pkl", packed=5), "compressed"),
    "encrypted": (altered("data/0", flags=1), "data/0: zip member is encrypted"),
    "unknown flag": (altered("data/0", flags=0x20), "flags 0x0020"),
    "a member twice": (with_member(Member("archive/data/0", SIX_FLOATS)), "duplicate"),
    "overlapping": (altered("version", shift=-60), "data/0: zip member overlaps the next one"),
    "the same header twice": (altered("byteorder", shift=-(30 + 16 + len(GOOD_PICKLE))), "overlaps"),
    "size beyond the next": (altered("data/0", size=30), "overlaps the next one"),
    "size too small": (altered("data/0", size=20), "bytes after it"),
    "size beyond the file": (altered("version", size=2**31), "overlaps the next one"),
    "another name in the header": (altered("data/0", local_name="archive/data/1"), "disagree about its name"),
    "a longer name in the header": (altered("data/0", local_name="archive/data/00"), "two headers disagree"),
    "another CRC in the header": (altered("data/0", local_crc=1), "disagree about its size or CRC"),
    "another method in the header": (altered("data/0", local_method=8), "two headers disagree"),
    "path upwards": (with_member(Member("archive/../x", b"")), "unsafe name"),
    "absolute path": (with_member(Member("/etc/passwd", b"")), "single root folder"),
    "absolute path inside": (with_member(Member("archive//etc", b"")), "unsafe name"),
    "backslash": (with_member(Member("archive/a\\b", b"")), "unsafe name"),
    "control character": (with_member(Member("archive/a\x1b[31m", b"")), "unsafe name"),
    "a comment in the directory": (altered("data/0", comment=b"hello"), "directory is damaged"),
    "two roots": (with_member(Member("other/data.pkl", GOOD_PICKLE)), "single root folder"),
    "no root": (write_zip([Member("data.pkl", GOOD_PICKLE)]), "single root folder"),
    "no data.pkl": (write_zip([Member("archive/version", b"3")]), "without data.pkl"),
    "wrong count": (write_zip(members().values(), count=3), "size does not match its entries"),
    "count too large": (write_zip(members().values(), count=9), "directory is cut short"),
    "CRC of the pickle": (altered("data.pkl", crc=1), "data.pkl: the bytes do not match their CRC"),
    "CRC of a tensor": (altered("data/0", crc=1), "w: data/0: the bytes do not match their CRC"),
    "CRC zero": (altered("data/0", crc=0), "data/0 has no CRC"),
    "big-endian": (archive(byteorder=b"big"), "byte order 'big'"),
    "byte order of an odd form": (archive(byteorder=b"little\n"), "byte order"),
    "byte order too long": (archive(byteorder=b"little" * 99), "byte order"),
    "code that is encrypted": (with_member(Member("archive/code/a.py", b"x", flags=1)), "encrypted"),
    "code of another method": (with_member(Member("archive/code/a.py", b"x", method=9)), "compressed"),
    "compressed beside code": (with_member(Member("archive/code.py", b"x", method=8)), "compressed"),
    "TorchScript before 1.4": (write_zip([Member("x/model.json", b"{}")]), "torch before 1.4"),
    "pt2": (write_zip([Member("x/archive_format", b"pt2"), Member("x/models/model.json", b"{}")]), ".pt2"),
    "npz": (write_zip([Member("a.npy", b""), Member("b.npy", b"")]), ".npz"),
    "keras": (write_zip([Member("config.json", b"{}"), Member("model.weights.h5", b"")]), "is a Keras model"),
    "empty zip": (write_zip([]), "empty zip"),
    "a name that is not UTF-8": (GOOD.replace(b"byteorder", b"byteorde\xff"), "not UTF-8"),
    "a descriptor of another CRC": (described(crc=1), "data descriptor"),
    "a descriptor of another size": (described(size=23), "data descriptor"),
    "a descriptor of another mark": (described(head=b"PK\7\7"), "data descriptor"),
    "a descriptor that is cut": (altered("data/0", flags=8, descriptor=DESCRIPTOR[:-1]), "data descriptor"),
    "no descriptor": (altered("data/0", flags=8), "data descriptor"),
    "end records of other counts": (wide_end(count=3), "end records of the zip archive disagree"),
    "end records of other places": (wide_end(start=0), "end records of the zip archive disagree"),
    "a wide end record elsewhere": (wide_end(at=0), "not where its locator points"),
    "a second disk": (wide_end(disks=2), "not where its locator points"),
}  # fmt: skip


@pytest.mark.parametrize("good", [GOOD, legacy()], ids=["zip", "legacy"])
def test_every_cut_is_refused(good: bytes, tmp_path: Path) -> None:
    for length in range(len(good)):
        refuse_bytes(tmp_path, good[:length], "")


def test_a_directory_of_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wdport.checkpoint.zip_archive.read_directory.__defaults__", (3,))
    refuse_bytes(tmp_path, GOOD, "zip archive of 4 members")


def shaped(shape: Iterable[int], strides: Iterable[int], offset: int = 0, count: int = 6) -> bytes:
    return one(tensor(shape, strides, offset, storage(count=count)))


def rebuilt(*arguments: bytes) -> bytes:
    """A tensor of six floats, rebuilt with these arguments after its offset."""
    return one(forge.REBUILD + forge.tuple_of(storage(), number(0), *arguments) + b"R")


HUGE = 2**62
TENSORS = {
    "storage missing": (archive(GOOD_PICKLE, {}), "w: its storage data/0 is missing"),
    "size not the stored one": (shaped((2, 3), (3, 1), count=7), "has 24 bytes, not 28"),
    "4 TB from nothing": (shaped((10**12,), (1,), count=10**12), "has 24 bytes, not 4000000000000"),
    "a storage of negative size": (shaped((0,), (1,), count=-1), "storage 0 of -1 elements"),
    "negative size": (shaped((-1, 3), (3, 1)), "negative size"),
    "negative stride": (shaped((2, 3), (3, -1), 2), "negative size, stride"),
    "negative offset": (shaped((2, 3), (3, 1), -1), "negative size, stride or offset"),
    "offset past the end": (shaped((2, 3), (3, 1), 1), "reaches element 7 of a storage that has 6"),
    "stride past the end": (shaped((2, 3), (4, 1)), "reaches element 7"),
    "stride of 2**300": (shaped((2, 2), (2**300, 1)), "reaches element"),
    "expanded": (shaped((1000, 6), (0, 1)), "expanded tensor of 6000 elements over 6"),
    "sliding windows": (shaped((3, 4), (1, 1)), "expanded tensor of 12"),
    "huge": (shaped((HUGE, HUGE), (0, 0)), "impossible shape"),
    "huge and empty": (shaped((0, HUGE, HUGE), (0, 0, 0)), "impossible shape"),
    "two strides for one axis": (shaped((6,), (1, 1)), "1 axes and 2 strides"),
    "33 axes": (shaped((1,) * 33, (1,) * 33), "33 axes"),
    "backward hooks": (one(tensor(hooks=ORDERED + forge.MARK + text("a") + forge.NONE + forge.SETITEMS)),
                       "backward hooks"),
    "hooks that are a dict": (one(tensor(hooks=DICT)), "backward hooks"),
    "grad that is a number": (one(tensor(grad=number(1))), "wrong type"),
    "sizes as a list": (rebuilt(LIST, LIST, forge.FALSE, ORDERED), "not a tuple of integers"),
    "sizes that are bools": (rebuilt(forge.TRUE + b"\x85", number(1) + b"\x85", forge.FALSE, ORDERED),
                             "not a tuple of integers"),
    "five arguments": (rebuilt(b")", b")", forge.FALSE), "5 arguments"),
    "a tensor of a tensor": (one(tensor(source=tensor())), "not a storage"),
    "a parameter of text": (one(forge.name("torch._utils", "_rebuild_parameter")
                                + forge.tuple_of(text("x"), forge.TRUE, ORDERED) + b"R"), "parameter is rebuilt"),
    "quantized storage": (archive(pickled(table({"w": tensor(source=storage(cls="QInt8Storage"))})), {"0": b"abcdef"}),
                          "w: has dtype qint8"),
    "quantized": (one(forge.name("torch._utils", "_rebuild_qtensor")), "w: a quantized tensor"),
    "sparse": (one(forge.name("torch._utils", "_rebuild_sparse_tensor")), "w: a sparse tensor"),
    "float8": (one(forge.name("torch._utils", "_rebuild_tensor_v3")), "float8"),
    "bool that is 2": (archive(pickled(table({"w": tensor(source=storage(cls="BoolStorage"))})),
                               {"0": b"\0\1\0\1\0\2"}), "bytes other than 0 and 1"),
}  # fmt: skip


def uncounted() -> bytes:
    return write_zip(replace(member, crc=0) for member in members().values())


def test_an_archive_without_crcs_but_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "good.pt"
    path.write_bytes(uncounted())
    refuse(path, "has no CRC")
    digest = hashlib.sha256(uncounted()).hexdigest()
    with open_checkpoint(path, sha256=digest.upper()) as checkpoint:
        assert checkpoint.read("w")[1, 2] == 5.0
    with pytest.raises(InputError, match="SHA-256"):
        open_checkpoint(path, sha256="0" * 64)


def test_a_hash_does_not_excuse_one_zero_crc(tmp_path: Path) -> None:
    path = tmp_path / "bad.pt"
    path.write_bytes(altered("data/0", crc=0))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with open_checkpoint(path, sha256=digest) as checkpoint, pytest.raises(InputError, match="no CRC"):
        checkpoint.read("w")
    refuse(path, "no CRC")
