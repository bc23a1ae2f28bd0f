"""What this harness can find: known bugs put into correct ports one at a time, how each was caught out.

Small models with random weights, float64, run eagerly; everything that `verify` does in gate A, without files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import jax
import numpy as np

from wdport.errors import IncompleteError, InternalError
from wdport.mapping.plan import Misfits, make_plan
from wdport.mapping.shipped import choose_table
from wdport.models.family import Array, Family
from wdport.models.mutants import Mutant
from wdport.parity.bounds import LOGIC
from wdport.parity.calls import Call, Calls
from wdport.parity.compare import tap_errors
from wdport.parity.diagnose import Evidence, causes, tapped
from wdport.parity.keras_probe import Probe, layers_by_path
from wdport.parity.measure import relative_l2
from wdport.parity.taps import Tap, align
from wdport.parity.torch_probe import record
from wdport.parity.verdict import Fault, TapResult, locate
from wdport.rules import apply_rule

Say = Callable[[str], None]


@dataclass(frozen=True)
class Kill:
    """One mutant's fate.

    ``gate`` that killed it, "" if none did; ``sites`` are the layers found faulty, ``site`` the one that was;
    ``margin`` is the largest error over the bound, in decades; ``causes`` what the diagnosis names.
    ``equivalent`` says why the mutant changes nothing, where that is known: it must then survive.
    """

    example: str
    mutant: str
    site: str
    gate: str
    expected: str
    sites: tuple[str, ...]
    exact: bool
    margin: float
    causes: tuple[str, ...]
    equivalent: str = ""

    @property
    def killed(self) -> bool:
        """Whether a gate noticed."""
        return bool(self.gate)

    @property
    def right(self) -> bool:
        """Whether the harness did what it ought to: the gate, the place, or survival of an equivalent."""
        if self.equivalent:
            return not self.killed
        return self.gate == self.expected and (self.exact or self.gate == "0")

    @property
    def diagnosed(self) -> bool:
        """Whether the probable cause is the mutant."""
        return self.mutant in self.causes


class Example:
    """A correct pair of one configuration: the reference's calls, and two ports, one of them to be broken."""

    def __init__(self, name: str, family: Family, config: Any, seed: int = 0, batch: int = 4) -> None:
        self.name, self.family, self.config = name, family, config
        tensors = family.random_tensors(config, seed)
        variables, table = _convert(family, config, tensors)
        module = family.build_reference(config, tensors, "float64")
        self.inputs = family.make_inputs(config, seed, batch, 1.0)
        self.output, self.calls = record(module, self.inputs)
        with jax.enable_x64(True):
            self.port, self.pristine = (_filled(family, config, variables) for _ in range(2))
        names = [name for name, _ in module.named_modules() if name]
        self.taps = align(table, names, layers_by_path(self.port), family.features(config))
        order = {name: at for at, name in enumerate(self.calls)}
        self.taps.sort(key=lambda tap: order.get(tap.reference, len(order)))
        self.paths = [tap.candidate for tap in self.taps]
        self.answers: Calls = {tap.candidate: self.calls[tap.reference] for tap in self.taps}

    def isolate(self, eager: bool = True) -> Calls:
        """The port's calls, every layer answered for; its output under ""."""
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            output, calls = Probe(self.port, self.paths, eager).isolate(self.inputs, self.answers)
        return {**calls, "": Call((), (output,))}

    def faults(self, port: Calls) -> tuple[tuple[Fault, ...], list[Tap], float]:
        """Faults, taps that could not be compared, and the largest error."""
        results, missing, worst = [], [], 0.0
        for tap in self.taps:
            errors = tap_errors(tap, port, self.calls, lambda _: None)
            if errors is None:
                missing.append(tap)
                continue
            results.append(TapResult(tap.reference, tap.candidate, tap.level, isolated=errors[1], inputs=errors[0]))
            worst = max(worst, *errors)
        error = relative_l2(port[""].outputs[0], self.output)
        results.append(TapResult("output", "", None, isolated=error))
        return locate(results), missing, max(worst, error)


def run_mutants(example: Example, chosen: Callable[[Mutant], bool], diagnose: bool = True) -> Iterator[Kill]:
    """Every chosen mutant at one place of the example."""
    layers = layers_by_path(example.port)
    probe = Probe(example.pristine, example.paths, eager=True)
    known = example.family.mutants(example.config)
    for mutant in known:
        places = mutant.places(layers)
        if not chosen(mutant):
            continue
        if not places:
            raise InternalError(mutant.name, f"has no place in {example.name}", "correct its pattern")
        yield _inject(example, mutant, places[len(places) // 2], layers, probe, known if diagnose else ())


def _inject(example: Example, mutant: Mutant, place: str, layers: Any, probe: Probe, known: Any) -> Kill:
    site = tapped(place, example.paths)
    layer = layers[place] if place else example.port
    try:
        with jax.enable_x64(True), mutant.change(layer, example.port), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You are using a softmax over axis")
            port = example.isolate()
    except IncompleteError:
        return _kill(example, mutant, site, "0", (), inf, ())
    found, missing, worst = example.faults(port)
    names: list[str] = []
    for fault in found[:1]:
        names = causes(probe, known, fault, Evidence(example.inputs, port, example.answers))
    gate = "0" if missing else ("A" if found else "")
    return _kill(example, mutant, site, gate, tuple(dict.fromkeys(f.candidate for f in found)), worst, tuple(names))


def _kill(
    example: Example, mutant: Mutant, site: str, gate: str, sites: tuple[str, ...], worst: float, names: tuple[str, ...]
) -> Kill:
    inside = all(each == site or each.startswith(f"{site}/") or not site for each in sites)
    exact = sites == (site,) or (mutant.shares and bool(sites) and inside)
    margin = log10(worst / LOGIC) if 0.0 < worst < inf else (inf if worst else -inf)
    return Kill(example.name, mutant.name, site or "the network", gate, mutant.gate, sites, exact, margin, names,
                mutant.equivalent)  # fmt: skip


def _convert(family: Family, config: Any, tensors: dict[str, Array]) -> tuple[dict[str, Array], Any]:
    """The port's variables from the reference's tensors, through the table as a file's would go."""
    table = choose_table(tensors, "selftest")
    shapes = {name: array.shape for name, array in tensors.items()}
    constants = {name: constant.values.shape for name, constant in family.constants(config).items()}
    plan = make_plan(table, shapes, family.variables(config), constants, family.features(config))
    if isinstance(plan, Misfits):
        raise InternalError("selftest", plan.faults[0], "correct the table or the reference")
    made: dict[str, Array] = {}
    for move in plan.moves:
        made |= zip(move.targets, apply_rule(move.rule, [tensors[move.source]], move.sizes), strict=True)
    return made, table


def _filled(family: Family, config: Any, variables: dict[str, Array]) -> Any:
    model = family.build(config, "float64")
    for variable in model.weights:
        variable.assign(np.asarray(variables[variable.path], dtype=np.float64))
    return model
