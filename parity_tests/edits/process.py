"""Convert, export and verify in edited copies of wdport, each in a separate process; this script imports nothing from
wdport.

Jobs are lines of JSON on standard input: ``tree`` (the folder with the copy), ``checkpoint``, ``converted``,
``convert`` (arguments of :func:`wdport.convert`, to make the latter first; or null), ``export`` (options of `wdport
export --verify` by name, or null), ``verify`` (arguments of :func:`wdport.verify`, or null), and ``result``, the file
for the outcome. A line of JSON on standard output reports that a job is done. The large libraries are imported once;
every job is a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
SECONDS = 900
"""Time limit of a job."""


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    """What a job comes to, in this process."""
    sys.path.insert(0, job["tree"])
    wdport: Any = import_module("wdport")
    try:
        converted = job["converted"]
        if job["convert"] is not None:
            wdport.convert(job["checkpoint"], converted, force=True, **job["convert"])
        if job["export"] is not None:
            return exported(job)
        if job["verify"] is None:
            return {"exit_code": 0, "error": ""}
        verdict = wdport.verify(job["checkpoint"], converted, **job["verify"])
    except Exception as error:
        return {"exit_code": getattr(error, "exit_code", 70), "error": f"{type(error).__name__}: {error}"}
    gates = [[gate.name, list(map(str, gate.findings))] for gate in verdict.gates if not gate.passed]
    faults = [[fault.reference, fault.candidate, fault.feeds] for fault in verdict.faults]
    causes = {path: list(found) for path, found in verdict.causes.items()}
    silent = {finding.subject for finding in verdict.gates[0].findings if finding.kind == "silent"}
    missing = [tap.candidate for tap in verdict.taps if tap.reference in silent]
    told = {"gates": gates, "faults": faults, "causes": causes, "missing": missing}
    return {"exit_code": verdict.exit_code, "error": "", **told}


def exported(job: dict[str, Any]) -> dict[str, Any]:
    """Export by the edited code, and verify what was written."""
    suffix = ".safetensors" if job["export"].get("to") == "torch" else ".stablehlo"
    target = Path(job["result"]).with_suffix(suffix)
    words = ["export", job["converted"], "-o", str(target), "--force", "--verify"]
    for name, value in job["export"].items():
        words += [f"--{name}", str(value)]
    log = target.with_suffix(".log")
    with log.open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        exit_code = import_module("wdport.cli.main").main(words)
    said = log.read_text(encoding="utf-8").splitlines()[-12:]
    return {"exit_code": exit_code, "error": "", "gates": [["X", said]] if exit_code else []}


def serve() -> None:
    """Fork for every line; run one job at a time."""
    for name in ("h5py", "jax", "keras", "pywt", "scipy.special", "torch", "yaml"):
        import_module(name)
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            sys.stdout = sys.stderr
            Path(job["result"]).write_text(json.dumps(outcome(job)), encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.write(json.dumps({"done": job["result"]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
