"""Read the links of an HDF5 group from its header: names and addresses.

A group of the old form keeps its names in a local heap and its links in symbol nodes, which a B-tree of version 1 holds
in the order of the names (sections III.A.1, III.B, III.C and III.D of the HDF5 File Format Specification). The order
is checked completely: a library that searches the tree and one that traverses it find the same. A single non-ASCII
name makes the library use the newer form, where links are messages (IV.A.2.g).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, unpack_from
from typing import Final

from wdport.base.limits import MAX_HDF5_OBJECTS
from wdport.checkpoint.faults import SAVE_WITH_KERAS, Fault
from wdport.files.hdf5.headers import GROUP_INFO, LINK_INFO, SYMBOL_TABLE, UNDEFINED, Extents, Header

ASCII_NAMES: Final = "use ASCII names for the attributes or keys of its layers, and save the model again"

LEAF_K: Final = 4
"""Half the links of a symbol node."""

INTERNAL_K: Final = 16
"""Half the children of a tree node; with these two, the library's defaults, two levels hold some 100 to 256 names."""

_MAX_LEVEL: Final = 8
"""A tree of nine levels can hold more names than a file has bytes."""

_TREE: Final = Struct("<4s2BH2Q")
_TREE_BYTES: Final = _TREE.size + 8 * (4 * INTERNAL_K + 1)
_NODE: Final = Struct("<4s2BH")
_ENTRY: Final = Struct("<2Q2L2Q")
_NODE_BYTES: Final = _NODE.size + 2 * LEAF_K * _ENTRY.size
_HEAP: Final = Struct("<4sB3s3Q")
_FREE: Final = Struct("<2Q")
_LAST_FREE: Final = 1
_FILLED: Final = 0xFF  # in no UTF-8 text
_ADDRESSES: Final = Struct("<2Q")
_LINK_INFO: Final = Struct("<2B2Q6s")
_LINK: Final = Struct("<2B")
_MIN_LINK: Final = 16
_HAS_TYPE: Final = 0x08
_HAS_CHARSET: Final = 0x10


@dataclass(slots=True)
class Link:
    """A name in a group; ``cached`` are the addresses of a group that the link repeats."""

    name: str
    address: int
    cached: tuple[int, int] | None


@dataclass(slots=True)
class _Tree:
    """One node: ``children[i]`` contains the names after ``keys[i]`` up to ``keys[i + 1]``."""

    level: int
    siblings: tuple[int, int]
    keys: tuple[int, ...]
    children: tuple[int, ...]


def is_group(header: Header) -> bool:
    """Return whether an object is a group, of either form."""
    return SYMBOL_TABLE in header.messages or LINK_INFO in header.messages or bool(header.links)


def read_links(extents: Extents, header: Header, cached: tuple[int, int] | None) -> list[Link]:
    """Return all links of a group; ``cached`` are the addresses of its tree and its heap in the link to it."""
    kinds = set(header.messages)
    if kinds == {SYMBOL_TABLE} and not header.links:
        _, body = header.messages[SYMBOL_TABLE]
        if len(body) != _ADDRESSES.size:
            raise Fault("the header of an HDF5 group is damaged")
        tree, heap = _ADDRESSES.unpack(body)
        if cached not in (None, (tree, heap)):
            raise Fault("an HDF5 group and the link to it contradict each other")
        return _indexed(extents, tree, heap)
    if kinds != {LINK_INFO, GROUP_INFO}:
        raise Fault("is neither an HDF5 group nor an array")
    return _listed(header)


def _listed(header: Header) -> list[Link]:
    """Return the links of a group of the newer form; more than eight would be in an index of another kind."""
    _, body = header.messages[LINK_INFO]
    if len(body) != _LINK_INFO.size:
        raise Fault("the header of an HDF5 group is damaged")
    version, flags, heap, index, _ = _LINK_INFO.unpack(body)
    if (version, flags, heap, index) != (0, 0, UNDEFINED, UNDEFINED):
        raise Fault("is a group with a non-ASCII name and more than eight members", ASCII_NAMES)
    links = [_listed_link(body) for body in header.links]
    if len({link.name for link in links}) < len(links):
        raise Fault("duplicate name in an HDF5 group")
    return links


def _listed_link(body: bytes) -> Link:
    version, flags = _LINK.unpack_from(body.ljust(_LINK.size, b"\0"))
    position = _LINK.size
    if version != 1 or flags & ~(_HAS_TYPE | _HAS_CHARSET) or len(body) < _MIN_LINK:
        raise Fault("an HDF5 group has a link of another form than version 1", SAVE_WITH_KERAS)
    kind = body[position] if flags & _HAS_TYPE else 0
    position += bool(flags & _HAS_TYPE) + bool(flags & _HAS_CHARSET)
    end = position + 1 + body[position]
    name = _text(body[position + 1 : end])
    if kind:
        raise Fault("is a link to another place" if kind == 1 else "is a link to another file", SAVE_WITH_KERAS, name)
    if end + 8 > len(body):
        raise Fault("the header of an HDF5 group is damaged")
    return Link(name, int.from_bytes(body[end : end + 8], "little"), None)


