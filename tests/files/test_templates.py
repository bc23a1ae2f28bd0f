"""HTML from templates: escaped, printable, and nothing left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from wdport.files.templates import template

HOSTILE = "<script>alert(1)</script> & \"x\" 'y' \x1b[31m\ud800"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;x&#34; &#39;y&#39; \\x1b[31m\\ud800"


def rendered(folder: Path, text: str, limit: int | None = None, **values: object) -> str:
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return template(file, limit).render(**values)


def test_every_value_is_escaped(tmp_path: Path) -> None:
    text = '{% macro item(value) %}<b>{{ value }}</b>{% endmacro %}<p title="{{ name }}">{{ name }}</p>{{ item(name) }}'
    page = rendered(tmp_path, text, name=HOSTILE)
    assert page == f'<p title="{ESCAPED}">{ESCAPED}</p><b>{ESCAPED}</b>'


def test_long_values_lose_their_middle(tmp_path: Path) -> None:
    page = rendered(tmp_path, "{{ name }} {{ name | printable(5) }} {{ name | safe }}", 10, name="a" * 50)
    assert page == f"{'a' * 6}…{'a' * 3} aa…aa {'a' * 50}"


def test_a_missing_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UndefinedError, match="name"):
        rendered(tmp_path, "{{ name }}")
