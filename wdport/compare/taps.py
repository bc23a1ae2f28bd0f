"""Taps: the pairs of layers of two models whose outputs must agree, from a mapping table.

The table that moves the weights also states which layers correspond; nothing is guessed. Every row must find its layers
on both sides, and every layer is used once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wdport.base.errors import IncompleteError
from wdport.compare.calls import call_name, layer_of
from wdport.compare.findings import Finding, fact
from wdport.compare.layouts import Layout, axes
from wdport.mapping.axes import Rule
from wdport.mapping.kinds import KINDS
from wdport.mapping.names import PatternError
from wdport.mapping.rows import Table, TapRow
from wdport.models.interface import KerasLayer


@dataclass(frozen=True)
class Tap:
    """One call of a layer of the reference (torch module path) and its counterpart (Keras layer path).

    ``part`` is the part of the output that the layer belongs to, if its row has that index. Outputs of a tap with
    ``shift`` need to agree only up to a constant along the tokens (axis 1): a bias of the keys, to which softmax is
    invariant. ``optional`` taps may be :func:`left_out`. ``layout`` is the layout of activations in the port, ``kind``
    the kind of layer, ``stack`` the layers, up to this one, that correspond to one module of the reference.
    """

    reference: str
    candidate: str
    part: int | None
    shift: bool = False
    optional: bool = False
    layout: Layout = field(default=Layout(), compare=False)
    kind: str = field(default="", compare=False)
    stack: tuple[str, ...] = field(default=(), compare=False)

    @property
    def fed(self) -> str:
        """The call of the first layer of a stack, which gets the inputs of the reference's module; "" without a
        stack."""
        return self.stack[0] + self.candidate.removeprefix(self.stack[-1]) if self.layout.outputs_only else ""


def align(
    table: Table, modules: Collection[str], layers: Collection[str], features: Collection[str],
    stated: Sequence[str] = (), part: str = "part",
) -> list[Tap]:  # fmt: skip
    """Find all taps, in the order of ``modules``; raises :class:`IncompleteError` if one has no counterpart.

    If the kind of a row has tensors, some of its matches, but not all, may lack the layer: such a match has no tensors,
    since the plan would have refused them. It is left out; see :func:`unconverted`.

    ``stated`` are the axes of the network's inputs and outputs, which apply to activations of the same rank;
    ``part`` is the index of the parts of the output.
    """
    rows = [row for row in table.taps if row.when is None or row.when in features]
    taps: list[Tap] = []
    absent = unconverted(table, modules, layers, features)
    matched: set[int] = set()  # rows by identity: several may be on one line
    fix = "correct the rows under layers in the mapping table"
    for module in modules:
        for row in rows:
            indices = row.torch.match(module)
            if indices is not None and module not in absent:
                path = _layer(row, indices, layers)
                layout = layout_of(row, layers.get(path) if isinstance(layers, Mapping) else None, stated)
                stack = _stack(row, indices, path, layers)
                layout = replace(layout, outputs_only=len(stack) > 1)
                taps.append(Tap(module, path, indices.get(part), row.shift, row.optional, layout, row.kind, stack))
                matched.add(id(row))
    attentions = {row.torch.text.rpartition(".")[0] for row in rows if row.implied and id(row) in matched}
    lacking = []
    for row in rows:  # all insides of an attention may be missing, but not some
        needed = row.torch.text.rpartition(".")[0] in attentions if row.implied else not row.optional
        lacking += [row] if needed and id(row) not in matched else []
    if lacking:
        where, names = (lacking[0].file or table.path, f"line {lacking[0].line}"), [row.torch.text for row in lacking]
        raise IncompleteError(where, f"the reference has no layer {', '.join(names)}", fix)
    for tap in taps:
        if tap.candidate not in layers:
            raise IncompleteError((table.path, tap.candidate), "the Keras model has no such layer", fix)
    for side in ("reference", "candidate"):
        for name, count in Counter(getattr(tap, side) for tap in taps).items():
            if count > 1:
                raise IncompleteError((table.path, name), "is named by two rows of layers", fix)
    return taps


def is_one_layer(table: Table) -> bool:
    """Whether the table names the model itself as a layer."""
    return any(row.layer is not None and not row.layer.torch.text for row in table.rows)


def unconverted(
    table: Table, modules: Collection[str], layers: Collection[str], features: Collection[str]
) -> dict[str, str]:
    """The modules matched by a row of a kind with tensors whose Keras layer does not exist, with the layer's path, if
    other matches of the row have one: a convolution in one block that is ``torch.nn.Identity`` in another."""
    absent: dict[str, str] = {}
    for row in table.taps:
        kind = KINDS.get(row.kind)
        if not kind or not kind.parts or kind.bare or row.implied or row.stack or row.when not in (None, *features):
            continue
        hits = ((module, row.torch.match(module)) for module in modules)
        paths = {module: _layer(row, indices, layers) for module, indices in hits if indices is not None}
        lacking = {module: path for module, path in paths.items() if path not in layers}
        absent |= lacking if len(lacking) < len(paths) else {}
    return absent


def without_module(table: Table, modules: Collection[str], features: Collection[str]) -> list[str]:
    """The module paths of optional rows for which the reference has no module; nothing is compared there."""
    rows = [row for row in table.taps if row.optional and not row.implied and row.when in (None, *features)]
    return [row.torch.text for row in rows if not any(row.torch.match(name) is not None for name in modules)]


def layout_of(row: TapRow, layer: KerasLayer, stated: Sequence[str] = ()) -> Layout:
    """The layout of this layer's activations in the port: by its row, its kind, or the ``stated`` axes of its rank.

    A channels-first layer keeps the reference's order.
    """
    rules = [] if is_channels_first(layer) else [*row.axes, *map(axes, stated)]
    inputs = list(rules)
    if row.flatten is not None:
        # With or without a time axis before the flattened one.
        inputs = [axes(f"{before}{row.flatten.source} -> {before}{row.flatten.target}") for before in ("b ", "b t ")]
    kind = KINDS.get(row.kind)
    padded, cropped = (kind.padded, kind.cropped) if kind else ("", False)
    return Layout(tuple(inputs), tuple(rules), row.then, row.sizes, padded, cropped=cropped)


def watched(taps: Sequence[Tap]) -> list[str]:
    return list(dict.fromkeys(layer_of(path) for tap in taps for path in (tap.candidate, tap.fed) if path))


def stated_by(taps: Sequence[Tap], modules: Mapping[str, object]) -> list[Tap]:
    """The taps with what the reference's ``modules`` state: the padding, the cropping, and that the time is their first
    axis, which equal sizes do not show; without modules it stays unknown."""
    padded_taps = []
    for tap in taps:
        module, layout = modules.get(tap.reference), tap.layout
        if layout.padded == "module" and (mode := getattr(module, "padding_mode", "")):
            layout = replace(layout, padded=mode)
        if layout.cropped and isinstance(widths := getattr(module, "padding", ""), tuple):
            layout = replace(layout, before=widths)
        if tap.kind in KINDS and getattr(module, "batch_first", True) is False:
            inputs, outputs = (tuple(sorted(rules, key=_keeps)) for rules in (layout.inputs, layout.outputs))
            layout = replace(layout, inputs=inputs, outputs=outputs)
        padded_taps.append(replace(tap, layout=layout))
    return padded_taps


def _keeps(rule: Rule) -> bool:
    """Whether axes stay in their order."""
    return rule.source == rule.target


def is_channels_first(layer: KerasLayer) -> bool:
    """Whether a Keras layer is channels-first: by its ``data_format``, or by the axis that it normalises or does not
    share a slope along."""
    axis, shared = getattr(layer, "axis", None), getattr(layer, "shared_axes", None) or [1]
    return getattr(layer, "data_format", None) == "channels_first" or axis in (1, [1], (1,)) or 1 not in shared


def _layer(row: TapRow, indices: Mapping[str, int], layers: Collection[str]) -> str:
    """The layer that a row names: the first alternative that the model has, or else the first; the last of a stack."""
    if row.keras is row.stack:
        return max(_stacked(row, indices, layers).items(), default=(0, row.keras.text))[1]
    try:
        names = [pattern.format(indices) for pattern in (row.keras, *row.others)]
    except PatternError as error:
        raise IncompleteError(
            f"line {row.line}", str(error), "correct the rows under layers in the mapping table"
        ) from None
    return next((name for name in names if name in layers), names[0])


def _stack(row: TapRow, indices: Mapping[str, int], path: str, layers: Collection[str]) -> tuple[str, ...]:
    """The layers up to ``path`` that correspond to one module of the reference; empty if it is not the last of a
    stack."""
    stack = [layer for _, layer in sorted(_stacked(row, indices, layers).items())]
    return tuple(stack[: stack.index(path) + 1]) if path in stack else ()


def _stacked(row: TapRow, indices: Mapping[str, int], layers: Collection[str]) -> dict[int, str]:
    """The layers of a row's stack by their position in it."""
    if row.stack is None:
        return {}
    (stack_index,) = set(row.stack.indices) - set(row.torch.indices)
    hits = {path: row.stack.match(path) or {} for path in layers}
    return {hit[stack_index]: path for path, hit in hits.items() if hit and indices.items() <= hit.items()}


