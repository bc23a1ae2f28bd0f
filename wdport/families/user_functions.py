"""The user's functions that build a model: find ``module:name``, call it and check what it returns.

Names come only from the command line or from a table that the user gives, never from a checkpoint or a converted file,
whose names are only quoted.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from wdport.base.errors import MisfitError, WdportError, error_of
from wdport.checkpoint.error_context import located
from wdport.compare.programs import TRACING
from wdport.files.atomic import scratch_folder
from wdport.files.keras_file import CONFIG, WEIGHTS, open_weights, quiet_hdf5
from wdport.models.interface import Array, Document, KerasModel
from wdport.models.keras_inputs import model_arguments, state_inputs
from wdport.models.keras_runtime import (
    default_float,
    deserialized,
    exact_float64,
    first_line,
    fresh_names,
    layers_by_path,
    require_backend,
    said_by,
    set_variable,
    unfilled,
    variables_by_path,
)
from wdport.recording import user_code
from wdport.recording.errors import Refusal, one_line
from wdport.recording.inputs import Input


def find_function(target: str) -> Callable[..., object]:
    """The function that ``module:name`` names, in the current folder or the environment; raises
    :class:`UsageError` if there is none, and :class:`MisfitError` if its module cannot be imported."""
    try:
        return user_code.find_function(target)
    except Refusal as refusal:
        raise error_of(refusal.exit_code, refusal.where, refusal.what, refusal.fix) from refusal


def build_keras(target: str, arguments: Document, dtype: str, inputs: Sequence[Input]) -> KerasModel:
    """The Keras model of ``module:function`` with ``dtype`` as its policy, built, its random weights zero.

    ``inputs`` are its inputs, for a model that is not built before its first call. Raises :class:`WdportError`.
    """

    function = find_function(target)
    require_backend(dtype)
    with _policy(dtype):
        try:
            model = function(**arguments)
        except (Exception, SystemExit) as error:
            raise MisfitError(target, f"raises {first_line(error)}", "correct the function") from error
        if not isinstance(model, keras.Model):
            raise MisfitError(target, f"returns a {type(model).__name__}, not a keras.Model", "return the model")
        _require_plain(target, model)
        state_inputs(model, inputs)
        _require_built(target, model, inputs)
    if dtype == "float64":
        _require_policy(target, model)
    return model


def save_filled(target: str, model: KerasModel, path: Path, arrays: Iterator[tuple[str, Array]]) -> dict[str, Array]:
    """Write the model of ``module:function`` with these values of its variables, by path, with Keras's own writer;
    returns the values."""
    variables, values = variables_by_path(model), {}
    for name, array in arrays:
        set_variable(variables[name], array)
        values[name] = array
    # HDF5 ends the process by a signal when a write fails.
    with quiet_hdf5():
        if path.name.endswith(".weights.h5"):
            model.save_weights(path)
        else:
            _save_whole(target, model, path)
    return values


def read_saved(target: str, model: KerasModel, path: Path) -> dict[str, Array]:
    """Every variable by path, as Keras reads the file into the model of ``module:function``, filled with NaN, which
    shows what it does not read.

    Raises :class:`MisfitError` for a file that Keras does not load.
    """
    # First that the file has the structure that Keras writes: the HDF5 library follows any link in a file.
    with located(path), open_weights(path):
        pass
    for variable in variables_by_path(model).values():
        # Integers have no NaN; a variable of integers that the file lacks keeps its value.
        if np.dtype(variable.dtype).kind == "f":
            set_variable(variable, np.full(variable.shape, np.nan, np.float32))
    with _weights_file(path) as file:
        try:
            model.load_weights(file)
        except Exception as error:
            what = f"Keras does not load it into {target} ({type(error).__name__})"
            raise MisfitError(path, what, "convert the checkpoint again") from error
    return {name: np.asarray(variable.value) for name, variable in variables_by_path(model).items()}


@contextmanager
def _weights_file(path: Path) -> Iterator[Path]:
    """The weights file in an archive, extracted, or ``path`` if it is one.

    Keras reads from within the archive, where Python before 3.12 starts from the beginning for every step back.
    """
    if path.name.endswith(".h5"):
        yield path
    else:
        with scratch_folder() as folder, zipfile.ZipFile(path) as archive:
            yield Path(archive.extract(WEIGHTS, folder))


def saved_model(path: Path, dtype: str) -> KerasModel:
    """The model that Keras builds from a ``.keras`` file, with ``dtype`` in place of float32; raises what the user's
    code raises. Its weights are those of the file in float32 alone."""
    with _policy(dtype):
        if dtype == "float32":
            return keras.saving.load_model(path, compile=False)
        with zipfile.ZipFile(path) as archive:
            return deserialized(_retyped(json.loads(archive.read(CONFIG)), dtype))


def _retyped(value: Any, dtype: str) -> Any:
    """A description with this dtype in place of float32: of policies, inputs and layers."""
    if isinstance(value, list):
        return [_retyped(element, dtype) for element in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "DTypePolicy" and value.get("config") == {"name": "float32"}:
        return {**value, "config": {"name": dtype}}
    return {key: dtype if key == "dtype" and element == "float32" else _retyped(element, dtype)
            for key, element in value.items()}  # fmt: skip


def _save_whole(target: str, model: KerasModel, path: Path) -> None:
    """Write the model of ``module:function`` as a ``.keras`` file, including the ``get_config`` of its layers; raises
    :class:`MisfitError` if one of the user's classes does not support this."""
    try:
        model.save(path)
    # A full disk or a missing folder is reported as it is, not as a fault of the user's class.
    except OSError:
        raise
    except Exception as error:
        what = f"returns a model that no .keras file can hold ({one_line(_cause(error))[:100]})"
        if isinstance(error, NotImplementedError):
            what = f"{_unsaved(model)} has arguments and no get_config, which a .keras file needs"
        raise MisfitError(
            target, what, "give it a get_config, or write `-o NAME.weights.h5` or .safetensors"
        ) from error


