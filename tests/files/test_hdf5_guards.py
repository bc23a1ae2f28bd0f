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

EDITS: dict[tuple[Anchor, str], list[tuple[int, bytes]]] = {
    (0, "HDF5 file of version 2"): [(8, b"\x02")],
    (0, "with settings"): [(9, b"\x01"), (13, b"\x04"), (16, b"\x05"), (18, b"\x11"), (20, b"\x01")],
    (0, "in several parts"): [(24, b"\x08"), (32, b"\0"), (48, b"\0")],
    (0, "cut short, or something was appended"): [(40, pack("<Q", SIZE + 1))],
    (0, "superblock of the HDF5 file is damaged"): [(56, b"\x08"), (72, b"\x02"), (76, b"\x01")],
    (0, "lie outside the HDF5 file"): [(64, pack("<Q", SIZE))],
    (0, "overlaps something else"): [(64, pack("<Q", 0))],
    (0, "contradict each other"): [(80, pack("<Q", 0))],
    (ROOT, "another form than version 1"): [(0, b"\x02"), (1, b"\x01")],
    (ROOT, "as many messages as it states"): [(2, b"\x02")],
    (ROOT, "several names"): [(4, b"\x02")],
    (ROOT, "ends inside a message"): [(8, b"\x1c")],
    (ROOT, "lie outside"): [(8, pack("<L", SIZE))],
    (ROOT, "its HDF5 header is damaged"): [(12, b"\x01")],
    (ROOT, "has an HDF5 message of kind 0x99"): [(16, b"\x99")],
    (ROOT, "neither an HDF5 group nor a whole array"): [(16, b"\0")],
    (ROOT, "compressed or filtered"): [(16, b"\x0b")],
    (ROOT, "neither an HDF5 group nor an array"): [(16, b"\x02")],
    (ROOT, "has a message that is damaged"): [(18, b"\x18"), (18, b"\x0c"), (21, b"\x01")],
    (ROOT, "stored elsewhere"): [(20, b"\x02")],
    (ROOT, "of an unknown form"): [(20, b"\x04")],
    (TREE, "index of an HDF5 group is damaged"): [(0, b"TREX"), (4, b"\x01"), (6, b"\x21")],
    (TREE, "damaged"): [(5, b"\x01")],
    (TREE, "too deep"): [(5, b"\x20")],
    (TREE, "index of an HDF5 group contradicts itself"): [(8, b"\0"), (16, b"\0")],
    (TREE, "order of its index"): [(24, b"\x08"), (40, b"\0")],
    (LINKS, "links of an HDF5 group are damaged"): [(0, b"SNOB"), (4, b"\x02"), (5, b"\x01"), (6, b"\0"), (6, b"\x09")],
    (LINKS, "an unsafe name"): [(6, b"\x02")],
    (LINKS, "not where its link points"): [(8, b"\x09"), (8, pack("<Q", 1 << 40))],
    (LINKS, "another form than version 1|overlap"): [(16, pack("<Q", 8))],
    (LINKS, "a: is a link to another place"): [(24, b"\x02")],
    (LINKS, "a: is a link of an unknown kind"): [(24, b"\x03"), (28, b"\x01")],
    (LINKS, "contradict each other"): [(32, pack("<Q", 0))],
    (HEAP, "names of an HDF5 group are damaged"): [(0, b"HEAT"), (4, b"\x01"), (5, b"\x01")],
    (HEAP, "lie outside"): [(8, pack("<Q", SIZE))],
    (HEAP, "free space"): [(16, b"\x03")],
    (DATA, "not in order"): [(8, b"1")],
    (DATA, "an unsafe name"): [(8, b"."), (8, b"/")],
    (DATA, "is not UTF-8"): [(8, b"\xfe")],
    (SPACE, "dataspace of another form"): [(0, b"\x02"), (3, b"\x02"), (4, b"\x02")],
    (SPACE, "dataspace is damaged"): [(1, b"\x21"), (1, b"\x02"), (2, b"\x02")],
    (SPACE, "can change its shape"): [(8, b"\x02")],
    (SPACE, "has 24 bytes in the HDF5 file where its shape and type need 32"): [(8, pack("<2Q", 4, 4))],
    (SPACE, "where its shape and type need"): [(8, pack("<2Q", 1 << 62, 1 << 62))],
    (DOUBLE, "holds numbers of a type that Keras does not write"): [(1, b"\x21")],
    (DOUBLE, "holds numbers of a type"): [(4, b"\x04")],
    (SHORT, "holds"): [(0, b"\x19")],
    (SHORT, "holds numbers of a type"): [(0, b"\x1f")],
    (LAYOUT, "another form than version 3"): [(0, b"\x04")],
    (LAYOUT, "is stored in chunks"): [(1, b"\x02")],
    (LAYOUT, "is stored in an unknown way"): [(1, b"\x03")],
    (LAYOUT, "has another size"): [(1, b"\0"), (1, pack("<BH", 0, 24))],
    (LAYOUT, "was never written"): [(2, UNDEFINED)],
    (LAYOUT, "lie outside"): [(2, pack("<Q", SIZE - 8))],
    (LAYOUT, "overlap"): [(2, pack("<Q", ROOT))],
    (LAYOUT, "two objects of the HDF5 file overlap"): [(2, pack("<Q", ROOT + 1))],
    (NAME, "attribute of another form"): [(0, b"\x03"), (1, b"\x01")],
    (NAME, "has an attribute that is damaged"): [(2, b"\x04"), (2, b"\xff"), (2, b"\0")],
    (NAME, "two attributes 'more'"): [(8, b"more")],
    (NAME, "is not UTF-8"): [(8, b"\xff")],
    (NAME, "neither a number nor text"): [(16, b"\x18")],
    (NAME, "dataspace of another form"): [(40, b"\x02")],
    (NAME, "dataspace is damaged"): [(41, b"\x01")],
    (NAME, "a string is not where"): [(48, b"\x05"), (48, b"\0"), (60, b"\x02"), (60, b"\x63")],
    (NAME, "are not where an attribute points"): [(52, pack("<Q", SIZE - 8)), (52, pack("<Q", ROOT))],
    (NUMBER, "neither a number nor text"): [(4, b"\x0a")],
    (FIXED, "neither a number nor text"): [(16, b"\x23")],
    (FIXED, "damaged or not plain text"): [(17, b"\x02"), (17, b"\x20"), (18, b"\x01"), (19, b"\x01"), (20, b"\0"),
                                           (20, b"\x30")],
    (FIXED, "is not UTF-8"): [(32, b"\xff")],
    (STRINGS, "are not where an attribute points"): [(4, b"\x02")],
    (STRINGS, "lie outside"): [(8, pack("<Q", SIZE))],
    (STRINGS, "strings of the HDF5 file are damaged"): [(16, b"\x02"), (20, b"\x01"), (24, pack("<Q", 1 << 40))],
    (STRINGS, "a string is not where"): [(24, b"\x03")],
    (STRINGS, "is not UTF-8"): [(32, b"\xff")],
    (STRINGS, "is not UTF-8 or has a zero"): [(33, b"\0")],
    (FIXED, "is not UTF-8 or has a zero"): [(33, b"\0")],
    (FILL, "0: is neither an HDF5 group nor a whole array"): [(0, b"\0")],
    (FILL, "two messages of kind 0x3"): [(0, b"\x03")],
    (FILL, "a continuation that is damaged"): [(0, b"\x10")],
    (FILL, "fill value of another form"): [(8, b"\x03"), (12, b"\x01")],
}  # fmt: skip


