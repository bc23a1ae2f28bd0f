"""Named axes: how reshapes and transposes move them, in the notation of the table's rules.

An axis of a tensor is a group of named atoms, the first of which varies slowest: ``b (c h w)``. A group without atoms
has size one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from wdport.mapping.kinds.kind import SPACES, Atom, Axes, Group

POOL = tuple("ndkmpqrsuvxyzaefgij")
"""Names of axes that nothing names."""

RANKS: Mapping[int, tuple[str, ...]] = {
    1: ("c",),
    2: ("b", "c"),
    3: ("b", "t", "c"),
    4: ("b", "c", "h", "w"),
    5: ("b", "c", "d", "h", "w"),
}
"""Default names of axes by rank, used until a layer determines better ones."""


@dataclass(frozen=True)
class AxisMove:
    """A rearrangement: the axes before and after, made of the same atoms."""

    before: Axes
    after: Axes

    def __str__(self) -> str:
        return f"{text(self.before)} -> {text(self.after)}"

    @property
    def sizes(self) -> dict[str, str]:
        """The sizes of the axes that are merged or split."""
        inner = [atom for side in (self.before, self.after) for group in side if len(group) > 1 for atom in group]
        return {atom.name: str(atom.size) for atom in inner}


def text(axes: Axes) -> str:
    """``b (c h w) 1``."""
    return " ".join(_group(group) for group in axes)


def _group(group: Group) -> str:
    names = [atom.name for atom in group]
    return f"({' '.join(names)})" if len(names) > 1 else names[0] if names else "1"


def atoms(axes: Axes) -> list[Atom]:
    return [atom for group in axes for atom in group]


def named(shape: Sequence[int], names: Sequence[str] = ()) -> Axes:
    """Axes of this shape: with these names, the default ones of its rank, or new ones if the batch is not first."""
    axis_names = list(names or RANKS.get(len(shape), ()))
    batched = bool(names) or (len(shape) > 1 and str(shape[0]) == "b")
    if not batched or len(axis_names) != len(shape):
        axis_names = ["b" if str(size) == "b" else name for size, name in zip(shape, _free(()), strict=False)]
    return tuple((Atom(name, size),) if size != 1 else () for name, size in zip(axis_names, shape, strict=True))


def image(shape: Sequence[int], previous: Axes | None = None) -> Axes:
    """Axes of a tensor with channels first; spatial ones keep their names and atoms."""
    spaces = SPACES.get(len(shape) - 2, tuple(_free(())[: len(shape) - 2]))
    groups: list[Group] = [(_single_atom(previous, 0) or Atom("b", shape[0]),), (Atom("c", shape[1], channel=True),)]
    old = _single_atom(previous, 1)
    if old and old.channel and old.size == shape[1]:
        groups[1] = (old,)
    for axis, (space, size) in enumerate(zip(spaces, shape[2:], strict=True)):
        group = previous[axis + 2] if previous and axis + 2 < len(previous) else ()
        if len(group) > 1 and all(atom.space >= 0 for atom in group) and atom_size(group) == size:
            groups.append(group)
            continue
        reused = _single_atom(previous, axis + 2)
        if reused and reused.space == axis and reused.size == size:
            groups.append((reused,))
            continue
        name = reused.name if reused and reused.name not in ("b", "c") and len(reused.name) == 1 else space
        groups.append((Atom(name, size, space=axis),))
    return unique(groups)


def _single_atom(axes: Axes | None, index: int) -> Atom | None:
    return axes[index][0] if axes and index < len(axes) and len(axes[index]) == 1 else None


def atom_size(group: Group) -> int:
    return prod(atom.size for atom in group)


def last(axes: Axes, size: int, name: str = "c") -> Axes:
    """The axes with a new last axis of features."""
    spatial = any(atom.space >= 0 for atom in atoms(axes[:-1]))
    return unique([*axes[:-1], (Atom(name, size, channel=spatial),) if size != 1 else ()])


def unique(axes: Sequence[Group]) -> Axes:
    """The axes with new names for atoms whose names are used by earlier atoms."""
    used: set[str] = set()
    groups: list[Group] = []
    for group in axes:
        renamed: list[Atom] = []
        for atom in group:
            if atom.name in used:
                atom = replace(atom, name=_free({*used, *(a.name for g in axes for a in g)})[0])
            used.add(atom.name)
            renamed.append(atom)
        groups.append(tuple(renamed))
    return tuple(groups)


def _free(excluded: Iterable[str]) -> list[str]:
    used = set(excluded)
    return [name for name in (*POOL, *(f"{a}{b}" for a in POOL for b in POOL)) if name not in used]


def regroup(axes: Axes, shape: Sequence[int]) -> AxisMove | None:
    """The reshape of a tensor with these axes to ``shape``, with atoms split as needed; ``None`` if a new axis combines
    parts of two axes."""
    rest = atoms(axes)
    parts: dict[Atom, list[Atom]] = {atom: [] for atom in rest}
    owners = {atom: atom for atom in rest}
    used = {atom.name for atom in rest}
    after: list[Group] = []
    for size in shape:
        group: list[Atom] = []
        left = int(size)
        # An axis of size one stays the same axis where both shapes have one in this place.
        if left == 1 and rest and rest[0].size == 1:
            group.append(rest.pop(0))
        while left > 1:
            if not rest:
                return None
            atom = rest.pop(0)
            if atom.size == 1:
                continue  # an axis of size one that goes
            if left % atom.size == 0:
                group.append(atom)
                left //= atom.size
                continue
            # The new axis would end inside an axis that it does not divide.
            if atom.size % left:
                return None
            first, second = _parted(atom, left, size, used)
            owner = owners.pop(atom)
            owners[first] = owners[second] = owner
            rest.insert(0, second)
            group.append(first)
            left = 1
        after.append(tuple(group))
    if any(atom.size != 1 for atom in rest) or 0 in shape:
        return None
    for atom in atoms(tuple(after)):
        parts[owners[atom]].append(atom)
    before = tuple(tuple(part for atom in group for part in parts[atom]) for group in axes)
    return AxisMove(before, tuple(after))


def _parted(atom: Atom, count: int, stated: int, used: set[str]) -> tuple[Atom, Atom]:
    """Split an atom in two, the first of size ``count``."""
    used.discard(atom.name)
    first, second = _free({*used, atom.name})[:2]
    used.update((first, second))
    size = stated if int(stated) == count else count
    return replace(atom, name=first, size=size), replace(atom, name=second, size=atom.size // count)


def permute(axes: Axes, order: Sequence[int]) -> AxisMove:
    return AxisMove(axes, tuple(axes[axis] for axis in order))


def chained(first: AxisMove, second: AxisMove) -> AxisMove:
    """Compose two moves; atoms that the second splits are split in the first as well."""
    parts: dict[Atom, list[Atom]] = {}
    left = atoms(second.before)
    for atom in atoms(first.after):
        pieces: list[Atom] = []
        if left and left[0] is atom:
            pieces.append(left.pop(0))
        elif atom.size != 1:  # a removed axis of size one
            while left and prod(piece.size for piece in pieces) < atom.size:
                pieces.append(left.pop(0))
        parts[atom] = pieces
    before = tuple(tuple(part for atom in group for part in parts[atom]) for group in first.before)
    return AxisMove(before, second.after)
