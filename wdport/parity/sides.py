"""The two sides of a comparison: a reference in PyTorch and a candidate in Keras, each in two dtypes.

Weights come from two places on purpose: the reference's from the checkpoint, the candidate's from the
converted file. For the second weight set every bias of both is moved by the same random amount, since
biases of zero hide missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from wdport.apply import source_array
from wdport.errors import MachineError
from wdport.load import Converted
from wdport.models.family import Array
from wdport.output.files import read_variables
from wdport.prepare import Prepared
from wdport.rules import apply_rule

DTYPES = ("float64", "float32")


@dataclass
class Sides:
    """Reference modules and candidate models by dtype."""

    references: dict[str, Any]
    candidates: dict[str, Any]


@dataclass(frozen=True)
class Weights:
    """One set of weights: the checkpoint's tensors and the port's variables, float32."""

    name: str
    tensors: Mapping[str, Array]
    variables: Mapping[str, Array]


def converted_weights(prepared: Prepared, converted: Converted) -> Weights:
    """The checkpoint and the converted file, as they are."""
    tensors = {name: _tensor(prepared, name) for name in prepared.checkpoint.tensors}
    return Weights("converted weights", tensors, dict(read_variables(converted.path, converted.variables)))


def _tensor(prepared: Prepared, name: str) -> Array:
    if name in prepared.plan.drops or (name in prepared.plan.checks and name not in prepared.recomputed):
        return prepared.checkpoint.read(name)
    return source_array(prepared, name, cast=True)


def unequal_variables(prepared: Prepared, weights: Weights) -> list[str]:
    """Variables of the converted file that are not, bit for bit, what their tensors become."""
    wrong = []
    for move in prepared.plan.moves:
        made = apply_rule(move.rule, [source_array(prepared, move.source, cast=True)], move.sizes)
        pairs = zip(move.targets, made, strict=True)
        wrong += [name for name, array in pairs if not np.array_equal(array, weights.variables[name])]
    return wrong


def with_random_biases(prepared: Prepared, weights: Weights, seed: int) -> Weights:
    """Every rank-1 weight moved by N(0, 0.2^2), the same on both sides."""
    rng = np.random.default_rng(seed)
    tensors, variables = dict(weights.tensors), dict(weights.variables)
    for move in prepared.plan.moves:
        if tensors[move.source].ndim != 1 or move.source in prepared.plan.checks:
            continue
        shift = rng.normal(0.0, 0.2, tensors[move.source].shape).astype(np.float32)
        tensors[move.source] = tensors[move.source] + shift
        for name, array in zip(move.targets, apply_rule(move.rule, [shift], move.sizes), strict=True):
            variables[name] = variables[name] + array
    return Weights("random biases", tensors, variables)


def build_sides(prepared: Prepared, weights: Weights) -> Sides:
    """All four models with these weights, torch's in a thread of their own.

    Raises :class:`MachineError` where torch is not installed.
    """
    sides = Sides({}, {})
    with ThreadPoolExecutor(1) as pool:
        kept = {name: array for name, array in weights.tensors.items() if not _internal(prepared, name)}
        references = pool.submit(lambda: {dtype: _reference(prepared, kept, dtype) for dtype in DTYPES})
        for dtype in DTYPES:
            with jax.enable_x64(dtype == "float64"):
                sides.candidates[dtype] = prepared.family.build(prepared.config, dtype)
        _assign(prepared, sides, weights, set(prepared.plan.targets))
        sides.references = references.result()
    return sides


def correct_port(prepared: Prepared, weights: Weights) -> Any:
    """The float64 port with what the checkpoint's tensors become by the table, whatever the converted file holds."""
    made: dict[str, Array] = {}
    for move in prepared.plan.moves:
        arrays = apply_rule(move.rule, [weights.tensors[move.source]], move.sizes)
        made |= zip(move.targets, arrays, strict=True)
    with jax.enable_x64(True):
        model = prepared.family.build(prepared.config, "float64")
        for variable in model.weights:
            variable.assign(np.asarray(made[variable.path], dtype=np.float64))
    return model


def change_weights(prepared: Prepared, sides: Sides, weights: Weights, before: Weights) -> None:
    """Give all four models ``weights`` where they differ from ``before``, which they hold."""
    new = {name: array for name, array in weights.tensors.items() if array is not before.tensors[name]}
    for module in sides.references.values():
        state = module.state_dict()
        values = {name: state[name].new_tensor(array) for name, array in new.items()}
        module.load_state_dict(values, strict=False, assign=True)  # never into arrays that are shared
    changed = {name for name in prepared.plan.targets if weights.variables[name] is not before.variables[name]}
    _assign(prepared, sides, weights, changed)


def _assign(prepared: Prepared, sides: Sides, weights: Weights, names: set[str]) -> None:
    """Set these variables of both candidates; the arrays are not changed afterwards, so float32 may be shared."""
    for dtype in DTYPES:
        with jax.enable_x64(dtype == "float64"):
            variables = {variable.path: variable for variable in sides.candidates[dtype].weights}
            for name in names:
                variables[name].assign(np.asarray(weights.variables[name], dtype=dtype))


def _reference(prepared: Prepared, tensors: Mapping[str, Array], dtype: str) -> Any:
    try:
        return prepared.family.build_reference(prepared.config, tensors, dtype)
    except ModuleNotFoundError as error:
        what = f"the reference needs {error.name}, which is not installed"
        raise MachineError("verify", what, "install wdport[torch]") from None


def _internal(prepared: Prepared, name: str) -> bool:
    """Whether a tensor is a variant's extra buffer that the reference does not have."""
    row = next((r for r in prepared.table.rows if r.torch.match(name) is not None), None)
    return row is not None and (row.optional or row.drop is not None)
