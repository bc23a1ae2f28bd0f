"""The self-test: no file goes in, every known fault's fate and every correct variant come out."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec

import jax

from wdport.compare.bounds import bounds as default_bounds
from wdport.errors import InternalError, MachineError
from wdport.families.faults import Group, Kill
from wdport.families.registry import find_family
from wdport.families.roles import Faulty, Sampled, Trained
from wdport.parity.selftest.edits import read_edits, run_edits
from wdport.parity.selftest.example import Example
from wdport.parity.selftest.groups import further_groups, layer_group
from wdport.parity.selftest.inject import Bounds, run_mutants
from wdport.parity.selftest.result import GroupResult, SelftestResult
from wdport.parity.selftest.samplers import run_sampler_faults
from wdport.parity.selftest.training import run_training_faults
from wdport.parity.selftest.variant import Variant
from wdport.parity.selftest.variants import run_variants

Say = Callable[[str], None]
FAMILY = "waveletdiff"
QUICK_SAMPLER_FAULT = "target mixed up"


def run_selftest(
    quick: bool = False, bounds: Bounds | None = None, say: Say | None = None, edits: bool = False
) -> SelftestResult:
    """Put every known fault into a correct port, one at a time, and run correct ports in many ways.

    Args:
        quick: a dozen faults only, without diagnosis and without correct variants.
        edits: edits of the source in place of known faults, each tried by a whole `verify` in a copy of wdport.
        bounds: those to judge by that are not the default, by name.
        say: called with a few words at every step, for a progress display.

    Raises:
        MachineError: torch is missing.
    """
    _require_torch()
    started = time.monotonic()
    say = say or (lambda _: None)
    limits = {**default_bounds(), **(bounds or {})}
    groups: list[GroupResult] = []
    variants: list[Variant] = []
    if edits:
        family = _family()
        tried = run_edits(family, read_edits(family.edits()))
        groups.append(_gather(Group("", "source edits", tried), say))
    elif quick:
        groups.append(_gather(Group("", "quick faults", _quick(limits)), say))
    else:
        family = _family()
        for at, name in enumerate(family.examples()):
            group, correct = run_example(name, limits, say, single=at == 0)
            groups.append(group)
            variants += correct
        groups += [_gather(group, say) for group in further_groups(family, limits)]
    seconds = time.monotonic() - started
    return SelftestResult(tuple(groups), tuple(variants), quick, edits, limits, _environment(), seconds)


def run_example(
    name: str, held: Bounds | None = None, say: Say = lambda _: None, single: bool = False
) -> tuple[GroupResult, tuple[Variant, ...]]:
    """The faults and the correct variants of one of the family's examples; ``single`` runs them in float32 too."""
    family = _family()
    say(f"{name}: building both models")
    example = Example(name, family, family.examples()[name])
    group = _gather(layer_group(example, held or {}, single), say)
    variants = []
    for variant in run_variants(example, held, single):
        say(f"{name}, correct: {variant.name}")
        variants.append(variant)
    return group, tuple(variants)


def run_quick(bounds: Bounds | None = None) -> tuple[Kill, ...]:
    """The fates of a dozen faults and more, one at least for each bound; ``bounds`` are those to judge by that are not
    the default, by name.

    That is what a loosened bound must still do: every one of them must be :attr:`Kill.right`. The training faults
    take as long as all the others, and are there only where ``gradient`` is looser than it is by default.

    Raises:
        MachineError: torch is missing.
    """
    _require_torch()
    return tuple(_quick({**default_bounds(), **(bounds or {})}))


def _family() -> Faulty:
    family = find_family(FAMILY, "selftest")
    if not isinstance(family, Faulty):
        raise InternalError("selftest", f"the {FAMILY} family has no known faults", "report this")
    return family


def _require_torch() -> None:
    if find_spec("torch") is None:
        what = "the reference needs torch, which is not installed"
        raise MachineError("selftest", what, "install wdport[torch]")


def _quick(held: Bounds) -> Iterator[Kill]:
    family = _family()
    example = Example("the smallest port", family, family.smallest())
    yield from run_mutants(example, lambda mutant: mutant.quick, held, diagnose=False, brief=True)
    for group in family.faults(held, quick=True):
        yield from group.kills
    example.use(example.cases[0])  # a fault that lived has seen them all
    if isinstance(family, Sampled):
        yield from run_sampler_faults(example.name, family, example.weights, held, QUICK_SAMPLER_FAULT)
    if isinstance(family, Trained) and held["gradient"] > default_bounds()["gradient"]:
        yield from run_training_faults(example.name, family, example.weights, held)


def _gather(group: Group, say: Say) -> GroupResult:
    kills = []
    for kill in group.kills:
        say(f"{group.name}: {kill.mutant}")
        kills.append(kill)
    return GroupResult(group.gate, group.name, tuple(kills))


def _environment() -> dict[str, str]:
    packages = {name: version(name) for name in ("wdport", "torch", "keras", "jax", "numpy")}
    return {"python": platform.python_version(), **packages, "device": str(jax.devices()[0])}
