"""The candidates for a Keras layer or variable: units of PyTorch that were given the same input and fit its shapes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from wdport.mapping.axes import Shape
from wdport.mapping.kinds import kinds_of_layer
from wdport.models.interface import Array, KerasLayer
from wdport.porting import candidate_rows as rows
from wdport.porting.candidate_rows import FillOption
from wdport.porting.fingerprints import InputCall, KerasSide, Print
from wdport.porting.layer_units import MOST_CHUNKS, Unit, likeness, possible, stack
from wdport.porting.torch_run import TorchRun, joined_bits
from wdport.recording.nested import to_array

Matched = Mapping[str, FillOption]
"""The options chosen so far, by layer, or by variable of a layer without a kind."""


class Candidates:
    """Finds candidates in one run of the PyTorch model; nothing is assigned here."""

    def __init__(self, side: KerasSide, run: TorchRun, units: Sequence[Unit]) -> None:
        self._side, self._run, self._units = side, run, units

    def of_layer(
        self, event: InputCall, layer: KerasLayer, below: Mapping[str, Shape], matched: Matched,
        earlier: Sequence[InputCall],
    ) -> list[FillOption]:  # fmt: skip
        """The units that fit a layer and were given its input; ``below`` are the shapes of its variables, ``earlier``
        the calls before it."""
        prints, assigned = [Print(array) for array in event.inputs], self._assigned_paths(matched)
        keras = event.path
        if type(layer).__name__ == "TimeDistributed":
            layer, keras = layer.layer, f"{keras}/layer"
        options = []
        for unit in self._units:
            if unit.path in assigned or not unit.tensors or not _comparable(unit, below):
                continue
            call_index = unit.call_with(prints)
            if call_index is None:
                continue
            for kind in possible(unit, layer):
                option = self._fitting(unit, keras, kind, below, event, call_index, earlier)
                if option is not None:
                    options.append(option)
            # Only where the plain row does not fit: a Dense kernel with a head axis.
            if "linear" in possible(unit, layer) and not any(other.unit is unit for other in options):
                option = rows.heads_option(unit, keras, below, call_index)
                options += [option] if option else []
            if not unit.kinds and kinds_of_layer(layer):
                options += rows.as_stored(unit, keras, below, call_index)
            if type(unit.module).__name__ == "Conv2d" and (up := self._shuffled(unit, call_index)):
                options += rows.shuffled(unit, keras, below, up, call_index)
            if "linear" in possible(unit, layer):
                options += rows.divided(unit, keras, below, self._divided(unit, call_index), call_index)
        # Several modules as one layer only if no single module fits.
        if not any(not option.unit.part for option in options) and "linear" in (kinds_of_layer(layer) or ()):
            options += self._merged(keras, below, prints, assigned)
        return options

    def _divided(self, unit: Unit, call_index: int) -> list[Shape]:
        """The shapes, without the batch, into which PyTorch divides a linear layer's features."""
        output = np.asarray(unit.calls[call_index].outputs[0])
        numbers = {value.number for value in self._run.prints.find(Print(output))} if output.ndim == 2 else set()
        shapes = []
        for value in self._run.values:
            if numbers & set(value.sources):
                shapes.append(value.result.array.shape)
                if value.result.array.shape == output.shape:  # for example an activation
                    numbers.add(value.number)
        fitting = (shape for shape in shapes if len(shape) > 2 and shape[0] == len(output))
        return list(dict.fromkeys(shape[1:] for shape in fitting if prod(shape) == output.size))

    def _shuffled(self, unit: Unit, call_index: int) -> int:
        """The factor of a pixel shuffle after a convolution in PyTorch; 0 if there is none."""
        output = np.asarray(unit.calls[call_index].outputs[0])
        numbers = {value.number for value in self._run.prints.find(Print(output))}
        for value in self._run.values:
            if value.by == "pixel_shuffle" and numbers & set(value.sources):
                factor = value.arguments.get("1", value.arguments.get("upscale_factor", 0))
                return factor if isinstance(factor, int) else 0
        return 0

    def _merged(
        self, keras: str, below: Mapping[str, Shape], prints: list[Print], assigned: Collection[str]
    ) -> Iterator[FillOption]:
        """Linear layers with the same input, side by side, the nearest in call order first."""
        width = below.get(f"{keras}/kernel", (0,))[-1]
        fed = [(unit, call_index) for unit in self._units if unit.kinds == ("linear",) and unit.path not in assigned
               and "_of_" not in unit.part and (call_index := unit.call_with(prints)) is not None]  # fmt: skip
        for count in range(2, MOST_CHUNKS + 1):
            for start in range(len(fed) - count + 1):
                units = [unit for unit, _ in fed[start : start + count]]
                if sum(len(unit.tensors["weight"]) for unit in units) == width:
                    yield from rows.merged(units, keras, below, fed[start][1])

    @staticmethod
    def _fitting(
        unit: Unit, keras: str, kind: str, below: Mapping[str, Shape], event: InputCall, call_index: int,
        earlier: Sequence[InputCall],
    ) -> FillOption | None:  # fmt: skip
        option = None
        if event.inputs:
            option = rows.flattened(unit, keras, kind, below, event.inputs[0], _flat(event, earlier), call_index)
        return option or rows.layer_option(unit, keras, kind, below, call_index=call_index)

    def _assigned_paths(self, matched: Matched) -> set[str]:
        """Units that are assigned to a layer, and their parts and wholes."""
        used = [option.unit for option in matched.values()]
        # A module that is used as a whole is not used in parts, and the other way round.
        complete = {unit.module_path for unit in used if not unit.part}
        broken = {unit.module_path: unit.part.rpartition("_of_")[2] for unit in used if unit.part}
        paths = {path for unit in used for path in (unit.path, *unit.members)}
        for unit in self._units:
            others = "_of_" in unit.part and unit.part.rpartition("_of_")[2] != broken.get(unit.module_path)
            if unit.module_path in complete or (unit.module_path in broken and (others or not unit.part)):
                paths.add(unit.path)
        return paths

    def of_variable(
        self, keras: str, shape: Shape, inputs: Sequence[Array], leaf: bool, matched: Matched
    ) -> Iterator[FillOption]:
        """The candidate tensors for a variable: first those of modules with the same input, then those of modules that
        contain others, or of any module if the Keras layer contains others."""
        prints = [Print(array) for array in inputs]
        used = _used(matched)
        # Integers give no unique print, and a layer with several variables may take them from other modules.
        several = len(self._side.direct_variables(keras.rpartition("/")[0])) > 1
        spare = several or all(fingerprint.exact for fingerprint in prints)
        closed = {option.unit.module_path for option in matched.values() if option.kind}
        orders = [option.unit.order for option in matched.values()]
        candidates: list[tuple[tuple[float, ...], FillOption]] = []
        free: dict[str, tuple[tuple[float, ...], Array]] = {}
        for unit in (*self._root(), *self._units):
            if unit.part or unit.path in closed:
                continue
            near = bool(prints) and unit.call_with(prints) is not None
            inside = unit.module is None or any(True for _ in unit.module.children())
            if leaf and not near and not inside and not spare:
                continue
            away = float(abs(unit.order - orders[-1])) if orders and not near and not inside else 0.0
            for name, array in unit.tensors.items():
                full_name = f"{unit.path}.{name}" if unit.path else name
                if full_name in used or array.dtype.kind != "f":
                    continue
                key = (0.0 if near else 1.0 if inside else 2.0, away, -likeness(full_name, keras))
                free[full_name] = (key, array)
                candidates += [(key, option) for option in rows.tensor_options(unit, name, keras, shape)]
        # Several tensors as one variable only if no single one fits.
        candidates = candidates or list(self._stacked(free, keras, shape))
        # Only the keys are compared: options have no order.
        yield from (option for _, option in sorted(candidates, key=lambda candidate: candidate[0]))

    def of_table(self, keras: str, shape: Shape, matched: Matched) -> Iterator[FillOption]:
        """The tensors of any module that fit a variable, the most similar name first: a table, such as that of
        positions, is the same whatever the layer is given."""
        used = _used(matched) | {name for option in matched.values() if option.kind for name in option.unit.names}
        options = [(-likeness(name, keras), option) for unit in (*self._root(), *self._units) if not unit.part
                   for tensor, array in unit.tensors.items() if array.dtype.kind == "f" and array.size > len(array)
                   and (name := f"{unit.path}.{tensor}" if unit.path else tensor) not in used
                   for option in rows.tensor_options(unit, tensor, keras, shape)]  # fmt: skip
        yield from (option for _, option in sorted(options, key=lambda pair: pair[0]))

    def _stacked(
        self, free: Mapping[str, tuple[tuple[float, ...], Array]], keras: str, shape: Shape
    ) -> Iterator[tuple[tuple[float, ...], FillOption]]:
        """Tensors whose names differ in one number, such as those of experts, as one variable; each with its key."""
        groups: dict[tuple[str, str], list[str]] = {}
        for name in free:
            for number in _NUMBER.finditer(name):
                groups.setdefault((name[: number.start()], name[number.end() :]), []).append(name)
        for names in groups.values():
            arrays = {name: free[name][1] for name in names}
            if len(names) in shape and sum(array.size for array in arrays.values()) == prod(shape):
                unit = stack(arrays, joined_bits(self._run.bits[name] for name in names))
                options = rows.stacked(unit, keras, arrays, shape)
                yield from ((min(free[name][0] for name in names), option) for option in options)

    def _root(self) -> list[Unit]:
        """The parameters of the model itself."""
        state = self._run.module.state_dict()
        root_tensors = {name: to_array(tensor) for name, tensor in state.items() if "." not in name}
        bits = joined_bits(self._run.bits[name] for name in root_tensors)
        return [Unit("", (), root_tensors, "", "", (), -1, bits)] if root_tensors else []


