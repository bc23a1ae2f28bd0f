"""A run of bytes of an open file, with or without a recorded CRC, goes in; its checked bytes come out."""

from __future__ import annotations

from dataclasses import dataclass, field

from wdport.checkpoint.faults import COPY_AGAIN, LOAD_AND_SAVE, Fault
from wdport.checkpoint.source import Source


@dataclass(slots=True)
class Span:
    """``nbytes`` bytes of ``source`` from ``start``; ``crc`` is None where the format records none."""

    source: Source
    start: int
    nbytes: int
    crc: int | None
    name: str
    verified: bool = field(default=False)

    def read_into(self, target: memoryview, offset: int = 0) -> None:
        """Fill ``target`` from ``offset`` within the span, whose CRC is checked the first time.

        A target as long as the span is filled and checked in one pass. For a part of the span the
        whole is first read through for its CRC, once.
        """
        if self.crc is None or self.verified:
            self.source.read_into(self.start + offset, target)
        elif len(target) == self.nbytes:
            self._accept(self.source.read_into_with_crc(self.start, target))
        else:
            self._accept(self.source.crc(self.start, self.nbytes))
            self.source.read_into(self.start + offset, target)

    def read(self) -> bytes:
        """All bytes of the span; meant for small records."""
        buffer = bytearray(self.nbytes)
        self.read_into(memoryview(buffer))
        return bytes(buffer)

    def _accept(self, crc: int) -> None:
        if crc == self.crc:
            self.verified = True
        elif self.crc == 0:
            raise Fault(f"{self.name} has no CRC, so damage could not be seen", LOAD_AND_SAVE)
        else:
            raise Fault(f"{self.name}: the bytes do not match their CRC", COPY_AGAIN)
