"""Griffe extension: docstrings in reStructuredText's words (:func:`x`, a `::` block) shown as Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:func|meth|class|mod|data|attr):`~?([^`]+)`")
BLOCK = re.compile(r"^( *)::\n\n((?:\1 {4}.*\n|\n)+)", re.MULTILINE)


class Roles(Extension):
    """Rewrites the text of every docstring that is loaded."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Replace roles by code, and literal blocks by fenced ones."""
        if obj.docstring:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = BLOCK.sub(lambda m: f"```python\n{_dedent(m[2])}\n```\n\n", text)


def _dedent(text: str) -> str:
    return "\n".join(line[4:] for line in text.rstrip().splitlines())
