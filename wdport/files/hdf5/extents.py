"""Read the byte ranges of an HDF5 file, each at most once and only within the file.

An HDF5 file is a graph of addresses, and an address may have any value. Every object is claimed here before it is
read: a range outside the file, or one that is already claimed, is a fault. So no two objects share a byte, addresses
cannot form a loop, and the work is bounded by the size of the file, whatever it declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wdport.checkpoint.faults import COPY_AGAIN, Fault

UNDEFINED: Final = 0xFFFFFFFFFFFFFFFF
"""The undefined address."""

Read = Callable[[int, int], bytes]
"""Reads exactly this many bytes from an offset, or raises a :class:`Fault`."""

_PAGE: Final = 1 << 12
"""Objects have some hundred bytes and lie in clusters of 2 KiB: most are in a page that is already cached."""

_MAX_PAGES: Final = 1 << 10


class Extents:
    """The bytes of a file of ``size`` bytes, and their claims."""

    def __init__(self, read: Read, size: int) -> None:
        self._read, self.size = read, size
        self._claimed: dict[int, int] = {}
        self._total = 0
        self._pages: dict[int, bytes] = {}

    def claim(self, offset: int, count: int, what: str) -> None:
        """Claim ``count`` bytes, at least one, from ``offset`` for ``what``, which messages name."""
        if count <= 0 or offset > self.size - count:
            raise Fault(f"{what}: {count} bytes at offset {offset} lie outside the HDF5 file")
        self._total += count
        # The sum finds at once, whatever the order, that some are claimed twice: until then the work has a bound.
        if offset in self._claimed or self._total > self.size:
            raise Fault(f"{what} overlaps something else in the HDF5 file")
        self._claimed[offset] = count

    def take(self, offset: int, count: int, what: str) -> bytes:
        """Claim these bytes and read them."""
        self.claim(offset, count, what)
        return self.look(offset, count)

    def look(self, offset: int, count: int) -> bytes:
        """Read bytes within a claimed range."""
        start = offset % _PAGE
        if start + count > _PAGE:
            return self._read(offset, count)
        page = self._pages.get(offset - start) or self._load(offset - start)
        return page[start : start + count]

    def _load(self, start: int) -> bytes:
        if len(self._pages) >= _MAX_PAGES:
            self._pages.clear()
        page = self._pages[start] = self._read(start, min(_PAGE, self.size - start))
        return page

    def settle(self) -> None:
        """Refuse the file if any two claims overlap; call it after all claims."""
        end = 0
        for offset in sorted(self._claimed):
            if offset < end:
                raise Fault(f"two objects of the HDF5 file overlap at offset {offset}", COPY_AGAIN)
            end = offset + self._claimed[offset]