_NUMBER = re.compile(r"\d+")


def _used(matched: Matched) -> set[str]:
    """The tensors that rows under ``tensors`` claim."""
    return {name for option in matched.values() for row in option.rows if "rule" in row for name in _sources(row)}


def _sources(row: rows.Fields) -> list[str]:
    """The tensors of a row under ``tensors``."""
    names = row["torch"]
    return [str(name) for name in names] if isinstance(names, list) else [str(names)]


def _flat(event: InputCall, earlier: Sequence[InputCall]) -> list[Shape]:
    """Shapes, without the batch, of earlier outputs that hold the values of this layer's input."""
    size = event.inputs[0].size
    # The latest first: a Flatten is usually right before the layer.
    arrays = [array for call in reversed(earlier) for array in (*call.outputs, *call.inputs)]
    shapes = [np.shape(array)[1:] for array in arrays if array.ndim > 2 and array.size == size]
    return list(dict.fromkeys(shapes))


def _comparable(unit: Unit, below: Mapping[str, Shape]) -> bool:
    """Whether both sides have about as many numbers: vectors may be joined, or left out."""
    # Cheap, and before any plan is made: most units are excluded by their number of weights.
    spare = sum(array.size for array in unit.tensors.values() if array.ndim < 2 or array.size == len(array))
    return abs(sum(array.size for array in unit.tensors.values()) - sum(map(prod, below.values()))) <= spare
