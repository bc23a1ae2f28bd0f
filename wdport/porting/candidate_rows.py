"""Candidate rows that fill a Keras layer from a unit, each tested by the table itself, and the order of guesses if
several units have the same input.

To test whether a layer and a unit fit, a table of this one row is read and planned on their names and shapes. The
layer's variables get the values that the plan moves.

The models' values decide whether a guess is right; the order only affects the number of runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

import numpy as np

from wdport.base.errors import WdportError
from wdport.compare.calls import Call
from wdport.compare.flatten_order import agreeing
from wdport.compare.gate_bounds import LOGIC
from wdport.compare.layouts import AFTER, Layout, in_port
from wdport.compare.measure import relative_l2
from wdport.compare.taps import Tap, layout_of, stated_by
from wdport.mapping.axes import AxisError, Shape, parse_rule
from wdport.mapping.kinds import KINDS
from wdport.mapping.kinds.activations import ROW_NAMES
from wdport.mapping.kinds.attention import HEADS_FIRST
from wdport.mapping.kinds.kind import SPACES
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.rearrange import apply_rule
from wdport.mapping.rows import Table
from wdport.mapping.table import table_of
from wdport.models.interface import Array, KerasLayer
from wdport.porting.fingerprints import Print
from wdport.porting.layer_units import Unit, joined, likeness

Fields = Mapping[str, object]
"""A row's fields, as in YAML."""


@dataclass(frozen=True, eq=False)
class FillOption:
    """One way to fill a layer's variables from a unit.

    Attributes:
        unit: the source.
        keras: the layer's path.
        rows: the row under ``layers``, or those under ``tensors`` if it has no kind.
        values: the variables' values, by path.
        call_index: the call of the unit with the same input as the layer.
        fills: rows of variables for which the unit has no tensor.
    """

    unit: Unit
    keras: str
    rows: tuple[Fields, ...]
    values: Mapping[str, Array] = field(repr=False)
    call_index: int = 0
    fills: tuple[Fields, ...] = ()

    def with_zeros(self, variable: str, shape: Shape) -> FillOption:
        """The option that also fills this variable with zeros."""
        values = {**self.values, variable: np.zeros(shape)}
        return replace(self, values=values, fills=(*self.fills, {"keras": variable, "fill": "zeros"}))

    @property
    def kind(self) -> str:
        return str(self.rows[0].get("kind", ""))

    @property
    def key(self) -> tuple[object, ...]:
        """The key by which options are equal."""
        return tuple(tuple(map(str, row.values())) for row in self.rows)


def table_of_rows(rows: Sequence[Fields]) -> Table:
    parts: dict[str, list[Fields]] = {}
    for row in rows:
        parts.setdefault(list_of(row), []).append(dict(row))
    return table_of({"format": 2, **parts}, "suggested")


def list_of(row: Fields) -> str:
    """The list of a table that contains a row like this one."""
    if "fill" in row:
        return "filled"
    return "tied" if "same_as" in row else "tensors" if "rule" in row or "drop" in row else "layers"


def planned(rows: Sequence[Fields], tensors: Mapping[str, Array], variables: Mapping[str, Shape]) -> Plan | None:
    """The plan of these rows, if they fill all variables from all tensors."""
    try:
        # The same code that converts with the finished table, so that a fit is what convert would accept.
        plan = make_plan(table_of_rows(rows), {name: array.shape for name, array in tensors.items()}, variables, {})
    except (WdportError, ValueError):
        return None
    return plan if isinstance(plan, Plan) else None


def layer_option(
    unit: Unit, keras: str, kind: str, variables: Mapping[str, Shape], extra: Fields | None = None, call_index: int = 0
) -> FillOption | None:
    """The row of this kind, if it fills every variable of the layer and uses every tensor of the unit."""
    row: Fields = {"torch": unit.path, "keras": keras, "kind": kind, **(extra or {})}
    return next(tensors_option(unit, keras, [row], unit.names, variables, call_index), None)


def _weight_and_bias(unit: Unit, keras: str, weight: str, bias: str, **more: object) -> list[Fields]:
    """Rows of a linear layer or a convolution by these rules."""
    rows: list[Fields] = [{"torch": f"{unit.path}.weight", "keras": f"{keras}/kernel", "rule": weight, **more}]
    if "bias" in unit.tensors:
        rows.append({"torch": f"{unit.path}.bias", "keras": f"{keras}/bias", "rule": bias, **more})
    return rows


