"""Convert the names of a state_dict to the network's names, without the prefixes of wrappers.

``torch.compile`` puts the component ``_orig_mod`` before the names of the module that it compiles, at any depth;
``DistributedDataParallel`` and averaged models put ``module`` before all names. A prefix is removed only if every name
has it: a partly wrapped file is ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from wdport.checkpoint.faults import RENAME, Fault

_COUNTER: Final = "n_averaged"
_COMPILED: Final = "_orig_mod"
_WRAPPERS: Final = ("module.", f"{_COMPILED}.")


class NameCollision(Exception):
    """Two tensors, the arguments, would have one name."""


@dataclass(frozen=True)
class Names:
    """The result of stripping; ``network_names`` maps stored names to the network's names, in stored order."""

    network_names: dict[str, str]
    prefixes: tuple[str, ...]
    """Outermost first; a prefix inside the names includes its parent, such as ``"net._orig_mod."``."""
    ignored: dict[str, str]
    """Entries that are not tensors of the network, with the reason."""

    @property
    def averaged(self) -> bool:
        return bool(self.ignored)


def strip_prefixes(stored: Iterable[str]) -> Names:
    """Strip the wrappers from all names, or raise :class:`Fault` if only some names have one."""
    names = {name: name for name in stored}
    prefixes: list[str] = []
    ignored: dict[str, str] = {}
    while True:
        counter = next((name for name, short in names.items() if short == _COUNTER), None)
        rest = [name for name in names if name != counter]
        if counter and rest and all(names[name].startswith("module.") for name in rest):
            ignored[counter] = "counter of an averaged model"
            del names[counter]
        prefix = _shared_prefix(names)
        if prefix is None:
            break
        names = {name: short[len(prefix) :] for name, short in names.items()}
        prefixes.append(prefix)
    inner = _inner_places(names)
    return Names({name: _without(short, inner) for name, short in names.items()}, (*prefixes, *inner), ignored)


def _shared_prefix(names: dict[str, str]) -> str | None:
    """Return the wrapper prefix that all names have, if any."""
    for prefix in _WRAPPERS:
        wrapped = [name for name, short in names.items() if short.startswith(prefix)]
        if wrapped and len(wrapped) == len(names):
            return prefix
        if wrapped:
            _refuse_mixture(names, prefix)
    return None


def _inner_places(names: dict[str, str]) -> list[str]:
    """Return every ``parent._orig_mod.`` inside the names; all names below such a parent must contain it."""
    places = dict.fromkeys(
        head for short in names.values() for head in _heads(short) if head.endswith(f".{_COMPILED}.")
    )
    parents = {place.removesuffix(f"{_COMPILED}.") for place in places}
    for short in names.values():
        for head, deeper in pairwise([*_heads(short), short]):
            if head in parents and deeper != f"{head}{_COMPILED}.":
                below = {name: path[len(head) :] for name, path in names.items() if path.startswith(head)}
                _refuse_mixture(below, f"{_COMPILED}.")
    return list(places)


def _heads(short: str) -> list[str]:
    """``["a.", "a.b."]`` for ``"a.b.c"``."""
    return [short[: index + 1] for index, character in enumerate(short) if character == "."]


def _without(short: str, places: list[str]) -> str:
    if not places:
        return short
    parts = short.split(".")
    return ".".join([part for part in parts[:-1] if part != _COMPILED] + parts[-1:])


def _refuse_mixture(names: dict[str, str], prefix: str) -> None:
    """Refuse names of which only some have ``prefix``; the fault names two that would be equal, otherwise one that
    lacks it."""
    by_short = {short: name for name, short in names.items()}
    for short, name in by_short.items():
        bare = short.removeprefix(prefix)
        if bare != short and bare in by_short:
            raise NameCollision(by_short[bare], name)
    lacking = next(name for name, short in names.items() if not short.startswith(prefix))
    raise Fault(f"has no prefix {prefix!r}, which other tensors carry", RENAME, lacking)