def _unsaved(model: KerasModel) -> str:
    """The class of the first layer whose ``get_config`` raises, and that of no layer in it; that of the model if none
    does."""
    raising = {}
    for path, layer in layers_by_path(model).items():
        try:
            layer.get_config()
        except NotImplementedError:
            raising[path] = type(layer).__name__
    innermost = (name for path, name in raising.items() if not any(other.startswith(f"{path}/") for other in raising))
    return next(innermost, type(model).__name__)


@contextmanager
def _policy(dtype: str) -> Iterator[None]:
    """Context in which layers get this policy, the names of a new process and no random weights.

    Policy and names are global: no thread may trace a model meanwhile.
    """

    before = keras.config.dtype_policy()
    # `x if … else y` belongs to the last context only; the first three are always entered.
    with TRACING, fresh_names(), unfilled(), exact_float64() if dtype == "float64" else default_float("float32"):
        keras.config.set_dtype_policy(dtype)
        try:
            yield
        finally:
            keras.config.set_dtype_policy(before)


def _require_plain(target: str, model: KerasModel) -> None:

    for path, layer in layers_by_path(model).items():
        # Keras stores the Python bytecode of a Lambda, and refuses to load it in its safe mode.
        if type(layer).__name__ == "Lambda":
            what = f"has a Lambda layer, {path}, which no file can hold safely"
            raise MisfitError(target, what, "write it as a separate layer, or with keras.ops")


def _require_policy(target: str, model: KerasModel) -> None:
    """Refuse layers with an explicit dtype and models made earlier, which cannot be lifted to float64."""

    for path, variable in variables_by_path(model).items():
        # Integers, such as the state of a random generator, are exact under any policy.
        if str(variable.dtype) != "float64" and "float" in str(variable.dtype):
            what = f"makes {path} {variable.dtype} where keras.config.dtype_policy() is float64"
            raise MisfitError(target, what, "build a new model at every call, and set no dtype but float32")


def _require_built(target: str, model: KerasModel, inputs: Sequence[Input]) -> None:
    """Call a model that has no variables yet on symbolic inputs."""

    def unbuilt() -> list[str]:
        return [path for path, layer in {"": model, **layers_by_path(model)}.items() if not layer.built]

    if not unbuilt():
        return
    if not inputs:
        raise MisfitError(
            target, "returns a model that is not built", "call it once there, or state its inputs with `--input`"
        )
    try:
        _call_symbolically(model, inputs)
    except WdportError:
        raise
    except Exception as error:
        cause = _cause(error)
        what = f"returns a model that raises {type(cause).__name__} when it is called on its inputs: {said_by(cause)}"
        raise MisfitError(target, what, "correct the model, or the inputs") from error
    if left := [path for path in unbuilt() if path]:
        raise MisfitError(target, f"does not use its layer {left[0]}", "remove it from the model")


def open_axes(model: KerasModel, inputs: Sequence[Input]) -> dict[str, int]:
    """The axes with a name of which a built model takes another size than the stated one, each with its step, 1. A
    subclass of ``keras.Model`` states no shapes, so it is traced at a size one greater; if its outputs then have the
    same shapes, as behind patches that leave the rest of an image out, also at one that is greater by a patch."""
    named = {axis: size for port in inputs for axis, size in port.sizes.items() if not axis.startswith("_")}
    steps: dict[str, int] = {}
    stated: object = None
    for axis, size in named.items():
        # Keras accepts another size at once or raises: a Dense layer after a Flatten has fixed the axis in its weights.
        with suppress(Exception):  # whatever the user's code raises
            stated = stated or _call_symbolically(model, inputs)
            if _call_symbolically(model, _resized(inputs, axis, size + 1)) == stated:
                _call_symbolically(model, _resized(inputs, axis, size + LARGEST_PATCH))
            steps[axis] = 1
    return steps


LARGEST_PATCH = 32


def _resized(inputs: Sequence[Input], axis: str, size: int) -> tuple[Input, ...]:
    return tuple(replace(port, sizes={**port.sizes, axis: size}) if axis in port.sizes else port for port in inputs)


def _call_symbolically(model: KerasModel, inputs: Sequence[Input]) -> list[tuple[int | None, ...]]:
    """The shapes of a model's outputs."""
    # Symbolic tensors build the layers as a call does, without computing anything.
    kinds = {"int": "int32", "bool": "bool"}
    shapes = ([None if axis == "b" else port.sizes[axis] for axis in port.keras_axes] for port in inputs)
    symbols = [keras.KerasTensor(shape, dtype=kinds.get(port.kind)) for shape, port in zip(shapes, inputs, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras's advice on models that it cannot build, which the caller reports
        return [tuple(output.shape) for output in keras.tree.flatten(model(*model_arguments(model, symbols)))]


def _cause(error: BaseException) -> BaseException:
    """The original exception: Keras raises another one from it, with advice added."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error
