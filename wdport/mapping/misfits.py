"""The faults that prevent a plan, as sentences, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wdport.mapping.axes import Shape


@dataclass(frozen=True)
class Misfits:
    """Everything that does not fit, one sentence each, worst first; ``sized`` if a weight has another number of
    inputs, as a preceding layer with another output size would cause. ``unexpected`` are tensors that no row names, if
    there is no other fault."""

    faults: tuple[str, ...] = ()
    sized: bool = field(default=False, compare=False)
    unexpected: tuple[str, ...] = field(default=(), compare=False)


def sentences(
    doubled: Sequence[str],
    missing: Mapping[str, Shape | None],
    misshapen: Sequence[str],
    unexpected: Sequence[str],
    idle: Sequence[str],
    sources: Mapping[str, Shape],
) -> tuple[str, ...]:
    """Return all faults; a missing and an unexpected tensor of the same shape are reported as a renaming."""
    faults = [*doubled]
    left = list(unexpected)
    absent = dict(missing)
    for name, shape in missing.items():
        alike = [other for other in left if sources[other] == shape]
        rivals = [other for other, its in absent.items() if its == shape]
        if len(alike) == 1 and len(rivals) == 1:
            faults.append(f"missing {name}; is {alike[0]} the same tensor renamed?")
            left.remove(alike[0])
            del absent[name]
    faults += [f"missing {name}" + (f" {shape}" if shape is not None else "") for name, shape in absent.items()]
    faults += misshapen
    faults += [f"unexpected {name} {sources[name]}" for name in left]
    return (*faults, *idle)
