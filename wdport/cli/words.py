"""Preprocess a command line before click parses it: find its arguments, and whether --json has a file.

The word after ``--json`` is its FILE unless the verb needs it as an argument. If both are possible, it is the FILE if
it ends in ``.json`` or is ``-``. ``--json=FILE`` is always one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import click

Arity = Callable[[Collection[str]], tuple[int, int]]
"""From the given options, the minimum and maximum number of arguments."""

JSON = "--json"


def with_json_file(words: Sequence[str], params: Sequence[click.Parameter], arity: Arity | None = None) -> list[str]:
    """The words with every ``--json`` written as ``--json=FILE``, with ``-`` for standard output."""
    written = list(words)
    given, arguments, places = _told_apart(written, params)
    if not places:
        return written
    least, most = arity(given) if arity else arity_of(params)
    count = len(arguments)
    for at in reversed(places):
        written[at] = f"{JSON}=-"
        if at + 1 in arguments and _is_file(written[at + 1], count, least, most):
            written[at : at + 2] = [f"{JSON}={written[at + 1]}"]
            count -= 1
    return written


def arity_of(params: Sequence[click.Parameter]) -> tuple[int, int]:
    """The minimum and maximum number of arguments of a verb."""
    arguments = [each for each in params if isinstance(each, click.Argument)]
    return sum(each.required for each in arguments), len(arguments)


def _is_file(word: str, count: int, least: int, most: int) -> bool:
    if count - 1 < least:
        return False
    return count > most or word == "-" or word.endswith(".json")


def _told_apart(words: Sequence[str], params: Sequence[click.Parameter]) -> tuple[set[str], set[int], list[int]]:
    """The given options, and the positions of arguments and of ``--json`` without ``=``."""
    options = {name: each for each in params if isinstance(each, click.Option) for name in each.opts}
    given, arguments, places, at = set[str](), set[int](), list[int](), 0
    while at < len(words):
        word = words[at]
        if word == "--":
            arguments.update(range(at + 1, len(words)))
            break
        if word == JSON:
            places.append(at)
        elif word.startswith("-") and word != "-":
            name, skip = _option(word, options)
            given.add(name)
            at += skip
        else:
            arguments.add(at)
        at += 1
    return given, arguments, places


def _option(word: str, options: dict[str, click.Option]) -> tuple[str, bool]:
    """The option of a word, and whether the next word is its value."""
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        return name, not equals and _takes_value(options.get(name))
    for at, letter in enumerate(word[1:], 2):
        if _takes_value(options.get(f"-{letter}")):
            return f"-{letter}", at == len(word)
    return word[:2], False


def _takes_value(option: click.Option | None) -> bool:
    return option is not None and not option.is_flag and not option.count
