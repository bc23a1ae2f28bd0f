"""Convert the findings for each layer to rows of a table: join parts of a module, and account for all other tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wdport.mapping.axes import find_rule
from wdport.mapping.kinds.attention import HEADS_FIRST
from wdport.mapping.plan import Plan, make_plan
from wdport.models.interface import Array
from wdport.porting.candidate_rows import Fields, FillOption, planned, table_of_rows
from wdport.porting.fingerprints import NEAR, KerasSide, Print
from wdport.porting.layer_units import Unit, likeness, possible
from wdport.porting.matching import RunOutcome
from wdport.porting.table_text import Doubt
from wdport.porting.torch_run import TorchRun, joined_bits
from wdport.recording.inner_calls import ATTENTION

_AXIS = re.compile(r"\([^)]*\)|\[[^\]]*\]|\S+")


@dataclass
class _Join:
    run: TorchRun
    side: KerasSide
    outcome: RunOutcome
    units: Sequence[Unit]
    doubts: list[Doubt] = field(default_factory=list)
    compared: set[str] = field(default_factory=set)

    def unit(self, path: str) -> Unit:
        return next(candidate for candidate in self.units if candidate.path == path)


def suggested_rows(
    run: TorchRun, side: KerasSide, outcome: RunOutcome, units: Sequence[Unit]
) -> tuple[list[Fields], list[Doubt]]:
    """Rows, unfolded, in the order of the Keras model's calls, and unproved guesses."""
    join = _Join(run, side, outcome, units)
    rows = _attentions(join, [_packed(join, row) for row in _joined(join)])
    rows += _pools(join)
    rows += (row for decision in outcome.decisions for row in decision.chosen.fills)
    rows += _unfilled(join, rows)
    rows += _unused_tensor_rows(join, rows)
    # Reversed, so that the first call of a layer determines its place.
    order = {event.path: position for position, event in reversed(list(enumerate(outcome.events)))}
    rows.sort(key=lambda row: _place(row, order))
    return rows, join.doubts


def _place(row: Fields, order: Mapping[str, int]) -> float:
    """Position of the first call of the row's layer; rows without a layer come last."""
    keras = row.get("keras")
    first = str(keras[0]) if isinstance(keras, list) else str(keras or "")
    while first:
        if first in order:
            return float(order[first])
        first = first.rpartition("/")[0]
    return float("inf") if keras is None else -1.0


def _joined(join: _Join) -> Iterator[Fields]:
    """Rows of every decision; rows of one module's parts are joined."""
    outcome, done = join.outcome, set[str]()
    chosen = {decision.subject: decision.chosen for decision in outcome.decisions}
    parts: dict[str, dict[str, tuple[str, FillOption]]] = {}
    for subject, option in chosen.items():
        if option.unit.part:
            parts.setdefault(option.unit.module_path, {})[option.unit.part] = (subject, option)
    for subject, option in chosen.items():
        path = option.unit.module_path
        if not option.unit.part:
            yield from _option_rows(join, subject, option)
        elif path not in done:
            done.add(path)
            first = next(iter(parts[path]))
            join_parts = _attention if first in ATTENTION else _recurrent if first.startswith("layer_") else _chunks
            yield from join_parts(join, path, parts[path])


def _option_rows(join: _Join, subject: str, option: FillOption) -> Iterator[Fields]:
    """The rows of one option; for a layer that cannot be compared elementwise, those of its tensors."""
    agreed = join.outcome.agreed.get(subject)
    if option.unit.transposed:
        yield from _stored(tensor_rows(join, option) if option.kind else option.rows)
        if agreed is not None and agreed.placed:
            yield _row_with({"torch": option.unit.path, "keras": subject}, axes=agreed.axes, then=agreed.after)
        return
    unseen = option.kind == "attention_packed" and f"{option.unit.path}.{ATTENTION[0]}" not in join.run.calls
    if not option.kind or agreed is None:
        yield from option.rows
        layer = subject if subject in join.side.layers else subject.rpartition("/")[0]
        if (
            not option.unit.part
            and not option.unit.members
            and _is_fed(join, option.unit, layer)
            and _is_equal(join, option.unit.path, layer)
        ):
            yield {"torch": option.unit.path, "keras": layer}
    # With a mask, for example, what happens in it is not recorded.
    elif unseen:
        yield from tensor_rows(join, option)
        yield {"torch": option.unit.path, "keras": option.rows[0]["keras"]}
    elif agreed.placed:
        yield _row_with(option.rows[0], axes=agreed.axes, then=agreed.after)
    else:
        yield from tensor_rows(join, option)


