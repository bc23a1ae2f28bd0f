"""A unit and a Keras layer that may be the same: the row of a table that says so, tried out.

Whether the two fit is settled by the table itself: a table of this one row is read, and planned on their names and
shapes. What the plan moves are the values that the layer's variables get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

import numpy as np
import yaml

from wdport.compare.bounds import LOGIC
from wdport.compare.calls import Call
from wdport.compare.layouts import in_port
from wdport.compare.measure import relative_l2
from wdport.compare.orders import agreeing
from wdport.compare.taps import layout_of
from wdport.errors import WdportError
from wdport.mapping.axes import AxisError, Shape, parse_rule
from wdport.mapping.kinds import KINDS
from wdport.mapping.layers import AFTER
from wdport.mapping.plan import Plan, make_plan
from wdport.mapping.rows import Table
from wdport.mapping.table import parse_table
from wdport.model import Array, KerasLayer
from wdport.porting.prints import Print
from wdport.porting.units import Unit

Fields = Mapping[str, object]
"""A row's fields as YAML has them."""


@dataclass(frozen=True)
class Option:
    """One way to fill a layer's variables from a unit.

    Attributes:
        unit: where from.
        keras: the layer's path.
        rows: the row under ``layers``, or those under ``tensors`` if it has no kind.
        values: what the variables get, by path.
        at: the call of the unit that is given what the layer is.
    """

    unit: Unit
    keras: str
    rows: tuple[Fields, ...]
    values: Mapping[str, Array] = field(repr=False)
    at: int = 0

    @property
    def kind(self) -> str:
        """The layer's kind, or ""."""
        return str(self.rows[0].get("kind", ""))

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two options the same."""
        return tuple(tuple(map(str, row.values())) for row in self.rows)


@lru_cache(maxsize=4096)
def _table(text: str) -> Table:
    return parse_table(text.encode(), "suggested")


def table_of(rows: Sequence[Fields]) -> Table:
    """A table of these rows."""
    layers = [dict(row) for row in rows if "rule" not in row and "same_as" not in row and "drop" not in row]
    tensors = [dict(row) for row in rows if "rule" in row or "drop" in row]
    tied = [dict(row) for row in rows if "same_as" in row]
    parts = {"layers": layers, "tensors": tensors, "tied": tied}
    return _table(yaml.safe_dump({"format": 2, **{name: each for name, each in parts.items() if each}}))


def layer_option(
    unit: Unit, keras: str, kind: str, variables: Mapping[str, Shape], extra: Fields | None = None, at: int = 0
) -> Option | None:
    """The row of this kind, if it fits: every variable of the layer filled, every tensor of the unit used."""
    fields = {"torch": unit.path, "keras": keras, "kind": kind, **(extra or {})}
    tensors = unit.names
    sources = {name: array.shape for name, array in tensors.items()}
    try:
        plan = make_plan(table_of([fields]), sources, variables, {})
    except (WdportError, ValueError):
        return None
    if not isinstance(plan, Plan):
        return None
    return Option(unit, keras, (fields,), dict(plan.apply(tensors.__getitem__, rounded=False)), at)


def heads_option(unit: Unit, keras: str, variables: Mapping[str, Shape], at: int) -> Option | None:
    """A linear layer as a projection of attention whose kernel has an axis for each head."""
    for rules in (("attention_weight", "attention_bias"), ("attention_output", "identity")):
        rows = [{"torch": f"{unit.path}.{name}", "keras": f"{keras}/{variable}", "rule": rule}
                for (name, variable), rule in zip((("weight", "kernel"), ("bias", "bias")), rules, strict=True)
                if name in unit.tensors]  # fmt: skip
        try:
            plan = make_plan(table_of(rows), {n: a.shape for n, a in unit.names.items()}, variables, {})
        except (WdportError, ValueError):
            continue
        if isinstance(plan, Plan):
            return Option(unit, keras, tuple(rows), dict(plan.apply(unit.names.__getitem__, rounded=False)), at)
    return None


def flattened(
    unit: Unit, keras: str, kind: str, variables: Mapping[str, Shape], given: Array, sizes: Sequence[Shape], at: int
) -> Option | None:
    """The row with the order of axes that were flattened before the layer, if that is what sets its input apart.

    ``sizes`` are the shapes of what was flattened, as Keras has it, without the batch.
    """
    theirs = np.asarray(unit.calls[at].inputs[0])
    if not KINDS[kind].flattens or theirs.ndim != 2 or theirs.shape != given.shape or np.allclose(theirs, given):
        return None
    for shape in sizes:
        names = {2: ("l", "c"), 3: ("h", "w", "c"), 4: ("d", "h", "w", "c")}.get(len(shape))
        if names is None or int(np.prod(shape)) != given.shape[-1]:
            continue
        told = dict(zip(names, shape, strict=True))
        if order := agreeing(theirs, given, told, ((names[-1], *names[:-1]), names)):
            free = names[-1]
            extra = {"flatten": order, "sizes": {name: size for name, size in told.items() if name != free}}
            return layer_option(unit, keras, kind, variables, extra, at)
    return None


def agrees(option: Option, call: Call, layer: KerasLayer, given: Sequence[Array], made: Sequence[Array]) -> str | None:
    """Whether the layer makes what the unit made: the function that comes after the unit there, "" for none, or
    ``None`` if it does not."""
    if not made or not call.outputs:
        return None
    wanted, own = [Print(np.asarray(each)) for each in call.outputs[:1]], Print(np.asarray(made[0]))
    if wanted[0].same(own):
        return ""
    tap = table_of(option.rows).taps[0] if option.kind else None
    for after in ("", *AFTER):
        if tap is None:
            break
        try:
            layout = layout_of(tap, layer)
            fields = dict(vars(layout)) | {"after": after}
            expected = in_port(call, type(layout)(**fields), ([np.shape(each) for each in given],
                                                              [np.shape(each) for each in made]))  # fmt: skip
        except (WdportError, ValueError, IndexError, TypeError):
            continue
        pairs = zip(made, expected.outputs, strict=True)
        if all(relative_l2(np.asarray(a), np.asarray(b)) <= LOGIC for a, b in pairs):
            return after
    return None


_AXES = "abcdefgh"


def tensor_rules(source: Shape, target: Shape) -> Iterator[str]:
    """Rules that take one shape to the other by moving axes and by axes of size one, the plainest first."""
    if source == target:
        yield "... -> ..."
    kept = [size for size in source if size != 1]
    wanted = [size for size in target if size != 1]
    if sorted(kept) != sorted(wanted) or len(kept) > 5:
        return
    names = iter(_AXES)
    left = [next(names) if size != 1 else "1" for size in source]
    own = [name for name in left if name != "1"]
    for order in permutations(range(len(own))):
        if [kept[at] for at in order] != wanted:
            continue
        moved = iter(own[at] for at in order)
        right = [next(moved) if size != 1 else "1" for size in target]
        if left != right or source != target:
            yield f"{' '.join(left) or '1'} -> {' '.join(right) or '1'}"


def tensor_options(unit: Unit, name: str, keras: str, shape: Shape) -> Iterator[Option]:
    """Rows under ``tensors`` that fill one variable from one tensor of a unit."""
    array = unit.tensors[name]
    for rule in tensor_rules(array.shape, shape):
        fields = {"torch": f"{unit.path}.{name}" if unit.path else name, "keras": keras,
                  "rule": "identity" if rule == "... -> ..." else rule}  # fmt: skip
        yield Option(unit, keras, (fields,), {keras: apply_text(rule, array, shape)})


def apply_text(rule: str, array: Array, shape: Shape) -> Array:
    """The array moved by a rule's text."""
    from wdport.mapping.arrays import apply_rule

    parsed = parse_rule(rule, rule)
    try:
        return apply_rule(parsed, [array], parsed.sizes([array.shape], [shape]))[0]
    except AxisError:
        return array.reshape(shape)
