"""Edit the source of one function, as somebody would by mistake."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

Function = Callable[..., Any]


def edit(monkeypatch: pytest.MonkeyPatch, function: Function, old: str, new: str) -> None:
    """Put ``new`` for ``old``, which the source of a function has once; every module of wdport gets the result."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{function.__name__} has it {source.count(old)} times"
    scope = dict(vars(sys.modules[function.__module__]))
    exec(compile("from __future__ import annotations\n" + source.replace(old, new), "<edit>", "exec"), scope)
    made = scope[function.__name__]
    if "." in function.__qualname__:
        owner, name = function.__qualname__.split(".")
        monkeypatch.setattr(getattr(sys.modules[function.__module__], owner), name, made)
    for module in [each for name, each in sys.modules.items() if name.startswith("wdport.")]:
        for name, value in list(vars(module).items()):
            if value is function:
                monkeypatch.setattr(module, name, made)
            elif isinstance(value, dict):
                for key in [key for key, each in value.items() if each is function]:
                    monkeypatch.setitem(value, key, made)
