"""The fenced blocks of a page, with the marks that stand before them as HTML comments.

``<!-- not run: REASON -->`` leaves a block out, ``<!-- full -->`` leaves it to `make parity`, ``<!-- exit: N -->``
names the exit code of its commands where it is not 0, and ``<!-- written: FILE -->`` says that the block is a file that
a command of the page wrote, in which a line ``...`` stands for lines that are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!-- (not run|full|exit|written)(?:: (.+?))? -->")
FENCE = re.compile(r"^```(\S*)\s*$")


@dataclass(frozen=True)
class Block:
    """``text`` begins at line ``line`` (from 1) of ``page``, a path below the root."""

    page: str
    line: int
    language: str
    text: str
    reason: str = ""
    full: bool = False
    code: int = 0
    written: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The name on the first line, where the block is a file: ``# net.py``."""
        found = re.match(r"# (\S+\.(?:py|yaml|toml|json))\n", self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class Command:
    """A line that begins with ``$`` and what is shown below it; ``line`` is that of the command."""

    line: int
    text: str
    shown: tuple[str, ...]


def pages() -> list[str]:
    """README.md and every page of the documentation."""
    return ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return parse(page, (ROOT / page).read_text(encoding="utf-8"))


def parse(page: str, text: str) -> list[Block]:
    """The fenced blocks of a text."""
    lines = text.splitlines()
    found: list[Block] = []
    at = 0
    marks: dict[str, str] = {}
    while at < len(lines):
        if fence := FENCE.match(lines[at].strip()):
            indent = len(lines[at]) - len(lines[at].lstrip())
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == "```")
            body = "".join(f"{line[indent:]}\n" for line in lines[at + 1 : end])
            found.append(Block(page, at + 2, fence[1], body, marks.get("not run", ""), "full" in marks,
                               int(marks.get("exit", 0)), marks.get("written", "")))  # fmt: skip
            at, marks = end, {}
        elif mark := MARK.search(lines[at]):
            marks[mark[1]] = mark[2] or ""
        elif lines[at].strip():
            marks = {}
        at += 1
    return found


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block; a line that ends in a backslash goes on in the next."""
    found: list[Command] = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        line, text = block.line + at, lines[at].removeprefix("$ ")
        if text == lines[at]:
            raise ValueError(f"{block.where}: begins with no command; call a block of output alone text")
        while text.endswith("\\"):
            at += 1
            text = f"{text[:-1]} {lines[at].strip()}"
        end = next((n for n in range(at + 1, len(lines)) if lines[n].startswith("$ ")), len(lines))
        found.append(Command(line, text, tuple(lines[at + 1 : end])))
        at = end
    return found
