"""A good file in, a mutant out: the same for the same seed and number, so that a finding is two numbers."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

Mutator = Callable[[random.Random, bytearray], None]

NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
TEXTS = (
    b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b"9" * 40, b"..", b"/etc/passwd", b'"', b"'", b"\\",
    b"\0", b"\xff\xfe", b"\n", b"\t", b"&a ", b"*a", b"!!python/name:os.system ", b"<<: ", b"- " * 30, b"[" * 200,
    b"{" * 200, b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\x89HDF\r\n\x1a\n", b"TREE", b"HEAP", b"SNOD", b"\x93NUMPY",
    b"cos\nsystem\n", b"R", b".", b"\x80\x04",
)  # fmt: skip


def _place(rng: random.Random, data: bytearray, width: int = 1) -> int:
    """Anywhere; half of the time near an end, where formats keep their directories."""
    last = max(0, len(data) - width)
    return rng.choice(
        (rng.randint(0, last), min(last, rng.randrange(4096)), max(0, last - rng.randrange(4096)), rng.randint(0, last))
    )


def flip(rng: random.Random, data: bytearray) -> None:
    """One bit, or a few."""
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[_place(rng, data)] ^= 1 << rng.randrange(8)


def overwrite(rng: random.Random, data: bytearray) -> None:
    """Some bytes by others, or by zeros."""
    start, count = _place(rng, data), rng.choice((1, 2, 4, 8, 16, 64))
    new = bytes(count) if rng.random() < 0.5 else rng.randbytes(count)
    data[start : start + count] = new[: len(data) - start]


def number(rng: random.Random, data: bytearray) -> None:
    """An integer of some width by one that is likely to be a limit, or by its neighbour."""
    width = rng.choice((1, 2, 4, 8))
    at = _place(rng, data, width)
    order = rng.choice(("little", "little", "big"))
    old = int.from_bytes(data[at : at + width], order)
    new = rng.choice((*NUMBERS, old + 1, old - 1, old * 2, len(data))) % (1 << (8 * width))
    data[at : at + width] = new.to_bytes(width, order)


def cut(rng: random.Random, data: bytearray) -> None:
    """The end, the beginning or a piece between."""
    start = _place(rng, data)
    stop = rng.choice((len(data), start + 1, start + rng.randrange(1, 64)))
    if rng.random() < 0.1:
        start, stop = 0, start
    del data[start:stop]


def insert(rng: random.Random, data: bytearray) -> None:
    """A text that means something to some format, or noise."""
    at = _place(rng, data)
    data[at:at] = rng.choice((rng.choice(TEXTS), rng.randbytes(rng.choice((1, 4, 32)))))


def exchange(rng: random.Random, data: bytearray) -> None:
    """A text by another of its length."""
    new = rng.choice(TEXTS)
    at = _place(rng, data, len(new))
    data[at : at + len(new)] = new[: len(data) - at]


def copy(rng: random.Random, data: bytearray) -> None:
    """A piece of the file over another, or in between."""
    count = rng.choice((4, 16, 64, 512, 4096))
    piece = data[(start := _place(rng, data)) : start + count]
    at = _place(rng, data, len(piece))
    data[at : at + (len(piece) if rng.random() < 0.7 else 0)] = piece


def digits(rng: random.Random, data: bytearray) -> None:
    """A number that is written out."""
    found = [i for i in range(min(len(data), 1 << 16)) if 48 <= data[i] <= 57]
    if not found:
        return flip(rng, data)
    at = rng.choice(found)
    stop = at
    while stop < len(data) and 48 <= data[stop] <= 57:
        stop += 1
    old = int(data[at:stop][:18])
    new = rng.choice((0, 1, -1, old + 1, old - 1, 10**9, 10**12, 2**63, 10**30, 0.5))
    data[at:stop] = str(new).encode()
    return None


MUTATORS: Sequence[Mutator] = (flip, flip, overwrite, number, number, cut, insert, exchange, copy, digits)


def mutant(seeds: Sequence[bytes], seed: int, index: int) -> tuple[int, bytes]:
    """The number of the good file that it is made from, and the mutant ``index`` of the series ``seed``."""
    rng = random.Random(struct.pack("<QQ", seed, index))
    origin = rng.randrange(len(seeds))
    data = bytearray(seeds[origin])
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 6))):
        if data:
            rng.choice(MUTATORS)(rng, data)
    return origin, bytes(data)
