"""Test correct ports, and correct ways to run one, against the gates: each failure is a false alarm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from wdport.compare.bounds import bounds
from wdport.compare.calls import Case
from wdport.errors import IncompleteError
from wdport.families.faults import Bounds
from wdport.families.mutants import Mutant
from wdport.families.roles import Rewritten
from wdport.parity.selftest.example import EAGER, Example, How, Seen
from wdport.parity.selftest.inject import Inside, broken
from wdport.parity.selftest.rules import rejected_by
from wdport.parity.selftest.variant import Alarm, Variant
from wdport.parity.verdict import locate

COMPILED = How(eager=False)
OTHER_BATCHES = tuple(Case(seed, batch, scale) for seed, batch in ((4, 1), (5, 3)) for scale in (1.0, 50.0))
"""Run only compiled: eagerly, a batch of another size would take longer than all other ways together."""


def run_variants(example: Example, held: Bounds | None = None, single: bool = False) -> Iterator[Variant]:
    """Try every way to run the example's port, then every rewrite of it; ``single`` runs them in float32 too."""
    yield from run_ways(example, held, single)
    yield from run_rewrites(example, held, single)


def run_ways(example: Example, held: Bounds | None = None, single: bool = False) -> Iterator[Variant]:
    """Run the unchanged port: eager and compiled, on every case, in other batches, precisions and threads."""
    judge = _Judge(example, {**bounds(), **(held or {})}, single)
    for case in example.cases:
        yield judge(f"eager, {case.describe()}", [case])
    for case in (*example.cases, *OTHER_BATCHES):
        yield judge(f"compiled, {case.describe()}", [case], COMPILED)
    yield judge("compiled, matrix products as JAX has them", example.cases[:1], How(eager=False, precision="default"))
    for count in (1, 2):
        with _torch_threads(example, count):
            yield judge(f"eager, reference on {count} thread{'s' if count > 1 else ''}", example.cases[:1])


def run_rewrites(example: Example, held: Bounds | None = None, single: bool = False) -> Iterator[Variant]:
    """Run every rewrite of the port that its family has, eagerly, over all cases."""
    judge = _Judge(example, {**bounds(), **(held or {})}, single)
    family = example.family
    for rewrite in family.rewrites(example.config) if isinstance(family, Rewritten) else ():
        inside = partial(_everywhere, example, rewrite)
        yield judge(rewrite.name, example.cases, inside=inside, why=rewrite.equivalent)


@contextmanager
def _everywhere(example: Example, rewrite: Mutant, dtype: str) -> Iterator[None]:
    with ExitStack() as stack:
        for place in rewrite.places(example.layers(dtype)):
            stack.enter_context(broken(example, rewrite, place, dtype))
        yield


@contextmanager
def _torch_threads(example: Example, count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    example.forget()
    try:
        yield
    finally:
        torch.set_num_threads(before)
        example.forget()


def _as_it_is(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class _Judge:
    """Judges variants by preflight, constants, float64 and float32, and by the fixed tolerances."""

    def __init__(self, example: Example, held: Mapping[str, float], single: bool) -> None:
        self.example, self.held, self.single, self.limit = example, held, single, held["table_ulp"]

    def __call__(
        self,
        name: str,
        cases: Sequence[Case],
        how: How = EAGER,
        inside: Inside = _as_it_is,
        why: str = "",
    ) -> Variant:
        example, alarms = self.example, list[Alarm]()
        logic = ratio = 0.0
        single = self.single and all(case.numerics for case in cases)  # as in verify's battery
        for case in cases:
            example.use(case)
            with inside("float64"):
                logic = max(logic, self._look("A", example.logic, how, alarms).logic)
            if single:
                with inside("float32"):
                    ratio = max(ratio, self._look("B", example.numerics, how, alarms).ratio)
                    off = (at for at, distance in example.table_distances().items() if not distance <= self.limit)
                    alarms += [Alarm("A'", at) for at in off]
        rejected = None
        if single and cases[0] in example.cases:
            example.use(cases[0])
            with inside("float32"):
                rejected = rejected_by(partial(example.outputs, how=how))
        known = ratio if single else None
        return Variant(example.name, name, logic, known, tuple(dict.fromkeys(alarms)), rejected, why)

    def _look(self, gate: str, run: Any, how: How, alarms: list[Alarm]) -> Seen:
        try:
            seen: Seen = run(how)
        except IncompleteError as error:
            alarms.append(Alarm("0", str(error.where)))
            return Seen((), ())
        alarms += [Alarm("0", name) for name in seen.missing]
        faults = locate(seen.results, self.held["logic"], self.held["numerics"])
        alarms += [Alarm(gate, fault.candidate or "the network") for fault in faults]
        return seen
