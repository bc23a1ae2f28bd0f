"""One edit of a sound HDF5 file for each thing that its reader checks; the sentence says which check it was."""

from __future__ import annotations

import io
from struct import pack, unpack_from
from unittest.mock import patch

import h5py
import numpy as np
import pytest

from tests.files.hdf5_reference import by_us, tree
from wdport.checkpoint.faults import Fault
from wdport.files.hdf5 import groups as hdf5_groups
from wdport.files.hdf5 import structure as hdf5

SOUND = tree(
    {"a/vars/0": np.arange(3.0), "a/vars/1": np.arange(5, dtype=np.int16)},
    {"a": {"name": "text", "more": "words", "n": 3, "fixed": np.bytes_("abc")}},
)
SIZE = len(SOUND)
UNDEFINED = b"\xff" * 8
SPACE = pack("<4B4x2Q", 1, 1, 1, 0, 3, 3)
DOUBLE = bytes.fromhex("11203f000800000000004000340b0034ff03000000000000")
LAYOUT = pack("<2BQ", 3, 1, SOUND.index(np.arange(3.0).tobytes()))
SHORT = pack("<B3sL2H", 0x10, b"\x08\0\0", 2, 0, 16)
NAME = pack("<2B3H8s", 1, 0, 5, 20, 8, b"name")
FIXED = pack("<2B3H8s", 1, 0, 6, 8, 8, b"fixed")
NUMBER = pack("<2B3H8s", 1, 0, 2, 12, 8, b"n")
TEXT = bytes.fromhex("1901010010000000")  # of the first attribute
ROOT, TREE, HEAP, LINKS, STRINGS = 96, b"TREE", b"HEAP", b"SNOD", b"GCOL"
FILL = pack("<2HL4BL", 5, 8, 1, 2, 2, 2, 1, 0)
DATA = b"\0" + b"\0" * 7 + b"0\0\0\0\0\0\0\0" + b"1"  # the names 0 and 1 in their heap

Anchor = bytes | int

