"""Ports whose code attacks the program that judges them, instead of computing anything right.

Each function builds a port whose output is wrong, after its attack on the process that it runs in; the last one shows
where it runs.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.parity.fresh.cheats import Cheating
from tests.parity.fresh.cheats import build as wrong_port


def ends_the_process(names: list[str], folder: str) -> Cheating:
    os._exit(0)


def raises_exit(names: list[str], folder: str) -> Cheating:
    raise SystemExit(0)


def exits_at_the_end(names: list[str], folder: str) -> Cheating:
    """Ends with exit code 0 whatever the verdict."""
    atexit.register(os._exit, 0)
    return wrong_port(names, folder)


def patches_the_measures(names: list[str], folder: str) -> Cheating:
    """No two arrays differ any more."""
    for name in ("wdport.compare.measure", "wdport.compare.layer_errors", "wdport.compare.comparison"):
        if "relative_l2" in vars(module := importlib.import_module(name)):
            vars(module)["relative_l2"] = lambda *_: 0.0
    pair: Any = importlib.import_module("wdport.compare.measure").ErrorPair
    pair.rms_ratio = pair.max_ratio = 0.0
    np.linalg.norm = lambda *_, **__: 0.0
    np.isfinite = lambda values, **_: np.ones(np.shape(values), bool)
    return wrong_port(names, folder)


def patches_the_verdict(names: list[str], folder: str) -> Cheating:
    """No gate fails any more."""
    findings, verdict = (importlib.import_module(f"wdport.{name}") for name in ("compare.findings", "parity.verdict"))
    findings.Measure.beyond = findings.Gate.differs = False
    findings.Gate.passed = findings.Gate.complete = True
    findings.Gate.findings = ()
    verdict.Verdict.exit_code = 0
    verdict.Verdict.__bool__ = lambda _: True
    return wrong_port(names, folder)


def patches_the_command(names: list[str], folder: str) -> Cheating:
    """Prints PASS, and exits with 0."""
    click: Any = importlib.import_module("click")
    echo = click.echo
    click.echo = lambda *_, **__: echo("PASS  everything computes everything")
    sys.exit = lambda *_: os._exit(0)
    return wrong_port(names, folder)


def writes_the_report(names: list[str], folder: str) -> Cheating:
    """Writes the report of a run that passed, now and at the end of the process."""
    passed = json.dumps({"schema": 4, "kind": "verdict", "passed": True, "exit_code": 0})

    def write() -> None:
        Path(folder, "verdict.json").write_text(passed)

    atexit.register(write)
    write()
    return wrong_port(names, folder)


def answers_for_layers(names: list[str], folder: str) -> Cheating:
    """Every layer returns what isolation would feed to the next one."""
    own = keras.layers.Layer.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        output, frame = own(self, *args, **kwargs), sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "answer" and len(frame.f_locals.get("outputs", ())) == 1:
                return frame.f_locals["outputs"][0]
            frame = frame.f_back  # type: ignore[assignment]
        return output

    keras.layers.Layer.__call__ = call
    return wrong_port(names, folder)


class Agreeable(np.ndarray):
    """An array that is equal to everything, and from which nothing differs."""

    def __sub__(self, other: Any) -> Any:
        return np.zeros(self.shape)

    __rsub__ = __sub__

    def __eq__(self, other: object) -> Any:
        return np.ones(self.shape, bool)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self


class Objects(Cheating):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = super().__call__(*args, **kwargs)
        return {name: np.asarray(each).view(Agreeable) for name, each in output.items()} if self.built else output

    def predict_on_batch(self, x: Any) -> Any:
        return self(x)


def returns_objects(names: list[str], folder: str) -> Cheating:
    return Objects(names)


def forges_messages(names: list[str], folder: str) -> Cheating:
    """Says into every pipe that everything passed, and ends."""
    gate = {"compared": 1, "expected": 1, "measures": [], "facts": [], "meaning": "", "seconds": None}
    gates = [{"name": name, "title": name, **gate} for name in ("0", "A", "B", "N", "P")]
    verdict = {"checkpoint": "", "converted": "", "gates": gates, "taps": [], "parts": [], "decoded": None,
               "assumed": {}, "inputs": [], "environment": {}, "bounds": {"logic": 1e9, "numerics": 1e9}}  # fmt: skip
    text = json.dumps({"facts": {"verdict": verdict, "names": names}, "sizes": []}).encode()
    for descriptor in range(1, 32):
        with suppress(OSError):
            os.write(descriptor, struct.pack(">Q", len(text)) + text)
    os._exit(0)


def ends_its_parent(names: list[str], folder: str) -> Cheating:
    with suppress(PermissionError):
        os.kill(os.getppid(), signal.SIGKILL)
    return wrong_port(names, folder)


def rewrites_the_program(names: list[str], folder: str) -> Cheating:
    """Puts a module in front of those that are imported later."""
    with suppress(OSError):
        Path(folder, "wdport.py").write_text("def __getattr__(name): return lambda *_: 0")
    return wrong_port(names, folder)


TOGETHER = (patches_the_measures, patches_the_verdict, patches_the_command, writes_the_report, answers_for_layers,
            exits_at_the_end)  # fmt: skip


def all_together(names: list[str], folder: str) -> Cheating:
    """The attacks after which the process goes on."""
    return [attack(names, folder) for attack in TOGETHER][-1]


def leaves_a_file(names: list[str], folder: str) -> Cheating:
    """No attack: shows that the port was built where PyTorch can be imported."""
    with suppress(ImportError, PermissionError):
        importlib.import_module("torch")
        Path(folder, "built.txt").touch()
    return wrong_port(names, folder)
