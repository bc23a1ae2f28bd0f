"""The two sides of a comparison: a reference in PyTorch and a candidate in Keras in two dtypes.

The weights deliberately come from two sources: the reference's from the checkpoint, the candidate's from the
converted file. In the second weight set, the same random shifts are added to the biases of both sides, and to scales
and whole weights that are constant: biases of zero would hide missing ones, and scales of zero what they multiply.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import jax
import numpy as np

from wdport.base.errors import MachineError, MisfitError, UsageError
from wdport.compare.findings import Finding, fact
from wdport.compare.measure import same_bits
from wdport.compare.reference import Live, Reference, translated
from wdport.conversion.load import Converted
from wdport.conversion.prepare import Prepared
from wdport.conversion.rounding import rounded_values
from wdport.conversion.values import moved_arrays, source_tensors
from wdport.families.roles import KeptByKeras, Referenced
from wdport.files.model_files import read_variables
from wdport.mapping.plan import Move, Plan
from wdport.mapping.ties import omitted_names
from wdport.models.interface import Array, KerasModel, Signature
from wdport.models.keras_runtime import set_variable, variables_by_path
from wdport.recording.calls import cast
from wdport.recording.cases import CASES, LONGEST
from wdport.recording.code_constants import Ranges, compared_numbers, largest_tensor, unreached
from wdport.recording.fitted_inputs import call_by_name, checked_inputs
from wdport.recording.float64 import lifted
from wdport.recording.inputs import Input
from wdport.recording.runs import run
from wdport.recording.torch_functions import highest_precision
from wdport.recording.user_model import Subject, build
from wdport.recording.watching import watched

if TYPE_CHECKING:
    import torch

DTYPES = ("float64", "float32")


@dataclass
class Sides:
    """The reference, and the candidate models by dtype."""

    reference: Reference
    candidates: dict[str, KerasModel]

    @property
    def references(self) -> Mapping[str, torch.nn.Module]:
        """The reference's modules by dtype; empty if it is a recording."""
        return self.reference.modules


@dataclass(frozen=True)
class Weights:
    """One set of weights: the checkpoint's tensors and the port's variables, float32; ``exact`` are the variables
    computed by arithmetic, which the float64 port has in float64.

    From a recording, there are only those tensors that are combined with others into one variable.
    """

    name: str
    tensors: dict[str, Array]
    variables: dict[str, Array]
    random_biases: bool = False
    exact: Mapping[str, Array] = field(default_factory=dict)

    @property
    def float64(self) -> dict[str, Array]:
        """The variables of the float64 port."""
        return {**self.variables, **self.exact}

    def forget(self) -> None:
        self.tensors.clear()
        self.variables.clear()


def converted_weights(prepared: Prepared, converted: Converted) -> Weights:
    """The weights of the checkpoint and of the converted file; raises as :func:`source_tensors` does."""
    tensors = source_tensors(prepared, converted.rounded, converted.path)
    return unrounded(prepared, Weights("converted weights", tensors, file_variables(prepared, converted)))


def file_variables(prepared: Prepared, converted: Converted) -> dict[str, Array]:
    """Every variable of the converted file; read by Keras if Keras wrote it."""
    if isinstance(converted.family, KeptByKeras) and converted.by_keras:
        return dict(converted.family.read(converted.config, converted.path))
    return dict(read_variables(converted.path, prepared.variables, dtypes=converted.dtypes))


def unrounded(prepared: Prepared, weights: Weights) -> Weights:
    """Add the unrounded float64 results of the arithmetic on the tensors."""
    return replace(weights, exact=_unrounded([move for move in prepared.plan.moves if not move.exact], weights.tensors))


