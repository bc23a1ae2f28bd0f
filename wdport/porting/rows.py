"""What was found, layer by layer, to the rows of a table: parts of a module joined, and what is left accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wdport.errors import WdportError
from wdport.mapping.axes import Shape
from wdport.mapping.plan import Plan, make_plan
from wdport.porting.assigning import KerasSide, Outcome
from wdport.porting.options import Fields, Option, table_of
from wdport.porting.prints import Print
from wdport.porting.torch_run import TorchRun
from wdport.porting.units import Unit, possible
from wdport.recorder import ATTENTION, layer_of


@dataclass(frozen=True)
class Found:
    """Rows in the order of the Keras model's calls, and what they leave open.

    Attributes:
        rows: one by one, as YAML has them.
        doubts: what nothing has proved, in words.
        unfilled: variables of the Keras model that no run has filled.
    """

    rows: tuple[Fields, ...]
    doubts: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()


@dataclass
class _Join:
    run: TorchRun
    side: KerasSide
    outcome: Outcome
    units: Sequence[Unit]
    doubts: list[str] = field(default_factory=list)


def found_rows(run: TorchRun, side: KerasSide, outcome: Outcome, units: Sequence[Unit]) -> Found:
    """The rows of a search that ended well."""
    join = _Join(run, side, outcome, units)
    rows = list(_joined(join))
    rows += _pools(join)
    rows += _left(join, rows)
    unfilled = tuple(name for name in side.variables if name not in _targets(rows, join))
    for name in unfilled:
        join.doubts.append(f"{name}: no call of the Keras model uses it, so no row fills it")
    order = {event.path: at for at, event in reversed(list(enumerate(outcome.events)))}
    rows.sort(key=lambda row: _place(row, order))
    return Found(tuple(rows), tuple(join.doubts), unfilled)


def _place(row: Fields, order: Mapping[str, int]) -> float:
    """When the row's layer was first called; rows without a layer come last."""
    keras = row.get("keras")
    first = str(keras[0]) if isinstance(keras, list) else str(keras or "")
    while first:
        if first in order:
            return float(order[first])
        first = first.rpartition("/")[0]
    return float("inf") if keras is None else -1.0


def _joined(join: _Join) -> Iterator[Fields]:
    """Rows of every decision, with those of one module's parts made one."""
    outcome, done = join.outcome, set[str]()
    chosen = {decision.subject: decision.chosen for decision in outcome.decisions}
    parts: dict[str, dict[str, tuple[str, Option]]] = {}
    for subject, option in chosen.items():
        if option.unit.part:
            parts.setdefault(option.unit.whole, {})[option.unit.part] = (subject, option)
    for subject, option in chosen.items():
        unit = option.unit
        if unit.part:
            if unit.whole not in done:
                done.add(unit.whole)
                yield from _whole(join, unit.whole, parts[unit.whole])
            continue
        yield from _stated(join, subject, option)


def _stated(join: _Join, subject: str, option: Option) -> Iterator[Fields]:
    """The rows of one option: of a layer that cannot be compared value by value, those of its tensors."""
    agreed = join.outcome.agreed.get(subject)
    if not option.kind or agreed is None:
        yield from option.rows
    elif agreed.placed:
        yield _with(option.rows[0], axes=agreed.axes, then=agreed.after)
    else:
        yield from tensor_rows(join, option)


def tensor_rows(join: _Join, option: Option) -> Iterator[Fields]:
    """The rows of a layer's tensors, one by one."""
    targets = {name: tuple(each.shape) for name, each in join.side.below(str(option.rows[0]["keras"])).items()}
    plan = make_plan(table_of(option.rows), {name: a.shape for name, a in option.unit.names.items()}, targets, {})
    if not isinstance(plan, Plan):
        return
    for move in plan.moves:
        rule = f"{move.rule.source} -> {move.rule.target}"
        row: Fields = {
            "torch": list(move.sources) if len(move.sources) > 1 else move.sources[0],
            "keras": list(move.targets) if len(move.targets) > 1 else move.targets[0],
            "rule": "identity" if rule == "... -> ..." else rule,
        }
        told = {name: size for name, size in move.sizes.items() if name in option.rows[0].get("sizes", {})}  # type: ignore[operator]
        yield _with(row, combine=move.combine, sizes=told)


def _with(row: Fields, **more: object) -> dict[str, object]:
    return {**row, **{name: value for name, value in more.items() if value}}


