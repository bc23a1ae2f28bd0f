"""Every verb of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from wdport.cli.execute import group
from wdport.cli.verb import Verb


def _verbs(command: click.Command, path: str) -> Iterator[tuple[str, Verb]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _verbs(inner, f"{path} {name}".strip())
    else:
        assert isinstance(command, Verb)
        yield path, command


VERBS = dict(_verbs(group, ""))
"""By the words that call them."""
