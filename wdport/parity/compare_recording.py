"""Compare a converted file with a recording, without the checkpoint: plan from the recorded names and shapes, and check
by their hashes that the variables are the recorded tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import numpy as np

from wdport.checkpoint import Checkpoint
from wdport.compare.findings import Finding
from wdport.compare.measure import same_bits
from wdport.conversion.load import Converted
from wdport.conversion.prepare import Prepared, planned
from wdport.errors import IncompleteError, InputError, InternalError, MisfitError
from wdport.mapping.plan import Move
from wdport.mapping.shipped import choose_table
from wdport.mapping.table import load_table
from wdport.model import Array, Resolved
from wdport.options import PathText
from wdport.parity.model_pair import Weights, file_variables, unequal, unrounded
from wdport.parity.recording import Recording
from wdport.recorder import Tensors


class Described:
    """A checkpoint as described by its recording: names and shapes, but no values."""

    def __init__(self, recording: Recording) -> None:
        self.path = recording.path
        self.tensors: Mapping[str, Tensors] = recording.tensors

    def read(self, name: str) -> NoReturn:
        raise InternalError((self.path, name), "a recording holds no weights", "report this")


def recorded_plan(recording: Recording, converted: Converted, mapping: PathText | None) -> Prepared:
    """The plan from the recording's names and shapes; raises :class:`MisfitError` if they do not fit."""
    names, family = recording.tensors, converted.family
    try:
        table = load_table(Path(mapping)) if mapping else choose_table(names, recording.path)
    except MisfitError as error:
        if mapping:
            raise
        what = f"is a recording of another model than {converted.path.name}, a {family.name}"
        raise MisfitError(recording.path, what, "give the recording of its PyTorch model") from error
    if table.family != family.name:
        what = f"is a {family.name}, the recording is of a {table.family}"
        raise MisfitError(converted.path, what, "give the recording of the checkpoint that this file was made from")
    # What is dropped need not be in the model, and so not in its recording.
    table = replace(table, rows=tuple(row if row.drop is None else replace(row, optional=True) for row in table.rows))
    shapes, variables = {name: tensor.shape for name, tensor in names.items()}, converted.variables
    plan, constants = planned(recording.path, table, family, converted.config, shapes, variables)
    resolved = Resolved(converted.config, converted.origins)
    checkpoint = cast(Checkpoint, Described(recording))
    return Prepared(checkpoint, table, family, resolved, plan, constants, (), variables)


def recorded_weights(prepared: Prepared, recording: Recording, converted: Converted) -> Weights:
    """The converted file's variables, and the tensors that are combined with others into one variable: moved tensors
    are recovered from the variables, those of arithmetic are read from the recording. Raises :class:`IncompleteError`
    if these were not recorded."""
    variables, tensors = file_variables(prepared, converted), dict[str, Array]()
    for move in prepared.plan.moves:
        if not move.exact:
            tensors |= {name: _value(recording, move, name) for name in move.sources}
        elif len(move.sources) > 1:
            tensors |= zip(move.sources, move.invert([variables[name] for name in move.targets]), strict=True)
    return unrounded(prepared, Weights("converted weights", tensors, variables))


def _value(recording: Recording, move: Move, name: str) -> Array:
    if name not in recording.values:
        what = f"does not hold {name}, which line {move.line} of the table calculates with"
        raise IncompleteError(recording.path, what, f"record it again with `--mapping`, or recorder.py --keep '{name}'")
    if _digest(recording.values[name]) != recording.tensors[name].sha256:
        raise InputError(recording.path, f"holds a {name} that does not match its hash", "record it again")
    return recording.values[name]


def unequal_to_recording(prepared: Prepared, recording: Recording, weights: Weights) -> list[Finding]:
    """Findings on variables that are not bitwise equal to the recorded tensors; raises :class:`MisfitError` if no
    matrix is equal.

    Results of arithmetic are recomputed from the recorded values. Tables that were recomputed because they were stored
    in 16 bits have no hash and are checked by constants (A').
    """
    variables = weights.variables
    tensors = recording.tensors
    hashed = [m for m in prepared.plan.moves if m.exact and all(tensors[name].sha256 is not None for name in m.sources)]
    equal: dict[str, bool] = {}
    for move in hashed:
        sources = zip(move.sources, move.invert([variables[name] for name in move.targets]), strict=True)
        equal |= {name: _digest(source) == tensors[name].sha256 for name, source in sources}
    matrices = [name for name in equal if len(recording.tensors[name].shape) > 1]
    # Vectors such as zero biases are equal in any two checkpoints; a matrix is not.
    if matrices and not any(equal[name] for name in matrices):
        fix = "give the recording of the checkpoint that this file was made from"
        raise MisfitError(recording.path, f"is of another checkpoint: none of {len(matrices)} matrices is equal", fix)
    wrong = [target for move in hashed if not all(map(equal.get, move.sources)) for target in move.targets]
    for move in prepared.plan.moves:
        if not move.exact:
            arrays = move.apply([weights.tensors[name] for name in move.sources])
            wrong += [name for name, array in zip(move.targets, arrays, strict=True)
                      if not same_bits(array, variables[name])]  # fmt: skip
    return [unequal(name) for name in wrong]


def _digest(array: Array) -> str:
    """SHA-256 of a tensor, as the recorder computes it."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype=np.float32).tobytes()).hexdigest()