Callers = Mapping[str, str]
"""The innermost enclosing call, by call; "" is the network."""


def copies_of(
    table: Table,
    modules: Mapping[str, object],
    names: Sequence[str],
    layers: Collection[str],
    features: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """The layers that the table gives to further names of a module, by its first name: the reference has one module
    under several names, and the port may have a copy for each. ``names`` are the first ones, ``modules`` have all."""
    further: dict[int, list[str]] = {}
    for name, module in modules.items():
        further.setdefault(id(module), []).append(name)
    rows = [row for row in table.taps if row.when is None or row.when in features]
    copies: dict[str, tuple[str, ...]] = {}
    for name in names:
        owner, part = (name, "") if name in modules else (name.rpartition(".")[0], name.rpartition(".")[2])
        others = [f"{other}.{part}" if part else other for other in further.get(id(modules.get(owner)), [])[1:]]
        hits = [(row, indices) for other in others for row in rows if (indices := row.torch.match(other)) is not None]
        paths = tuple(dict.fromkeys(_layer(row, indices, layers) for row, indices in hits))
        if paths:
            copies[name] = tuple(path for path in paths if path in layers)
    return copies


def every_call(
    taps: Sequence[Tap], reference: Callers, candidate: Callers, copies: Mapping[str, Collection[str]]
) -> tuple[list[Tap], list[Finding]]:
    """One tap for each call of layers that are called several times, in the order of the reference's calls, and
    findings on layers that the two sides call a different number of times; ``copies`` as of :func:`copies_of`."""
    call_taps, faults = [], []
    by_module: dict[str, list[str]] = {}
    for call in reference:
        by_module.setdefault(layer_of(call), []).append(call)
    counts = Counter(map(layer_of, candidate))
    for tap in taps:
        paths = dict.fromkeys([tap.candidate, *copies.get(tap.reference, ())])
        numbers = range(1, max(counts[path] for path in paths) + 1)
        # Copies are called one after the other, as the modules of a list are, and then again.
        ours = [call_name(path, number) for number in numbers for path in paths if number <= counts[path]]
        theirs = by_module.get(tap.reference, [])
        if theirs and ours and len(theirs) != len(ours):
            faults.append(fact(_calls(tap, len(theirs), len(ours)), tap.reference))
        # At least one tap, even for a layer that is never called: it is then reported as not compared.
        pairs = zip(theirs or [tap.reference], ours or [tap.candidate], strict=False)
        call_taps += [replace(tap, reference=their, candidate=our) for their, our in pairs]
    order = {name: position for position, name in enumerate(reference)}
    return sorted(call_taps, key=lambda tap: order.get(tap.reference, len(order))), faults


def _calls(tap: Tap, theirs: int, ours: int) -> str:
    times = "once" if ours == 1 else f"{ours} times"
    return (
        f"{tap.reference} is called {'once' if theirs == 1 else f'{theirs} times'}, the port's {tap.candidate} {times}"
    )


def called_otherwise(taps: Sequence[Tap], reference: Callers, candidate: Callers) -> dict[Tap, str]:
    """Taps without weights that the two sides call a different number of times, each with the reason why they are not
    compared: any number of layers may do what one such module does, and what follows them is compared."""
    counts = [Counter(map(layer_of, side)) for side in (reference, candidate)]
    reasons = {}
    for tap in taps:
        theirs, ours = counts[0][tap.reference], counts[1][tap.candidate]
        if theirs and ours and theirs != ours:
            reasons[tap] = f"{_calls(tap, theirs, ours)}, and neither has weights"
    return reasons


def left_out(taps: Sequence[Tap], reference: Callers, candidate: Callers) -> dict[Tap, str]:
    """Optional taps that cannot be compared, each with the reason: the reference does not call the module, or one side
    runs a layer inside it that the other side runs elsewhere.

    Raises :class:`IncompleteError` if no tap inside such a module remains, so that nothing would be compared.
    """
    by_reference = {tap.reference: tap for tap in taps}
    by_candidate = {tap.candidate: tap for tap in taps}
    theirs, ours = _inside(by_reference, reference), _inside(by_candidate, candidate)
    both = {tap for tap in taps if tap.reference in reference and tap.candidate in candidate}
    reasons: dict[Tap, str] = {}
    for tap in (tap for tap in taps if tap.optional):
        if tap.reference not in reference:
            reasons[tap] = "the reference does not call it"
        elif differing := (theirs[tap] ^ ours[tap]) & both:
            other = min(differing, key=lambda inner: inner.reference)
            side = "the reference" if other in theirs[tap] else "the port"
            reasons[tap] = f"{side} runs {other.reference.removeprefix(f'{tap.reference}.')} inside it"
    for tap in reasons:
        if not any(inner.reference.startswith(f"{tap.reference}.") for inner in taps if inner not in reasons):
            fix = "add rows of the layers inside it"
            raise IncompleteError(tap.reference, "cannot be compared as a whole, and no row names a layer in it", fix)
    return reasons


def nearest(path: str, callers: Callers, layers: Collection[str]) -> str:
    """The innermost layer of ``layers`` that encloses the call of ``path``; "" if there is none."""
    path = callers.get(path, "")
    while path and path not in layers:
        path = callers.get(path, "")
    return path


def _inside(taps: Mapping[str, Tap], callers: Callers) -> dict[Tap, set[Tap]]:
    """By tap, the taps whose calls were made inside its call."""
    inner_taps: dict[Tap, set[Tap]] = {tap: set() for tap in taps.values()}
    for path, tap in taps.items():
        outer = nearest(path, callers, taps) if path in callers else ""
        while outer:
            inner_taps[taps[outer]].add(tap)
            outer = nearest(outer, callers, taps)
    return inner_taps
