"""A process that verifies in edited copies of wdport: a fork for every job, a line of JSON each way.

Run as a script, so that it imports nothing of wdport but what a job names.
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


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    """What a job comes to, in this process."""
    sys.path.insert(0, job["tree"])
    wdport: Any = import_module("wdport")
    try:
        if job["convert"] is not None:
            wdport.convert(job["checkpoint"], job["converted"], force=True, **job["convert"])
            return {"exit_code": 0, "error": ""}
        if job["export"] is not None:
            return exported(job)
        verdict = wdport.verify(job["checkpoint"], job["converted"], **job["verify"])
    except BaseException as error:
        return {"exit_code": getattr(error, "exit_code", 70), "error": f"{type(error).__name__}: {error}"[:600]}
    gates = [[gate.name, list(map(str, gate.findings))[:4]] for gate in verdict.gates if not gate.passed]
    faults = [[fault.reference, fault.candidate, fault.feeds] for fault in verdict.faults]
    causes = sorted({text for texts in verdict.causes.values() for text in texts})
    return {"exit_code": verdict.exit_code, "error": "", "gates": gates, "faults": faults[:6], "causes": causes}


def exported(job: dict[str, Any]) -> dict[str, Any]:
    """Export by the edited code, and verify the artefact."""
    to_torch = job["export"].get("to") == "torch"
    target = Path(job["result"]).with_suffix(".safetensors" if to_torch else ".stablehlo")
    words = ["export", job["converted"], "-o", str(target), "--force", "--verify"]
    for name, value in job["export"].items():
        words += [f"--{name}", str(value)]
    log = target.with_suffix(".log")
    with log.open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        exit_code = import_module("wdport.cli.main").main(words)
    return {"exit_code": exit_code, "error": "", "gates": [["X", log.read_text().splitlines()[-12:]]] * bool(exit_code)}


def serve() -> None:
    """Fork for every line; one job at a time."""
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
            made = outcome(job)
            Path(job["result"]).write_text(json.dumps(made), encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.write(json.dumps({"done": job["result"]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
