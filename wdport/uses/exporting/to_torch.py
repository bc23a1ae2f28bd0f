"""`wdport.to_torch`: write a converted model as the PyTorch tensors that it was converted from, and verify the file
by reading it back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from wdport.base.errors import MisfitError, UsageError, require_paths
from wdport.base.options import PathText
from wdport.base.version import VERSION
from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.checkpoint.tensor import ITEMSIZE
from wdport.compare.findings import GATES, Finding, Measure, fact, measure, notice
from wdport.compare.measure import same_bits, ulps
from wdport.conversion.inverse import Restored, restored
from wdport.conversion.load import Converted, open_converted, sound_variables
from wdport.conversion.optimizer import training_file
from wdport.conversion.optimizer_file import read_optimizer, require_weights
from wdport.conversion.prepare import adapt_names
from wdport.conversion.rounding import rounded_values
from wdport.families.registry import own_model
from wdport.files.atomic import whole_file
from wdport.files.inputs import InputFiles, Snapshot
from wdport.files.model_target import Needed, Target, file_target, stem_of
from wdport.files.safetensors_writer import PlannedTensor, header_bytes
from wdport.mapping.moves import Move, Plan
from wdport.mapping.table import load_table
from wdport.models.interface import Array
from wdport.uses.exporting.verification import Verification

SUFFIXES = (".safetensors", ".pt", ".pth")
_NEEDS = dict.fromkeys(SUFFIXES[1:], Needed("torch", "torch", "torch"))


def write_tensors(target: Target, tensors: Mapping[str, Any]) -> int:
    """Write a state_dict, or in torch's format a training program's checkpoint, under a temporary name, rename it and
    return the size in bytes.

    ``torch.load`` reads it with ``weights_only=True``, containers and numbers as they are. Raises
    :class:`MachineError` if writing fails.
    """
    with whole_file(target.output) as file:
        if target.format == "safetensors":
            _write_safetensors(file, tensors)
        else:
            file.write(_pickled(tensors))
        return file.tell()


def _write_safetensors(file: IO[bytes], tensors: Mapping[str, Array]) -> None:
    """Write one tensor after another, those with the largest item size first, so that all are aligned."""
    entries = [PlannedTensor(name, array.dtype.name, array.shape) for name, array in tensors.items()]
    # Then every tensor begins at a multiple of its item size, without gaps, which the format does not allow.
    entries.sort(key=lambda entry: (-ITEMSIZE[entry.dtype], entry.name))
    file.write(header_bytes(entries, {"format": "pt"}))
    for entry in entries:
        file.write(np.ascontiguousarray(tensors[entry.name]).reshape(-1).view(np.uint8).data)


def _pickled(tree: Mapping[str, Any]) -> memoryview:
    import torch

    def tensor(array: Array) -> torch.Tensor:
        if array.dtype.name == "bfloat16":
            # torch does not take ml_dtypes' bfloat16: the bits go by way of 16-bit integers.
            return torch.from_numpy(array.view("<u2").copy()).view(torch.bfloat16)
        # A copy: torch shares the memory of the array, which may be read-only.
        return torch.from_numpy(array.copy())

    def converted(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return tensor(value)
        # The milestones of a schedule, which torch keeps as a Counter.
        if isinstance(value, Counter):
            return value
        if isinstance(value, Mapping):
            return {key: converted(element) for key, element in value.items()}
        return type(value)(map(converted, value)) if isinstance(value, (list, tuple)) else value

    held = BytesIO()
    torch.save(converted(tree), held)
    return held.getbuffer()


def to_torch(
    converted: PathText,
    output: PathText | None = None,
    *,
    like: PathText | None = None,
    key: str | None = None,
    optimizer: PathText | None = None,
    mapping: PathText | None = None,
    model: str | None = None,
    force: bool = False,
) -> Restored:
    """Write a converted file's weights under the names, shapes and dtypes of its PyTorch checkpoint.

    Args:
        converted: a file that :func:`wdport.convert` wrote, or one that Keras saved after more training, which needs
            ``like``.
        output: ``NAME.safetensors``, or ``NAME.pt``, which needs torch; by default next to ``converted``.
        like: the checkpoint, or another of the same model, whose tables are copied in place of recomputed ones.
        key: the entry of ``like`` that holds the weights.
        optimizer: the model's ``.optimizer.safetensors``; the output is then a ``.pt`` checkpoint like one written by a
            training program.
        mapping: the mapping table of your own model.
        model: ``module:function`` of your own Keras model, if the table does not name it.
        force: replace an existing file.

    Returns:
        The tensors by name, and which of them were recomputed or left out.

    Raises:
        InputError: a file cannot be read.
        MisfitError: the file does not describe its checkpoint, or ``like`` or ``optimizer`` belong to another model.
        UsageError: the output exists or is one of the inputs.
        MachineError: writing fails, or torch is not installed.
    """
    require_paths("output", "like", "optimizer", "mapping", converted=converted, output=output, like=like,
                  optimizer=optimizer, mapping=mapping)  # fmt: skip
    inputs = InputFiles(model=converted, mapping=mapping, like=like, optimizer=optimizer).with_manifests("model")
    opened = open_converted(inputs["model"], own_model(inputs.get("mapping"), model, None, ()))
    target = torch_output(opened, output, inputs, force)
    table = load_table(inputs["mapping"]) if mapping else None
    back = restored(opened, table, inputs.get("like"), key)
    write_restored(target, opened, back, inputs.get("optimizer"))
    return back


def torch_output(converted: Converted, output: PathText | None, inputs: InputFiles, force: bool) -> Target:
    """The file to write, by default next to the model; raises as :func:`to_torch` does."""
    optimizer = "optimizer" in inputs
    default = f"{stem_of(converted.path)}.torch.{'pt' if optimizer else 'safetensors'}"
    path = Path(output) if output else converted.path.with_name(default)
    if optimizer and path.suffix == ".safetensors":
        raise UsageError(path, "cannot hold the state of an optimizer", "end the name in .pt")
    return file_target(path, SUFFIXES, inputs, force, needs=_NEEDS)


def write_restored(target: Target, converted: Converted, back: Restored, optimizer: Path | None) -> int:
    """Write the tensors, or, with an optimizer's file, a training program's checkpoint, and return the size in bytes;
    raises as :func:`to_torch` does."""
    if optimizer is None:
        return write_tensors(target, back.tensors)
    state, belongs = read_optimizer(optimizer)
    if belongs.family != converted.family.name or set(state.members) - set(converted.variables) or back.plan is None:
        raise MisfitError(optimizer, f"is not of the model in {converted.path.name}", "give its own optimizer")
    require_weights(optimizer, state, belongs, sound_variables(converted))
    return write_tensors(target, training_file(state, back.plan, back.tensors, back.key))


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
                adapt_names(checkpoint, check.plan.table)
                original = _is_original(converted, checkpoint)
                if original or like is not None:
                    check.tensors(checkpoint, original)
                    rounded = sum(finding.notice for finding in check.facts)
                    but = f", except for {rounded} that the conversion rounded or joined" if rounded else ""
                    what = f"bits of {source.name}{but}" if original else f"names, dtypes and shapes of {source.name}"
                    source_text = f"{source_text}, and {what}"
    digests = {"model": converted.snapshot.sha256, "exported": snapshot.sha256}
    gate = GATES["T"].gate(check.compared, check.expected, tuple(check.measures), tuple(check.facts))
    return Verification(str(converted.path), str(path), (gate,), digests, (source_text,),
                        environment={"wdport": VERSION}, seconds=time.monotonic() - started)  # fmt: skip


def _source(converted: Converted, like: Path | None) -> Path | None:
    """``like``, or a file of the checkpoint's name next to the converted one."""
    if like is not None or converted.account is None:
        return like
    # Only the name: the folder may be another one since.
    beside = converted.path.with_name(converted.account.source.name)
    return beside if beside.is_file() else None