def heads_option(unit: Unit, keras: str, variables: Mapping[str, Shape], call_index: int) -> FillOption | None:
    """A linear layer as a projection of attention whose kernel has a head axis."""
    projections = (("attention_weight", "attention_bias"), (HEADS_FIRST, "attention_bias"))
    for rules in (*projections, ("attention_output", "identity")):
        rows = _weight_and_bias(unit, keras, *rules)
        for option in tensors_option(unit, keras, rows, unit.names, variables, call_index):
            return option
    return None


def divided(
    unit: Unit, keras: str, variables: Mapping[str, Shape], shapes: Sequence[Shape], call_index: int
) -> Iterator[FillOption]:
    """A linear layer whose features PyTorch reshapes, channels first, to an image of a shape in ``shapes``; Keras has
    the channels last."""
    for shape in shapes:
        names = {2: "c l", 3: "c h w", 4: "c d h w"}.get(len(shape), "").split()
        if not names or "weight" not in unit.tensors:
            continue
        last = " ".join([*names[1:], names[0]])
        first, sizes = " ".join(names), dict(zip(names[1:], shape[1:], strict=True))
        rows = _weight_and_bias(unit, keras, f"({first}) in -> in ({last})", f"({first}) -> ({last})", sizes=sizes)
        yield from tensors_option(unit, keras, rows, unit.names, variables, call_index)


def shuffled(unit: Unit, keras: str, variables: Mapping[str, Shape], up: int, call_index: int) -> Iterator[FillOption]:
    """A convolution before a ``PixelShuffle`` in PyTorch; in Keras the pixels come first."""
    # Rows or columns of the pixels first: there are as many of both, so the shapes do not show it.
    for last in ("r s c", "s r c"):
        rows = _weight_and_bias(unit, keras, f"(c r s) in h w -> h w in ({last})", f"(c r s) -> ({last})",
                                sizes={"r": up, "s": up})  # fmt: skip
        yield from tensors_option(unit, keras, rows, unit.names, variables, call_index)


def as_stored(unit: Unit, keras: str, variables: Mapping[str, Shape], call_index: int) -> Iterator[FillOption]:
    """A user's own module whose tensors have the layout of the layer's variables."""
    # Each tensor is used once, and the most similar name decides among equal shapes.
    left, rows = dict(unit.tensors), list[Fields]()
    for path, shape in variables.items():
        fits = [name for name, array in left.items() if array.shape == shape]
        if not fits:
            return
        name = max(fits, key=lambda tensor: likeness(tensor, path))
        del left[name]
        rows.append({"torch": f"{unit.path}.{name}", "keras": path, "rule": "identity"})
    yield from tensors_option(unit, keras, rows, unit.names, variables, call_index)


def merged(units: Sequence[Unit], keras: str, variables: Mapping[str, Shape], call_index: int) -> Iterator[FillOption]:
    """Linear layers side by side as one layer of Keras, in every order."""
    tensors = {name: array for unit in units for name, array in unit.names.items()}
    names = {tuple(unit.tensors) for unit in units}
    if len(names) != 1 or set(next(iter(names))) - {"weight", "bias"}:
        return
    for order in permutations(units):
        rows: list[Fields] = [{"torch": [f"{unit.path}.weight" for unit in order], "keras": f"{keras}/kernel",
                               "rule": "[part] out in -> in (part out)"}]  # fmt: skip
        if "bias" in order[0].tensors:
            rows.append({"torch": [f"{unit.path}.bias" for unit in order], "keras": f"{keras}/bias",
                         "rule": "[part] out -> (part out)"})  # fmt: skip
        yield from tensors_option(joined(order, call_index), keras, rows, tensors, variables, 0)


def tensors_option(
    unit: Unit, keras: str, rows: Sequence[Fields], tensors: Mapping[str, Array], variables: Mapping[str, Shape],
    call_index: int,
) -> Iterator[FillOption]:  # fmt: skip
    """The option of these rows, if they fill all variables from all tensors."""
    if plan := planned(rows, tensors, variables):
        yield FillOption(unit, keras, tuple(rows), dict(plan.apply(tensors.__getitem__, rounded=False)), call_index)