def _unrounded(moves: Sequence[Move], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The variables that these moves fill in float64, as far as their tensors are there."""
    variables: dict[str, Array] = {}
    for move in moves:
        if all(name in tensors for name in move.sources):
            arrays = move.apply([tensors[name] for name in move.sources], rounded=False)
            variables |= zip(move.targets, arrays, strict=True)
    return variables


def unequal_variables(
    prepared: Prepared, weights: Weights, rounded: Mapping[str, str] = MappingProxyType({})
) -> list[Finding]:
    """Findings on variables of the converted file that are not bitwise equal to their converted tensors, ``rounded`` to
    these dtypes."""
    wrong = []
    for move in prepared.plan.moves:
        pairs = zip(move.targets, moved_arrays(prepared, move), strict=True)
        expected = ((name, rounded_values(array, rounded.get(name, "float32"))) for name, array in pairs)
        wrong += [name for name, array in expected if not same_bits(array, weights.variables[name])]
    return [*(unequal(name) for name in wrong), *unequal_fills(prepared.plan, weights)]


def unequal(name: str) -> Finding:
    """The finding that a variable is not equal to its converted tensors."""
    return fact(f"{name} is not bitwise equal to its tensor", name, "unequal")


def unequal_fills(plan: Plan, weights: Weights) -> list[Finding]:
    """Findings on variables that do not hold the constant that the table fills them with."""
    changed = plan.changed_fills(weights.variables.__getitem__)
    return [fact(f"{fill.target} does not hold {fill.fill}, which the table fills it with", fill.target, "unequal")
            for fill in changed]  # fmt: skip


def with_random_biases(prepared: Prepared, weights: Weights, shifts: Mapping[str, Array]) -> Weights:
    """Add the reference's shifts, converted by the plan's rules; see :mod:`wdport.recording.bias_shifts`."""
    tensors, variables = dict(weights.tensors), dict(weights.variables)
    for move in prepared.plan.moves:
        if not any(name in shifts for name in move.sources):
            continue
        for name in set(tensors).intersection(shifts, move.sources):
            tensors[name] = tensors[name] + shifts[name]
        if len(move.sources) > 1:
            # Several sources: weight_norm is not linear, so the shifted tensors are moved, not the shifts.
            variables |= zip(move.targets, move.apply([tensors[name] for name in move.sources]), strict=True)
            continue
        for name, array in zip(move.targets, move.apply([shifts[move.source]]), strict=True):
            variables[name] = variables[name] + array
    return unrounded(prepared, Weights("random biases", tensors, variables, random_biases=True))


def build_sides(prepared: Prepared, weights: Weights, reference: Reference | None = None) -> Sides:
    """The candidates with these weights, and ``reference`` or wdport's own, which is built in a separate thread.

    Raises :class:`MachineError` if that needs torch and it is not installed.
    """
    candidates = {}
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(lambda: reference or own_reference(prepared, weights.tensors))
        for dtype in DTYPES:
            with jax.enable_x64(dtype == "float64"):
                candidates[dtype] = prepared.family.build(prepared.config, dtype)
        _assign(candidates, weights, set(prepared.plan.targets))
        return Sides(pending.result(), candidates)


def own_reference(prepared: Prepared, tensors: Mapping[str, Array]) -> Live:
    """wdport's own reference with those of ``tensors`` that it has."""
    return family_reference(prepared, {name: array for name, array in tensors.items() if not _internal(prepared, name)})


def correct_port(prepared: Prepared, weights: Weights) -> KerasModel:
    """The float64 port with the checkpoint's tensors converted by the table, regardless of the converted file.

    Without the checkpoint, it has the file's variables, which preflight (0) compares with the recording.
    """
    variables = weights.variables | _unrounded(prepared.plan.moves, weights.tensors)
    with jax.enable_x64(True):
        model = prepared.family.build(prepared.config, "float64")
        for path, variable in variables_by_path(model).items():
            set_variable(variable, variables[path])
    return model


def change_weights(prepared: Prepared, sides: Sides, weights: Weights, before: Weights) -> None:
    """Set ``weights`` in all four models where they differ from ``before``, the current ones."""
    sides.reference.use(weights.random_biases)
    changed = {name for name in prepared.plan.targets if weights.variables[name] is not before.variables[name]}
    _assign(sides.candidates, weights, changed)


class WeightSets:
    """The converted weights and those with random biases, which are made when they are first used."""

    def __init__(self, prepared: Prepared, sides: Sides, weights: Weights) -> None:
        self._prepared, self._sides, self._current = prepared, sides, weights
        self._sets = {False: weights}

    def of(self, random_biases: bool) -> Weights:
        if random_biases not in self._sets:
            self._sets[True] = with_random_biases(self._prepared, self._sets[False], self._sides.reference.shifts)
        return self._sets[random_biases]

    def use(self, random_biases: bool) -> None:
        weights = self.of(random_biases)
        if weights is not self._current:
            change_weights(self._prepared, self._sides, weights, self._current)
            self._current = weights

    def forget(self) -> None:
        """Drop all arrays, which the models have as well."""
        for weights in self._sets.values():
            weights.forget()


def _assign(candidates: Mapping[str, KerasModel], weights: Weights, names: set[str]) -> None:
    """Set these variables of both candidates; the arrays never change afterwards, so float32 arrays may be shared."""
    for dtype in DTYPES:
        with jax.enable_x64(dtype == "float64"):
            variables = variables_by_path(candidates[dtype])
            values = weights.float64 if dtype == "float64" else weights.variables
            for name in names:
                if name in variables:  # what the plan fills is accounted for in preflight (0)
                    set_variable(variables[name], values[name])


def _internal(prepared: Prepared, name: str) -> bool:
    """Whether a tensor is a variant's extra buffer that the reference does not have."""
    row = next((r for r in prepared.table.rows if any(p.match(name) is not None for p in r.torch)), None)
    return row is not None and (row.optional or row.drop is not None)


def family_reference(prepared: Prepared, tensors: Mapping[str, Array]) -> Live:
    """The reference of the checkpoint's family with these weights: a library's released class, or wdport's own code.

    Raises :class:`MachineError` if torch or the library is not installed.
    """
    family, config, stated = prepared.family, prepared.config, prepared.stated

    def build_module(dtype: str) -> torch.nn.Module:
        if isinstance(family, Referenced) and stated is not None:
            return family.stated_reference(config, tensors, dtype, stated)
        return family.build_reference(config, tensors, dtype)

    try:
        modules = {dtype: build_module(dtype) for dtype in ("float64", "float32")}
        return Live(modules, drawn=family.signature(config).inputs)
    except ModuleNotFoundError as error:
        what = f"the reference needs {error.name}, which is not installed"
        raise MachineError("verify", what, "install wdport[torch]") from None


def user_reference(
    target: str, prepared: Prepared, key: str | None = None, rounded: Mapping[str, Array] | None = None
) -> Live:
    """The model of the user's ``module:factory`` with the weights of the checkpoint, or the ``rounded`` ones; raises
    :class:`MisfitError` if they do not fit."""
    signature = prepared.family.signature(prepared.config)
    with translated():
        state = dict(rounded or {name: prepared.checkpoint.read(name) for name in prepared.checkpoint.tensors})
        features = prepared.family.features(prepared.config)
        rows = [row for row in prepared.table.rows if row.when is None or row.when in features]
        omitted = omitted_names(rows, state)
        state |= {name: state[present] for name, present in omitted.items()}
        arguments = getattr(prepared.config, "arguments", {})
        plan, path = prepared.plan, str(prepared.checkpoint.path)
        carried = {**{name: same for name, same in omitted.items() if same in plan.carried}, **plan.carried}
        subject = build(target, path, key, state, arguments, {*plan.drops, *omitted}, carried)
    _require_names(target, prepared, subject)
    # A factory that loads the checkpoint itself would undo the rounding.
    for name, tensor in subject.modules["float32"].state_dict().items() if rounded else ():
        if name in state and not np.array_equal(tensor.numpy(), state[name].astype(np.float32), equal_nan=True):
            what = f"loads other values for {name} than those given, and the converted file is rounded to 16 bits"
            raise MisfitError(target, what, "return the module without weights, or verify a float32 conversion")
    if not (subject.make_inputs or signature.inputs):
        fix = "add `inputs:` to the table, give `--input 'x: b 3 48 48'`, or return (module, make_inputs)"
        raise UsageError(target, "the model's inputs are not known", fix)
    with translated():
        for module in subject.modules.values() if not subject.make_inputs else ():
            call_by_name(module, signature.inputs)
    drawn = () if subject.make_inputs else longest_inputs(signature, subject.modules["float64"])
    turned = _turned(signature.inputs, drawn, subject.modules["float64"]) if drawn else ()
    if drawn and not turned:
        drawn, turned = reaching_inputs(signature, drawn, subject.modules["float64"])
    notes = [*subject.notes, *_left_out(subject, drawn)]
    return Live(subject.modules, subject.make_inputs, notes, target, drawn, turned, subject.shifts)


def _require_names(target: str, prepared: Prepared, subject: Subject) -> None:
    """Refuse a factory that loads a vector of the file under another name: the two sides would get different shifts."""
    names, plan = subject.tensors.keys(), prepared.plan
    moved = {name for move in plan.moves for name in move.sources}
    others = names - moved - {*plan.ties, *plan.drops, *plan.checks}
    lost = [name for name in moved - names if len(prepared.checkpoint.tensors[name].shape) == 1]
    if lost and any(len(subject.tensors[name].shape) == 1 for name in others):
        what = f"has no {min(lost)}, which the table moves"
        raise MisfitError(target, what, "name its own tensors in the table, and those of the file under `formerly`")


def _left_out(subject: Subject, drawn: Sequence[Input]) -> Iterator[str]:
    """A note if the last input may be left out in PyTorch, and no case does so."""
    parameters = [parameter for parameter in inspect.signature(subject.modules["float64"].forward).parameters.values()
                  if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]  # fmt: skip
    if drawn and len(drawn) <= len(parameters) and not drawn[-1].optional:
        name, last = drawn[-1].name, parameters[len(drawn) - 1]
        if last.default is not inspect.Parameter.empty and _runs(subject.modules["float64"], drawn[:-1]):
            compared = f"a table with `{name}?: ...` among its inputs compares them"
            yield f"calls without {last.name} are not compared; {compared}"


def _runs(module: torch.nn.Module, drawn: Sequence[Input]) -> bool:
    """Whether a module takes these inputs alone."""
    try:
        run(module, [cast(spec.make(0, 1, 1.0), float) for spec in drawn])
    except Exception:  # whatever the author's code raises
        return False
    return True


def longest_inputs(signature: Signature, module: torch.nn.Module) -> tuple[Input, ...]:
    """The inputs with the greatest length up to :data:`LONGEST` positions, and at least twice the stated one, that the
    reference accepts along the first free axis of each of them; it is that of a batch of one.

    Inputs whose free axes have the same name and size have the same length; the lengths of others differ. Padding and
    pooling of some layers agree with PyTorch's for odd or for even sizes alone. If the reference accepts it, the size
    of the first free axis therefore is odd where the stated one is even, and the reverse, also after several strided
    convolutions, each of which halves it and rounds up; that of other free axes, after layers that round down.
    """
    sizes, others = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
    steps = {**signature.longer, **signature.free}
    unequal = _unequal(signature.inputs)
    inputs = unequal if unequal != signature.inputs and _accepts(module, unequal) else signature.inputs
    for spec in inputs:
        free = [axis for axis in spec.axes if axis in steps]
        if free and not spec.alone.keys() & set(spec.axes):
            size = spec.sizes[free[0]]
            positions = math.prod(spec.sizes[axis] for axis in free)
            limit = max(2 * size, LONGEST * size // positions)
            sizes[free[0], size] = min(sizes.get((free[0], size), limit), limit)
            # At least about half more.
            for axis in free[1:]:
                count = spec.sizes[axis] // steps[axis]
                others[axis, spec.sizes[axis]] = steps[axis] * _congruent(count + count // 2 + 1, -count - 1)
    for index, ((axis, size), limit) in enumerate(sizes.items()):
        step = steps[axis]
        # Different lengths for different axes: equal ones would hide axes that are exchanged.
        other = step * (_congruent(-(-limit // step), 1 - size // step) + index * 2**HALVINGS)
        limit = max(size, limit - 2 * index * step)
        least, beyond = size, limit + step
        if other > size and _accepts(module, tuple(_with_length(spec, axis, size, other) for spec in inputs)):
            least = beyond = other
        # Bisection: the limit first, which most models accept, then the middle, in multiples of the step.
        while least + step < beyond:
            middle = limit if beyond > limit else least + (beyond - least) // 2 // step * step
            longer = tuple(_with_length(spec, axis, size, middle) for spec in inputs)
            least, beyond = (middle, beyond) if _accepts(module, longer) else (least, middle)
        inputs = tuple(_with_length(spec, axis, size, least) for spec in inputs) if least > size else inputs
    for (axis, size), length in others.items():
        longer = tuple(_with_length(spec, axis, size, length) for spec in inputs)
        inputs = longer if (axis, size) not in sizes and _accepts(module, longer) else inputs
    return inputs


MOST_VALUES: Final = 1 << 24
"""Values of the largest tensor, estimated as if it grew by the square of the length, up to which a length is tried that
reaches a number of the code."""


def reaching_inputs(
    signature: Signature, drawn: tuple[Input, ...], module: torch.nn.Module
) -> tuple[tuple[Input, ...], tuple[Mapping[str, int], ...]]:
    """The inputs, longer along axes without a stated range where the code compares sizes or positions with a number
    that they do not reach, if the reference accepts it and it is affordable; and sizes of every input for a further
    batch of one that is shorter than such a number, empty if there is none."""
    stated = {axis for spec in signature.inputs for axis in spec.alone}
    steps = {**signature.longer, **signature.free}
    cases = [next(case for case in CASES if case.batch == batch and not case.extremes) for batch in (4, 1)]
    ranges: Ranges = {}
    shorter: tuple[Mapping[str, int], ...] = ()
    for case in cases if any(spec.alone.keys() - stated for spec in drawn) else ():
        compared_numbers(module, checked_inputs(None, case, "", drawn), ranges)
    for number, (axis, low, high) in sorted(unreached(ranges, drawn).items()):
        if axis in stated:
            continue
        size, longest = next((spec.sizes[axis], spec.alone[axis]) for spec in drawn if axis in spec.alone)
        step = steps.get(axis, 1)
        upper = number > ranges[number][1]
        length = step * (_congruent(-(-high // step), 1 - size // step) if upper else max(low // step, 1))
        tried = tuple(_with_length(spec, axis, size, length) for spec in drawn)
        if upper and length > longest:
            values = largest_tensor(module, checked_inputs(None, cases[1], "", drawn))
            if values * (length / longest) ** 2 <= MOST_VALUES and _accepts(module, tried):
                drawn = tried
        elif not upper and length < number and _accepts(module, tried):
            shorter = tuple(spec.alone for spec in tried)
    return drawn, shorter


HALVINGS: Final = 5
"""Layers that each halve the size of their input, after all of which it is odd where it would be even, or even where
it would be odd."""


def _congruent(least: int, residue: int) -> int:
    """The least number from ``least`` on with this residue modulo ``2 ** HALVINGS``."""
    return least + (residue - least) % 2**HALVINGS


def _unequal(inputs: Sequence[Input]) -> tuple[Input, ...]:
    """The inputs with the greatest size along only one of the axes of equal sizes of an input, such as height and
    width."""
    equal = list[set[str]]()
    for spec in inputs:
        ranges = [(spec.sizes[axis], spec.alone.get(axis)) for axis in spec.axes if axis != "b"]
        named = [axis for axis in spec.axes if axis != "b"]
        equal.append({axis for index, axis in enumerate(named)
                      if ranges[index] in ranges[:index] and axis not in named[:index]})  # fmt: skip
    shared = {axis for axes in equal for axis in axes if not axis.startswith("_")}
    return tuple(
        replace(spec, alone={axis: size for axis, size in spec.alone.items() if axis not in axes | shared})
        for spec, axes in zip(inputs, equal, strict=True)
    )


def _turned(stated: Sequence[Input], drawn: Sequence[Input], module: torch.nn.Module) -> tuple[Mapping[str, int], ...]:
    """The sizes of a batch of one in the opposite order along free axes of equal stated sizes, such as height and
    width, by input; empty if there are none, or the reference does not accept them."""
    opposite = dict[tuple[str, int], int]()
    for plain, spec in zip(stated, drawn, strict=True):
        axes = [axis for axis in spec.axes if axis in {**plain.alone, **spec.alone}]
        equal = [axis for axis in axes if spec.sizes[axis] == spec.sizes[axes[0]]]
        for axis, other in zip(equal, reversed(equal), strict=True):
            opposite.setdefault((axis, spec.sizes[axis]), {**spec.sizes, **spec.alone}[other])
    turned = []
    for spec in drawn:
        sizes = {axis: opposite[axis, size] for axis, size in spec.sizes.items() if (axis, size) in opposite}
        turned.append(replace(spec, alone={**spec.alone, **sizes}))
    same = [spec.shape(1) for spec in drawn] == [spec.shape(1) for spec in turned]
    return () if same or not _accepts(module, tuple(turned)) else tuple(spec.alone for spec in turned)


def _with_length(spec: Input, axis: str, size: int, length: int) -> Input:
    return replace(spec, alone={**spec.alone, axis: length}) if spec.sizes.get(axis) == size else spec


def _accepts(module: torch.nn.Module, inputs: tuple[Input, ...]) -> bool:
    """Whether a float64 module runs on a batch of one, and calls no submodule too often to be compared."""
    case = next(case for case in CASES if case.batch == 1)
    parts = {name: part for name, part in module.named_modules() if name}
    try:
        with highest_precision(), lifted(), watched(parts, lambda *call: call[3](*call[4])) as too_often:
            outputs = run(module, checked_inputs(None, case, "", inputs))
        return not too_often and all(np.all(np.isfinite(output)) for output in outputs)
    except Exception:  # whatever the user's code raises
        return False
