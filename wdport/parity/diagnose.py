"""Probable causes: a faulty layer's own calls in, the known bugs that make a correct port compute just that out.

A correct port with the checkpoint's weights is given one known bug at a time, at the faulty place alone, and
fed what the faulty layer was fed. Where the two agree to the logic bound, that bug is the probable cause.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from wdport.errors import IncompleteError
from wdport.models.family import Array
from wdport.models.mutants import Mutant
from wdport.parity.bounds import LOGIC
from wdport.parity.calls import Call, Calls, leaves
from wdport.parity.keras_probe import Probe, layers_by_path
from wdport.parity.measure import relative_l2
from wdport.parity.verdict import Fault

LOGIC_GATES = ("0", "A")
"""The gates whose faults float64 shows: only those can be what a float64 run shows."""


def tapped(path: str, taps: Collection[str]) -> str:
    """The innermost of ``taps`` at or above a layer; "" if there is none."""
    while path and path not in taps:
        path = path.rpartition("/")[0]
    return path


@dataclass(frozen=True)
class Evidence:
    """One case in float64: the network's inputs, what the faulty port's layers were fed and made, all answered
    for (its output under ""), and the reference's calls, by the candidate's paths."""

    inputs: tuple[Array, ...]
    port: Calls
    answers: Calls


def causes(probe: Probe, mutants: Sequence[Mutant], fault: Fault, evidence: Evidence) -> list[str]:
    """Names of the mutants that explain ``fault``.

    ``probe`` is an eager probe of a correct port, float64, with the checkpoint's weights; ``mutants`` are known
    bugs of its family.
    """
    port, layers = evidence.port, layers_by_path(probe.model)
    concerned = [path for path, call in port.items() if path == fault.candidate or _fed_by(path, call, fault)]
    found = []
    for mutant in mutants:
        if mutant.equivalent or mutant.gate not in LOGIC_GATES:
            continue
        for place in mutant.places(layers):
            if not _explains(mutant, tapped(place, probe.layers), fault.candidate):
                continue
            layer = layers[place] if place else probe.model
            with jax.enable_x64(True), mutant.change(layer, probe.model), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="You are using a softmax over axis")
                made = _run(probe, fault.candidate, evidence)
            if made is not None and concerned and all(_same(made.get(path), port[path]) for path in concerned):
                found.append(mutant.name)
                break
    return found


def _run(probe: Probe, path: str, evidence: Evidence) -> Calls | None:
    try:
        if path:
            return probe.isolate_layer(path, evidence.port[path], evidence.answers)
        output, calls = probe.isolate(evidence.inputs, evidence.answers)
        return {**calls, "": Call((), (output,))}
    except (IncompleteError, ValueError, TypeError, RuntimeError):
        return None


def _explains(mutant: Mutant, place: str, site: str) -> bool:
    """Whether a mutant at ``place`` can be what is seen at ``site``."""
    return place == site or (mutant.shares and (not place or site.startswith(f"{place}/")))


def _fed_by(path: str, call: Call, fault: Fault) -> bool:
    """Whether a layer is one of those that the faulty layer feeds, so that its call shows the fault."""
    return bool(path) and call.caller == fault.candidate


def _same(made: Call | None, seen: Call) -> bool:
    if made is None:
        return False
    ours, theirs = (leaves([*call.inputs, *call.outputs]) for call in (made, seen))
    return len(ours) == len(theirs) and all(_close(a, b) for a, b in zip(ours, theirs, strict=True))


def _close(made: Any, seen: Any) -> bool:
    made, seen = np.asarray(made), np.asarray(seen)
    return made.shape == seen.shape and relative_l2(made, seen) <= LOGIC
