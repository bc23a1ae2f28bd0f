"""``make guards``: every refusal of the rooms that read and write files deleted, one at a time; which ones does no test
notice?

The quick tests run once under coverage, which says who executes each refusal. Then, for each, a process that has
everything imported already deletes it from the loaded module and runs those tests until one fails. What is known from
an earlier run of the same sources is not asked again.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.compiler import compiler_flags
from tests.guards.find import ROOMS, Guard, all_guards

ROOT = Path(__file__).parents[2]
TESTS = ("tests/checkpoint", "tests/mapping", "tests/files", "tests/bad", "tests/test_conversion.py",
         "tests/test_writable.py", "tests/base/test_errors.py", "tests/test_refusals.py",
         "tests/test_changed_inputs.py", "tests/cli",
         "tests/families/test_custom.py", "tests/families/test_recorded.py",
         "tests/parity/test_provenance.py", "tests/uses/data", "tests/uses/training", "tests/uses/exporting",
         "tests/uses/generation", "tests/uses/sampling", "tests/conversion", "tests/optimizers")  # fmt: skip
"""Which tests are asked."""

WHOLE = ("tests/bad",)
"""Of which of them all are asked, not the quick ones alone."""

IN_PROCESS = ("-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Options of pytest in a process that has imported its plugins already."""

MOST, MORE = 8, 100
"""Tests that are tried for one guard at first, and in all."""

SLOWEST = 120
"""Seconds after which the tests of one guard are stopped: it hangs without the guard, which is noticed."""


def record(data: Path, words: list[str]) -> None:
    """Run the tests under coverage; ``data`` then knows which of them executed each line."""
    rooms = ",".join(f"wdport/{room}" for room in ROOMS)
    config = data.with_name("settings.rc")  # what begins with the data's name, coverage takes for data and removes
    config.write_text(f"[run]\nbranch = True\nsource = {rooms}\ndata_file = {data}\n")
    tests = [word for word in (words or TESTS) if (ROOT / word).exists()]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    given = ["--cov", "--cov-branch", f"--cov-config={config}", "--cov-context=test"]
    quick, whole = [word for word in tests if word not in WHOLE], [word for word in tests if word in WHOLE]
    if whole:
        subprocess.run([*command, *whole, "-m", "full or not full", *given, "--cov-report="], cwd=ROOT, check=False)
    report = ["--cov-append"] * bool(whole) + ["--cov-report=term:skip-covered"]
    subprocess.run([*command, *quick, "-m", "not full", *given, *report], cwd=ROOT, check=False)


def users(data: Path) -> dict[str, dict[int, list[str]]]:
    """Per file, the tests that execute each line."""
    from coverage import CoverageData

    seen = CoverageData(str(data))
    seen.read()
    return {name: _tests(seen.contexts_by_lineno(name)) for name in seen.measured_files()}


def _tests(contexts: dict[int, list[str]]) -> dict[int, list[str]]:
    return {
        line: sorted({name.removesuffix("|run") for name in names if name.endswith("|run")})
        for line, names in contexts.items()
    }


def judge(guard: Guard, tests: list[str]) -> str:
    """Run these tests without the guard in a copy of this process; what came of it."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax: nothing of it has run here
        child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, _tried(guard, tests).encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else f"dies by signal {os.WTERMSIG(status)}"
    return said


def _tried(guard: Guard, tests: list[str]) -> str:
    from tests.guards.swap import delete

    signal.alarm(SLOWEST)
    if not delete(guard):
        return "not swapped"
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = pytest.main(["-x", *IN_PROCESS, "-p", "no:cov", "-o", "timeout=0", *tests])
    return {0: "unnoticed", 1: "noticed"}.get(int(code), f"pytest ends with {code}: {out.getvalue()[-500:]}")


def choose(tests: list[str]) -> list[str]:
    """The tests to try, those that are about bad input first."""
    return sorted(tests, key=lambda name: (not any(word in name for word in ("bad", "refused", "guard")), name))


def _judged(guard: Guard, tests: list[str]) -> str:
    """What a few tests say, and if they say nothing, what more of them do."""
    if not tests:
        return "no test raises it"
    said = judge(guard, tests[:MOST])
    return judge(guard, tests[MOST:MORE]) if said == "unnoticed" and tests[MOST:] else said


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.guards", description=__doc__)
    parser.add_argument("--room", action="append", choices=ROOMS)
    parser.add_argument("--again", action="store_true", help="run the tests under coverage again")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "guards")
    parser.add_argument("tests", nargs="*", help="instead of all that are asked")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    data = given.folder.resolve() / "coverage"
    if given.again or not data.exists():
        record(data, given.tests)
    guards = all_guards(ROOT / "wdport", tuple(given.room or ROOMS))
    known = given.folder / "known.json"
    results: dict[str, str] = json.loads(known.read_text()) if known.exists() and not given.again else {}
    executed = users(data)
    _warm(given.tests)
    for guard in guards:
        name = _name(guard)
        if name not in results or results[name] not in ("noticed", "hangs"):
            tests = executed.get(str(guard.path), {}).get(guard.line, [])
            results[name] = _judged(guard, choose(tests))
            known.write_text(json.dumps(results, indent=1))
            if results[name] != "noticed":
                print(f"{guard.path.relative_to(ROOT)}:{guard.line}: {guard.text[:90]}: {results[name]}", flush=True)
    ended = [results[_name(guard)] for guard in guards]
    noticed = sum(each == "noticed" or each.startswith(("hangs", "dies")) for each in ended)
    print(f"{noticed} of {len(guards)} deleted guards are noticed: {100 * noticed / max(len(guards), 1):.1f} %")
    return 0 if noticed >= 0.95 * len(guards) else 1


def _name(guard: Guard) -> str:
    """A guard in a source: the source changes, and it is asked again."""
    return f"{hashlib.sha256(guard.path.read_bytes()).hexdigest()[:12]} {guard.key} {guard.number}"


def _warm(tests: list[str]) -> None:
    """Import what the tests import, so that a copy of this process need not.

    JAX must not start here: its threads are not in a copy, which would wait for them.
    """
    os.environ["TEST_OPTIMIZED"] = "1"
    os.environ["XLA_FLAGS"] = compiler_flags()  # otherwise conftest starts JAX with them
    import conftest

    del conftest
    with redirect_stdout(io.StringIO()):
        present = [test for test in tests or TESTS if (ROOT / test).exists()]
        pytest.main(["--collect-only", *IN_PROCESS, *present])
    from jax._src.xla_bridge import backends_are_initialized

    if backends_are_initialized():
        raise SystemExit("importing the tests starts JAX, which a copy of this process cannot use")


if __name__ == "__main__":
    sys.exit(main())
