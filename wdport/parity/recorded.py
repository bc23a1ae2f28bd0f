"""A recording and a converted file, without the checkpoint: the plan between their names and shapes, and whether the
variables are the recorded tensors, by their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from wdport.checkpoint import Checkpoint
from wdport.compare.findings import Finding
from wdport.conversion.load import Converted
from wdport.conversion.prepare import PathText, Prepared, planned
from wdport.errors import InternalError, MisfitError
from wdport.families.registry import find_family
from wdport.mapping.plan import Move
from wdport.mapping.shipped import choose_table
from wdport.mapping.table import load_table
from wdport.model import Array, Resolved
from wdport.parity.recording import Recording
from wdport.parity.sides import unequal
from wdport.recorder import Tensors


class Described:
    """What is known of a checkpoint by its recording: names and shapes, but no values."""

    def __init__(self, recording: Recording) -> None:
        self.path = recording.path
        self.tensors: Mapping[str, Tensors] = recording.tensors

    def read(self, name: str) -> Any:
        """There is nothing to read."""
        raise InternalError((self.path, name), "a recording holds no weights", "report this")


def recorded_plan(recording: Recording, converted: Converted, mapping: PathText | None) -> Prepared:
    """The plan from the recording's names and shapes; raises :class:`MisfitError` where they do not fit."""
    names = recording.tensors
    table = load_table(Path(mapping)) if mapping else choose_table(names, recording.path)
    family = find_family(table.family, table.path)
    if family.name != converted.family.name:
        what = f"is a {converted.family.name}, the recording is of a {family.name}"
        raise MisfitError(converted.path, what, "give the recording of the checkpoint that this file was made from")
    shapes = {name: tensor.shape for name, tensor in names.items()}
    plan, constants = planned(recording.path, table, family, converted.config, shapes)
    resolved = Resolved(converted.config, converted.facts.get("origins", {}))
    return Prepared(cast(Checkpoint, Described(recording)), table, family, resolved, plan, constants, ())


def unequal_to_recording(prepared: Prepared, recording: Recording, variables: Mapping[str, Array]) -> list[Finding]:
    """Findings on variables that are not, bit for bit, what was recorded; raises :class:`MisfitError` if no matrix is.

    What arithmetic made cannot be undone bit for bit and is left to gate A. Tables that were computed again
    because 16 bits had ruined them have no hash and are left to gate A'.
    """
    tensors = recording.tensors
    known = [m for m in prepared.plan.moves if m.exact and all(tensors[name].sha256 is not None for name in m.sources)]
    equal = {
        name: digest == tensors[name].sha256
        for move in known
        for name, digest in zip(move.sources, _digests(move, variables), strict=True)
    }
    matrices = [name for name in equal if len(recording.tensors[name].shape) > 1]
    if matrices and not any(equal[name] for name in matrices):
        fix = "give the recording of the checkpoint that this file was made from"
        raise MisfitError(recording.path, f"is of another checkpoint: none of {len(matrices)} matrices is equal", fix)
    wrong = [target for move in known if not all(map(equal.get, move.sources)) for target in move.targets]
    return [unequal(name) for name in wrong]


def _digests(move: Move, variables: Mapping[str, Array]) -> list[str]:
    """SHA-256 of the tensors that these variables were made from, as the recorder takes it."""
    sources = move.invert([variables[name] for name in move.targets])
    return [hashlib.sha256(np.ascontiguousarray(each, dtype=np.float32).tobytes()).hexdigest() for each in sources]