def edit(raw: bytes, anchor: Anchor, delta: int, new: bytes) -> bytes:
    at = delta + (anchor if isinstance(anchor, int) else raw.index(anchor))
    return raw[:at] + new + raw[at + len(new) :]


def refuse(raw: bytes, text: str) -> None:
    with pytest.raises(Fault) as caught:
        by_us(raw)
    line = f"{caught.value.part}: {caught.value.what}"
    assert any(part in line for part in text.split("|")), line


@pytest.mark.parametrize(("anchor", "text"), EDITS)
def test_edits(anchor: Anchor, text: str) -> None:
    assert by_us(SOUND)
    for delta, new in EDITS[anchor, text]:
        refuse(edit(SOUND, anchor, delta, new), text)


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
    refuse(shortened(group, header, number), "has an attribute that is damaged")
    refuse(shortened(SOUND, ROOT, ROOT + 16), "the header of an HDF5 group is damaged")
    raw = listed()
    (header,) = unpack_from("<Q", raw, 64)
    refuse(shortened(raw, header, raw.index(LINK_INFO)), "the header of an HDF5 group is damaged")


def test_an_array_that_its_link_calls_a_group() -> None:
    link = SOUND.index(LINKS, SOUND.index(LINKS, SOUND.index(LINKS) + 1) + 1)
    refuse(edit(SOUND, link, 24, b"\1"), "neither an HDF5 group nor a whole array")


