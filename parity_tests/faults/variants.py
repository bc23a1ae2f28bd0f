"""Have `verify` judge correct ports, and correct ways to run one: each failure is a false alarm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from wdport.families.faults import Bounds
from wdport.parity.run_gates import Setup
from wdport.parity.selftest.result import Alarm, Variant, rejected_by
from wdport.parity.selftest.specimen import EAGER, Injected, Recalled, Specimen
from wdport.parity.verdict_api import Verdict

SEEDS = (1, 2, 3)
"""Of other inputs."""


def run_variants(specimen: Specimen, held: Bounds | None = None, rules: bool = False) -> Iterator[Variant]:
    """Try every way to run the specimen's port, then every rewrite of it; ``rules`` applies the fixed tolerances."""
    yield from run_ways(specimen, held, rules)
    yield from run_rewrites(specimen, held, rules)


def run_ways(specimen: Specimen, held: Bounds | None = None, rules: bool = False) -> Iterator[Variant]:
    """Run the unchanged port eagerly and compiled, against references on one thread and on two, and as users do, with
    every gate."""
    yield _variant(specimen, "eager", EAGER, held, rules)
    yield _variant(specimen, "compiled, every gate", Setup(), held, rules)
    for seed in SEEDS:
        yield _variant(specimen, f"eager, inputs of seed {seed}", EAGER, held, rules, seed=seed)
    for count in (1, 2):
        with _torch_threads(count):
            setup = Setup(network=True, reference=Recalled(specimen.live))
            threads = f"compiled, reference on {count} thread{'s' if count > 1 else ''}"
            yield _variant(specimen, threads, setup, held, rules)


def run_rewrites(specimen: Specimen, held: Bounds | None = None, rules: bool = False) -> Iterator[Variant]:
    """Run every rewrite of the port that its family has, everywhere at once."""
    layers = specimen.layers()
    for rewrite in specimen.faults.rewrites(specimen.config):
        everywhere = [(rewrite, place) for place in rewrite.places(layers)]
        yield _variant(specimen, rewrite.name, EAGER, held, rules, everywhere, rewrite.equivalent)


def _variant(
    specimen: Specimen,
    name: str,
    setup: Setup,
    held: Bounds | None,
    rules: bool,
    changes: Sequence[Injected] = (),
    why: str = "",
    seed: int = 0,
) -> Variant:
    verdict = specimen.verify(changes, held=held, setup=setup, seed=seed)
    worst = {gate.name: gate.worst for gate in verdict.gates}
    rejected = rejected_by(partial(specimen.outputs, changes)) if rules else None
    return Variant(specimen.name, name, worst["A"], worst["B"], tuple(_alarms(verdict)), rejected, why)


def _alarms(verdict: Verdict) -> Iterator[Alarm]:
    """The gates that fail, with the layers that they name, or else their findings."""
    places = [fault.candidate or "the network" for fault in verdict.faults]
    for gate in verdict.gates:
        if not gate.passed:
            subjects = [finding.subject or str(finding) for finding in gate.findings if not finding.notice]
            named = places if gate.name in ("A", "B") and places else subjects or ["not everything was compared"]
            yield from (Alarm(gate.name, place) for place in dict.fromkeys(named))


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