def _whole(join: _Join, whole: str, parts: Mapping[str, tuple[str, Option]]) -> Iterator[Fields]:
    first = next(iter(parts))
    if first in ATTENTION:
        yield from _attention(join, whole, parts)
    elif first.startswith("layer_"):
        yield from _recurrent(join, whole, parts)
    else:
        yield from _chunks(join, whole, parts)


def _attention(join: _Join, whole: str, parts: Mapping[str, tuple[str, Option]]) -> Iterator[Fields]:
    """Projections of ``torch.nn.MultiheadAttention`` that were found one by one."""
    paths = {part: path for part, (path, _) in parts.items()}
    unit = next(each for each in join.units if each.path == whole)
    parent = next(iter(paths.values())).rpartition("/")[0]
    row = {"torch": whole, "keras": parent, "kind": "attention_packed"}
    if set(paths) == set(ATTENTION) and parent and _fits(join, [row], unit, paths.values()):
        yield row
        return
    three = [paths.get(part) for part in ATTENTION[:3]]
    if None in three:
        join.doubts.append(f"{whole}: {', '.join(paths)} found, but not {', '.join(set(ATTENTION) - set(paths))}")
        return
    yield from _split(unit, "in_proj_weight", "in_proj_bias", [str(each) for each in three])
    for part in ATTENTION:
        if part in paths:
            yield _with({"torch": f"{whole}.{part}", "keras": paths[part]}, up_to="shift" if part == "key" else "")
    if "out" in paths:
        yield {"torch": f"{whole}.out_proj.weight", "keras": f"{paths['out']}/kernel", "rule": "linear"}
        if "out_proj.bias" in unit.tensors:
            yield {"torch": f"{whole}.out_proj.bias", "keras": f"{paths['out']}/bias", "rule": "identity"}


def _split(unit: Unit, weight: str, bias: str, paths: Sequence[str]) -> Iterator[Fields]:
    """One tensor's features as several layers'."""
    yield {"torch": f"{unit.whole}.{weight}", "keras": [f"{path}/kernel" for path in paths],
           "rule": "(part out) in -> [part] in out"}  # fmt: skip
    if bias in unit.tensors:
        yield {"torch": f"{unit.whole}.{bias}", "keras": [f"{path}/bias" for path in paths],
               "rule": "(part out) -> [part] out"}  # fmt: skip


def _recurrent(join: _Join, whole: str, parts: Mapping[str, tuple[str, Option]]) -> Iterator[Fields]:
    """Layers of one RNN: with an index where the Keras layers are numbered, or tensor by tensor."""
    unit = next(each for each in join.units if each.path == whole)
    numbered = {int(part.removeprefix("layer_")): path for part, (path, _) in parts.items()}
    kind = next(iter(parts.values()))[1].kind
    for pattern in _numbered(numbered):
        row: Fields = {"torch": whole, "keras": pattern, "kind": kind}
        if _fits(join, [row], unit, numbered.values()):
            yield row
            return
    for layer, path in sorted(numbered.items()):
        option = parts[f"layer_{layer}"][1]
        table = table_of([{"torch": f"{whole}.layer_{layer}", "keras": path, "kind": kind}])
        targets = {name: tuple(each.shape) for name, each in join.side.below(path).items()}
        plan = make_plan(table, {name: array.shape for name, array in option.unit.names.items()}, targets, {})
        if not isinstance(plan, Plan):
            continue
        for move in plan.moves:
            names = [_of_layer(name, whole, layer) for name in move.sources]
            move_row: Fields = {"torch": names if len(names) > 1 else names[0],
                   "keras": move.targets[0], "rule": f"{move.rule.source} -> {move.rule.target}"}  # fmt: skip
            yield _with(move_row, combine=move.combine)
        yield {"torch": f"{whole}.layer_{layer}", "keras": path}


def _of_layer(name: str, whole: str, layer: int) -> str:
    """A tensor of a part by its name in the module."""
    return f"{whole}.{name.rpartition('.')[2].replace('_l0', f'_l{layer}')}"


def _numbered(paths: Mapping[int, str]) -> Iterator[str]:
    """Patterns with ``<layer>`` that give these paths."""
    first = paths.get(0, "")
    for at, sign in enumerate(first):
        if not sign.isdigit() or (at and first[at - 1].isdigit()):
            continue
        end = at
        while end < len(first) and first[end].isdigit():
            end += 1
        start = int(first[at:end])
        if all(path == f"{first[:at]}{start + layer}{first[end:]}" for layer, path in paths.items()):
            yield f"{first[:at]}<layer{f'+{start}' if start else ''}>{first[end:]}"


