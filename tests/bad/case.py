"""One row of the table of bad files: what lies in a folder, which commands are run there, and what they must say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Content = bytes | Callable[[Path], object]
"""The bytes of a file; or a function that is given its path and makes it, the good files lying beside it."""


@dataclass(frozen=True)
class Bad:
    """``commands`` are run one after the other in a folder that holds ``files`` and the good files that they name.

    Each ends with ``code`` and the one line ``error: <line>`` on standard error, where ``*`` in ``line`` stands for
    any text. ``child`` runs it in a process of its own, for what may crash, hang or fill the memory; ``builds`` says
    that a model is built before the fault can be seen, so that it takes its time.
    """

    commands: tuple[str, ...]
    code: int | tuple[int, ...]
    line: str
    files: Mapping[str, Content] = field(default_factory=dict)
    child: bool = False
    builds: bool = False

    @property
    def codes(self) -> tuple[int, ...]:
        """The exit codes that are right: one, or several where the contract leaves it open."""
        return self.code if isinstance(self.code, tuple) else (self.code,)

    @property
    def pattern(self) -> re.Pattern[str]:
        """What the line on standard error must match from end to end."""
        return re.compile("error: " + ".*".join(map(re.escape, self.line.split("*"))) + "\n")


def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """A good file's bytes, changed."""
    return lambda path: path.write_bytes(change(path.with_name(name).read_bytes()))


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    """A good file in which ``old`` stands once, and ``new`` in its place."""

    def change(data: bytes) -> bytes:
        assert data.count(old) == 1, f"{old!r} stands {data.count(old)} times in {name}"
        return data.replace(old, new)

    return changed(name, change)


def half(data: bytes) -> bytes:
    """The first half of a file, as an interrupted copy leaves it."""
    return data[: len(data) // 2]


def flipped(data: bytes, at: float = 0.5) -> bytes:
    """One bit turned over, at a part of the length."""
    place = int(len(data) * at)
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
