"""What verify and ``map suggest`` find for every pair: ``python -m parity_tests.hub [NAME ...] [--markdown FILE]``.

A pair with a table that comes with wdport is converted with random weights and verified, and the way back must give the
checkpoint's tensors bit for bit. Of any other pair, ``map suggest`` names the first layer that differs, and why.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras  # noqa: F401  before our modules that need it
import numpy as np
import torch
import yaml

from parity_tests.hub import images, text
from parity_tests.hub.pairs import PAIRS, Pair
from wdport.checkpoint import open_checkpoint
from wdport.conversion.convert import convert
from wdport.files.atomic import scratch_folder
from wdport.parity.proving.proof import random_checkpoint
from wdport.parity.proving.suggest import Models, suggest
from wdport.parity.reports.phrases import claim
from wdport.parity.verify import compare_files
from wdport.parity.verify_options import Pair as Files
from wdport.uses.exporting.to_torch import to_torch

MODULES = (text, images)
"""The modules that declare the pairs, by being imported."""

MARKS = ("<!-- pairs -->", "<!-- end of pairs -->")
"""The lines of a page between which the table stands."""


def verified(pair: Pair, folder: Path) -> str:
    """The result of verify for a pair with a table; raises ``ValueError`` if the models are not equal or the way back
    gives other tensors."""
    fields = {"format": 2, "include": [pair.table], "torch": pair.reference, "keras": pair.model,
              "inputs": list(pair.inputs)}  # fmt: skip
    table, weights, converted, back = (folder / name for name in ("table.yaml", "w.pt", "w.keras", "w.safetensors"))
    table.write_text(yaml.safe_dump(fields), encoding="utf-8")
    random_checkpoint(Models(pair.reference, pair.model, pair.inputs), weights)
    convert(weights, converted, mapping=table)
    verdict = compare_files(Files(converted, weights, mapping=table))
    if not verdict:
        raise ValueError(claim(verdict))
    to_torch(converted, back, mapping=table)
    count = 0
    with open_checkpoint(weights) as before, open_checkpoint(back) as after:
        for name in before.tensors:
            if name in after.tensors:
                count += 1
                if not np.array_equal(before.read(name), after.read(name)):
                    raise ValueError(f"{name} is not the same after the way back")
        left = [name for name in before.tensors if name not in after.tensors]
    rest = f"; not stored in Keras: {', '.join(sorted({name.rpartition('.')[2] for name in left}))}" if left else ""
    return f"equal; way back bit for bit, {count} tensors{rest}"


def differing(pair: Pair) -> str:
    """The first difference that ``map suggest`` names; raises ``ValueError`` if it finds none."""
    suggestion = suggest(Models(pair.reference, pair.model, pair.inputs))
    if (stop := suggestion.stop) is None:
        raise ValueError("no difference: a table can be made")
    said = stop.causes[0] if stop.causes else stop.what
    return f"differs at `{stop.first.keras}`: {said}"


def main() -> int:
    """Print a line for every pair; returns the number of those that fail."""
    parser = argparse.ArgumentParser(prog="python -m parity_tests.hub", description="Pairs with KerasHub.")
    parser.add_argument("names", nargs="*", help="pairs; all without")
    parser.add_argument("--markdown", metavar="FILE", help="replace the rows of these pairs in this page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = 0
    rows: dict[str, str] = {}
    for pair in [PAIRS[name] for name in options.names] or PAIRS.values():
        begin = time.perf_counter()
        try:
            with scratch_folder() as folder:
                result = verified(pair, Path(folder)) if pair.table else differing(pair)
            rows[pair.name] = result
        except Exception as error:
            failed += 1
            result = f"FAIL {type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"
        sys.stdout.write(f"{pair.name:<28} {time.perf_counter() - begin:6.1f} s  {result}\n")
        sys.stdout.flush()
    if options.markdown:
        write_rows(Path(options.markdown), rows)
    return failed


def write_rows(page: Path, results: Mapping[str, str]) -> None:
    """Replace the rows of these pairs in the table of a page; the others stay."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    old, _, after = rest.partition(MARKS[1])
    cells = {pair.name: f"| `{pair.torch}` | `{pair.keras}` | {f'`{pair.table}`' if pair.table else ''} |"
             for pair in PAIRS.values()}  # fmt: skip
    rows = ["| PyTorch | Keras | table | result |", "|---|---|---|---|"]
    for name, head in cells.items():
        kept = [row for row in old.splitlines() if row.startswith(head)]
        rows += [f"{head} {results[name]} |"] if name in results else kept
    page.write_text("\n".join((f"{before}{MARKS[0]}", *rows, f"{MARKS[1]}{after}")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
