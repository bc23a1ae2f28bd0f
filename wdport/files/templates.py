"""HTML from templates: every value is made printable and escaped, unless it is HTML already."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from wdport.base.errors import printable


@cache
def template(file: Path, limit: int | None) -> Template:
    """The template of a file, which may import others of its folder.

    A value longer than ``limit`` characters loses its middle; the filter ``printable`` takes another limit. Raises
    :class:`jinja2.UndefinedError` for a value that is not given.
    """

    def finalize(value: object) -> object:
        # Before jinja2 escapes it: control characters are visible text in the report, and Markup is left as it is.
        return value if hasattr(value, "__html__") else printable(value, limit)

    environment = Environment(
        loader=FileSystemLoader(file.parent),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["printable"] = printable
    return environment.get_template(file.name)
