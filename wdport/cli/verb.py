"""Base classes of verbs: -q, -v, parsing of --json, usage errors in one line; and groups of verbs that import
lazily.

Click's sentences about wrong usage differ between its releases, so they are used only as a fallback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from math import nan
from pkgutil import resolve_name
from typing import Any, Final

import click
from click.core import ParameterSource

from wdport.base.errors import UsageError, did_you_mean, printable
from wdport.base.jax_settings import leave_unsafe_cache
from wdport.base.options import Group, Interval
from wdport.cli.console import console
from wdport.cli.machine import prepare_cache

LONGEST_WORD = 60
"""Characters of a word that an error quotes."""

TOLERANCES = ("--rtol", "--atol", "--tol", "--tolerance", "--threshold")
"""Options of similar tools, which `wdport verify` has bounds for."""


def usage_error(error: click.ClickException) -> UsageError:
    """The error of a command line, to be raised or shown instead of ``error``."""
    context: click.Context | None = getattr(error, "ctx", None)
    path = context.command_path if context else "wdport"
    params = context.command.get_params(context) if context else []
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    see = f"see {path} --help"
    if isinstance(error, click.NoSuchOption):
        word = printable(error.option_name, LONGEST_WORD)
        if context and isinstance(context.command, click.Group):
            see = f"options follow the verb: {path} VERB ... {word}"
        if "--policy" in options and error.option_name in TOLERANCES:
            fix = "a policy file sets the bounds: give --policy FILE, see docs/formats/policy.md"
            return UsageError(path, f"no option {word}", fix)
        # Seldom is the first letter the mistyped one: --cast would be no advice on --fast.
        similar = [name for name in options if name.startswith(error.option_name[:3].casefold())]
        return UsageError(path, f"no option {word}", did_you_mean(error.option_name, similar, see))
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return UsageError(path, f"{name_of(error.param)} is missing", see)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return UsageError(name_of(error.param), _bare(error.message), see)
    if isinstance(error, click.BadOptionUsage):
        option = options.get(error.option_name)
        takes = "takes no value" if option is None or option.is_flag else "needs a value"
        return UsageError(f"{path} {error.option_name}", takes, see)
    return UsageError(path, _bare(error.format_message()), see)


def unexpected(context: click.Context, more: Sequence[str], words: Sequence[str]) -> UsageError:
    """An error for extra arguments; suggests quotes for two words that are one file name with a space."""
    what = f"unexpected argument {printable(more[0], LONGEST_WORD)!r}"
    what += f" and {len(more) - 1} more" if len(more) > 1 else ""
    fix = f"see {context.command_path} --help"
    for first, second in pairwise(words):
        if second in more and os.path.exists(f"{first} {second}"):
            fix = f"quote a name with spaces: {f'{first} {second}'!r}"
    return UsageError(context.command_path, what, fix)


def mistyped_option(path: str, word: str, names: Iterable[str]) -> UsageError | None:
    """``-steps``, which click reads as ``-s teps``, or a long dash that an editor made of two; else None."""
    name = word.partition("=")[0]
    meant = f"--{name.lstrip('-–—')}"
    mistyped = name[:1] in ("–", "—") or (name[:1] == "-" and name[1:2] != "-" and len(name) > 2)
    return UsageError(path, f"no option {name}", f"did you mean {meant}?") if mistyped and meant in names else None


def dashed_file(path: str, word: str, names: Iterable[str]) -> UsageError | None:
    """A file whose name begins with a dash, which click reads as options; else None."""
    if not word.startswith("-") or word == "-" or word.partition("=")[0] in names or not os.path.lexists(word):
        return None
    text = printable(word, LONGEST_WORD)
    return UsageError(path, f"no option {text}", f"write ./{text} for the file of this name")


def name_of(param: click.Parameter | None) -> str:
    """The longest name of an option; the metavar of an argument, as in the help; "" without a parameter."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return param.human_readable_name if param else ""


def _bare(message: str) -> str:
    """Click's sentence as part of an error line."""
    text = message.strip().rstrip(".")
    return text[:1].lower() + text[1:]


HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _quiet(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    console.quiet = value


def _verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and console.quiet:
        raise UsageError("--verbose", "--quiet is given as well", "give one of them")
    console.verbose = value


Arity = Callable[[Collection[str]], tuple[int, int]]
"""From the given options, the minimum and maximum number of arguments."""

JSON: Final = "--json"

SECTIONS: Final[Mapping[Group, str]] = {"inputs": "Input files", "model": "Model", "run": "Run",
                                        "outputs": "Output files", "messages": "Messages"}  # fmt: skip
"""Sections of the help in their order."""

FEW: Final = 12
"""A command with fewer options has one section."""


class VerbOption(click.Option):
    """An option with its section in the help, and its former names, which are read as the present one."""

    def __init__(self, names: Sequence[str], group: Group, former: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(names, **settings)
        self.group, self.former = group, former


class Verb(click.Command):
    """A verb; ``arity`` gives the number of its arguments if that depends on its options."""

    def __init__(self, *arguments: Any, arity: Arity | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._arity = arity
        self.params += [
            VerbOption(["-q", "--quiet"], "messages", is_flag=True, is_eager=True, expose_value=False, callback=_quiet,
                         help="Print only the verdict, errors and requested output."),
            VerbOption(["-v", "--verbose"], "messages", is_flag=True, expose_value=False, callback=_verbose,
                         help="Also print times, paths and versions, on standard error."),
        ]  # fmt: skip

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by sections if there are many."""
        listed = [(getattr(param, "group", "messages"), record) for param in self.get_params(ctx)
                  if isinstance(param, click.Option) and (record := param.get_help_record(ctx))]  # fmt: skip
        if len(listed) < FEW:
            super().format_options(ctx, formatter)
            return
        for group, title in SECTIONS.items():
            if records := [record for name, record in listed if name == group]:
                with formatter.section(title):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self._with_present_names(ctx, args)
        names = [name for param in self.params for name in param.opts]
        for word in args:
            if word == "--":
                break
            if error := mistyped_option(ctx.command_path, word, names) or dashed_file(ctx.command_path, word, names):
                raise error
        ctx.allow_extra_args = True
        try:
            rest = super().parse_args(ctx, self._with_json_file(ctx, args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if rest and not ctx.resilient_parsing:
            raise unexpected(ctx, rest, args)
        self._require_values(ctx)
        return rest

    def _with_present_names(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words with the present names of options in place of former ones, each of which is noted."""
        options = [param for param in self.params if isinstance(param, VerbOption)]
        present = {former: name_of(option) for option in options for former in option.former}
        words = list(args)
        # The option is parsed later; until then no note is held back.
        quiet = ctx.resilient_parsing or not {"-q", "--quiet"}.isdisjoint(args)
        for index, word in enumerate(args):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name in present and not self._awaits_value(ctx, words[:index]):
                words[index] = f"{present[name]}{equals}{value}"
                if not quiet:
                    console.note(f"{name} is now called {present[name]}")
        return words

    def _with_json_file(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words with every ``--json`` written as ``--json=FILE``, with ``-`` for standard output.

        Click would take any word after it for the value. Here it is the FILE unless the verb needs it as an argument;
        if both are possible, it is the FILE if it ends in ``.json`` or is ``-``.
        """
        words, places = list(args), list[int]()
        for index, word in enumerate(args):
            if word not in (JSON, "--") or self._awaits_value(ctx, words[:index]):
                continue
            if word == "--":
                break
            words[index] = f"{JSON}=-"
            places.append(index)
        if not places:
            return words
        options, arguments = self._options_and_arguments(ctx, words)
        minimum, maximum = self._arity(options) if self._arity else self._arguments()
        count = len(arguments)
        for index in reversed(places):
            word = words[index + 1] if index + 1 < len(words) else JSON
            argument = word == "-" or not word.startswith("-")
            if argument and count > minimum and (count > maximum or word == "-" or word.endswith(".json")):
                words[index : index + 2] = [f"{JSON}={word}"]
                count -= 1
        return words

    def _awaits_value(self, ctx: click.Context, words: list[str]) -> bool:
        """Whether the last of these words is an option whose value comes next."""
        try:
            self._options_and_arguments(ctx, words)
        except click.BadOptionUsage:
            return True
        except click.UsageError:  # which is raised when all words are parsed
            pass
        return False

    def _options_and_arguments(self, ctx: click.Context, words: list[str]) -> tuple[set[str], list[str]]:
        """The names of the options among words, and the arguments; raises click's errors."""
        options = click.Command(None, params=[param for param in self.params if isinstance(param, click.Option)])
        _, arguments, order = options.make_parser(ctx).parse_args(list(words))
        return {name for param in order for name in param.opts}, arguments

    def _arguments(self) -> tuple[int, int]:
        """The minimum and maximum number of arguments."""
        arguments = [argument for argument in self.params if isinstance(argument, click.Argument)]
        return sum(argument.required for argument in arguments), len(arguments)

    def _require_values(self, ctx: click.Context) -> None:
        """Refuse empty values, which click takes, as a script gives them whose variable is not set."""
        for param in self.params:
            value = ctx.params.get(param.name or "")
            from_command_line = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
            if from_command_line and "" in (value if isinstance(value, tuple) else (value,)):
                raise UsageError(name_of(param), "is empty", f"give {getattr(param.type, 'phrase', 'a value')}")

    def invoke(self, ctx: click.Context) -> Any:
        prepare_cache(leave_unsafe_cache)  # before anything imports jax
        try:
            return super().invoke(ctx)
        except UsageError as error:  # raised with the Python name of the argument
            options = {param.name: name_of(param) for param in self.params if isinstance(param, click.Option)}
            if error.where not in options:
                raise
            raise UsageError(options[error.where], error.what, error.fix, error.details) from error


def given_options() -> dict[str, str]:
    """The options on the command line of the verb that is running: their longest names, by those of their fields."""
    context = click.get_current_context()
    return {str(param.name): name_of(param) for param in context.command.params
            if context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE}  # fmt: skip


class Verbs(click.Group):
    """A group whose verbs, named as MODULE:NAME in ``modules``, are imported when they are called, so that ``--help``
    stays fast; click's own has them all in memory."""

    def __init__(self, *arguments: Any, modules: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command | None = resolve_name(self.modules[cmd_name]) if cmd_name in self.modules else None
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        word, names = str(args[0]), self.list_commands(ctx)
        if word not in names and not ctx.resilient_parsing:
            path, is_file = ctx.command_path, "." in word or os.sep in word
            fix = f"the verb comes first, such as {path} {names[0]} FILE" if is_file else f"{path} --help lists them"
            fix = did_you_mean(word, [*names, "--help", "--version"], fix)
            raise UsageError(path, f"no verb {printable(word, LONGEST_WORD)!r}", fix)
        return super().resolve_command(ctx, args)


SHORT: Final = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
"""Names of dtypes that other tools use."""


NEAR: Final = 0.88
"""Similarity of a mistyped name of few: one letter too many, not another number."""


class OneOf(click.Choice):  # type: ignore[type-arg]  # no type parameter at run time before click 8.2
    """One of several names; the error for any other, unlike click's, suggests the nearest."""

    def __init__(self, choices: Sequence[str], former: Mapping[str, str]) -> None:
        super().__init__(choices)
        self.former = former

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text in self.choices:
            return text
        if present := self.former.get(text):
            if ctx is not None and not ctx.resilient_parsing:
                console.note(f"{text} is now called {present}")
            return present
        one = f"use one of {', '.join(self.choices)}"
        meant = SHORT.get(text.casefold(), text)
        fix = f"did you mean {meant}?" if meant in self.choices else did_you_mean(text, self.choices, one, NEAR)
        raise UsageError(name_of(param), f"unknown name {printable(text, 40)!r}", fix)


_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,18}")
"""A whole number that fits into 64 bits; int also takes 1_0 for 10."""


class Number(click.types.FloatParamType):
    """A number of an interval, or a ``word``, which is None; click's own types have the bounds in the help."""

    def __init__(self, interval: Interval, word: str = "") -> None:
        self.name = "integer" if interval.integral else "float"
        self.interval, self.word = interval, word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text, number = str(value), nan
        if self.word and text == self.word:
            return None
        if self.interval.integral:
            number = int(text) if _DIGITS.fullmatch(text) else nan
        else:
            with suppress(ValueError):
                number = float(text)
        if number in self.interval:
            return number
        fix = f"give {self.interval}" + (f", or {self.word}" if self.word else "")
        raise UsageError(name_of(param), f"invalid value {printable(text, 40)!r}", fix)