def _is_original(converted: Converted, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is the one that was converted, by its SHA-256."""
    return converted.account is not None and checkpoint.file_sha256() == converted.account.source.sha256


class _Check:
    def __init__(self, converted: Converted, exported: Checkpoint, back: Restored) -> None:
        self._converted, self._exported, self._back, self.plan = converted, exported, back, cast("Plan", back.plan)
        self.compared = self.expected = 0
        self.measures: list[Measure] = []
        self.facts: list[Finding] = []

    def variables(self) -> None:
        """Every variable that the table makes of the exported tensors, against the model's."""
        recomputed = self._recomputed()
        expected = dict(sound_variables(self._converted))
        self.expected += len(expected)
        for move in self.plan.moves:
            missing = [name for name in move.sources if name not in self._exported.tensors]
            self.facts += [fact(f"{name} is missing", name, "missing") for name in missing]
            # The variable has the formula's values, whatever the tensor has.
            if missing or not recomputed.isdisjoint(move.sources):
                self.compared += len(move.targets)
                continue
            for target, array in self._moved(move):
                self.compared += target in expected
                # Arithmetic between the two, such as a folded norm, may round.
                if not move.exact:
                    distance = ulps(array, expected[target].astype(np.float64))
                    self.measures.append(measure(target, "ulp", distance, "table_ulp"))
                elif not same_bits(array, np.asarray(expected[target])):
                    message = f"{', '.join(move.sources)} does not give the variable {target} of the model, bit for bit"
                    self.facts.append(fact(message, move.sources[0], "unequal"))

        # That they hold their constants was required before the file was written.
        self.compared += len(self.plan.fills)

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
        for name, info in checkpoint.tensors.items():
            exported = self._exported.tensors.get(name)
            if exported is None:
                if name not in self._back.left_out:
                    self.facts.append(fact(f"{name} of the checkpoint is missing", name, "missing"))
            elif name in self._back.recomputed:
                continue
            elif (exported.dtype, exported.shape) != (info.dtype, info.shape):
                message = f"{name} is {exported.dtype} {exported.shape}, in the checkpoint {info.dtype} {info.shape}"
                self.facts.append(fact(message, name, "unequal"))
            elif original and not same_bits(self._exported.read(name), checkpoint.read(name)):
                message = f"{name} is not the checkpoint's, bit for bit"
                self.facts.append(notice(f"{message}: {excused[name]}", name) if name in excused else
                                  fact(message, name, "unequal"))  # fmt: skip
        more = set(self._exported.tensors) - set(checkpoint.tensors)
        self.facts += [fact(f"{name} is not a tensor of the checkpoint", name) for name in sorted(more)]

    def _excused(self, checkpoint: Checkpoint) -> Mapping[str, str]:
        """Tensors that the model does not hold bit for bit, and why."""
        rounded = self._converted.rounded
        excuses = {name: f"the variable was rounded to {rounded[target]}" for move in self.plan.moves
                 for target in move.targets if target in rounded for name in move.sources}  # fmt: skip
        wide = [name for name, info in checkpoint.tensors.items() if info.dtype == "float64"]
        excuses |= dict.fromkeys(wide, "the model holds float32")
        return excuses | dict.fromkeys(self._back.chosen, "arithmetic joined it with others")
