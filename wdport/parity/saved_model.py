"""The model that Keras builds from a ``.keras`` file, compared with the one that the user's function builds.

Keras calls the constructors with what ``get_config`` has returned, so a layer that leaves an argument out gets its
default. Both models are traced in float32, for all shapes of the comparison's inputs and in training mode: equal
programs compute equal values. Only if two programs differ do the models run, eagerly and with equal weights: in float64
if Keras builds the file's model in float64, and in float32, where the errors of the user's own model are the measure.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jax
import keras
import numpy as np

from wdport.compare.calls import ExpectedCall, Outputs, cast, layer_of, leaves
from wdport.compare.findings import Finding, fact, notice
from wdport.compare.gate_bounds import LOGIC, NUMERICS, UNIT_ROUNDOFF
from wdport.compare.measure import ErrorPair, relative_l2, same_bits
from wdport.compare.probe import Probe, stateless_call, tensors, training_call
from wdport.compare.programs import TRACING, constants, program_text
from wdport.conversion.load import Converted
from wdport.families.roles import KeptByKeras
from wdport.families.user_functions import saved_model
from wdport.models.interface import Array, KerasLayer, KerasModel, KerasVariable
from wdport.models.keras_inputs import state_inputs, stated_inputs
from wdport.models.keras_runtime import exact_float64, first_line, layers_by_path, set_variable, variables_by_path
from wdport.parity.random_draws import SampleDraws, repeatable_port

Inputs = tuple[Array, ...]


def rebuilt_otherwise(
    converted: Converted, models: Mapping[str, KerasModel], cases: Callable[[], Sequence[Inputs]]
) -> Iterator[Finding]:
    """Findings of :func:`differences` if the user's model is in a ``.keras`` file."""
    if converted.format == "keras" and isinstance(converted.family, KeptByKeras) and converted.by_keras:
        yield from differences(converted.path, models, cases())


