"""Verify an exported checkpoint by reading it back: against the checkpoint, and through the table to the model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.compare.findings import Finding, Measure, fact, measure, notice
from wdport.compare.glossary import GATES
from wdport.compare.measure import same_bits, ulps
from wdport.conversion.back import Restored
from wdport.conversion.load import Converted, sound_variables
from wdport.conversion.rounding import rounded_values
from wdport.exporting.verification import Verification
from wdport.files.inputs import Snapshot
from wdport.mapping.moves import Move, Plan
from wdport.model import Array
from wdport.version import VERSION


def verify_tensors(
    converted: Converted, path: Path, back: Restored, like: Path | None = None, key: str | None = None
) -> Verification:
    """Compare an exported checkpoint, made of ``back``, with the checkpoint and with the variables of a converted file.

    The checkpoint is ``like``, or the file that the manifest names if it is next to the converted file. Bits are
    compared if it is the one that the manifest has the SHA-256 of; otherwise only names, dtypes and shapes.
    ``key`` is where a training checkpoint holds the tensors.
    """
    started, snapshot = time.monotonic(), Snapshot(path)
    source, source_text = _source(converted, like), "the model's variables"
    with open_checkpoint(path, key=key) as exported:
        check = _Check(converted, exported, back)
        check.variables()
        if source is not None:
            with open_checkpoint(source, key=back.key) as checkpoint:
                original = _is_original(converted, checkpoint)
                if original or like is not None:
                    check.tensors(checkpoint, original)
                    source_text = (
                        f"{source_text}, and {'bits' if original else 'names, dtypes and shapes'} of {source.name}"
                    )
    digests = {"model": converted.snapshot.sha256, "exported": snapshot.sha256}
    gate = GATES["T"].gate(check.compared, check.expected, tuple(check.measures), tuple(check.facts))
    return Verification(str(converted.path), str(path), (gate,), digests, (source_text,),
                        environment={"wdport": VERSION}, seconds=time.monotonic() - started)  # fmt: skip


def _source(converted: Converted, like: Path | None) -> Path | None:
    """``like``, or a file of the checkpoint's name next to the converted one."""
    if like is not None or converted.account is None:
        return like
    beside = converted.path.with_name(converted.account.source.name)
    return beside if beside.is_file() else None


def _is_original(converted: Converted, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is the one that was converted, by its SHA-256."""
    return converted.account is not None and checkpoint.file_sha256() == converted.account.source.sha256


class _Check:
    """What the comparison found so far."""

    def __init__(self, converted: Converted, exported: Checkpoint, back: Restored) -> None:
        self._converted, self._exported, self._back, self._plan = converted, exported, back, cast("Plan", back.plan)
        self.compared = self.expected = 0
        self.measures: list[Measure] = []
        self.facts: list[Finding] = []

    def variables(self) -> None:
        """Every variable that the table makes of the exported tensors, against the model's."""
        recomputed = self._recomputed()
        expected = dict(sound_variables(self._converted))
        self.expected += len(expected)
        for move in self._plan.moves:
            missing = [name for name in move.sources if name not in self._exported.tensors]
            self.facts += [fact(f"{name} is missing", name, "missing") for name in missing]
            if missing or not recomputed.isdisjoint(move.sources):
                self.compared += len(move.targets)
                continue
            for target, array in self._moved(move):
                self.compared += target in expected
                if not move.exact:
                    distance = ulps(array, expected[target].astype(np.float64))
                    self.measures.append(measure(target, "ulp", distance, "table_ulp"))
                elif not same_bits(array, np.asarray(expected[target])):
                    message = f"{', '.join(move.sources)} does not give the variable {target} of the model, bit for bit"
                    self.facts.append(fact(message, move.sources[0], "unequal"))

    def _moved(self, move: Move) -> Iterator[tuple[str, Array]]:
        sources = [self._exported.read(name) for name in move.sources]
        if move.exact:
            sources = [array.astype(np.float32) for array in sources]
        rounded = self._converted.rounded
        for target, array in zip(move.targets, move.apply(sources), strict=True):
            yield target, rounded_values(array, rounded.get(target, "float32"))

    def _recomputed(self) -> set[str]:
        """Tensors of which the conversion used the formula, not the values."""
        account = self._converted.account
        manifest: Any = {} if account is None else account.manifest
        return {entry["source"] for entry in manifest.get("tensors", ()) if entry["recomputed"]}

    def tensors(self, checkpoint: Checkpoint, original: bool) -> None:
        """Every tensor of the checkpoint, against the exported ones; bits only of the ``original`` one."""
        excused = self._excused(checkpoint)
        self.expected += len(checkpoint.tensors)
        self.compared += len(checkpoint.tensors)
        names = {stored: self._without_prefixes(stored) for stored in checkpoint.tensors}
        for stored, name in names.items():
            info, exported = checkpoint.tensors[stored], self._exported.tensors.get(name)
            if exported is None:
                if name not in self._back.left_out:
                    self.facts.append(fact(f"{name} of the checkpoint is missing", name, "missing"))
            elif name in self._back.recomputed:
                continue
            elif (exported.dtype, exported.shape) != (info.dtype, info.shape):
                message = f"{name} is {exported.dtype} {exported.shape}, in the checkpoint {info.dtype} {info.shape}"
                self.facts.append(fact(message, name, "unequal"))
            elif original and not same_bits(self._exported.read(name), checkpoint.read(stored)):
                message = f"{name} is not the checkpoint's, bit for bit"
                self.facts.append(notice(f"{message}: {excused[name]}", name) if name in excused else
                                  fact(message, name, "unequal"))  # fmt: skip
        more = set(self._exported.tensors) - set(names.values())
        self.facts += [fact(f"{name} is no tensor of the checkpoint", name) for name in sorted(more)]

    def _without_prefixes(self, name: str) -> str:
        for prefix in self._back.prefixes:
            name = name.removeprefix(prefix)
        return name

    def _excused(self, checkpoint: Checkpoint) -> Mapping[str, str]:
        """Tensors that the model does not hold bit for bit, and why."""
        rounded = self._converted.rounded
        excuses = {name: f"the variable was rounded to {rounded[target]}" for move in self._plan.moves
                 for target in move.targets if target in rounded for name in move.sources}  # fmt: skip
        wide = {self._without_prefixes(name) for name, info in checkpoint.tensors.items() if info.dtype == "float64"}
        excuses |= dict.fromkeys(wide, "the model holds float32")
        return excuses | dict.fromkeys(self._back.chosen, "arithmetic joined it with others")