def _stored(rows: Iterable[Fields]) -> Iterator[Fields]:
    """Rows of a linear layer whose weight is stored as (in, out): the two axes of the weight change places."""
    for row in rows:
        rule = find_rule(str(row["rule"]))
        axes = _AXIS.findall(str(rule.source)) if rule else []
        yield {**row, "rule": f"{axes[1]} {axes[0]} -> {rule.target}"} if rule and len(axes) == 2 else row


def tensor_rows(join: _Join, option: FillOption) -> Iterator[Fields]:
    filled = {str(row["keras"]) for row in option.fills}
    variables = {name: tuple(join.side.variables[name].shape) for name in option.values if name not in filled}
    plan = planned(option.rows, option.unit.names, variables)
    for move in plan.moves if plan is not None else ():
        rule = f"{move.rule.source} -> {move.rule.target}"
        row: Fields = {
            "torch": list(move.sources) if len(move.sources) > 1 else move.sources[0],
            "keras": list(move.targets) if len(move.targets) > 1 else move.targets[0],
            "rule": "identity" if rule == "... -> ..." else rule,
        }
        sizes: Any = option.rows[0].get("sizes", {})
        axis_sizes = {name: size for name, size in move.sizes.items() if name in sizes}
        yield _row_with(row, combine=move.combine, sizes=axis_sizes)


def _row_with(row: Fields, **more: object) -> dict[str, object]:
    return {**row, **{name: value for name, value in more.items() if value}}


def _attention(join: _Join, module_path: str, parts: Mapping[str, tuple[str, FillOption]]) -> Iterator[Fields]:
    """Rows for projections of ``torch.nn.MultiheadAttention`` that were found one by one."""
    paths = {part: path for part, (path, _) in parts.items()}
    unit = join.unit(module_path)
    parent = next(iter(paths.values())).rpartition("/")[0]
    row = {"torch": module_path, "keras": parent, "kind": "attention_packed"}
    if set(paths) == set(ATTENTION) and parent and _fits(join, [row], unit, paths.values()):
        yield row
        return
    three = [paths.get(part) for part in ATTENTION[:3]]
    fused = {member for decision in join.outcome.decisions for member in decision.chosen.unit.members}
    if fused.issuperset(f"{module_path}.{part}" for part in ATTENTION[:3]):
        three = []
    if None in three:
        missing = ", ".join(set(ATTENTION) - set(paths))
        join.doubts.append(Doubt(module_path, f"{', '.join(paths)} found, but not {missing}"))
        return
    if three:
        yield from _split(unit, "in_proj_weight", "in_proj_bias", [str(path) for path in three])
    for part in ATTENTION:
        if part in paths:
            row = {"torch": f"{module_path}.{part}", "keras": paths[part]}
            yield _row_with(row, up_to="shift" if part == "key" else "")
    if "out" in paths:
        yield {"torch": f"{module_path}.out_proj.weight", "keras": f"{paths['out']}/kernel", "rule": "linear"}
        if "out_proj.bias" in unit.tensors:
            yield {"torch": f"{module_path}.out_proj.bias", "keras": f"{paths['out']}/bias", "rule": "identity"}


