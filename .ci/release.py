"""Whether a tag may be released: ``python .ci/release.py v1.2.3`` prints the changelog's section for it, or refuses.

The tag must be ``v`` and the version that the package carries, and CHANGELOG.md must have a section for that version
with at least one entry.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def package_version(root: Path) -> str:
    """The version in pyproject.toml; raises ``SystemExit`` where ``wdport.base.version`` has another one."""
    declared = re.search(r'^version = "([^"]+)"$', (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    carried = re.search(r'^VERSION: Final = "([^"]+)"$', (root / "wdport/base/version.py").read_text(), re.MULTILINE)
    if declared is None or carried is None or declared[1] != carried[1]:
        raise SystemExit("pyproject.toml and wdport/base/version.py have different versions; make them equal")
    return declared[1]


def section(changelog: str, version: str) -> str:
    """The entries under the heading of ``version``, which may end in a date; empty where there is none."""
    heading = rf"^## {re.escape(version)}(?: - \d{{4}}-\d\d-\d\d| \(\d{{4}}-\d\d-\d\d\))?\s*$"
    found = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def notes(tag: str, root: Path = ROOT) -> str:
    """The release notes of a tag; raises ``SystemExit`` with one line where it may not be released."""
    version = package_version(root)
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag!r} and the version {version}; the tag must be v{version}")
    entries = section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not re.search(r"^- \S", entries, re.MULTILINE):
        raise SystemExit(f"CHANGELOG.md has no entry under '## {version}'; write what changed")
    return entries


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python .ci/release.py TAG")
    sys.stdout.write(notes(sys.argv[1]) + "\n")