def flattened(
    unit: Unit, keras: str, kind: str, variables: Mapping[str, Shape], ours: Array, sizes: Sequence[Shape],
    call_index: int,
) -> FillOption | None:  # fmt: skip
    """The row with the order of axes that were flattened before the layer, if its input differs only in that.

    ``ours`` is the Keras layer's input; ``sizes`` are the shapes before flattening in Keras, without the batch.
    """
    theirs = unit.first_input(call_index)
    if not KINDS[kind].flattens or theirs.ndim != 2 or theirs.shape != ours.shape or np.allclose(theirs, ours):
        return None
    for shape in sizes:
        if len(shape) - 1 not in SPACES or int(np.prod(shape)) != ours.shape[-1]:
            continue
        names = (*SPACES[len(shape) - 1], "c")
        axis_sizes = dict(zip(names, shape, strict=True))
        # Channels first, as PyTorch flattens an image, or last.
        if order := agreeing(theirs, ours, axis_sizes, ((names[-1], *names[:-1]), names)):
            free = names[-1]
            extra = {"flatten": order, "sizes": {name: size for name, size in axis_sizes.items() if name != free}}
            return layer_option(unit, keras, kind, variables, extra, call_index)
    return None


@dataclass(frozen=True)
class Agreement:
    """How a layer's output corresponds to its unit's.

    Attributes:
        after: the function that follows the unit within the layer; "" for none.
        axes: the layout of the outputs, if it is not the kind's.
        placed: whether they agree elementwise in a layout that a row can state; otherwise only as values in any order.
        outputs: what that function makes of the unit's output.
    """

    after: str = ""
    axes: str = ""
    placed: bool = True
    outputs: tuple[Array, ...] = field(default=(), repr=False, compare=False)


def agreement(
    option: FillOption, call: Call, layer: KerasLayer, inputs: Sequence[Array], outputs: Sequence[Array]
) -> Agreement | None:
    """How the layer's output corresponds to the unit's in this call; ``None`` if it does not."""
    if not outputs or not call.outputs:
        return None
    theirs, ours = np.asarray(call.outputs[0]), np.asarray(outputs[0])
    layout = layout_of_option(option, layer) if option.kind else None
    # The layer's stated activation first, then none, then all others.
    order = tuple(dict.fromkeys([*activation_name(layer), "", *ROW_NAMES]))
    for after in order:
        if layout is not None and _agrees(layout, after, call, inputs, outputs):
            return Agreement(after, outputs=(_applied(after, theirs),))
    for after in order:
        array = _applied(after, theirs)
        if Print(array).same(Print(ours)):
            axes = next(axes_between(array, ours), "")
            return Agreement(after, axes, bool(axes) and layout is not None, (array,))
    return None


def _applied(after: str, array: Array) -> Array:
    # Functions such as exp are tried on values that they are not made for.
    with np.errstate(over="ignore", invalid="ignore"):
        return AFTER[after](array) if after else array


def layout_of_option(option: FillOption, layer: KerasLayer) -> Layout:
    """The layout of activations under an option with a kind, with what its module pads and crops."""
    tap = table_of_rows(option.rows).taps[0]
    one = Tap(option.unit.path, option.keras, None, layout=layout_of(tap, layer), kind=option.kind)
    return stated_by([one], {option.unit.path: option.unit.module})[0].layout


def activation_name(layer: KerasLayer) -> list[str]:
    """The table's name of the activation that a layer states; empty if it states none, or one without a name there."""
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    return [name] if name in ROW_NAMES else []