EDITS: list[tuple[Anchor, int, bytes, str]] = [
    (8, 0, b"\x02", "HDF5 file of version 2"),
    (9, 0, b"\x01", "with settings"),
    (13, 0, b"\x04", "with settings"),
    (16, 0, b"\x05", "with settings"),
    (18, 0, b"\x11", "with settings"),
    (20, 0, b"\x01", "with settings"),
    (24, 0, b"\x08", "in several parts"),
    (32, 0, b"\0", "in several parts"),
    (48, 0, b"\0", "in several parts"),
    (40, 0, pack("<Q", SIZE + 1), "cut short, or something was appended"),
    (56, 0, b"\x08", "superblock of the HDF5 file is damaged"),
    (72, 0, b"\x02", "superblock of the HDF5 file is damaged"),
    (76, 0, b"\x01", "superblock of the HDF5 file is damaged"),
    (64, 0, pack("<Q", SIZE), "lie outside the HDF5 file"),
    (64, 0, pack("<Q", 0), "overlaps something else"),
    (80, 0, pack("<Q", 0), "contradict each other"),
    (ROOT, 0, b"\x02", "another form than version 1"),
    (ROOT, 1, b"\x01", "another form than version 1"),
    (ROOT, 2, b"\x02", "as many messages as it states"),
    (ROOT, 4, b"\x02", "several names"),
    (ROOT, 8, b"\x1c", "ends inside a message"),
    (ROOT, 8, pack("<L", SIZE), "lie outside"),
    (ROOT, 12, b"\x01", "its HDF5 header is damaged"),
    (ROOT, 16, b"\x99", "has an HDF5 message of kind 0x99"),
    (ROOT, 16, b"\0", "neither an HDF5 group nor a whole array"),
    (ROOT, 16, b"\x0b", "compressed or filtered"),
    (ROOT, 16, b"\x02", "neither an HDF5 group nor an array"),
    (ROOT, 18, b"\x18", "has a message that is damaged"),
    (ROOT, 18, b"\x0c", "has a message that is damaged"),
    (ROOT, 20, b"\x02", "stored elsewhere"),
    (ROOT, 20, b"\x04", "of an unknown form"),
    (ROOT, 21, b"\x01", "has a message that is damaged"),
    (TREE, 0, b"TREX", "index of an HDF5 group is damaged"),
    (TREE, 4, b"\x01", "index of an HDF5 group is damaged"),
    (TREE, 5, b"\x01", "damaged"),
    (TREE, 5, b"\x20", "too deep"),
    (TREE, 6, b"\x21", "index of an HDF5 group is damaged"),
    (TREE, 8, b"\0", "index of an HDF5 group contradicts itself"),
    (TREE, 16, b"\0", "index of an HDF5 group contradicts itself"),
    (TREE, 24, b"\x08", "order of its index"),
    (TREE, 40, b"\0", "order of its index"),
    (LINKS, 0, b"SNOB", "links of an HDF5 group are damaged"),
    (LINKS, 4, b"\x02", "links of an HDF5 group are damaged"),
    (LINKS, 5, b"\x01", "links of an HDF5 group are damaged"),
    (LINKS, 6, b"\0", "links of an HDF5 group are damaged"),
    (LINKS, 6, b"\x09", "links of an HDF5 group are damaged"),
    (LINKS, 6, b"\x02", "an unsafe name"),
    (LINKS, 8, b"\x09", "not where its link points"),
    (LINKS, 8, pack("<Q", 1 << 40), "not where its link points"),
    (LINKS, 16, pack("<Q", 8), "another form than version 1|overlap"),
    (LINKS, 24, b"\x02", "a: is a link to another place"),
    (LINKS, 24, b"\x03", "a: is a link of an unknown kind"),
    (LINKS, 28, b"\x01", "a: is a link of an unknown kind"),
    (LINKS, 32, pack("<Q", 0), "contradict each other"),
    (HEAP, 0, b"HEAT", "names of an HDF5 group are damaged"),
    (HEAP, 4, b"\x01", "names of an HDF5 group are damaged"),
    (HEAP, 5, b"\x01", "names of an HDF5 group are damaged"),
    (HEAP, 8, pack("<Q", SIZE), "lie outside"),
    (HEAP, 16, b"\x03", "free space"),
    (DATA, 8, b"1", "not in order"),
    (DATA, 8, b".", "an unsafe name"),
    (DATA, 8, b"/", "an unsafe name"),
    (DATA, 8, b"\xfe", "is not UTF-8"),
    (SPACE, 0, b"\x02", "dataspace of another form"),
    (SPACE, 1, b"\x21", "dataspace is damaged"),
    (SPACE, 1, b"\x02", "dataspace is damaged"),
    (SPACE, 2, b"\x02", "dataspace is damaged"),
    (SPACE, 3, b"\x02", "dataspace of another form"),
    (SPACE, 4, b"\x02", "dataspace of another form"),
    (SPACE, 8, b"\x02", "can change its shape"),
    (SPACE, 8, pack("<2Q", 4, 4), "has 24 bytes in the HDF5 file where its shape and type need 32"),
    (SPACE, 8, pack("<2Q", 1 << 62, 1 << 62), "where its shape and type need"),
    (DOUBLE, 1, b"\x21", "holds numbers of a type that Keras does not write"),
    (DOUBLE, 4, b"\x04", "holds numbers of a type"),
    (SHORT, 0, b"\x19", "holds"),
    (SHORT, 0, b"\x1f", "holds numbers of a type"),
    (LAYOUT, 0, b"\x04", "another form than version 3"),
    (LAYOUT, 1, b"\x02", "is stored in chunks"),
    (LAYOUT, 1, b"\x03", "is stored in an unknown way"),
    (LAYOUT, 1, b"\0", "has another size"),
    (LAYOUT, 1, pack("<BH", 0, 24), "has another size"),
    (LAYOUT, 2, UNDEFINED, "was never written"),
    (LAYOUT, 2, pack("<Q", SIZE - 8), "lie outside"),
    (LAYOUT, 2, pack("<Q", ROOT), "overlap"),
    (LAYOUT, 2, pack("<Q", ROOT + 1), "two objects of the HDF5 file overlap"),
    (NAME, 0, b"\x03", "attribute of another form"),
    (NAME, 1, b"\x01", "attribute of another form"),
    (NAME, 2, b"\x04", "has an attribute that is damaged"),
    (NAME, 2, b"\xff", "has an attribute that is damaged"),
    (NAME, 2, b"\0", "has an attribute that is damaged"),
    (NAME, 8, b"more", "two attributes 'more'"),
    (NAME, 8, b"\xff", "is not UTF-8"),
    (NAME, 16, b"\x18", "neither a number nor text"),
    (NAME, 40, b"\x02", "dataspace of another form"),
    (NAME, 41, b"\x01", "dataspace is damaged"),
    (NAME, 48, b"\x05", "a string is not where"),
    (NAME, 48, b"\0", "a string is not where"),
    (NAME, 52, pack("<Q", SIZE - 8), "are not where an attribute points"),
    (NAME, 52, pack("<Q", ROOT), "are not where an attribute points"),
    (NAME, 60, b"\x02", "a string is not where"),
    (NAME, 60, b"\x63", "a string is not where"),
    (NUMBER, 4, b"\x0a", "neither a number nor text"),
    (FIXED, 16, b"\x23", "neither a number nor text"),
    (FIXED, 17, b"\x02", "damaged or not plain text"),
    (FIXED, 17, b"\x20", "damaged or not plain text"),
    (FIXED, 18, b"\x01", "damaged or not plain text"),
    (FIXED, 19, b"\x01", "damaged or not plain text"),
    (FIXED, 20, b"\0", "damaged or not plain text"),
    (FIXED, 20, b"\x30", "damaged or not plain text"),
    (FIXED, 32, b"\xff", "is not UTF-8"),
    (STRINGS, 4, b"\x02", "are not where an attribute points"),
    (STRINGS, 8, pack("<Q", SIZE), "lie outside"),
    (STRINGS, 16, b"\x02", "strings of the HDF5 file are damaged"),
    (STRINGS, 20, b"\x01", "strings of the HDF5 file are damaged"),
    (STRINGS, 24, pack("<Q", 1 << 40), "strings of the HDF5 file are damaged"),
    (STRINGS, 24, b"\x03", "a string is not where"),
    (STRINGS, 32, b"\xff", "is not UTF-8"),
    (STRINGS, 33, b"\0", "is not UTF-8 or has a zero"),
    (FIXED, 33, b"\0", "is not UTF-8 or has a zero"),
    (FILL, 0, b"\0", "0: is neither an HDF5 group nor a whole array"),
    (FILL, 0, b"\x03", "two messages of kind 0x3"),
    (FILL, 0, b"\x10", "a continuation that is damaged"),
    (FILL, 8, b"\x03", "fill value of another form"),
    (FILL, 12, b"\x01", "fill value of another form"),
]


