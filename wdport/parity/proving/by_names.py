"""Guess a table from a checkpoint and a Keras model, if PyTorch's code cannot run, by names, shapes, order and kinds.

Shapes determine which tensors may fill a layer. If several may, names and order decide, and every such row is listed as
a doubt. Nothing is proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from wdport.base.errors import MisfitError
from wdport.checkpoint import open_checkpoint
from wdport.families.custom import CustomConfig
from wdport.mapping.axes import Shape
from wdport.mapping.kinds import kinds_of_layer
from wdport.models.interface import KerasLayer
from wdport.parity.proving.suggest import Models, Suggestion, family_of
from wdport.porting.candidate_rows import Fields, layer_option, tensor_rules
from wdport.porting.fingerprints import KerasSide
from wdport.porting.layer_units import Unit, likeness
from wdport.porting.table_text import Doubt, fold, fold_doubts, sections

# Finite, since linear_sum_assignment refuses a matrix in which a row has no finite cost.
_UNFIT = 1e6


def suggest_by_names(models: Models) -> Suggestion:
    """The most likely table; raises :class:`WdportError` if the checkpoint cannot be read or the model cannot be
    built."""
    import keras  # noqa: F401  before our modules that need it: importing it imports the ports

    path = Path(str(models.checkpoint))
    with open_checkpoint(path) as checkpoint:
        shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    family = family_of(models)
    side = KerasSide(family.build(CustomConfig(models.model, models.inputs, models.arguments), "float32"))
    rows, doubts = _guessed(side, shapes)
    if unfit := [layer for layer in _of_a_kind(side) if not any(str(row.get("keras")) == layer for row in rows)]:
        sizes = ", ".join(f"{name.rpartition('/')[2]} {tuple(variable.shape)}"
                          for name, variable in side.direct_variables(unfit[0]).items())  # fmt: skip
        more = f", nor those of {len(unfit) - 1} more" if len(unfit) > 1 else ""
        what = f"no module has the tensors of {unfit[0]} ({sizes}){more}"
        raise MisfitError(path, what, "check that both are the same network; compare their biases and sizes")
    if not rows:
        raise MisfitError(path, f"no layer of {models.model} fits any tensor by its shape", "check both")
    suggestion = Suggestion(models, tuple(rows), doubts=tuple(fold_doubts(doubts)), layers=len(rows),
                            method="guessed from names and shapes; nothing was run, and nothing is proved")  # fmt: skip
    modules = {name.rpartition(".")[0] for name in shapes}
    suggestion.parts = tuple(sections(fold(rows, modules, list(shapes))))
    return suggestion


def _guessed(side: KerasSide, shapes: Mapping[str, Shape]) -> tuple[list[Fields], list[Doubt]]:
    units = _units(shapes)
    layers = [(path, layer) for path, layer in side.layers.items() if side.direct_variables(path)]
    options = [[_row(unit, path, layer, side) for unit in units] for path, layer in layers]
    rows: list[Fields] = []
    doubts: list[Doubt] = []
    used: set[str] = set()
    filled: set[str] = set()
    if units and layers:
        costs = np.array([[_cost(row, unit, path, position / len(layers), place / len(units))
                           for place, (unit, row) in enumerate(zip(units, fits, strict=True))]
                          for position, ((path, _), fits) in enumerate(zip(layers, options, strict=True))])  # fmt: skip
        # The least total cost: layer by layer, an early layer could take a tensor that only a later one can use.
        for position, place in zip(*linear_sum_assignment(costs), strict=True):
            row, unit, path = options[position][place], units[place], layers[position][0]
            if row is None:
                continue
            others = sum(candidate is not None for candidate in options[position]) - 1
            rows.append(row)
            used |= set(unit.names)
            filled |= set(side.direct_variables(path))
            if others:
                text = f"goes into {path} only by name and order; {others} others fit its shape"
                doubts.append(Doubt(unit.path, text))
    rows += _loose(side, shapes, used, filled, doubts)
    for name in shapes:
        # BatchNorm's counter of training steps, which inference does not read.
        if name not in used and not name.endswith("num_batches_tracked"):
            doubts.append(Doubt(name, "no variable of its shape is left"))
    for name in side.variables:
        if name not in filled:
            doubts.append(Doubt(name, "no tensor of its shape is left"))
    return rows, doubts


def _of_a_kind(side: KerasSide) -> list[str]:
    """The layers of Keras with variables of their own that are of a kind."""
    return [path for path, layer in side.layers.items() if kinds_of_layer(layer) and side.direct_variables(path)]


def _units(shapes: Mapping[str, Shape]) -> list[Unit]:
    """The modules of a checkpoint, with empty values of the right shapes."""
    below: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        module, _, last = name.rpartition(".")
        if module:
            below.setdefault(module, {})[last] = shape
    # Broadcast zeros take no memory: only the shapes are used.
    return [Unit(module, (), {name: np.broadcast_to(np.float32(0), shape) for name, shape in local.items()}, module,
                 "", (), order, 0) for order, (module, local) in enumerate(below.items())]  # fmt: skip


def _row(unit: Unit, path: str, layer: KerasLayer, side: KerasSide) -> Fields | None:
    variables = {name: tuple(variable.shape) for name, variable in side.direct_variables(path).items()}
    # Cheap, and before any plan is made: a layer cannot have more values than its tensors.
    if sum(map(prod, variables.values())) > sum(array.size for array in unit.tensors.values()):
        return None
    for kind in kinds_of_layer(layer) or ():
        if option := layer_option(unit, path, kind, variables):
            return option.rows[0]
    return None


def _cost(row: Fields | None, unit: Unit, path: str, place: float, order: float) -> float:
    # Places are shares of the whole model, from 0 to 1, so that both terms have a similar size.
    return _UNFIT if row is None else abs(place - order) - likeness(unit.path, path)


def _loose(
    side: KerasSide, shapes: Mapping[str, Shape], used: set[str], filled: set[str], doubts: list[Doubt]
) -> Iterator[Fields]:
    """Fill variables of layers without a kind, each from the tensor with the most similar name that fits; adds to
    ``used`` and ``filled``."""
    grouped = {name for layer in _of_a_kind(side) for name in side.direct_variables(layer)}
    for name, variable in side.variables.items():
        if name in filled or name in grouped:  # one tensor of a layer of a kind says nothing
            continue
        shape = tuple(variable.shape)
        fits = {tensor: next(tensor_rules(tensor_shape, shape), None)
                for tensor, tensor_shape in shapes.items() if tensor not in used}  # fmt: skip
        left: Sequence[str] = [tensor for tensor, rule in fits.items() if rule is not None]
        if not left:
            continue
        chosen = max(left, key=lambda tensor: likeness(tensor, name))
        used.add(chosen)
        filled.add(name)
        rule = str(fits[chosen])
        if len(left) > 1:
            doubts.append(Doubt(chosen, f"goes into {name} only by name; {len(left) - 1} others fit its shape"))
        yield {"torch": chosen, "keras": name, "rule": "identity" if rule == "... -> ..." else rule}
