"""The second river: checkpoint and converted file into two running models, through probes, to a verdict.

Gates, as in the README: 0 preflight, A' constants, A logic in float64, B numerics in float32; A and B
per layer and per wavelet level; F the wavelet transform, where the wavelet is known.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import jax

from wdport.errors import MisfitError
from wdport.load import Converted, open_converted
from wdport.parity.battery import CASES
from wdport.parity.bounds import bounds
from wdport.parity.diagnose import Evidence, causes
from wdport.parity.gates import constants_gate, logic_gate, numerics_gate, preflight_gate
from wdport.parity.keras_probe import Probe
from wdport.parity.runner import Runner
from wdport.parity.sides import (
    Weights,
    build_sides,
    change_weights,
    converted_weights,
    correct_port,
    unequal_variables,
    with_random_biases,
)
from wdport.parity.verdict import Fault, Gate, Verdict, locate
from wdport.parity.wavelet_gate import wavelet_gate
from wdport.prepare import PathText, Prepared, Settings, prepare

Say = Callable[[str], None]
MAX_CAUSES = 5
"""Faults that a probable cause is sought for: each is tried with every known bug of its place."""


def verify(
    checkpoint: PathText,
    converted: PathText,
    *,
    mapping: PathText | None = None,
    key: str | None = None,
    say: Say | None = None,
) -> Verdict:
    """Compare a converted model with its checkpoint, both running, layer by layer.

    Args:
        checkpoint: the PyTorch file that was converted.
        converted: what :func:`wdport.convert` wrote.
        mapping: the mapping table, if it was one of your own.
        key: dotted key of the state_dict where the file holds more than one.
        say: called with a few words at every step, for a progress display.

    Returns:
        A verdict, true if the two are equal.

    Raises:
        WdportError: a file is bad, the two do not belong together, torch is missing, or something
        could not be compared.
    """
    started = time.monotonic()
    say = say or (lambda _: None)
    opened = open_converted(converted)
    known = {name: value for name, value in asdict(opened.config).items() if value is not None}
    with prepare(checkpoint, Settings(mapping=mapping, key=key, known=known)) as prepared:
        if prepared.family.name != opened.family.name:
            what = f"is a {opened.family.name}, the checkpoint a {prepared.family.name}"
            raise MisfitError(opened.path, what, "give the file that this checkpoint was converted to")
        return _verify(prepared, opened, say, started)


def _verify(prepared: Prepared, converted: Converted, say: Say, started: float) -> Verdict:
    say("reading both files")
    weights = converted_weights(prepared, converted)
    unequal = unequal_variables(prepared, weights)
    say("building four models")
    sides = build_sides(prepared, weights)
    runner = Runner(prepared, sides)
    seen: Weights | None = None
    for random_biases in (False, True):
        now = with_random_biases(prepared, weights, seed=7) if random_biases else weights
        if random_biases:
            change_weights(prepared, sides, now, weights)
        say(f"comparing with {now.name}")
        runner.compare([case for case in CASES if case.random_biases is random_biases])
        seen = seen or (now if runner.evidence else None)
    gates: tuple[Gate, ...] = (
        preflight_gate(prepared, runner, unequal),
        constants_gate(prepared, sides.candidates["float32"], weights),
        logic_gate(runner),
        numerics_gate(runner),
    )
    transform = prepared.family.transform(prepared.config)
    if transform is not None:
        gates = (*gates, wavelet_gate(transform))
    taps = tuple(runner.taps.values())
    found: dict[str, tuple[str, ...]] = {}
    if runner.evidence is not None and seen is not None:
        say("looking for probable causes")
        found = _causes(prepared, runner.evidence, seen, locate(taps), [tap.candidate for tap in runner.aligned])
    return Verdict(
        checkpoint=str(prepared.checkpoint.path),
        converted=str(converted.path),
        gates=gates,
        taps=taps,
        causes=found,
        levels=runner.levels(),
        series=runner.series_error,
        assumed=_assumed(converted),
        inputs=tuple(case.describe() for case in CASES),
        environment=_environment(runner),
        bounds=bounds(),
        overlays=runner.overlays,
        seconds=time.monotonic() - started,
    )


def _causes(
    prepared: Prepared, evidence: Evidence, weights: Weights, faults: Sequence[Fault], paths: list[str]
) -> dict[str, tuple[str, ...]]:
    """Probable causes of the first faults, by the faulty layer's path."""
    probe = Probe(correct_port(prepared, weights), paths, eager=True)
    known = prepared.family.mutants(prepared.config)
    return {fault.candidate: tuple(causes(probe, known, fault, evidence)) for fault in faults[:MAX_CAUSES]}


def _assumed(converted: Converted) -> dict[str, Any]:
    origins: Mapping[str, str] = converted.facts.get("origins", {})
    return {name: getattr(converted.config, name) for name, origin in origins.items() if origin == "assumed"}


def _environment(runner: Runner) -> dict[str, str]:
    packages = {name: version(name) for name in ("wdport", "torch", "keras", "jax", "numpy")}
    precision = {"torch_matmul": runner.torch_precision, "jax_matmul": runner.jax_precision}
    return {"python": platform.python_version(), **packages, "device": str(jax.devices()[0]), **precision}