def edit(raw: bytes, anchor: Anchor, delta: int, new: bytes) -> bytes:
    at = delta + (anchor if isinstance(anchor, int) else raw.index(anchor))
    return raw[:at] + new + raw[at + len(new) :]


@pytest.mark.parametrize(("anchor", "delta", "new", "text"), EDITS)
def test_edits(anchor: Anchor, delta: int, new: bytes, text: str) -> None:
    assert by_us(SOUND)
    with pytest.raises(Fault) as caught:
        by_us(edit(SOUND, anchor, delta, new))
    line = f"{caught.value.part}: {caught.value.what}"
    assert any(part in line for part in text.split("|")), line


def shortened(raw: bytes, header: int, message: int) -> bytes:
    """The message at this offset, in the object header at that one, without its last eight bytes, which are an empty
    message of their own now."""
    (count,), (size,) = unpack_from("<H", raw, header + 2), unpack_from("<H", raw, message + 2)
    end = message + 8 + size
    raw = edit(raw, header, 2, pack("<H", count + 1))
    return edit(edit(raw, message, 2, pack("<H", size - 8)), end, -8, bytes(8))


def test_shorter_messages() -> None:
    group = tree({"a": np.arange(2.0)}, {"a": {"n": 3}})
    number = group.index(NUMBER) - 8
    header = group.index(pack("<2BH2L", 1, 0, 6, 1, 256))
    with pytest.raises(Fault, match="has an attribute that is damaged"):
        by_us(shortened(group, header, number))
    with pytest.raises(Fault, match="the header of an HDF5 group is damaged"):
        by_us(shortened(SOUND, ROOT, ROOT + 16))
    raw = listed()
    (header,) = unpack_from("<Q", raw, 64)
    with pytest.raises(Fault, match="the header of an HDF5 group is damaged"):
        by_us(shortened(raw, header, raw.index(LINK_INFO)))


