"""Convert click's usage errors to one line: the command, the error, and the word that was probably meant.

Click's own sentences differ between its releases, so they are used only as a fallback.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise

import click

from wdport.errors import UsageError, did_you_mean, printable

LONGEST_WORD = 60
"""Characters of a word that an error quotes."""


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
        long_names = [name for name in options if name.startswith("--")]
        return UsageError(path, f"no option {word}", did_you_mean(error.option_name, long_names, see))
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


def no_such_verb(path: str, word: str, names: Iterable[str], is_file: bool) -> UsageError:
    """An error for a word in the place of a verb."""
    verbs = list(names)
    fix = f"the verb comes first, such as {path} {verbs[0]} FILE" if is_file else f"{path} --help lists them"
    names = [*verbs, "--help", "--version"]
    return UsageError(path, f"no verb {printable(word, LONGEST_WORD)!r}", did_you_mean(word, names, fix))


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