def differences(path: Path, models: Mapping[str, KerasModel], cases: Sequence[Inputs]) -> Iterator[Finding]:
    """Findings on the user's model where Keras has built it from the ``.keras`` file, and ``get_config`` leaves
    something out: on its outputs for the float64 inputs of ``cases``, and on attributes of layers that differ from
    those of ``models``, by dtype."""
    model = models["float32"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loaded = saved_model(path, "float32")
        except Exception as error:  # whatever the user's code raises; a class that is not registered, for one
            reason = first_line(error).partition(". ")[0]  # Keras's advice follows
            yield notice(f"keras.saving.load_model does not build the file's model ({reason}); load it with "
                         "wdport.load_model", path.name)  # fmt: skip
            return
        differing = None
        if missing := len(variables_by_path(model).keys() - _variables(loaded, model).keys()):
            text = f"keras.saving.load_model builds the file's model without {missing} of its variables, which then"
            fix = "load it with wdport.load_model, or give the model a `build`"
            yield notice(f"{text} get random values; {fix}", path.name)
        elif differing := _Rebuilt(path, models, loaded).difference(cases):
            yield differing
    for place, (layer, other) in _pairs(model, loaded).items():
        # Keras builds layers below others when they are first called, and `build` may set attributes.
        for name, (value, theirs) in (_unequal(layer, other) if other.built == layer.built else {}).items():
            if _is_public(name, (value, theirs)):
                text = (f"{place or 'the model'} has {name} {theirs!r} where Keras builds it from the file, and "
                        f"{value!r} where your function builds it; add it to get_config")  # fmt: skip
                yield fact(text, place, "unequal")
            elif differing is None and not missing:
                yield notice(f"{place or 'the model'} has another {name} where Keras builds it from the file, without "
                             "an effect on the inputs of this comparison", place)  # fmt: skip


class _Rebuilt:
    """The user's models by dtype, and those of the file with equal weights; the one in float64 is built if needed."""

    def __init__(self, path: Path, models: Mapping[str, KerasModel], loaded: KerasModel) -> None:
        self._path = path
        self._own = {dtype: _Side(model, variables_by_path(model), dtype) for dtype, model in models.items()}
        self._file = {"float32": self._filled(loaded, "float32")}

    def difference(self, cases: Sequence[Inputs]) -> Finding | None:
        """What differs where the models are called as users call them, or else in training mode."""
        by_shapes = {tuple(array.shape for array in inputs): inputs for inputs in reversed(cases)}
        modes = [(False, list(by_shapes.values()), cases)]
        if self._own["float32"].model._call_has_training_arg:
            modes.append((True, [cases[0]], cases[:1]))
        for training, traced, compared in modes:
            with repeatable_port(SampleDraws(len(cases[0][0]))) if training else nullcontext():
                try:
                    programs = [self._own["float32"].program(inputs, training) for inputs in traced]
                except Exception:  # of the user's code, which other checks report
                    continue
                try:
                    others = (self._file["float32"].program(inputs, training) for inputs in traced)
                    error = "" if all(map(_equal, programs, others)) else self._error(compared, training)
                except Exception as raised:  # likewise
                    error = f"cannot be compared: it raises {first_line(raised)}"
                if error:
                    text = "the outputs of the model that keras.saving.load_model builds from the file"
                    mode = " in training mode" if training else ""
                    fix = "return in get_config what your layers are made with, and register your functions"
                    return fact(f"{text} {error}{mode}{self._where(compared, training)}; {fix}", kind="unequal")
        return None

    def _filled(self, loaded: KerasModel, dtype: str) -> _Side:
        """A model of the file, with the weights of the user's."""
        values = self._own[dtype].variables
        state_inputs(loaded, stated_inputs(self._own[dtype].model))
        side = _Side(loaded, _variables(loaded, self._own[dtype].model), dtype)
        with _settings(dtype):
            for path, variable in side.variables.items():
                if path in values:
                    set_variable(variable, np.asarray(values[path].value))
        return side

    def _error(self, cases: Sequence[Inputs], training: bool) -> str:
        """How far the outputs are off, in words; "" if they are not."""
        if "float64" not in self._file:
            with suppress(Exception):  # of the user's code, which may need float32
                self._file["float64"] = self._filled(saved_model(self._path, "float64"), "float64")
        error, pairs = 0.0, dict[int, ErrorPair]()
        for inputs in cases:
            truth = self._own["float64"].run(inputs, training)
            if "float64" in self._file:
                error = max(error, _largest(self._file["float64"].run(inputs, training), truth))
            theirs, ours = (side["float32"].run(inputs, training) for side in (self._file, self._own))
            if [array.shape for array in theirs] != [array.shape for array in truth]:
                return "have other shapes"
            for index, arrays in enumerate(zip(theirs, ours, truth, strict=True)):
                # A number may be on either side of a bound, and a boolean or an index then differs.
                if truth[index].dtype.kind == "f" or "float64" not in self._file:
                    pairs.setdefault(index, ErrorPair()).add(*(array.astype(np.float64) for array in arrays))
        if not error <= LOGIC:
            return f"are off by {error:.1e}"
        ratio = max((pair.ratio for pair in pairs.values()), default=0.0)
        return "" if ratio <= NUMERICS else f"have {ratio:.1f} times the float32 error of your model"

    def _where(self, cases: Sequence[Inputs], training: bool) -> str:
        """The layer that computes something else, and what its ``get_config`` does not keep, in words."""
        places = (self._layer(inputs, training) for inputs in cases)
        place = next((place for place in places if place is not None), None)
        pairs = _pairs(self._own["float32"].model, self._file["float32"].model)
        names = {path: list(_unequal(*pair)) for path, pair in pairs.items()}
        if place is not None and (attributes := names.get(place)):
            return f", first in {place or 'the model itself'}, whose get_config does not keep {', '.join(attributes)}"
        other = [f"{path}.{name}".lstrip(".") for path, unequal in names.items() for name in unequal]
        return (f", first in {place}" if place else "") + (f"; no get_config keeps {', '.join(other)}" if other else "")

    def _layer(self, inputs: Inputs, training: bool) -> str | None:
        """The path of the first layer that computes something else when it is fed the inputs, and its layers' outputs,
        of the user's model; "" for the model itself, and None if none does."""
        dtype = "float64" if "float64" in self._file else "float32"
        bound = LOGIC if dtype == "float64" else NUMERICS * UNIT_ROUNDOFF
        models = [side[dtype].model for side in (self._own, self._file)]
        paths = layers_by_path(models[0]).keys() & layers_by_path(models[1]).keys()
        probes = [Probe(model, paths, eager=True, training=training or None) for model in models]
        with _settings(dtype):
            try:
                outputs, calls = probes[0].record(cast(inputs, np.dtype(dtype)))
                answers = {}
                for name, call in calls.items():
                    fed = dict(enumerate(leaves(list(call.inputs))))
                    answers[name] = ExpectedCall(fed, len(fed), call.outputs)
                others, results = probes[1].isolate(cast(inputs, np.dtype(dtype)), answers)
            except Exception:  # of the user's code
                return None
        for name, call in results.items():
            if name in calls and not _largest(leaves(list(call.inputs)), leaves(list(calls[name].inputs))) <= bound:
                return layer_of(call.caller)
            if name in calls and not _largest(call.outputs, calls[name].outputs) <= bound:
                return layer_of(name)
        return None if _largest(others, outputs) <= bound else ""


@dataclass(frozen=True)
class _Side:
    """A model, and its variables by their paths in the user's, since two models may order them otherwise."""

    model: KerasModel
    variables: Mapping[str, KerasVariable]
    dtype: str

    def program(self, inputs: Inputs, training: bool) -> tuple[str, list[Array]]:
        """The traced program as text, and its constants."""
        with _settings(self.dtype):
            run = functools.partial(self._outputs, training)
            program = jax.make_jaxpr(run)(self._values(), cast(inputs, np.dtype(self.dtype)))
        return program_text(program.jaxpr), list(constants(program))

    def run(self, inputs: Inputs, training: bool) -> Outputs:
        """The outputs, computed eagerly; in training mode, also the variables afterwards and the penalties."""
        with _settings(self.dtype):
            outputs = self._outputs(training, self._values(), cast(inputs, np.dtype(self.dtype)))
            return tuple(map(np.asarray, outputs))

    def _values(self) -> dict[str, jax.Array]:
        return {path: variable.value for path, variable in self.variables.items()}

    def _outputs(self, training: bool, values: Mapping[str, jax.Array], inputs: Inputs) -> list[jax.Array]:
        paths = {id(variable): path for path, variable in self.variables.items()}
        # The state of a random generator has no path.
        trainable, fixed = (
            [values[paths[id(variable)]] if id(variable) in paths else variable.value for variable in group]
            for group in (self.model.trainable_variables, self.model.non_trainable_variables)
        )
        if not training:
            return tensors(stateless_call(self.model, trainable, fixed, inputs, None)[0])
        output, after, penalties = training_call(self.model, trainable, fixed, inputs)
        fixed_paths = [paths.get(id(variable), "") for variable in self.model.non_trainable_variables]
        by_path = sorted(zip(fixed_paths, after, strict=True), key=lambda pair: pair[0])
        return [*tensors(output), *(value for path, value in by_path if path), *tensors(penalties)]


def _equal(program: tuple[str, list[Array]], other: tuple[str, list[Array]]) -> bool:
    # Of a Python function that a program calls, the text has only the name.
    return program[0] == other[0] and "callback=" not in program[0] and all(map(same_bits, program[1], other[1]))


@contextmanager
def _settings(dtype: str) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(jax.default_matmul_precision("highest"))
        stack.enter_context(jax.enable_x64(dtype == "float64"))
        stack.enter_context(TRACING)
        if dtype == "float64":
            stack.enter_context(exact_float64())
        yield


def _largest(arrays: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest relative error; infinite if the shapes differ."""
    if [array.shape for array in arrays] != [array.shape for array in expected]:
        return np.inf
    return max(map(relative_l2, arrays, expected), default=0.0)


_PLAIN: Final[set[type]] = {bool, int, float, str}
_DEEPEST: Final = 4


def _pairs(model: KerasModel, loaded: KerasModel) -> dict[str, tuple[KerasLayer, KerasLayer]]:
    """The layers of both models by the path in ``model``; "" is the model. They correspond in order if they have other
    names, as layers without a get_config of their own get when they are loaded."""
    first, second = ({"": which, **layers_by_path(which)} for which in (model, loaded))
    if first.keys() != second.keys() and list(map(type, first.values())) == list(map(type, second.values())):
        second = dict(zip(first, second.values(), strict=True))
    return {path: (layer, second[path]) for path, layer in first.items() if path in second}


def _variables(loaded: KerasModel, model: KerasModel) -> dict[str, KerasVariable]:
    """The variables of the file's model by their paths in ``model``, if they are in it."""
    names = {path: path for path in layers_by_path(loaded)}
    paths = {id(layer): path for path, layer in layers_by_path(loaded).items()}
    names |= {paths[id(layer)]: path for path, (_, layer) in _pairs(model, loaded).items() if path}
    variables = {}
    for path, variable in variables_by_path(loaded).items():
        layer, _, name = path.rpartition("/")
        variables[f"{names.get(layer, layer)}/{name}".lstrip("/")] = variable
    return variables


def _unequal(layer: KerasLayer, other: KerasLayer) -> dict[str, tuple[object, object]]:
    """Attributes, other than those that all layers have, with another value in ``other``, as far as values can be
    compared; of Keras's own layers, which return all of their arguments, only public numbers and texts."""
    standard = vars(keras.Model()) if isinstance(layer, keras.Model) else vars(keras.layers.Layer())
    pairs = {name: (value, vars(other)[name]) for name, value in vars(layer).items()
             if name in vars(other) and name not in standard}  # fmt: skip
    if type(layer).__module__.startswith("keras."):
        pairs = {name: pair for name, pair in pairs.items() if _is_public(name, pair)}
    return {name: pair for name, pair in pairs.items() if not _same(*pair)}


def _is_public(name: str, pair: tuple[object, object]) -> bool:
    """Whether these are two public numbers or texts."""
    return {*map(type, pair)} <= _PLAIN and not name.startswith("_")


def _same(value: object, other: object, depth: int = 0) -> bool:
    """Whether two values are equal, or cannot be compared."""
    if value is other or depth > _DEEPEST:
        return True
    inner = functools.partial(_same, depth=depth + 1)
    if isinstance(value, types.FunctionType) and isinstance(other, types.FunctionType):
        return value.__code__ == other.__code__ and inner(_bound(value), _bound(other))
    if isinstance(value, functools.partial) and isinstance(other, functools.partial):
        return inner((value.func, value.args, value.keywords), (other.func, other.args, other.keywords))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(inner(value[key], other[key]) for key in value)
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(inner, value, other))
    if isinstance(value, np.ndarray) and isinstance(other, np.ndarray):
        return bool(np.array_equal(value, other))
    if type(value) in _PLAIN or type(other) in _PLAIN:
        return repr(value) == repr(other)
    # Keras's initializers, for example, differ by their seeds.
    if isinstance(value, keras.layers.Layer) or type(value).__module__.startswith("keras.") or not callable(value):
        return True
    return type(value) is type(other) and inner(getattr(value, "__dict__", {}), getattr(other, "__dict__", {}))


def _bound(function: types.FunctionType) -> list[object]:
    """What a function has besides its code: defaults, and the variables around it."""
    empty = types.CellType()
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != empty]
    return [function.__defaults__, function.__kwdefaults__, *cells]