def test_an_array_that_its_link_calls_a_group() -> None:
    link = SOUND.index(LINKS, SOUND.index(LINKS, SOUND.index(LINKS) + 1) + 1)
    with pytest.raises(Fault, match="neither an HDF5 group nor a whole array"):
        by_us(edit(SOUND, link, 24, b"\1"))


def many(order: list[int]) -> bytes:
    return tree({f"{number:03}": None for number in order})


def test_edits_of_a_deep_index() -> None:
    """The nodes of one level stand in a chain, and each knows the names at its ends."""
    raw = many(list(range(300)))
    upper = raw.index(b"TREE\0\1")
    children = [int.from_bytes(raw[upper + at : upper + at + 8], "little") for at in (32, 48)]
    first, second = children
    edits = {
        (upper + 32, pack("<Q", second)): "overlaps",
        (
            upper + 32,
            pack("<3Q", second, *[int.from_bytes(raw[upper + 40 : upper + 48], "little"), first]),
        ): "contradicts",
        (first + 5, b"\1"): "contradicts",
        (first + 16, UNDEFINED): "contradicts",
        (second + 8, UNDEFINED): "contradicts",
        (second + 24, pack("<Q", 8)): "contradicts",
        (second + 6, b"\0"): "contradicts",
        (upper + 40, pack("<Q", 8)): "contradicts",
    }
    assert len(by_us(raw)) == 301
    for (at, new), text in edits.items():
        with pytest.raises(Fault, match=text):
            by_us(raw[:at] + new + raw[at + len(new) :])


def listed() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_group("ü")
        file.create_group("ö")
    return buffer.getvalue()


LINK = pack("<4B2s", 1, 0x10, 1, 2, "ü".encode())
LINK_INFO = pack("<2HL", 2, 24, 0) + b"\0\0" + UNDEFINED * 2


@pytest.mark.parametrize(
    ("anchor", "delta", "new", "text"),
    [
        (LINK, 0, b"\2", "link of another form"),
        (LINK, 1, b"\x30", "link of another form"),
        (LINK, 1, b"\x18\1", "link to another place|is not UTF-8"),
        (LINK, 3, b"\xff", "is not UTF-8|header of an HDF5 group is damaged"),
        (LINK, 3, b"\x0a", "header of an HDF5 group is damaged|UTF-8|unsafe"),
        (LINK, 4, "ö".encode(), "duplicate name"),
        (LINK, -4, b"\4", "of an unknown form"),
        (LINK_INFO, 8, b"\1", "more than eight members"),
        (LINK_INFO, 9, b"\1", "more than eight members"),
        (LINK_INFO, 10, b"\0", "more than eight members"),
        (LINK_INFO, 18, b"\0", "more than eight members"),
        (LINK_INFO, 0, b"\3", "neither an HDF5 group nor an array"),
    ],
)
def test_edits_of_a_listed_group(anchor: bytes, delta: int, new: bytes, text: str) -> None:
    raw = listed()
    assert set(by_us(raw)) == {"", "ü", "ö"}
    with pytest.raises(Fault) as caught:
        by_us(edit(raw, anchor, delta, new))
    assert any(part in str(caught.value) for part in text.split("|")), str(caught.value)


def test_caps() -> None:
    with patch.object(hdf5_groups, "MAX_HDF5_OBJECTS", 5), pytest.raises(Fault, match="a group of more than 5"):
        by_us(many(list(range(8))))
    with patch.object(hdf5_groups, "MAX_HDF5_OBJECTS", 5), pytest.raises(Fault, match="a group of more than 5"):
        by_us(many(list(range(300))))
    # Of an index, before the names are read.
    with (
        patch.object(hdf5_groups, "MAX_HDF5_OBJECTS", 1),
        patch.object(hdf5_groups, "_symbols", side_effect=AssertionError),
        pytest.raises(Fault, match="a group of more than 1"),
    ):
        by_us(many(list(range(300))))
    with patch.object(hdf5, "MAX_HDF5_OBJECTS", 3), pytest.raises(Fault, match="too many objects"):
        by_us(SOUND)
    with pytest.raises(Fault, match="too long names"):
        by_us(tree({"/".join(["x" * 99] * 11): None}))
    with (
        patch.object(hdf5, "MAX_ATTRIBUTE_BYTES", 4),
        pytest.raises(Fault, match="has an attribute of 5 bytes"),
    ):
        by_us(SOUND)
