"""Verbs of click whose parameters are the declared options of a request, which is made of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from wdport.base.errors import UsageError, printable
from wdport.base.options import Argument, Declared, Operand, options_of
from wdport.cli.completion import CHECKPOINTS, CONVERTED, FOLDERS, TABLES, FilePath, Suggested
from wdport.cli.documents import Document, mark_machine
from wdport.cli.verb import Number, OneOf, Verb, VerbOption

T = TypeVar("T")

_SUFFIXES: Final = {
    "checkpoint": CHECKPOINTS, "converted": CONVERTED, "model": (*CONVERTED, *CHECKPOINTS), "table": TABLES,
    "any": (*CHECKPOINTS, *CONVERTED, *TABLES), "series": (".csv", ".npy", ".npz", ".arff", ".mat", ".txt"),
    "known": (".csv", ".npy", ".npz", ".txt"), "folder": FOLDERS,
}  # fmt: skip


def verb(name: str, request: type[T], **settings: Any) -> Callable[[Callable[[T], int | None]], Verb]:
    """A decorator that makes a verb of a function of a request, which returns an exit code, or None for 0; ``settings``
    are those of the verb."""

    def decorate(function: Callable[[T], int | None]) -> Verb:
        @click.command(name=name, cls=Verb, params=parameters(request), **settings)
        @wraps(function)
        def command(**values: Any) -> int | None:
            return function(request_of(request, values))

        return command

    return decorate


def parameters(*requests: type) -> list[click.Parameter]:
    """The arguments and options of these requests, in their order."""
    listed: list[Declared] = []
    options = (option for request in requests for option in options_of(request).values())
    for declared in (option for option in options if not option.marker(Argument)):
        names = [other.name for other in listed]
        listed.insert(names.index(declared.option.after) + 1 if declared.option.after else len(listed), declared)
    return [_argument(declared) if isinstance(declared.option, Operand) else _option(declared) for declared in listed]


def request_of(request: type[T], values: Mapping[str, Any], /, **more: Any) -> T:
    """A request with those of the values that are its options; ``more`` is in place of some, or are other fields."""
    declared = options_of(request)
    return request(**{name: _read(declared[name], values[name]) for name in declared if name in values} | more)


def arguments(function: Callable[..., object], request: object, /, **more: Any) -> dict[str, Any]:
    """The options of a request that are parameters of a function, for its call; ``more`` is in place of some."""
    names = [name for name in signature(function).parameters if name in options_of(type(request))]
    return {name: getattr(request, name) for name in names} | more


def refuse(request: object, names: Iterable[str], what: str, fix: str) -> None:
    """Raise :class:`UsageError` for the first of these options of a request that does not have its default."""
    declared = options_of(type(request))
    for option in (declared[name] for name in names):
        if getattr(request, option.name) not in (option.default, {}):
            raise UsageError(option.long, what, fix)


def parse_values(pairs: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary; raises :class:`UsageError`."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError("--set", f"{pair!r} is not KEY=VALUE", "write for example --set num_heads=8")
        if key in values:
            raise UsageError("--set", f"{printable(key, 40)} is given twice", "give it once")
        values[key] = value
    return values


def _read(declared: Declared, value: Any) -> Any:
    """A value of click as the type of the field."""
    if declared.base is Path:
        return None if value is None else Path(value)
    return parse_values(value) if declared.base is dict else value


def _argument(declared: Declared) -> click.Argument:
    return click.Argument([declared.name], type=_type(declared), required=declared.required and not declared.repeats,
                          nargs=-1 if declared.repeats else 1, metavar=declared.metavar)  # fmt: skip


def _option(declared: Declared) -> click.Option:
    option, default = declared.option, declared.option.word or declared.default
    settings: dict[str, Any] = {"metavar": declared.metavar, "type": _type(declared)}
    if declared.base is bool:
        switch = any("/" in flag for flag in declared.flags)
        settings = {"default": default} if switch else {"is_flag": True}
    elif option.once:
        settings |= {"multiple": True, "callback": _only}
    elif declared.repeats:
        settings["multiple"] = True
    elif declared.required:
        settings["required"] = True
    elif option.files == "document":
        settings["callback"] = mark_machine
    elif default is not None:
        settings |= {"default": default, "show_default": option.show_default}
    return VerbOption([*declared.flags, declared.name], declared.group, option.former, help=option.help,
                      hidden=option.hidden, **settings)  # fmt: skip


def _type(declared: Declared) -> Any:
    option = declared.option
    if declared.interval is not None:
        return Number(declared.interval, option.word)
    if option.choices:
        return OneOf(option.choices, option.former_choices)
    if option.completions:
        return Suggested(option.completions, option.by_comma)
    if option.files == "document":
        return Document()
    if option.files:
        endings = _SUFFIXES[option.files] if isinstance(option.files, str) else option.files
        # Of several files, some may be outputs of a run, which are nowhere to be fetched.
        return FilePath(endings, "a folder" if endings == FOLDERS else "a file", hub=".ckpt" in endings,
                        fetch=option.files == "checkpoint" or not declared.repeats)  # fmt: skip
    return {int: click.INT, float: click.FLOAT}.get(declared.base)


def _only(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The value of an option of two names, one of which would silently overrule the other."""
    if len(values) > 1:
        raise UsageError(" or ".join(option.opts), "is given twice", "give it once")
    return values[0] if values else None