def _packed(join: _Join, row: Fields) -> Fields:
    """A row of the projections of one attention side by side, as a row of the tensor in which PyTorch packs them."""
    names = row.get("torch")
    for suffix, rule in (("weight", "linear"), ("bias", "identity")):
        if isinstance(names, list) and len(names) == 3 and str(names[0]).endswith(f".{ATTENTION[0]}.{suffix}"):
            module_path = str(names[0]).removesuffix(f".{ATTENTION[0]}.{suffix}")
            packed = f"{module_path}.in_proj_{suffix}"
            parts = [f"{module_path}.{part}.{suffix}" for part in ATTENTION[:3]]
            if names == parts and packed in join.run.module.state_dict():
                return {"torch": packed, "keras": row["keras"], "rule": rule}
    return row


def _split(unit: Unit, weight: str, bias: str, paths: Sequence[str], out: str = "out") -> Iterator[Fields]:
    """Rows that split one tensor's features, whose axes in Keras are ``out``, over several layers."""
    yield {"torch": f"{unit.module_path}.{weight}", "keras": [f"{path}/kernel" for path in paths],
           "rule": f"(part {out}) in -> [part] in {out}"}  # fmt: skip
    if bias in unit.tensors:
        yield {"torch": f"{unit.module_path}.{bias}", "keras": [f"{path}/bias" for path in paths],
               "rule": f"(part {out}) -> [part] {out}"}  # fmt: skip


def _recurrent(join: _Join, module_path: str, parts: Mapping[str, tuple[str, FillOption]]) -> Iterator[Fields]:
    """Rows for the layers of one RNN: with an index if the Keras layers are numbered, otherwise tensor by tensor."""
    unit = join.unit(module_path)
    numbered = {int(part.removeprefix("layer_")): path for part, (path, _) in parts.items()}
    kind = next(iter(parts.values()))[1].kind
    for pattern in _numbered(numbered):
        row: Fields = {"torch": module_path, "keras": pattern, "kind": kind}
        if _fits(join, [row], unit, numbered.values()):
            yield row
            return
    for layer, path in sorted(numbered.items()):
        option = parts[f"layer_{layer}"][1]
        for row in tensor_rows(join, option):
            yield {**row, "torch": _of_layer(row["torch"], module_path, layer)}
        yield {"torch": f"{module_path}.layer_{layer}", "keras": path}


def _of_layer(names: object, module_path: str, layer: int) -> object:
    """Tensors of a part by their names in the module."""
    if isinstance(names, list):
        return [_of_layer(name, module_path, layer) for name in names]
    return f"{module_path}.{str(names).rpartition('.')[2].replace('_l0', f'_l{layer}')}"


def _numbered(paths: Mapping[int, str]) -> Iterator[str]:
    """Patterns with ``<layer>`` that match these paths."""
    first = paths.get(0, "")
    for position, sign in enumerate(first):
        if not sign.isdigit() or (position and first[position - 1].isdigit()):
            continue
        end = position
        while end < len(first) and first[end].isdigit():
            end += 1
        start = int(first[position:end])
        # A path may have several numbers; the one that counts the layers grows by one with each.
        if all(path == f"{first[:position]}{start + layer}{first[end:]}" for layer, path in paths.items()):
            yield f"{first[:position]}<layer{f'+{start}' if start else ''}>{first[end:]}"


def _chunks(join: _Join, module_path: str, parts: Mapping[str, tuple[str, FillOption]]) -> Iterator[Fields]:
    """Rows for a linear layer that corresponds to several Keras layers."""
    unit = join.unit(module_path)
    count = int(next(iter(parts)).rpartition("_")[2])
    paths = [parts[name][0] if (name := f"chunk_{index}_of_{count}") in parts else None for index in range(count)]
    if None in paths:
        join.doubts.append(Doubt(module_path, f"some of its {count} equal parts were found, and some were not"))
        return
    heads = join.side.variables[f"{paths[0]}/kernel"].shape[2:]
    rows = _split(unit, "weight", "bias", [str(path) for path in paths], "heads head" if heads else "out")
    yield from _stored(rows) if unit.transposed else rows


