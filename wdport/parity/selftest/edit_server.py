"""Run `verify` in edited copies of wdport, each in a separate process; this script imports nothing from wdport.

Jobs are lines of JSON on standard input: ``tree`` (the folder with the copy), ``checkpoint``, ``converted``,
``convert`` (arguments of :func:`wdport.convert`, to make the latter first; or null), ``verify`` (arguments of
:func:`wdport.verify`, or null), and ``result``, the file for the outcome. A line of JSON on standard output reports
that a job is done. The large libraries are imported once; every job is a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
SECONDS = 600
"""Time limit of a job."""


def verify(job: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one job, in this process."""
    sys.path.insert(0, job["tree"])
    wdport: Any = import_module("wdport")
    try:
        converted = job["converted"]
        if job["convert"] is not None:
            wdport.convert(job["checkpoint"], converted, force=True, **job["convert"])
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


def serve() -> None:
    """Fork for every line; run one job at a time."""
    import h5py  # noqa: F401
    import jax  # noqa: F401
    import keras  # noqa: F401
    import pywt  # noqa: F401
    import scipy.special  # noqa: F401
    import torch
    import yaml  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            sys.stdout = sys.stderr
            outcome = verify(job)
            with open(job["result"], "w", encoding="utf-8") as file:
                json.dump(outcome, file)
            os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.write(json.dumps({"done": job["result"]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
