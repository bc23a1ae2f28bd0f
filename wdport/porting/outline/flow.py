"""Track the axes of every tensor through a traced run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wdport.mapping.kinds import FUNCTIONS, MODULES
from wdport.mapping.kinds.image_axes import Atom, Axes, Group
from wdport.mapping.kinds.kind import OutputAxes
from wdport.porting.outline.axes import (
    RANKS,
    Move,
    atom_size,
    image,
    last,
    named,
    permute,
    regroup,
    unique,
)
from wdport.porting.outline.events import Event, Seen, Slice, Source, Trace, seen_in
from wdport.porting.outline.function_axes import broadcast, indexed, plain, product, stacked, summed, without
from wdport.porting.outline.functions import bound, canonical, dims, order_of
from wdport.porting.outline.settings import torch_class
from wdport.recorder import Input

RESHAPES = frozenset((
    "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel", "view_as_real",
))  # fmt: skip


class Flow:
    """The axes of every tensor of a run, by its source, and the moves of those that rearrange one.

    Axes that the user did not name get their names from the layers that read them, which takes two passes.
    """

    def __init__(self, trace: Trace, inputs: Sequence[Input]) -> None:
        self._learned: dict[tuple[str, int], tuple[str, int, bool]] = {}
        self._told = {each.name: each for each in inputs}
        for _ in range(2):
            self.axes: dict[Source, Axes] = {}
            self.moves: dict[int, Move] = {}
            self._loose: dict[Atom, tuple[str, int]] = {}
            for event in trace.events:
                self._follow(event)

    def of(self, seen: Seen) -> Axes:
        """The axes of a recorded tensor."""
        known = self.axes.get(seen.source)
        if known is None or [atom_size(group) for group in known] != list(seen.shape):
            known = self._input(seen) if seen.source.kind == "input" else named(seen.shape)
            self.axes[seen.source] = known
        return known

    def _input(self, seen: Seen) -> Axes:
        """Axes of an input of the model: named by the user, by the layers that read them, or by their number."""
        told = self._told.get(seen.source.name)
        said = told.axes if told and len(told.axes) == len(seen.shape) else ("_",) * len(seen.shape)
        plain = RANKS.get(len(seen.shape), said) if told else tuple(g[0].name if g else "c" for g in named(seen.shape))
        made: list[Group] = []
        for at, (own, size) in enumerate(zip(said, seen.shape, strict=True)):
            name, space, channel = self._learned.get((seen.source.name, at), (plain[at], -1, False))
            atom = Atom(name if own.startswith("_") else own, size, space, channel)
            self._loose[atom] = (seen.source.name, at)
            made.append((atom,) if size != 1 or channel or space >= 0 else ())
        return unique(made)

    def _follow(self, event: Event) -> None:
        if event.module is not None and not event.whole:
            return
        if event.module is not None:
            self._layer(event, torch_class(event.module))
            return
        name, given = canonical(event.name), event.inputs
        if not given or not event.outputs:
            return
        move = self.move(event, name)
        if move is not None:
            self.moves[event.serial] = move
            self.axes[event.outputs[0].source] = move.after
            return
        for at, made in enumerate(event.outputs):
            self.axes[made.source] = self._fitting(self._function(event, name, made, at), made.shape)

    def _fitting(self, axes: Axes | None, shape: Sequence[int]) -> Axes:
        """The axes with the sizes of the tensor; an atom of another size becomes a new atom of the same name."""
        if axes is None or len(axes) != len(shape):
            return named(shape)
        made: list[Group] = []
        for group, size in zip(axes, shape, strict=True):
            if atom_size(group) == size:
                made.append(group)
            elif len(group) == 1:
                atom = replace(group[0], size=size)
                if group[0] in self._loose:
                    self._loose[atom] = self._loose[group[0]]
                made.append((atom,) if size != 1 or atom.channel or atom.space >= 0 else ())
            else:
                made.append((Atom("b" if str(size) == "b" else "n", size),) if size != 1 else ())
        return unique(made)

    def move(self, event: Event, name: str) -> Move | None:
        """The rearrangement that a function performs."""
        given = event.inputs[0]
        if len(event.outputs) != 1:
            return None
        shape = event.outputs[0].shape
        if name in RESHAPES or (name == "getitem" and _only_new_axes(event)):
            return regroup(self.of(given), shape)
        order = order_of(event, len(given.shape))
        return permute(self.of(given), order) if order is not None else None

    def _layer(self, event: Event, name: str) -> None:
        given = next(seen_in(list(event.kwargs.values())), None)
        if given is None or not event.outputs:
            return
        axes, rule = self.of(given), _rule(name)
        if rule == "image" and len(given.shape) > 2:
            axes = self._as_image(given, axes)
        for at, made in enumerate(event.outputs):
            self.axes[made.source] = self._fitting(self._made(event, rule, axes, made, at), made.shape)

    def _made(self, event: Event, rule: OutputAxes, axes: Axes, made: Seen, at: int) -> Axes | None:
        if rule == "image" and len(made.shape) > 2:
            return image(made.shape, axes)
        if rule == "features":
            return _features(axes, made) if at == 0 else None
        if rule == "flat":
            move = regroup(axes, made.shape)
            if move is not None:
                self.moves[event.serial] = move
            return move.after if move else None
        return axes if len(axes) == len(made.shape) else None

    def _as_image(self, given: Seen, axes: Axes) -> Axes:
        found = image(given.shape, axes)
        for old, new in zip(axes, found, strict=True):
            if len(old) == 1 and len(new) == 1 and old[0] in self._loose:
                self._learned.setdefault(self._loose[old[0]], (new[0].name, new[0].space, new[0].channel))
        if not any(atom.channel for group in axes for atom in group):
            self.axes[given.source] = found
        return found

    def _function(self, event: Event, name: str, made: Seen, at: int) -> Axes | None:
        given, told = event.inputs, bound(event)
        axes, rank = self.of(given[0]), len(given[0].shape)
        rule = _rule(FUNCTIONS[name].module) if name in FUNCTIONS else ""
        if rule == "image" and rank > 2:
            return image(made.shape, self._as_image(given[0], axes))
        if rule == "features":
            return _features(axes, made)
        if name == "matmul":
            return product(axes, self.of(given[1]), made) if len(given) > 1 else None
        if name == "einsum":
            return summed(str(told["equation"]), [self.of(each) for each in given])
        if name == "scaled_dot_product_attention":
            return plain((*axes[:-1], self.of(given[2])[-1]))
        if name in ("cat", "split", "chunk", "tensor_split", "narrow", "index_select", "pad"):
            return axes
        if name in ("stack", "unbind", "select"):
            dim = int(told.get("dim", 0))
            return stacked(axes, made, dim) if name == "stack" else without(axes, [dim % rank])
        if name == "getitem":
            return indexed(axes, told.get("index"))
        if made.shape == given[0].shape:
            return axes
        if "dim" in told and len(made.shape) < rank:
            return without(axes, dims(told["dim"], rank) or [])
        if name == "expand":
            return broadcast([axes], made)
        if len(made.shape) == rank and "keepdim" in told:
            return axes
        return broadcast([self.of(each) for each in given], made)


def _rule(name: str) -> OutputAxes:
    """How the output axes of a class of ``torch.nn`` follow from its input axes."""
    return MODULES[name].output if name in MODULES else ""


def _features(axes: Axes, made: Seen) -> Axes:
    """The axes with new features at the end, in place of the last one or after it."""
    return last(axes if len(axes) == len(made.shape) else (*axes, ()), made.shape[-1])


def _only_new_axes(event: Event) -> bool:
    index = event.args[1] if len(event.args) > 1 else None
    items = index if isinstance(index, tuple) else (index,)
    whole = all(item is None or item is ... or item == Slice(None, None, None) for item in items)
    return whole and any(item is None for item in items)