def _agrees(layout: Layout, after: str, call: Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """Whether outputs agree elementwise."""
    shapes = [np.shape(array) for array in inputs], [np.shape(array) for array in outputs]
    try:
        expected = in_port(call, replace(layout, after=after, outputs_only=True), shapes)
    except (WdportError, ValueError, IndexError, TypeError):
        return False
    pairs = zip(*map(expected.cropped, (outputs, expected.outputs)), strict=True)
    return all(relative_l2(np.asarray(a), np.asarray(b)) <= LOGIC for a, b in pairs)


def axes_between(theirs: Array, ours: Array) -> Iterator[str]:
    """Layouts, such as ``b c h 1 -> b h c``, under which two arrays are equal."""
    names = {2: "b c", 3: "b c l", 4: "b c h w", 5: "b c d h w"}.get(theirs.ndim, "").split()
    spare = theirs.ndim - ours.ndim
    if not names or not 0 <= spare < theirs.ndim:
        return
    # Not the first axis: a batch of one is no axis of size one.
    for dropped in combinations([axis for axis, size in enumerate(theirs.shape) if size == 1 and axis], spare):
        remaining = [axis for axis in range(theirs.ndim) if axis not in dropped]
        for order in permutations(range(len(remaining))):
            moved = theirs.reshape([theirs.shape[axis] for axis in remaining]).transpose(order)
            if moved.shape == ours.shape and relative_l2(ours, moved) <= LOGIC:
                left = ["1" if axis in dropped else name for axis, name in enumerate(names)]
                yield f"{' '.join(left)} -> {' '.join(names[remaining[index]] for index in order)}"


_AXES = "abcdefgh"


def tensor_rules(source: Shape, target: Shape) -> Iterator[str]:
    """Rules that map one shape to the other by moving axes and by axes of size one, the simplest first."""
    if source == target:
        yield "... -> ..."
    source_sizes = [size for size in source if size != 1]
    target_sizes = [size for size in target if size != 1]
    # Five axes have 120 orders, and no kernel has more axes.
    if sorted(source_sizes) != sorted(target_sizes) or len(source_sizes) > 5:
        return
    names = iter(_AXES)
    left = [next(names) if size != 1 else "1" for size in source]
    source_axes = [name for name in left if name != "1"]
    for order in permutations(range(len(source_axes))):
        if [source_sizes[index] for index in order] != target_sizes:
            continue
        moved = iter(source_axes[index] for index in order)
        right = [next(moved) if size != 1 else "1" for size in target]
        if left != right or source != target:
            yield f"{' '.join(left) or '1'} -> {' '.join(right) or '1'}"


def tensor_options(unit: Unit, name: str, keras: str, shape: Shape) -> Iterator[FillOption]:
    """Rows under ``tensors`` that fill one variable from one tensor of a unit."""
    array = unit.tensors[name]
    for rule in tensor_rules(array.shape, shape):
        fields = {"torch": f"{unit.path}.{name}" if unit.path else name, "keras": keras,
                  "rule": "identity" if rule == "... -> ..." else rule}  # fmt: skip
        yield FillOption(unit, keras, (fields,), {keras: apply_text(rule, array, shape)})


def stacked(unit: Unit, keras: str, tensors: Mapping[str, Array], shape: Shape) -> Iterator[FillOption]:
    """Rows under ``tensors`` that fill one variable from several tensors of one shape, with an axis for them."""
    shapes = {array.shape for array in tensors.values()}
    # As for single tensors: five axes have 120 orders.
    if len(shapes) > 1 or len(shape) > 5 or len(next(iter(shapes))) != len(shape) - 1:
        return
    sizes, names = (len(tensors), *next(iter(shapes))), ("part", *_AXES[: len(shape) - 1])
    for order in permutations(range(len(shape))):
        if tuple(sizes[index] for index in order) == shape:
            rule = f"[part] {' '.join(names[1:])} -> {' '.join(names[index] for index in order)}"
            row: Fields = {"torch": list(tensors), "keras": keras, "rule": rule}
            yield from tensors_option(unit, keras, [row], tensors, {keras: shape}, 0)


def apply_text(rule: str, array: Array, shape: Shape) -> Array:
    parsed = parse_rule(rule, rule)
    try:
        return apply_rule(parsed, [array], parsed.sizes([array.shape], [shape]))[0]
    except AxisError:
        return array.reshape(shape)


def folded(path: str) -> str:
    """A path with every number replaced by one character."""
    return re.sub(r"\d+", "#", path)


@dataclass
class Guide:
    """The settled choices of a run."""

    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    places: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0

    def settle(self, option: FillOption, among: Sequence[FillOption]) -> None:
        """Record that an option, chosen from these, is right."""
        keras, units = folded(option.keras), _units(among)
        self.names[folded(option.unit.path), keras] += 1
        if option.unit.path in units:
            self.places[keras, len(units), units.index(option.unit.path)] += 1
        if len(units) > 1:
            best = max(units, key=lambda path: likeness(path, option.keras))
            self.right += best == option.unit.path
            self.wrong += best != option.unit.path

    def order(self, options: Sequence[FillOption]) -> list[FillOption]:
        units = _units(options)
        # Names of the two models may have nothing to do with each other.
        trusted = self.right >= self.wrong

        def key(option: FillOption) -> tuple[object, ...]:
            keras = folded(option.keras)
            learned = self.names[folded(option.unit.path), keras] if trusted else 0
            placed = self.places[keras, len(units), units.index(option.unit.path)]
            named = round(likeness(option.unit.path, option.keras), 2) if trusted else 0.0
            return (bool(option.unit.part.startswith("chunk")), -learned, -placed, -named, option.unit.order)

        return sorted(options, key=key)


def _units(options: Sequence[FillOption]) -> list[str]:
    orders = {option.unit.path: option.unit.order for option in options}
    return sorted(orders, key=lambda path: orders[path])
