"""Loops for statements that are repeated without lists of layers, as a decoder's that runs step by step.

The passes of such a loop are equal up to the names of what they compute, and up to numbers that count them. A value of
each pass that is used after the loop, in one list with those of the others, is appended to a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wdport.porting.lowering.keras_graph import unused
from wdport.porting.source.code import Code, text
from wdport.porting.source.statements import NUMBER, Loop, Statement, equal_pieces

FEWEST_PASSES, MOST_STATEMENTS = 3, 80
"""Passes of a loop, and statements of one of them."""

_NAME = re.compile(r'"[^"]*"|(?<![\w.])[A-Za-z_]\w*\b(?!=[^=])')
"""A text in quotes or a name, without attributes and names of arguments."""


@dataclass(frozen=True)
class Rolled:
    """A loop, the statements before it, the statements after it, and how many it stands for."""

    before: Sequence[Statement]
    loop: Loop
    after: Sequence[Statement]
    count: int


def rolled(statements: Sequence[Statement], position: int) -> Rolled | None:
    """The loop that begins at a statement and stands for the most of them; ``None`` if there is none."""
    best: Rolled | None = None
    for period in range(1, min(MOST_STATEMENTS, (len(statements) - position) // FEWEST_PASSES) + 1):
        chunk = statements[position : position + period]
        if any(one.returns for one in chunk):
            break
        if str(chunk[0].code)[:12] not in str(statements[position + period].code):
            continue
        loop = _Passes(chunk).read(statements[position:])
        if loop is not None and (best is None or loop.count > best.count):
            best = loop
    return best


@dataclass
class _Passes:
    """The passes of a loop with the statements of the first. ``current`` are the names that values of the last pass
    have in the statements, with their names in the first pass; ``assigned``, the names of each of these in every pass,
    by the one in the first; ``counted``, where numbers count the passes."""

    chunk: Sequence[Statement]
    current: dict[str, str] = field(default_factory=dict)
    assigned: dict[str, list[str]] = field(default_factory=dict)
    counted: list[list[bool]] | None = None

    def read(self, statements: Sequence[Statement]) -> Rolled | None:
        """The loop over as many statements as possible."""
        period, times = len(self.chunk), 1
        self._assign(self.chunk, self.chunk)
        while self._is_pass(statements[times * period : (times + 1) * period], times):
            times += 1
        count = times * period
        # The last pass lacks what is not used after it.
        if partial := self._part(statements[count : count + period], times):
            count, times = count + partial, times + 1
        if times < FEWEST_PASSES:
            return None
        return self._loop(statements[count:], times, count)

    def _assign(self, statements: Sequence[Statement], firsts: Sequence[Statement]) -> None:
        for one, first in zip(statements, firsts, strict=True):
            for name, first_name in zip(one.names, first.names, strict=True):
                self.current = {
                    key: value for key, value in self.current.items() if value != first_name and key != name
                }
                if name != "_":
                    self.current[name] = first_name
                    self.assigned.setdefault(first_name, []).append(name)

    def _is_pass(self, statements: Sequence[Statement], number: int) -> bool:
        """Whether the statements are the next pass, which is remembered if they are."""
        if len(statements) < len(self.chunk):
            return False
        before = dict(self.current), {name: list(names) for name, names in self.assigned.items()}
        counted: list[list[bool]] = []
        for one, first in zip(statements, self.chunk, strict=False):
            if not self._is_same(one, first, number, counted):
                self.current, self.assigned = before
                return False
            self._assign([one], [first])
        if self.counted is not None and counted != self.counted:
            self.current, self.assigned = before
            return False
        self.counted = counted
        return True

    def _is_same(self, one: Statement, first: Statement, number: int, counted: list[list[bool]]) -> bool:
        if (one.returns, one.unpacks, len(one.names)) != (first.returns, first.unpacks, len(first.names)):
            return False
        if any(("_" in pair) and name != "_" for pair in zip(one.names, first.names, strict=True) for name in pair[1:]):
            return False
        first_names = {name for statement in self.chunk for name in statement.names}
        names = [name for name in names_in(one.code) if name in first_names and name not in self.current]
        pieces = equal_pieces(str(first.code), renamed(str(one.code), self.current), number)
        if names or pieces is None:
            return False
        counted.append(pieces)
        return True

    def _part(self, statements: Sequence[Statement], number: int) -> int:
        """How many of the next statements are a pass that lacks some; 0 if they are not."""
        before = dict(self.current), {name: list(names) for name, names in self.assigned.items()}
        counted: list[list[bool]] = []
        matched = 0
        for index, first in enumerate(self.chunk):
            one = statements[matched] if matched < len(statements) else None
            full = one
            if one is not None and len(one.names) == len(first.names):
                names = (
                    first_name if name == "_" else name for name, first_name in zip(one.names, first.names, strict=True)
                )
                full = replace(one, names=tuple(names))
            if one is not None and full is not None and self._is_same(full, first, number, counted):
                is_counted = self.counted is not None and counted[-1] != self.counted[index]
                if not is_counted:
                    self._assign([one], [first])
                    matched += 1
                    continue
            self.current = {key: value for key, value in self.current.items() if value not in first.names}
        if 2 * matched < len(self.chunk):
            self.current, self.assigned = before
            return 0
        return matched

    def _loop(self, rest: Sequence[Statement], times: int, count: int) -> Rolled | None:
        """The loop, if what follows needs of each value the last one, or all in one list."""
        words = {name for one in (*self.chunk, *rest) for name in (*one.names, *names_in(one.code))}
        lists: dict[str, str] = {}
        for first_name, names in self.assigned.items():
            listed = [name for one in rest for name in names_in(one.code) if name in names]
            if set(listed) <= {names[-1] if self.current.get(names[-1]) == first_name else None}:
                continue
            if len(names) != times or len(set(names)) != times or listed != names:
                return None
            lists[first_name] = unused(f"{first_name}s", {*words, *lists.values()})
        after: list[Statement] = list(rest)
        for first_name, name in lists.items():
            changed = [_with_list(one, self.assigned[first_name], name) for one in after]
            if changed == after:
                return None
            after = changed
        read = {name for one in after for name in names_in(one.code)}
        last = {
            name: first_name
            for name, first_name in self.current.items()
            if name != first_name and first_name not in lists and name in read
        }
        if last and {name for one in after for name in one.names} & {*last, *last.values()}:
            return None
        after = [replace(one, code=_renamed_code(one.code, last)) for one in after] if last else after
        index = unused("i", words) if any(not same for pieces in self.counted or () for same in pieces) else ""
        inner: list[Statement] = []
        for one, pieces in zip(self.chunk, self.counted or (), strict=True):
            inner.append(one if all(pieces) else replace(one, code=_counted(one.code, pieces, index)))
            inner += [Statement((), text(f"{lists[name]}.append({name})")) for name in one.names if name in lists]
        return Rolled([Statement((name,), text("[]")) for name in lists.values()], Loop({}, times, inner, index), after,
                      count)  # fmt: skip


def names_in(code: Code) -> Iterator[str]:
    """The names that an expression reads, one by one."""
    return (match for match in _NAME.findall(str(code)) if not match.startswith('"'))


def renamed(source: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: names.get(match.group(), match.group()), source)


def _renamed_code(code: Code, names: Mapping[str, str]) -> Code:
    return Code(tuple(renamed(part, names) if isinstance(part, str) else part for part in code.parts), code.level)


def _counted(code: Code, pieces: Sequence[bool], index: str) -> Code:
    texts = [piece if same else index for piece, same in zip(NUMBER.split(str(code)), pieces, strict=True)]
    return text("".join(texts))


def _with_list(statement: Statement, names: Sequence[str], listed: str) -> Statement:
    """A statement with a list in place of its elements: the list itself for a tuple of just these."""
    parts = tuple(part for part in statement.code.parts if part != "")
    run = [part for name in names for part in (name, ", ")][:-1]
    for begin in range(len(parts) - len(run) + 1):
        if list(parts[begin : begin + len(run)]) == run:
            end = begin + len(run)
            is_all = begin > 0 and parts[begin - 1] == "(" and parts[end : end + 1] == (")",)
            if is_all:
                parts = (*parts[: begin - 1], listed, *parts[end + 1 :])
            elif statement.returns and (begin, end) == (0, len(parts)):
                parts = (f"tuple({listed})",)
            else:
                parts = (*parts[:begin], f"*{listed}", *parts[end:])
            return replace(statement, code=Code(parts, statement.code.level))
    return statement
