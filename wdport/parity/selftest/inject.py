"""Inject known bugs into a correct port one at a time, and test each at preflight, constants, float64 and float32."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from math import inf, log10
from typing import Any

import jax
import numpy as np

from wdport.compare.bounds import bounds
from wdport.compare.calls import layer_of
from wdport.errors import IncompleteError, InternalError
from wdport.families.faults import Bounds, Kill
from wdport.families.mutants import Mutant
from wdport.parity.diagnose import causes, tapped
from wdport.parity.selftest.example import Example, Seen
from wdport.parity.selftest.rules import rejected_by
from wdport.parity.verdict import Fault, locate

Inside = Callable[[str], AbstractContextManager[Any]]
"""A function from a dtype to a context inside which the port of that dtype has the fault."""


@dataclass(frozen=True)
class Found:
    """What the gates find: the first that fails ("" if none does), where, the largest value over its bound, and
    for a logic fault the evidence for a diagnosis."""

    gate: str
    sites: tuple[str, ...] = ()
    over: float = 0.0
    inputs: str = ""
    faults: tuple[Fault, ...] = ()
    seen: Seen | None = None


def run_mutants(
    example: Example,
    chosen: Callable[[Mutant], bool] = lambda _: True,
    held: Bounds | None = None,
    diagnose: bool = True,
    single: bool = False,
    brief: bool = False,
) -> Iterator[Kill]:
    """Try every chosen mutant of the example's family at one place, under the bounds ``held`` (default: those in
    force). ``diagnose`` looks for the probable cause, ``single`` measures float32 only and the fixed tolerances;
    ``brief`` looks for a float32 fault only at its own layer."""
    limits = {**bounds(), **(held or {})}
    layers = example.layers()
    known = example.family.mutants(example.config)
    for mutant in known:
        places = mutant.places(layers)
        if not chosen(mutant):
            continue
        if not places:
            raise InternalError(mutant.name, f"matches no layer of {example.name}", "correct its pattern")
        place = places[len(places) // 2]
        kill, found = inject(example, mutant, place, limits, brief)
        if diagnose and found.seen and found.seen.evidence and found.faults:
            with _rebuilt(example, mutant, place):
                names = causes(example.probe(), known, found.faults[0], found.seen.evidence, example.names)
            kill = replace(kill, causes=tuple(names), facts=mutant.facts, sought=found.gate == "A")
        yield _single(example, kill, mutant, place, limits) if single else kill


def inject(example: Example, mutant: Mutant, place: str, held: Bounds, brief: bool = False) -> tuple[Kill, Found]:
    """Try one mutant at one place."""
    site = tapped(place, example.paths)
    found = judge(example, lambda dtype: broken(example, mutant, place, dtype), held, site if brief else "")
    return kill_of(example.name, mutant, site, found), found


@contextmanager
def broken(example: Example, mutant: Mutant, place: str, dtype: str) -> Iterator[None]:
    """Inside, the port of this dtype has the mutant."""
    model = example.port(dtype)
    layer = example.layers(dtype)[place] if place else model
    with jax.enable_x64(dtype == "float64"), mutant.change(layer, model), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using a softmax over axis")
        yield


@contextmanager
def _rebuilt(example: Example, mutant: Mutant, place: str) -> Iterator[None]:
    """Inside, the port is as `verify` would rebuild it from the checkpoint: correct weights, and the same faulty
    code."""
    before = [np.asarray(variable.value) for variable in example.port().weights]
    with broken(example, mutant, place, "float64"):
        after = [np.asarray(variable.value) for variable in example.port().weights]
        if all(map(np.array_equal, before, after)):
            yield
            return
    yield


def judge(example: Example, inside: Inside, held: Bounds, only: str = "") -> Found:
    """The first gate that fails, over all cases: 0 and A, then A', then B (at the layer ``only``, if there is one)."""
    for case in example.cases:
        example.use(case)
        found = judge_logic(example, inside, held)
        if found.gate:
            return replace(found, inputs=case.describe())
    return _judge_tables(example, inside, held) or judge_single(example, inside, held, only)


def judge_logic(example: Example, inside: Inside, held: Bounds) -> Found:
    """Gates preflight and float64 on the current case."""
    try:
        with inside("float64"):
            seen = example.logic()
    except IncompleteError as error:
        return Found("0", (error.where,), inf)
    faults = locate(seen.results, held["logic"], held["numerics"])
    sites = _layers(seen, faults)
    return Found("0" if seen.missing else ("A" if faults else ""), sites, seen.logic / held["logic"], "", faults, seen)


def judge_single(example: Example, inside: Inside, held: Bounds, only: str = "") -> Found:
    """Gates preflight and float32 over all cases; ``over`` is that of the largest ratio, killed or not."""
    worst = 0.0
    for case in example.cases:
        example.use(case)
        try:
            with inside("float32"):
                seen = example.numerics(only=only)
        except IncompleteError as error:
            return Found("0", (error.where,), inf, case.describe())
        faults = locate(seen.results, held["logic"], held["numerics"])
        worst = max(worst, seen.ratio / held["numerics"])
        if seen.missing or faults:
            sites = _layers(seen, faults)
            return Found("0" if seen.missing else "B", sites, worst, case.describe(), faults)
    return Found("", over=worst)


def _layers(seen: Seen, faults: Iterable[Fault]) -> tuple[str, ...]:
    """The layers that are missing or faulty in any of their calls."""
    return tuple(dict.fromkeys(map(layer_of, [*seen.missing, *(fault.candidate for fault in faults)])))


def _judge_tables(example: Example, inside: Inside, held: Bounds) -> Found | None:
    """Gate constants (A'). Its places are tables, by name."""
    example.use(example.cases[0])
    with inside("float32"):
        distances = example.table_distances()
    off = {name: distance for name, distance in distances.items() if not distance <= held["table_ulp"]}
    return Found("A'", tuple(off), max(off.values()) / held["table_ulp"]) if off else None


def kill_of(example: str, mutant: Mutant, site: str, found: Found) -> Kill:
    """A fault's outcome from the findings of the gates."""
    inside = all(each == site or each.startswith(f"{site}/") or not site for each in found.sites)
    if found.gate == "A'":
        exact = len(found.sites) == 1  # one layer was changed, so this is its table
    else:
        exact = found.sites == (site,) or ((mutant.shares or found.gate == "0") and bool(found.sites) and inside)
    margin = log10(found.over) if 0.0 < found.over < inf else (inf if found.over else -inf)
    return Kill(example, mutant.name, site or "the network", found.gate, mutant.gate, found.sites, exact, margin,
                equivalent=mutant.equivalent, inputs=found.inputs)  # fmt: skip


def _single(example: Example, kill: Kill, mutant: Mutant, place: str, held: Bounds) -> Kill:
    """The kill with the result of float32 only, and the fixed tolerances that reject the output."""
    found = judge_single(example, lambda dtype: broken(example, mutant, place, dtype), held)
    example.use(example.cases[0])
    with broken(example, mutant, place, "float32"):
        rejected = rejected_by(example.outputs)
    return replace(kill, ratio=found.over * held["numerics"], single=found.gate, rejected=rejected)
