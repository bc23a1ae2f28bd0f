"""Read pickle bytes as numbers, text and stack items, each checked before it is returned.

The state of the symbolic pickle machine: a reading position, a stack cut into frames by MARK, and the
memo. The opcodes are implemented in :mod:`wdport.checkpoint.pickle_machine`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from wdport.base.limits import MAX_DEPTH, MAX_OPCODES
from wdport.checkpoint.faults import NOT_WRITTEN_BY_TORCH, Fault


class Exhausted(Fault):
    """The bytes end within the pickle; if a file is read in windows, a longer window may contain its end."""


class Tape:
    """Position, stack and memo. ``frames`` holds the stacks below each open MARK, outermost first.

    ``persistent`` resolves a persistent id.
    """

    __slots__ = ("data", "frames", "frozen", "memo", "persistent", "position", "spent", "stack", "tensors", "uncalled")

    def __init__(self, data: bytes, position: int, persistent: Callable[[object], object]) -> None:
        self.data = data
        self.position = position
        self.persistent = persistent
        self.frozen: set[int] = set()
        """Ids of containers from which an object was built: they must not change afterwards."""
        self.spent = 0
        self.stack: list[object] = []
        self.frames: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.tensors = 0
        self.uncalled: Counter[str] = Counter()
        """How often each ``getattr`` was named, less how often it was called."""

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes, after checking that they exist."""
        end = self.position + count
        if end > len(self.data):
            raise Exhausted(f"an opcode needs {count} bytes, but {len(self.data) - self.position} are left")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def code(self) -> int:
        """Return the next byte; half of all reads, so it bypasses :meth:`take` (a tenth of the opening time)."""
        if self.position >= len(self.data):
            raise Exhausted("the pickle ends without STOP")
        code = self.data[self.position]
        self.position += 1
        return code

    def number(self, width: int) -> int:
        """Return the next ``width`` bytes as an unsigned little-endian number."""
        return int.from_bytes(self.take(width), "little")

    def line(self, limit: int) -> str:
        """Return the text up to the next newline, at most ``limit`` bytes away."""
        end = self.data.find(b"\n", self.position, self.position + limit + 1)
        if end < 0:
            # Exhausted makes the reader try a longer window, which only helps if the window ended before the limit.
            kind = Exhausted if len(self.data) - self.position <= limit else Fault
            raise kind("a name in the pickle has no end")
        text = utf8(self.data[self.position : end])
        self.position = end + 1
        return text

    def spend(self, work: int) -> None:
        """Count extra ``work`` of an opcode: the same list can be copied a million times."""
        self.spent += work
        if self.spent > MAX_OPCODES:
            raise Fault(f"the pickle copies more than {MAX_OPCODES} items", NOT_WRITTEN_BY_TORCH)

    def check_open(self, target: object) -> None:
        """Refuse a change of a container from which an object was already built: the object might have copied it."""
        if id(target) in self.frozen:
            raise Fault("the pickle changes what an object was built from", NOT_WRITTEN_BY_TORCH)

    def push(self, item: object) -> None:
        self.stack.append(item)

    def pop(self) -> object:
        """Remove and return the top item of this frame; items below an open MARK are not accessible."""
        if not self.stack:
            raise Fault("the pickle takes from an empty stack")
        return self.stack.pop()

    def top(self) -> object:
        """Return the top item of this frame without removing it."""
        if not self.stack:
            raise Fault("the pickle looks at an empty stack")
        return self.stack[-1]

    def open_frame(self) -> None:
        # MARK costs one byte, so 64 MB of them would make as many lists.
        if len(self.frames) >= MAX_DEPTH:
            raise Fault(f"nested more than {MAX_DEPTH} deep")
        self.frames.append(self.stack)
        self.stack = []

    def close_frame(self) -> list[object]:
        """Remove the last MARK and return everything above it."""
        if not self.frames:
            raise Fault("the pickle closes a group that was never opened (no MARK)")
        items = self.stack
        self.stack = self.frames.pop()
        return items


def utf8(raw: bytes) -> str:
    """Decode ``raw`` as UTF-8; lone surrogates and other invalid sequences are refused."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Fault("text in the pickle is not UTF-8") from None
