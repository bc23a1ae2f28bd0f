"""A guard in; the loaded module runs without it, in this process: every function of it gets its new code."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType

from tests.guards.find import Guard, without


def delete(guard: Guard) -> int:
    """Give all functions of the guard's module the code that they have without it; how many have another."""
    name = str(guard.path)
    new = {_place(code): code for code in _codes(compile(without(guard), name, "exec"))}
    swapped = 0
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == name:
            code = new.get(_place(each.__code__))
            if code is not None and code.co_freevars == each.__code__.co_freevars and _differs(code, each.__code__):
                each.__code__ = code
                swapped += 1
    return swapped


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _differs(one: CodeType, other: CodeType) -> bool:
    """Whether two codes do other things; where they stand is no difference."""
    if one.co_code != other.co_code or len(one.co_consts) != len(other.co_consts) or one.co_names != other.co_names:
        return True
    pairs = [(a, b) for a, b in zip(one.co_consts, other.co_consts, strict=True) if not isinstance(a, frozenset)]
    return any(
        _differs(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else repr(a) != repr(b) for a, b in pairs
    )