def _fits(join: _Join, rows: Sequence[Fields], unit: Unit, paths: Iterable[str]) -> bool:
    """Whether these rows fill exactly the variables of these layers from all of the unit's tensors, with the values
    that were found."""
    targets = {name: variable for path in paths for name, variable in join.side.variables_below(path).items()}
    plan = planned(rows, unit.names, {name: tuple(variable.shape) for name, variable in targets.items()})
    if plan is None:
        return False
    values = {name: array for option in join.outcome.matched.values() for name, array in option.values.items()}
    moved = dict(plan.apply(unit.names.__getitem__, rounded=False))
    # Exactly: the same numbers, moved by another row.
    return all(name in values and (moved[name] == values[name]).all() for name in moved)


def _attentions(join: _Join, rows: list[Fields]) -> list[Fields]:
    """Join projections with a head axis that are one attention layer on both sides into one row."""
    layers: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        torch, keras = str(row["torch"]), str(row.get("keras"))
        if row.get("rule") in ("attention_weight", HEADS_FIRST, "attention_output"):
            module, layer = torch.removesuffix(".weight"), keras.removesuffix("/kernel")
            (parent, _, name), outer = layer.rpartition("/"), module.rpartition(".")[0]
            layers.setdefault((outer, parent), {})[name] = module
    for (torch, keras), parts in layers.items():
        # By role, the module of a projection whose Keras layer has one of the usual names.
        names: dict[str, str] = {}
        for name, module in parts.items():
            if role := "out" if "out" in name else next((part for part in ATTENTION[:3] if part in name), ""):
                names.setdefault(role, module.removeprefix(f"{torch}."))
        if len(names) != len(ATTENTION) or not torch or not keras:
            continue
        changed = {part: name for part, name in names.items() if name != f"{'out' if part == 'out' else part[0]}_proj"}
        joined_row = _row_with({"torch": torch, "keras": keras, "kind": "attention"}, names=changed)
        inside = [row for row in rows if any(f"{row['torch']}.".startswith(f"{module}.") for module in parts.values())]
        both = _outputs(join, torch, keras) if _is_same(join, [joined_row], inside) else None
        if both is not None and Print(both[0]).same(Print(both[1])):
            rows = [joined_row if row is inside[0] else row for row in rows if row is inside[0] or row not in inside]
    return rows


def _is_same(join: _Join, joined_rows: Sequence[Fields], rows: Sequence[Fields]) -> bool:
    """Whether two lists of rows fill the same variables with the same values."""
    state = {name: tuple(tensor.shape) for name, tensor in join.run.module.state_dict().items()}
    plans = []
    for row_list in (joined_rows, rows):
        names, filled = claimed(row_list, list(state)), _filled(row_list, join.side)
        sources = {name: state[name] for name in state if name in names}
        targets = {name: tuple(variable.shape) for name, variable in join.side.variables.items() if name in filled}
        plan = make_plan(table_of_rows(row_list), sources, targets, {})
        if not isinstance(plan, Plan):
            return False
        plans.append({(m.sources, m.targets, str(m.rule.source), str(m.rule.target)) for m in plan.moves})
    return plans[0] == plans[1]


def _is_fed(join: _Join, unit: Unit, keras: str) -> bool:
    """Whether a layer was given what a module was given."""
    event = next((candidate for candidate in join.outcome.events if candidate.path == keras), None)
    return event is None or unit.call_with([Print(array) for array in event.inputs]) is not None


def _is_equal(join: _Join, torch: str, keras: str) -> bool:
    """Whether a module's and a layer's outputs agree elementwise, and no other row states it yet."""
    if keras in join.compared or (both := _outputs(join, torch, keras)) is None:
        return False
    theirs, ours = both
    join.compared.add(keras)
    return ours.shape == theirs.shape and bool(np.allclose(ours, theirs, rtol=NEAR))


def _outputs(join: _Join, torch: str, keras: str) -> tuple[Array, Array] | None:
    """The first outputs of a module and a layer, if both were called."""
    event = next((candidate for candidate in join.outcome.events if candidate.path == keras), None)
    call = join.run.calls.get(torch)
    if event is None or call is None or not event.outputs or not call.outputs:
        return None
    return np.asarray(call.outputs[0]), event.outputs[0]


