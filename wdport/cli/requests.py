"""Options of click from the declared options of a request, and the request from their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from wdport.cli.completion import CHECKPOINTS, CONVERTED, KNOWN, SERIES, TABLES, File, Folder
from wdport.cli.documents import json_option
from wdport.cli.verb import OneOf, Whole
from wdport.errors import UsageError
from wdport.options import JSON, Argument, Declared, Option, options_of

T = TypeVar("T")
Decorator = Callable[[Callable[..., int]], Callable[..., int]]

_SUFFIXES: Final = {"checkpoint": CHECKPOINTS, "converted": CONVERTED, "model": (*CONVERTED, *CHECKPOINTS),
                    "table": TABLES, "series": SERIES, "known": KNOWN}  # fmt: skip


def request_options(*requests: type) -> Decorator:
    """A decorator that adds the options of these requests to a command, in their order."""
    listed: list[Declared] = []
    for each in (each for request in requests for each in options_of(request).values() if not each.marker(Argument)):
        names = [other.name for other in listed]
        listed.insert(names.index(each.option.after) + 1 if each.option.after else len(listed), each)
    options = [json_option if each.option is JSON else click_option(each) for each in listed]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def one_option(name: str, option: Option, base: type = str, default: object = None) -> Decorator:
    """The decorator of a single option whose field has this name, type and default."""
    return click_option(Declared(name, option, base, default, False, ()))


def click_option(declared: Declared) -> Decorator:
    """The decorator of a declared option."""
    option, default = declared.option, declared.option.default or declared.default
    settings: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "type": _type(declared)}
    if declared.base is bool:
        switch = any("/" in flag for flag in declared.flags)
        settings = {"help": option.help} | ({"default": default} if switch else {"is_flag": True})
    elif option.once:
        settings |= {"multiple": True, "callback": _only}
    elif declared.repeats:
        settings["multiple"] = True
    elif declared.required:
        settings["required"] = True
    elif default is not None:
        settings |= {"default": default, "show_default": option.show_default}
    return click.option(*declared.flags, declared.name, **settings)


def request_of(request: type[T], values: Mapping[str, Any], /, **more: Any) -> T:
    """A request with those of the values that are its options; ``more`` is in place of some, or are other fields."""
    return request(**{name: values[name] for name in options_of(request) if name in values} | more)


def _type(declared: Declared) -> Any:
    option = declared.option
    if option.default:
        return None
    if option.choices:
        return OneOf(option.choices)
    if option.bounds:
        return Whole(*option.bounds)
    if option.files == "folder":
        return Folder()
    if option.files:
        return File(_SUFFIXES[option.files] if isinstance(option.files, str) else option.files)
    return declared.base if declared.base in (int, float) else None


def _only(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The value of an option of two names, one of which would silently overrule the other."""
    if len(given) > 1:
        raise UsageError(" or ".join(option.opts), "is given twice", "give it once")
    return given[0] if given else None