def many(order: list[int]) -> bytes:
    return tree({f"{number:03}": None for number in order})


def test_edits_of_a_deep_index() -> None:
    """The nodes of one level stand in a chain, and each knows the names at its ends."""
    raw = many(list(range(300)))
    upper = raw.index(b"TREE\0\1")
    first, second = (number for at in (32, 48) for number in unpack_from("<Q", raw, upper + at))
    edits = {
        (upper + 32, pack("<Q", second)): "overlaps",
        (upper + 32, pack("<3Q", second, *unpack_from("<Q", raw, upper + 40), first)): "contradicts",
        (first + 5, b"\1"): "contradicts",
        (first + 16, UNDEFINED): "contradicts",
        (second + 8, UNDEFINED): "contradicts",
        (second + 24, pack("<Q", 8)): "contradicts",
        (second + 6, b"\0"): "contradicts",
        (upper + 40, pack("<Q", 8)): "contradicts",
    }
    assert len(by_us(raw)) == 301
    for (at, new), text in edits.items():
        refuse(edit(raw, at, 0, new), text)


def listed() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_group("ü")
        file.create_group("ö")
    return buffer.getvalue()


LINK = pack("<4B2s", 1, 0x10, 1, 2, "ü".encode())
LINK_INFO = pack("<2HL", 2, 24, 0) + b"\0\0" + UNDEFINED * 2


LISTED: dict[tuple[Anchor, str], list[tuple[int, bytes]]] = {
    (LINK, "link of another form"): [(0, b"\2"), (1, b"\x30")],
    (LINK, "link to another place|is not UTF-8"): [(1, b"\x18\1")],
    (LINK, "is not UTF-8|header of an HDF5 group is damaged"): [(3, b"\xff")],
    (LINK, "header of an HDF5 group is damaged|UTF-8|unsafe"): [(3, b"\x0a")],
    (LINK, "duplicate name"): [(4, "ö".encode())],
    (LINK, "of an unknown form"): [(-4, b"\4")],
    (LINK_INFO, "more than eight members"): [(8, b"\1"), (9, b"\1"), (10, b"\0"), (18, b"\0")],
    (LINK_INFO, "neither an HDF5 group nor an array"): [(0, b"\3")],
}


@pytest.mark.parametrize(("anchor", "text"), LISTED)
def test_edits_of_a_listed_group(anchor: Anchor, text: str) -> None:
    raw = listed()
    assert set(by_us(raw)) == {"", "ü", "ö"}
    for delta, new in LISTED[anchor, text]:
        refuse(edit(raw, anchor, delta, new), text)


def test_caps() -> None:
    for count in (8, 300):
        with patch.object(hdf5_groups, "MAX_HDF5_OBJECTS", 5):
            refuse(many(list(range(count))), "a group of more than 5")
    # Of an index, before the names are read.
    unread = patch.object(hdf5_groups, "_symbols", side_effect=AssertionError)
    with patch.object(hdf5_groups, "MAX_HDF5_OBJECTS", 1), unread:
        refuse(many(list(range(300))), "a group of more than 1")
    with patch.object(hdf5, "MAX_HDF5_OBJECTS", 3):
        refuse(SOUND, "too many objects")
    refuse(tree({"/".join(["x" * 99] * 11): None}), "too long names")
    with patch.object(hdf5, "MAX_ATTRIBUTE_BYTES", 4):
        refuse(SOUND, "has an attribute of 5 bytes")
