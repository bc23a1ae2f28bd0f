"""``python -m parity_tests.conformance``: run every pair and print the report; 1, and its name on stderr, where one is
not as it should be."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
HEADING = "# Conformance\n\n"
MADE = "<!-- What follows is written by `python -m parity_tests.conformance --markdown docs/conformance.md`. -->\n"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m parity_tests.conformance", description=__doc__)
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="replace the tables in FILE; the text above them stays"
    )
    parser.add_argument("--group", action="append", metavar="NAME", help="run these groups of pairs alone")
    given = parser.parse_args(words)

    import torch

    from .report import report
    from .suite import ABSENT, GROUPS

    torch.set_num_threads(1)
    if unknown := set(given.group or ()) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are: {', '.join(GROUPS)}")
    groups = {name: pairs for name, pairs in GROUPS.items() if not given.group or name in given.group}
    result = report(groups, () if given.group else ABSENT)
    if given.markdown:
        before = given.markdown.read_text().partition(MADE)[0] if given.markdown.exists() else HEADING
        given.markdown.write_text(before + MADE + "\n" + result.text)
    else:
        sys.stdout.write(result.text)
    for name in result.wrong:
        where = given.markdown or "the report"
        sys.stderr.write(f"{name}: not as it should be; see its row in {where}\n")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
