"""The arguments of the constructors of a PyTorch model's modules, recorded while the model is built."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

Arguments = Mapping[str, Any]


@contextmanager
def constructors() -> Iterator[list[tuple[torch.nn.Module, Arguments]]]:
    """Inside, every module that is made is noted with the arguments of its class's ``__init__``, by name."""
    modules: dict[int, tuple[torch.nn.Module, Arguments]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name != "__init__" or not code.co_argcount:
            return
        part = frame.f_locals.get(code.co_varnames[0])
        # The outermost constructor comes first: those that it calls are of base classes.
        if isinstance(part, torch.nn.Module) and id(part) not in modules:
            names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            modules[id(part)] = part, {name: frame.f_locals[name] for name in names if name in frame.f_locals}

    listed: list[tuple[torch.nn.Module, Arguments]] = []
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield listed
    finally:
        sys.setprofile(before)
        listed += modules.values()


def arguments_by_path(
    module: torch.nn.Module, modules: list[tuple[torch.nn.Module, Arguments]]
) -> dict[str, dict[str, Any]]:
    """Numbers, texts and tuples of them among the constructor's arguments, also in a configuration object, by path."""
    by_id = {id(part): arguments for part, arguments in modules}
    return {path: dict(_plain(by_id[id(part)])) for path, part in module.named_modules() if id(part) in by_id}


def _plain(arguments: Arguments) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        if isinstance(value, (bool, int, float, str)):
            yield name, value
        elif isinstance(value, (tuple, list)) and all(isinstance(item, (int, float)) for item in value):
            yield name, tuple(value)
        elif hasattr(value, "__dict__") and not isinstance(value, (torch.nn.Module, type)) and not callable(value):
            yield from ((key, item) for key, item in vars(value).items() if isinstance(item, (bool, int, float, str)))
