"""Determine the gates and layers of a pair's comparison without running a model: the names of the plugin's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wdport.base.errors import MachineError
from wdport.compare.findings import OUTPUT
from wdport.conversion.load import open_converted
from wdport.conversion.prepare import Prepared
from wdport.families.roles import Trained
from wdport.parity.file_pair import both_files
from wdport.parity.fresh.process import Worker, from_json, to_json
from wdport.parity.gates_of_uses import use_gates
from wdport.parity.model_pair import user_reference
from wdport.parity.recorded_reference import open_recording
from wdport.parity.verify import recorded_plan
from wdport.parity.verify_options import Pair
from wdport.recording.runs import module_names


@dataclass(frozen=True)
class PlannedItems:
    """``gates`` are the letters of the gates with one outcome, in the order of reports, without a family's own;
    ``layers`` are the reference's layers that float64 (A) and float32 (B) judge one by one, and "output"."""

    gates: tuple[str, ...]
    layers: tuple[str, ...]


def expected(pair: Pair) -> PlannedItems:
    """The expected outcomes of a comparison of ``pair``; a layer may turn out to be compared only by its parts.

    The reference is built but not run; wdport's own has zero weights. Raises :class:`WdportError` if a file is bad or
    the two do not fit.
    """
    user_family = pair.own
    if pair.fresh:
        plain = replace(pair, fresh=False)
        if user_family is None:
            outcomes = expected(plain)
        else:  # in a separate process, which builds both models of the user
            with Worker("names", {"pair": to_json(plain)}) as worker:
                worker.begin()
                outcomes = from_json(PlannedItems, worker.result(lambda _: None).facts)
        return replace(outcomes, gates=(*outcomes.gates, "N"))
    if pair.checkpoint is None:
        opened = open_converted(pair.converted, user_family)
        with open_recording(Path(str(pair.against))) as recorded:
            return _expected(recorded_plan(recorded, opened, pair.mapping), recorded.names, full=False)
    with both_files(pair, user_family) as files:
        target, prepared = files.target, files.prepared
        names = user_reference(target, prepared, pair.key).names if target else _own_names(prepared)
        return _expected(prepared, names, pair.full, pair.resume, pair.train)


def _expected(
    prepared: Prepared, names: Sequence[str], full: bool, resume: bool = False, train: bool = False
) -> PlannedItems:
    family, config = prepared.family, prepared.config
    there = {"0": True, "A'": bool(prepared.constants), "B'": full, "C": full,
             "D": full and isinstance(family, Trained), "D'": resume, "M": train or full,
             **use_gates().planned(family, config, full)}  # fmt: skip
    features = family.features(config)
    rows = [row.torch for row in prepared.table.taps if row.when is None or row.when in features]
    layers = [name for name in names if any(row.match(name) is not None for row in rows)]
    return PlannedItems(tuple(letter for letter, has in there.items() if has), (*layers, OUTPUT))


def _own_names(prepared: Prepared) -> list[str]:
    features = prepared.family.features(prepared.config)
    rows = [row for row in prepared.table.rows if row.when is None or row.when in features]
    # As in model_pair: buffers of a variant, which the reference does not have.
    extra = [name for row in rows if row.optional or row.drop is not None for name in row.torch]
    # Zeros suffice for names, and no tensor is read.
    zeros = {name: np.zeros(info.shape, np.float32) for name, info in prepared.checkpoint.tensors.items()
             if all(pattern.match(name) is None for pattern in extra)}  # fmt: skip
    try:
        return module_names(prepared.family.build_reference(prepared.config, zeros, "float32"))
    except ModuleNotFoundError as error:
        what = f"the reference needs {error.name}, which is not installed"
        raise MachineError("verify", what, "install wdport[torch]") from None
