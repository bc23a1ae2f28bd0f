"""Write the schemas and the tables of their pages into a folder: ``python -m tests.schemas docs``."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.schemas.formats import formats
from tests.schemas.json_schema import filled


def written(docs: Path) -> Iterator[tuple[Path, str]]:
    """Every generated file with its text: the schemas, and their pages with the tables filled in.

    Raises ``OSError`` for a format without a page, ``ValueError`` for a page without the markers.
    """
    site = documentation(docs.parent)
    for published in formats():
        name, schema = published.name, published.schema(site)
        if published.published:
            yield docs / "schemas" / f"{name}.schema.json", json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        if published.page:
            page = docs / "formats" / f"{name}.md"
            yield page, filled(page.read_text(encoding="utf-8"), name, schema)


def documentation(project: Path) -> str:
    """The URL of the documentation, from ``pyproject.toml``."""
    urls = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    return f"{urls['Documentation'].rstrip('/')}/"


if __name__ == "__main__":
    for path, text in written(Path(sys.argv[1])):
        path.write_text(text, encoding="utf-8")
