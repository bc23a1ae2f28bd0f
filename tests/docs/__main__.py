"""Run the blocks of pages, or write what their commands print today into them.

``python -m tests.docs [PAGE ...]`` runs pages, all of them without a name. ``--update`` replaces the output below every
command that shows one, but for outputs with a line ``...``. ``--files FOLDER`` takes files by their names in the pages
from a folder, such as a trained ``etth1.ckpt`` and ``etth1.config.yaml``, in place of the small ones of the tests.
Pages that describe what a trained model draws are updated only with it: ``make demo-weather``, then ``--files .``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.blocks import ROOT, blocks_of, pages
from tests.docs.runner import Fault, prepared, run

TRAINED = {"docs/weather.md": "demo/weather.ckpt"}
"""Pages whose text is about results of a trained model, and its file."""


def rewrite(page: str, updates: dict[int, list[str]]) -> int:
    """Put the printed lines below their commands; how many commands have changed."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    changed = 0
    for line, printed in sorted(updates.items(), reverse=True):
        start = line
        while lines[start - 1].endswith("\\"):
            start += 1
        end = next(n for n in range(start, len(lines)) if lines[n].startswith(("$ ", "```")))
        while printed and not printed[-1].strip():
            printed.pop()
        changed += lines[start:end] != printed
        lines[start:end] = printed
    (ROOT / page).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--files", type=lambda text: Path(text).resolve())  # pages run in another folder
    options = parser.parse_args()
    for page in options.pages or pages() if options.update else ():
        if page in TRAINED and not (options.files and (options.files / TRAINED[page]).is_file()):
            parser.error(f"{page} needs the trained {TRAINED[page]}: make demo-weather, then --files .")
    failed = 0
    for page in options.pages or pages():
        with TemporaryDirectory() as folder, prepared(page, Path(folder), options.files, options.update) as on:
            for block in blocks_of(page):
                if block.reason or block.language == "text":
                    continue
                started = time.monotonic()
                try:
                    run(block, on)
                    said = "ok"
                except (Fault, Exception) as error:
                    failed, said = failed + 1, f"FAIL\n{error}"
                sys.stdout.write(f"{block.where} {block.language}, {time.monotonic() - started:.1f} s: {said}\n")
                sys.stdout.flush()
        if on.updates:
            sys.stdout.write(f"{page}: {rewrite(page, on.updates)} outputs changed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
