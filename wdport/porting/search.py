"""Runs of the Keras model until every layer has its weights and the outputs agree, or no guess is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wdport.model import Array
from wdport.porting.assigning import Assigning, Decision, KerasSide, Outcome, next_guess
from wdport.porting.torch_run import TorchRun
from wdport.porting.units import Unit

MOST_PASSES = 20
"""Runs of the Keras model before the search gives up."""


@dataclass
class Search:
    """The result of the runs: the last one if it succeeded, or else the one that got furthest."""

    outcome: Outcome
    passes: int
    exhausted: bool = True


def search(
    side: KerasSide, run: TorchRun, units: Sequence[Unit], inputs: Sequence[Array],
    say: Callable[[str], None] | None = None, max_passes: int = MOST_PASSES,
) -> Search:  # fmt: skip
    """Run the model, and after every dead end run it again with the last unsettled guess changed."""
    prefix: list[Decision] = []
    best: Outcome | None = None
    budget = max_passes * max(len(side.layers), 1)
    for count in range(1, max_passes + 1):
        if say:
            say(f"run {count}: {len(prefix)} guesses reused")
        running = Assigning(side, run, units, prefix, budget)
        outcome = running.go(inputs)
        budget = running.budget
        if outcome.dead_end is None:
            return Search(outcome, count)
        if best is None or _progress(outcome) > _progress(best):
            best = outcome
        guesses = next_guess(outcome.decisions)
        if guesses is None or budget <= 0:
            return Search(best, count, guesses is None)
        prefix = guesses
    assert best is not None
    return Search(best, max_passes, exhausted=False)


def _progress(outcome: Outcome) -> tuple[bool, int]:
    deepest = outcome.deepest or outcome
    return (deepest.dead_end is not None and deepest.dead_end.reason == "end", len(deepest.matched))
