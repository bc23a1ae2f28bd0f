"""How often float32 (B) would fail a correct port by chance: many sets of seeds on converted checkpoints.

    python bench/alarms.py CHECKPOINT CONVERTED [--sets 200] [--eager]

Every set is the float32 part of the battery with other seeds. Prints the largest ratio of each set, by the errors
alone and as float32 (B) judges them, and the sets that exceed the bound.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import jax
import numpy as np

from wdport.compare.bounds import NUMERICS
from wdport.compare.calls import CASES, Calls, Case, cast
from wdport.compare.errors import InPort, fed, made
from wdport.compare.measure import ErrorPair
from wdport.compare.probe import Probe
from wdport.compare.taps import Tap, align
from wdport.conversion.load import open_converted
from wdport.conversion.prepare import Prepared, Settings, prepare
from wdport.keras_runtime import layers_by_path
from wdport.parity.sides import Sides, Weights, build_sides, change_weights, converted_weights, with_random_biases

Pairs = dict[tuple[str, str], ErrorPair]


class Trial:
    """One converted checkpoint, its port run compiled or eagerly."""

    def __init__(self, prepared: Prepared, sides: Sides, weights: Weights, eager: bool) -> None:
        self.prepared, self.sides, self.now = prepared, sides, weights
        self.sets = {False: weights, True: with_random_biases(prepared, weights, sides.reference.shifts)}
        features = prepared.family.features(prepared.config)
        layers = layers_by_path(sides.candidates["float32"])
        self.taps: list[Tap] = align(prepared.table, sides.reference.names, layers, features)
        self.probe = Probe(sides.candidates["float32"], [tap.candidate for tap in self.taps], eager=eager)
        self.shapes: dict[int, Calls] = {}

    def ratios(self, number: int) -> tuple[float, float]:
        """The largest ratio of one set of seeds: by the errors alone, and as float32 (B) judges them."""
        pairs: Pairs = {}
        cases = [replace(case, seed=1000 * number + case.seed) for case in CASES if case.numerics]
        for case in cases:
            self._add(case, pairs)
        alone = _largest(pairs)
        if alone > NUMERICS:
            for case in cases:
                self._use(case)
                for name, spread in self.sides.reference.conditioning(case, "float32").taps.items():
                    for side, pair in (("out", spread.made), ("in", spread.fed)):
                        if (name, side) in pairs:
                            pairs[name, side].allow(*pair)
        return alone, _largest(pairs)

    def _use(self, case: Case) -> None:
        wanted = self.sets[case.random_biases]
        if wanted is not self.now:
            change_weights(self.prepared, self.sides, wanted, self.now)
            self.now = wanted

    def _add(self, case: Case, pairs: Pairs) -> None:
        self._use(case)
        seen = self.sides.reference.observe(case, [tap.reference for tap in self.taps])
        assert seen.single is not None
        with jax.default_matmul_precision("highest"):
            if case.batch not in self.shapes:
                self.shapes[case.batch] = self.probe.shapes(seen.single.inputs)[1]
            into = InPort(self.taps, self.shapes[case.batch])
            answers = into({name: cast(call, np.float32) for name, call in seen.calls.items()})
            _, port = self.probe.isolate(seen.single.inputs, answers)
        single, truth = (into(calls) for _, calls in seen.single.isolated)
        for tap in self.taps:
            own, reference, right = port[tap.candidate], single[tap.candidate], truth[tap.candidate]
            sides = {"out": (made(tap, own, right), reference.outputs), "in": (fed(own, right), reference.given)}
            for side, (found, theirs) in sides.items():
                for (c, t), r in zip(found or (), theirs, strict=True):
                    pairs.setdefault((tap.reference, side), ErrorPair()).add(c, r, t)


def _largest(pairs: Pairs) -> float:
    return max(max(pair.rms_ratio, pair.max_ratio) for pair in pairs.values())


def main() -> None:
    """Print the distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("converted")
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--eager", action="store_true")
    told = parser.parse_args()
    opened = open_converted(told.converted)
    known = {name: value for name, value in asdict(opened.config).items() if value is not None}
    with prepare(told.checkpoint, Settings(known=known)) as prepared:
        weights = converted_weights(prepared, opened)
        trial = Trial(prepared, build_sides(prepared, weights), weights, told.eager)
        found = np.array([trial.ratios(number) for number in range(told.sets)])
    print(f"{Path(told.checkpoint).name}, {'eager' if told.eager else 'compiled'}, {told.sets} sets of seeds")
    for name, values in zip(("errors alone", "float32 (B)"), found.T, strict=True):
        alarms = int(np.sum(values > NUMERICS))
        print(
            f"  {name:<13} median {np.median(values):.2f}, largest {values.max():.2f}, {alarms} sets above {NUMERICS:g}"
        )


if __name__ == "__main__":
    main()
