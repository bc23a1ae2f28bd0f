"""The arguments of the constructors of a PyTorch model's modules, recorded while the model is built."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from wdport.porting.outline.steps import is_layer
from wdport.porting.traced_arguments import REMEMBERING, ArgumentNumber, ConstructorCall, plain_number, remembering

Modules = Mapping[int, tuple[torch.nn.Module, ConstructorCall]]
"""The modules that were made, by their identity; a module that is kept alive keeps its identity."""


@contextmanager
def constructors() -> Iterator[Modules]:
    """Inside, every module that is made is noted with its constructor.

    The numbers among the arguments, and those in configurations, remember which they are, for the code of all classes
    but the layers of torch.
    """
    modules: dict[int, tuple[torch.nn.Module, ConstructorCall]] = {}
    configurations: dict[int, tuple[object, ConstructorCall]] = {}
    namespaces: list[dict[str, Any]] = []
    for remembered in _lists:
        remembered[:] = map(plain_number, remembered)
    _lists.clear()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name != "__init__" or not code.co_argcount:
            return
        values = frame.f_locals
        part = values.get(code.co_varnames[0])
        # The outermost constructor comes first: those that it calls are of base classes.
        if not isinstance(part, torch.nn.Module) or id(part) in modules:
            return
        names = [name for name in code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount] if name in values]
        # Lists as they are now: the constructor may change them.
        arguments = {name: _now(values[name]) for name in names}
        constructor = ConstructorCall(arguments, _defaults(type(part)))
        modules[id(part)] = part, constructor
        if not is_layer(type(part)):
            if not REMEMBERING.keys() & frame.f_globals.keys():
                frame.f_globals.update(REMEMBERING)
                namespaces.append(frame.f_globals)
            # Python writes what a profiling function changes among the locals back to the frame.
            values.update({name: constructor.remembered(name, values[name]) for name in names})
            _lists.extend(values[name] for name in names if type(values[name]) is list)
            for name in names:
                if (attributes := _attributes(values[name])) is not None:
                    _, configuration = configurations.setdefault(id(values[name]), (values[name], ConstructorCall()))
                    _remember(configuration, attributes)
                    constructor.configure(
                        configuration,
                        {key: _now(attributes[key]) for key in configuration.arguments if key in attributes},
                    )

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with remembering(lambda _, value: value):
            yield modules
    finally:
        sys.setprofile(before if callable(before) else None)
        for namespace in namespaces:
            for name in REMEMBERING:
                del namespace[name]


_lists: list[list[Any]] = []
"""The lists of the model that was built last, whose numbers remember."""


def _now(value: Any) -> Any:
    """A list as it is now: a constructor may change it."""
    return [*value] if type(value) is list else value


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of a configuration: a dictionary, or an object that is not called."""
    if type(value) is dict:
        return value if all(isinstance(key, str) and key.isidentifier() for key in value) else None
    if isinstance(value, (torch.nn.Module, torch.Tensor, type)) or callable(value):
        return None
    return getattr(value, "__dict__", None)


def _remember(configuration: ConstructorCall, attributes: dict[str, Any]) -> None:
    """Let the numbers of a configuration remember which they are."""
    for name, value in attributes.items():
        # A number that was set later is another argument.
        if not configuration.made(value):
            before, remembered = _now(value), configuration.remembered(name, value)
            if remembered is not value or configuration.made(value):
                configuration.arguments[name], attributes[name] = before, remembered


def _defaults(kind: type) -> dict[str, Any]:
    try:
        parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    except (TypeError, ValueError):
        return {}
    return {one.name: _now(one.default) for one in parameters if one.default is not one.empty}


def constructors_by_path(module: torch.nn.Module, modules: Modules) -> dict[str, ConstructorCall]:
    """The constructors of the modules of a model, by path."""
    by_path = {path: modules[id(part)][1] for path, part in module.named_modules() if id(part) in modules}
    for path, constructor in by_path.items():
        constructor.attributes = {
            name: value for name, value in vars(module.get_submodule(path)).items() if isinstance(value, ArgumentNumber)
        }
    return by_path


def stated_arguments(constructor: ConstructorCall) -> Iterator[tuple[str, Any]]:
    """Numbers, texts and tuples of them among the arguments, also in a configuration object."""
    for name, value in constructor.arguments.items():
        if isinstance(value, (bool, int, float, str)):
            yield name, value
        elif isinstance(value, (tuple, list)) and all(isinstance(item, (int, float)) for item in value):
            yield name, tuple(value)
        elif (attributes := _attributes(value)) is not None:
            yield from ((key, item) for key, item in attributes.items() if isinstance(item, (bool, int, float, str)))