def _indexed(extents: Extents, tree: int, heap: int) -> list[Link]:
    """Return the links of the group with this tree and this heap, in the order of their names."""
    names = _heap(extents, heap)
    links: list[Link] = []
    last = b""
    for key, child, end in _leaves(extents, tree):
        # A key is the last name before the child: a library that searches by keys would miss a name that is out of
        # place.
        if last != _name(names, key):
            raise Fault("the names in an HDF5 group are not in the order of its index")
        for name, link in _symbols(extents, names, child):
            if name <= last:
                raise Fault("the names in an HDF5 group are not in order")
            links.append(link)
            last = name
        if len(links) > MAX_HDF5_OBJECTS:
            raise Fault(f"is a group of more than {MAX_HDF5_OBJECTS}", SAVE_WITH_KERAS)
        if last != _name(names, end):
            raise Fault("the names in an HDF5 group are not in the order of its index")
    return links


def _leaves(extents: Extents, root: int) -> list[tuple[int, int, int]]:
    """Return key, symbol node and key of each leaf from left to right; the tree is read level by level."""
    nodes = [_tree(extents, root)]
    addresses = [root]
    if nodes[0].level > _MAX_LEVEL:
        raise Fault("the index of an HDF5 group is too deep")
    for level in range(nodes[0].level, -1, -1):
        _check_level(nodes, addresses, level)
        inner = [triple for node in nodes for triple in zip(node.keys[:-1], node.children, node.keys[1:], strict=True)]
        if level == 0:
            return inner
        addresses = [child for _, child, _ in inner]
        if len(addresses) > MAX_HDF5_OBJECTS:
            raise Fault(f"is a group of more than {MAX_HDF5_OBJECTS}", SAVE_WITH_KERAS)
        nodes = [_tree(extents, child) for child in addresses]
        # A node's outer keys must repeat those of its parent, or a search and a traversal would differ.
        if any((node.keys[0], node.keys[-1]) != (low, high) for node, (low, _, high) in zip(nodes, inner, strict=True)):
            raise Fault("the index of an HDF5 group contradicts itself")
    return []


def _check_level(nodes: list[_Tree], addresses: list[int], level: int) -> None:
    """Check that all nodes have the level and correct neighbours."""
    chain = [UNDEFINED, *addresses, UNDEFINED]
    for node, left, right in zip(nodes, chain, chain[2:], strict=False):
        if node.level != level or node.siblings != (left, right) or (not node.children and len(nodes) > 1):
            raise Fault("the index of an HDF5 group contradicts itself")


def _tree(extents: Extents, address: int) -> _Tree:
    raw = extents.take(address, _TREE_BYTES, "the index of a group")
    magic, kind, level, used, left, right = _TREE.unpack_from(raw)
    if magic != b"TREE" or kind != 0 or used > 2 * INTERNAL_K:
        raise Fault("the index of an HDF5 group is damaged")
    fields = unpack_from(f"<{2 * used + 1}Q", raw, _TREE.size)
    return _Tree(level, (left, right), fields[::2], fields[1::2])


def _symbols(extents: Extents, names: bytes, address: int) -> list[tuple[bytes, Link]]:
    raw = extents.take(address, _NODE_BYTES, "the links of a group")
    magic, version, reserved, count = _NODE.unpack_from(raw)
    if (magic, version, reserved) != (b"SNOD", 1, 0) or not 0 < count <= 2 * LEAF_K:
        raise Fault("the links of an HDF5 group are damaged")
    links: list[tuple[bytes, Link]] = []
    entries = _ENTRY.iter_unpack(raw[_NODE.size : _NODE.size + count * _ENTRY.size])
    for offset, header, cache, zero, first, second in entries:
        name = _name(names, offset)
        if cache == 2:
            raise Fault("is a link to another place", SAVE_WITH_KERAS, _text(name))
        if cache > 1 or zero:
            raise Fault("is a link of an unknown kind", SAVE_WITH_KERAS, _text(name))
        # Cache type 1: the entry repeats the addresses of the group's tree and heap, which are compared with its
        # header.
        links.append((name, Link(_text(name), header, (first, second) if cache else None)))
    return links


def _heap(extents: Extents, address: int) -> bytes:
    """Return the local heap of a group, which holds its names, with free space overwritten so that it holds no name."""
    magic, version, zero, size, free, start = _HEAP.unpack(extents.take(address, _HEAP.size, "the names of a group"))
    if magic != b"HEAP" or version or any(zero):
        raise Fault("the names of an HDF5 group are damaged")
    # Deleted names keep their bytes; only the chain of free blocks shows that they are gone.
    names = bytearray(extents.take(start, size, "the names of a group"))
    left = size
    while free != _LAST_FREE:
        if free % 8 or free + _FREE.size > size:
            raise Fault("the free space among the names of an HDF5 group is damaged")
        following, length = _FREE.unpack_from(names, free)
        left -= length
        if length < _FREE.size or free + length > size or left < 0:
            raise Fault("the free space among the names of an HDF5 group is damaged")
        names[free : free + length] = bytes([_FILLED]) * length
        free = following
    return bytes(names)


def _name(names: bytes, offset: int) -> bytes:
    """Return the name at ``offset``; the one at offset 0 is empty and precedes all others."""
    end = names.find(b"\0", offset)
    if offset % 8 or end < 0:
        raise Fault("a name in an HDF5 group is not where its link points")
    return names[offset:end]


def _text(name: bytes) -> str:
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise Fault(f"a name in the HDF5 file is not UTF-8: {name[:40]!r}") from None
    if "/" in text or text in ("", ".", ".."):
        raise Fault(f"an unsafe name in the HDF5 file, {text[:40]!r}", SAVE_WITH_KERAS)
    return text