def _filled(rows: Sequence[Fields], side: KerasSide) -> set[str]:
    table = table_of_rows(rows)
    paths = [pattern for row in table.rows for patterns in (row.keras, *row.others) for pattern in patterns]
    paths += [fill.keras for fill in table.fills]
    return {name for name in side.variables if any(pattern.match(name) is not None for pattern in paths)}


def _unfilled(join: _Join, rows: Sequence[Fields]) -> Iterator[Fields]:
    """Rows for variables that no call uses, each from the tensor with the most similar name among those of its shape
    that PyTorch's run does not use either: only a guess."""
    filled, state = _filled(rows, join.side), join.run.module.state_dict()
    used = claimed(rows, list(state))
    for name, variable in join.side.variables.items():
        if name in filled:
            continue
        shape = tuple(variable.shape)
        free = [source for source, tensor in state.items() if source not in used and tuple(tensor.shape) == shape]
        spare = {source: likeness(source, name) for source in free if state[source].is_floating_point()}
        if not spare:
            join.doubts.append(Doubt(name, "no call of the Keras model uses it, and no tensor of its shape is left"))
            continue
        chosen = max(spare, key=lambda source: spare[source])
        used.add(chosen)
        join.doubts.append(Doubt(chosen, f"goes into {name} only by name and shape: the Keras model does not read it"))
        yield {"torch": chosen, "keras": name, "rule": "identity"}


def _pools(join: _Join) -> Iterator[Fields]:
    """Rows for layers of kinds without tensors: those with the same inputs and outputs."""
    used: set[str] = set()
    for event in join.outcome.events:
        layer = join.side.layers.get(event.path)
        if layer is None or join.side.variables_below(event.path) or event.call != event.path or not event.inputs:
            continue
        for unit in join.units:
            if unit.tensors or unit.path in used or not (kinds := possible(unit, layer)) or not event.outputs:
                continue
            call_index = unit.call_with([Print(event.inputs[0])])
            if call_index is not None and Print(unit.calls[call_index].outputs[0]).same(Print(event.outputs[0])):
                used.add(unit.path)
                yield {"torch": unit.path, "keras": event.path, "kind": kinds[0]}
                break


def _unused_tensor_rows(join: _Join, rows: Sequence[Fields]) -> Iterator[Fields]:
    """Rows for the tensors of the state_dict that no layer uses."""
    state = join.run.module.state_dict(keep_vars=True)
    used = claimed(rows, list(state))
    first: dict[int, str] = {}
    for name in state:
        if name in used:
            first.setdefault(join.run.bits[name], name)
    parameters = {name for name, _ in join.run.module.named_parameters(remove_duplicate=False)}
    read_bits = joined_bits(value.depends for value in join.run.values)
    for name in state:
        if name in used:
            continue
        if same := first.get(join.run.bits[name]):
            yield {"torch": name, "same_as": same}
        elif name.endswith(".num_batches_tracked"):
            yield {"torch": name, "drop": "counts training batches; inference does not read it"}
        # A parameter may be trained, so it is never dropped as a table.
        elif name not in parameters:
            yield {"torch": name, "drop": "a table that the Keras model computes"}
            doubt = "dropped, a buffer without a variable in Keras; the models agree with its values"
            join.doubts.append(Doubt(name, doubt))
        elif not read_bits & join.run.bits[name]:
            yield {"torch": name, "drop": "the forward pass does not read it"}
            join.doubts.append(Doubt(name, "the forward pass does not read it, dropped"))
        else:
            yield {"torch": name, "drop": "no variable of the Keras model holds it"}
            join.doubts.append(Doubt(name, "the forward pass reads it, but no variable of the Keras model holds it"))


def claimed(rows: Sequence[Fields], names: Sequence[str]) -> set[str]:
    table = table_of_rows(rows)
    return {name for name in names for row in table.rows for pattern in row.torch if pattern.match(name) is not None}
