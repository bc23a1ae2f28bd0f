"""Damaged copies of HDF5 files: turned bits, cuts, zeroed, spliced and swapped words, mostly among the structure."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.files.hdf5_reference import Facts, by_us
from wdport.checkpoint.faults import Fault
from wdport.files.hdf5.structure import read_hdf5

Mutation = Callable[[random.Random, bytearray, Callable[[], int]], None]


def structure(raw: bytes) -> list[int]:
    """The offsets of all words that hold no array."""
    held = {
        at // 8
        for found in read_hdf5(lambda at, count: raw[at : at + count], len(raw)).datasets.values()
        for at in range(found.offset, found.offset + found.nbytes)
    }
    return [8 * word for word in range(len(raw) // 8) if word not in held]


def _flip(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        raw[word() + chance.randrange(8)] ^= 1 << chance.randrange(8)


def _cut(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    del raw[chance.randrange(len(raw)) :]


def _drop(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    at = word()
    del raw[at : at + chance.choice((1, 8, 40))]


def _zero(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    at = word() + chance.choice((0, 4))
    length = min(chance.choice((1, 2, 4, 8, 16, 512)), len(raw) - at)
    raw[at : at + length] = bytes(length)


def _extreme(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    at = word()
    values = (0, 1, at, len(raw), len(raw) - 8, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, chance.randrange(len(raw)))
    raw[at : at + 8] = chance.choice(values).to_bytes(8, "little")


def _splice(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    source, target = word(), word()
    length = min(chance.choice((1, 2, 4, 8, 8, 40, 328)), len(raw) - max(source, target))
    raw[target : target + length] = raw[source : source + length]


def _swap(chance: random.Random, raw: bytearray, word: Callable[[], int]) -> None:
    """Two words change places, most often two that may be addresses."""

    def address() -> int:
        for _ in range(200):
            at = word()
            if 96 <= int.from_bytes(raw[at : at + 8], "little") < len(raw):
                return at
        return word()

    first, second = address(), address()
    raw[first : first + 8], raw[second : second + 8] = raw[second : second + 8], raw[first : first + 8]


MUTATIONS: tuple[Mutation, ...] = (_flip, _flip, _cut, _drop, _zero, _extreme, _splice, _swap)


def mutate(raw: bytes, words: list[int], seed: int) -> bytes:
    """One damaged copy; nine in ten of the damages lie among ``words``."""
    chance = random.Random(seed)
    changed = bytearray(raw)

    def word() -> int:
        inside = chance.random() < 0.9
        return chance.choice(words) if inside else 8 * chance.randrange(len(raw) // 8)

    while bytes(changed) == raw:
        chance.choice(MUTATIONS)(chance, changed, word)
    return bytes(changed)


def outcome(raw: bytes, good: Facts, places: dict[str, int]) -> str:
    """What reading a damaged copy comes to; ``places`` are the offsets of the arrays in the sound one."""
    try:
        facts = by_us(raw)
    except Fault:
        return "refused"
    if facts == good:
        return "same"
    if {path: found[:2] for path, found in facts.items()} != {path: found[:2] for path, found in good.items()}:
        return "other names, shapes or dtypes"
    if any(facts[path][3] != good[path][3] for path in good):
        return "other attributes"
    return "other values" if offsets(raw) == places else "arrays from elsewhere"


def offsets(raw: bytes) -> dict[str, int]:
    contents = read_hdf5(lambda at, count: raw[at : at + count], len(raw))
    return {path: found.offset for path, found in contents.datasets.items()}
