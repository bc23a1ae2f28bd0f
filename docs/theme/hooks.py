"""MkDocs hooks: the command-line reference from click itself, and the pages of a folder in the navigation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[2]
MARKER = "<!-- commands -->"
FIRST = ("install.md",)
"""How-to guides that stand first; pages that the navigation does not name stand last."""


def on_config(config: Any) -> Any:
    """Replace an entry ``folder/*`` by the folder's pages, index first; add the guides that no entry names."""
    docs = Path(config.docs_dir)
    named = set(_paths(config.nav))
    guides = [page.name for page in sorted(docs.glob("*.md")) if page.name not in named]
    for entry in config.nav:
        for title, value in entry.items():
            if isinstance(value, str) and value.endswith("/*"):
                pages = sorted((docs / value[:-2]).glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
                paths = [page.relative_to(docs).as_posix() for page in pages]
                entry[title] = [{"Overview": path} if path.endswith("/index.md") else path for path in paths]
            elif title == "How-to guides":
                first = [page for page in guides if page in FIRST]
                entry[title] = [*first, *value, *(page for page in guides if page not in FIRST)]
    return config


def _paths(nav: Any) -> Iterator[str]:
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from [value] if isinstance(value, str) else _paths(value)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Write the reference of every command in place of the marker."""
    if MARKER not in markdown:
        return markdown
    return markdown.replace(MARKER, "\n".join(reference()))


def reference() -> Iterator[str]:
    """Markdown of `wdport` and all its commands, in the order of `wdport --help`."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("KERAS_BACKEND", "jax")
    from wdport.cli.execute import group

    yield from _command(group, click.Context(group, info_name="wdport", **group.context_settings), 2)


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path}\n"
    yield f"{_prose(command.help or '')}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    if rows := [record for option in command.get_params(context) if (record := option.get_help_record(context))]:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| <code>{_cell(names)}</code> | {_cell(meaning)} |" for names, meaning in rows)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield from _command(inner, click.Context(inner, parent=context, info_name=name), min(level + 1, 4))


def _prose(text: str) -> str:
    paragraphs = text.replace("\b", "").strip().split("\n\n")
    return "\n\n".join(escape(" ".join(part.split()), quote=False) for part in paragraphs)


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")
