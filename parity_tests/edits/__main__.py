"""``python -m parity_tests.edits -o FILE``: try the edits, and write a row of JSON for each, except for those that FILE
has; then print what the rows show."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any

from parity_tests.edits.binding import edited
from parity_tests.edits.judge import table
from parity_tests.edits.runs import pairs, prepare, runs
from parity_tests.edits.server import ROOT, Server
from wdport.mapping.strict_yaml import load_yaml

OUTSIDE = {
    "training": "`verify` does not run the loop and the losses of training",
}
"""Areas that `verify` does not cover, and why, as the field ``outside`` of an edit; they are not tried."""


def attempt(server: Server, edit: dict[str, Any], every: Sequence[Any], controls: dict[str, Any]) -> dict[str, Any]:
    """Try one edit until a run finds it; the same run without the edit must pass, or the edit is not found by it."""
    path = server.tree / edit["file"]
    source = path.read_text(encoding="utf-8")
    path.write_text(edited(source, edit["in"], edit["old"], edit["new"]), encoding="utf-8")
    made: dict[str, Any] = {}
    count = 0
    try:
        for count, run in enumerate(every, 1):
            made = server.run(run.job())
            if made["exit_code"]:
                path.write_text(source, encoding="utf-8")
                if run.name not in controls:
                    controls[run.name] = server.run(run.job())
                alarm = bool(controls[run.name]["exit_code"])
                row = {**edit, "killed": None if alarm else run.name, "runs": count, "outcome": made}
                return {**row, "control": controls[run.name]} if alarm else row
    finally:
        path.write_text(source, encoding="utf-8")
    return {**edit, "killed": "", "runs": count, "outcome": made}


def listed() -> list[dict[str, Any]]:
    """All edits; raises ``ValueError`` if the code of one is not in its definition once."""
    rows: list[dict[str, Any]] = []
    for path in sorted(Path(__file__).with_name("list").glob("*.yaml")):
        for row in load_yaml(path.read_bytes(), path).plain():
            reason = {"outside": OUTSIDE[row["area"]]} if row["area"] in OUTSIDE else {}
            rows.append({"family": path.stem, **reason, **row})
    for row in rows:
        file = ROOT / row["file"]
        try:
            edited(file.read_text(encoding="utf-8") if file.is_file() else "", row["in"], row["old"], row["new"])
        except ValueError as error:
            raise ValueError(f"{row['name']}, {row['file']}: {error}") from None
    return rows


def main(words: list[str] | None = None) -> int:
    """Try the chosen edits and write a row for each."""
    parser = argparse.ArgumentParser(prog="python -m parity_tests.edits", description=__doc__)
    parser.add_argument("--area", action="append", help="only the edits of this area")
    parser.add_argument("--name", action="append", help="only the edit of this name")
    parser.add_argument("--only", metavar="N-M", help="only the edits of these numbers, from 0, in a random order")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(words)

    rows = listed()
    random.Random(0).shuffle(rows)  # so that a part of them is a sample of all
    first, _, last = (given.only or f"0-{len(rows)}").partition("-")
    tried = given.output.read_text(encoding="utf-8").splitlines() if given.output.is_file() else []
    known_names = {json.loads(line)["name"] for line in tried}
    rows = [row for row in rows[int(first) : int(last)] if not given.area or row["area"] in given.area]
    rows = [row for row in rows if not given.name or row["name"] in given.name]
    rows = [row for row in rows if row["name"] not in known_names and "outside" not in row]
    with TemporaryDirectory() as made:
        folder = Path(made)
        known = pairs(folder)
        servers: Queue[Server] = Queue()
        controls: dict[str, Any] = {}
        for at in range(given.workers):
            servers.put(Server(folder, str(at)))
        opener = servers.queue[0]
        for run in prepare(folder):
            assert not opener.run(run.job())["exit_code"]

        def one(edit: dict[str, Any]) -> dict[str, Any]:
            server = servers.get()
            try:
                return attempt(server, edit, list(runs(edit["family"], edit["area"], known, folder)), controls)
            finally:
                servers.put(server)

        with ThreadPoolExecutor(given.workers) as pool, given.output.open("a", encoding="utf-8") as file:
            for row in (each.result() for each in as_completed([pool.submit(one, row) for row in rows])):
                file.write(json.dumps(row) + "\n")
                file.flush()
        while not servers.empty():
            servers.get().close()
    results = {row["name"]: row for row in map(json.loads, given.output.read_text(encoding="utf-8").splitlines())}
    sys.stdout.write(f"{table(listed(), results)}\n")
    return 0 if all(row["killed"] for row in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