def _chunks(join: _Join, whole: str, parts: Mapping[str, tuple[str, Option]]) -> Iterator[Fields]:
    """A linear layer that is several Keras layers."""
    unit = next(each for each in join.units if each.path == whole)
    count = int(next(iter(parts)).rpartition("_")[2])
    paths = [parts[name][0] if (name := f"chunk_{at}_of_{count}") in parts else None for at in range(count)]
    if None in paths:
        join.doubts.append(f"{whole}: some of its {count} equal parts were found, and some were not")
        return
    yield from _split(unit, "weight", "bias", [str(each) for each in paths])


def _fits(join: _Join, rows: Sequence[Fields], unit: Unit, paths: Iterable[str]) -> bool:
    """Whether these rows fill just the variables of these layers from all of the unit's tensors, with the same values
    as were found."""
    targets = {name: each for path in paths for name, each in join.side.below(path).items()}
    try:
        shapes: dict[str, Shape] = {name: tuple(each.shape) for name, each in targets.items()}
        plan = make_plan(table_of(rows), {name: array.shape for name, array in unit.names.items()}, shapes, {})
    except (WdportError, ValueError):
        return False
    if not isinstance(plan, Plan):
        return False
    values = {name: array for option in join.outcome.matched.values() for name, array in option.values.items()}
    made = dict(plan.apply(unit.names.__getitem__, rounded=False))
    return all(name in values and (made[name] == values[name]).all() for name in made)


def _pools(join: _Join) -> Iterator[Fields]:
    """Layers without tensors of a kind: those that are given and make the same."""
    taken: set[str] = set()
    for event in join.outcome.events:
        layer = join.side.layers.get(event.path)
        if layer is None or join.side.below(event.path) or event.call != event.path or not event.given:
            continue
        for unit in join.units:
            if unit.tensors or unit.path in taken or not (kinds := possible(unit, layer)) or not event.made:
                continue
            at = unit.call_with([Print(event.given[0])])
            if at is not None and Print(unit.calls[at].outputs[0]).same(Print(event.made[0])):
                taken.add(unit.path)
                yield {"torch": unit.path, "keras": event.path, "kind": kinds[0]}
                break


def _targets(rows: Sequence[Fields], join: _Join) -> set[str]:
    """The variables that were filled."""
    return {name for option in join.outcome.matched.values() for name in option.values}


def _left(join: _Join, rows: Sequence[Fields]) -> Iterator[Fields]:
    """Rows for the tensors of the state_dict that no layer has."""
    state = join.run.module.state_dict(keep_vars=True)
    used = claimed(rows, list(state))
    first: dict[int, str] = {}
    for name in state:
        if name in used:
            first.setdefault(join.run.bits[name], name)
    parameters = {name for name, _ in join.run.module.named_parameters(remove_duplicate=False)}
    seen = 0
    for value in join.run.values:
        seen |= value.depends
    for name in state:
        if name in used:
            continue
        if same := first.get(join.run.bits[name]):
            yield {"torch": name, "same_as": same}
        elif name not in parameters:
            yield {"torch": name, "drop": "a table that the Keras model has no variable for"}
            join.doubts.append(f"{name}: a buffer that no variable of the Keras model holds, dropped; with the values "
                               "that the code computes the two models agree")  # fmt: skip
        elif not seen & join.run.bits[name]:
            yield {"torch": name, "drop": "the forward pass does not read it"}
            join.doubts.append(f"{name}: the forward pass does not read it, dropped")
        else:
            yield {"torch": name, "drop": "no variable of the Keras model holds it"}
            join.doubts.append(f"{name}: the forward pass reads it, but no variable of the Keras model holds it")


def claimed(rows: Sequence[Fields], names: Sequence[str]) -> set[str]:
    """The tensors that rows speak of."""
    table = table_of(rows)
    return {name for name in names for row in table.rows for pattern in row.torch if pattern.match(name) is not None}


def call_paths(outcome: Outcome) -> list[str]:
    """The Keras layers in the order of their first calls."""
    return list(dict.fromkeys(layer_of(event.call) for event in outcome.events))
