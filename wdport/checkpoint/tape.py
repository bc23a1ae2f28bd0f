"""Pickle bytes go in; numbers, text and stack items come out, each checked before it is handed over.

The state of the symbolic pickle machine: a reading position, a stack cut into frames by MARK, and the
memo. What the opcodes do with it stands in :mod:`wdport.checkpoint.opcodes`.
"""

from __future__ import annotations

from collections.abc import Callable

from wdport.checkpoint.faults import NOT_WRITTEN_BY_TORCH, Fault
from wdport.limits import MAX_DEPTH, MAX_OPCODES


class Exhausted(Fault):
    """The bytes end within the pickle; of a file that is read in windows, a longer one may hold its end."""


class Tape:
    """Position, stack and memo. ``frames`` holds the stacks below each open MARK, outermost first.

    ``persistent`` gives what a persistent id stands for.
    """

    __slots__ = ("data", "frames", "frozen", "memo", "persistent", "position", "spent", "stack", "tensors")

    def __init__(self, data: bytes, position: int, persistent: Callable[[object], object]) -> None:
        self.data = data
        self.position = position
        self.persistent = persistent
        self.frozen: set[int] = set()
        """Identities of containers that an object was built from: they may not change any more."""
        self.spent = 0
        self.stack: list[object] = []
        self.frames: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.tensors = 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes; the count is compared with what is left before anything is cut."""
        end = self.position + count
        if end > len(self.data):
            raise Exhausted(f"an opcode wants {count} bytes where {len(self.data) - self.position} are left")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def code(self) -> int:
        """The next byte; half of all reads, so it does without :meth:`take` (a tenth of the opening time)."""
        if self.position >= len(self.data):
            raise Exhausted("the pickle ends without STOP")
        code = self.data[self.position]
        self.position += 1
        return code

    def number(self, width: int) -> int:
        """The next ``width`` bytes as an unsigned little-endian number."""
        return int.from_bytes(self.take(width), "little")

    def line(self, limit: int) -> str:
        """The text up to the next newline, at most ``limit`` bytes away."""
        end = self.data.find(b"\n", self.position, self.position + limit + 1)
        if end < 0:
            kind = Exhausted if len(self.data) - self.position <= limit else Fault
            raise kind("a name in the pickle has no end")
        text = utf8(self.data[self.position : end])
        self.position = end + 1
        return text

    def spend(self, work: int) -> None:
        """Count ``work`` that one opcode causes beyond the usual: the same list can be copied a million times."""
        self.spent += work
        if self.spent > MAX_OPCODES:
            raise Fault(f"the pickle copies more than {MAX_OPCODES} items", NOT_WRITTEN_BY_TORCH)

    def check_open(self, target: object) -> None:
        """Refuse a change of what an object was already built from: the object might have copied it before."""
        if id(target) in self.frozen:
            raise Fault("the pickle changes what an object was built from", NOT_WRITTEN_BY_TORCH)

    def push(self, item: object) -> None:
        self.stack.append(item)

    def pop(self) -> object:
        """The top item of this frame; items below an open MARK are out of reach."""
        if not self.stack:
            raise Fault("the pickle takes from an empty stack")
        return self.stack.pop()

    def top(self) -> object:
        """The top item of this frame, left in place."""
        if not self.stack:
            raise Fault("the pickle looks at an empty stack")
        return self.stack[-1]

    def open_frame(self) -> None:
        if len(self.frames) >= MAX_DEPTH:
            raise Fault(f"nested more than {MAX_DEPTH} deep")
        self.frames.append(self.stack)
        self.stack = []

    def close_frame(self) -> list[object]:
        """Everything above the last MARK, which is removed."""
        if not self.frames:
            raise Fault("the pickle closes a group that was never opened (no MARK)")
        items = self.stack
        self.stack = self.frames.pop()
        return items


def utf8(raw: bytes) -> str:
    """``raw`` as text; half surrogates and other invalid sequences are refused."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Fault("text in the pickle is not UTF-8") from None
