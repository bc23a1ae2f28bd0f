"""Convert a checkpoint to a Keras model file and its manifest: read, plan, apply, write.

Tensors are processed in pieces (:mod:`wdport.conversion.stream`); keras, jax and torch are not imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from wdport.base.errors import InputError, UsageError, require_paths, require_values
from wdport.base.limits import MAX_KEPT_BYTES
from wdport.base.options import PathText
from wdport.checkpoint.hub import find_checkpoint
from wdport.checkpoint.regular_file import read_option
from wdport.conversion.data_units import read_units
from wdport.conversion.manifest import make_manifest, manifest_with_file, render_manifest
from wdport.conversion.manifest_schema import Manifest
from wdport.conversion.optimizer import converted_optimizer
from wdport.conversion.optimizer_file import (
    DECOUPLED,
    Model,
    Optimised,
    optimizer_output,
    optimizer_path,
    optimizer_written,
    weights_digest,
)
from wdport.conversion.prepare import Prepared, Settings, prepare
from wdport.conversion.stream import Progress, VariableStream
from wdport.conversion.stream_writer import Storage, write_streamed
from wdport.conversion.values import ValueFinding, ValueLint
from wdport.families.roles import Documented, Guessing, KeptByKeras
from wdport.files.atomic import replacing, whole_folder
from wdport.files.inputs import InputFiles
from wdport.files.manifest_seal import BLANK, sealed
from wdport.files.model_files import Hashes, MakeManifest, Written, write_by_keras, write_model
from wdport.files.model_target import FOLDER, KERAS, ORBAX, ModelTarget, Target, choose_target, holds_ours
from wdport.files.outputs import OutputPath, require_apart
from wdport.models.interface import STATED, Array

ADAMS = ("adam", "adamw")


@dataclass(frozen=True)
class ConvertedOptimizer:
    """A converted optimizer: its file, torch's class, and how many parameters, groups and steps it has.

    ``schedule`` is torch's class of the learning-rate schedule, "" for none, and ``position`` the number of its steps,
    0 if it is not known; ``left_out`` are parameters whose tensors the conversion dropped.
    """

    path: Path
    kind: Literal["Adam", "AdamW", "SGD"]
    parameters: int
    groups: int
    steps: int
    schedule: str
    left_out: tuple[str, ...] = ()
    position: int = 0


@dataclass(frozen=True)
class OptimizerRequest:
    """Whether the optimizer is converted, and what its file does not state; see :func:`wdport.convert`."""

    requested: bool
    kind: str | None = None
    key: str | None = None
    names: PathText | None = None

    def target(self, model: Path, inputs: InputFiles, force: bool) -> OutputPath | None:
        """Return the file, None if it is not wanted; raises :class:`UsageError` if it cannot be written."""
        if not self.requested:
            for name, value in (("optimizer", self.kind), ("optimizer_key", self.key), ("parameter_names", self.names)):
                if value is not None:
                    raise UsageError(name, "is for the optimizer's state", "add with_optimizer=True, or leave it out")
            return None
        if self.kind is not None and self.kind not in ADAMS:
            raise UsageError("optimizer", f"is {self.kind!r}", f"choose one of {', '.join(ADAMS)}")
        # Without the inputs' states: the file follows the model, whatever has happened to the inputs since.
        return optimizer_output(optimizer_path(model), dict(inputs), force)

    @contextmanager
    def written(
        self, prepared: Prepared, output: OutputPath | None
    ) -> Iterator[tuple[ConvertedOptimizer | None, Callable[[Hashes], None]]]:
        """Write the file under a temporary name; it gets its own if the block, which writes the model and calls the
        function with the hashes of what it stored, succeeds."""
        if output is None:
            yield None, lambda hashes: None
            return
        decoupled = None if self.kind is None else self.kind == "adamw"
        state = converted_optimizer(prepared, self.key, self._names(), decoupled)
        belongs = Model(prepared.family.name, prepared.checkpoint.file_sha256())
        with optimizer_written(output, state, belongs) as set_weights:
            # The digest is of what was stored: rounded, where 16 bits were requested.
            yield (
                summary(output.path, state),
                lambda hashes: set_weights(weights_digest({**hashes.variables, **hashes.float32}, state.members)),
            )

    def _names(self) -> list[str] | None:
        if self.names is None:
            return None
        path = Path(self.names)
        fix = "give a JSON list of names"
        try:
            names = json.loads(read_option(path, MAX_KEPT_BYTES, fix))
        # json calls itself for nested values.
        except (ValueError, RecursionError) as error:
            raise InputError(path, f"is not JSON ({error})", fix) from None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(path, "is not a list of names", fix)
        return names


def summary(path: Path, state: Optimised) -> ConvertedOptimizer:
    from wdport.optimizers.schedules import kind_of

    decoupled = state.kind == "adam" and all(group.get(DECOUPLED) for group in state.groups)
    schedule = ", ".join(kind_of(schedule_state) or "unknown" for schedule_state in state.schedules.values())
    kind: Literal["Adam", "AdamW", "SGD"] = "SGD" if state.kind == "sgd" else "AdamW" if decoupled else "Adam"
    positions = [schedule_state.get("last_epoch") for schedule_state in state.schedules.values()]
    position = positions[0] if len(positions) == 1 and isinstance(positions[0], int) else 0
    return ConvertedOptimizer(path, kind, len(state.parameters), len(state.groups), state.step, schedule,
                              state.left_out, position)  # fmt: skip


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion, with the same information as the manifest.

    ``manifest`` is the manifest's JSON content; ``assumed`` are the configuration values that no source determined;
    ``shown`` maps the main fields of the configuration to short labels; ``values`` lists warnings and notes about
    unusual tensor values; ``optimizer`` is the converted optimizer, if you requested it. ``doubts`` are assumed values
    that change what the network computes, each with the consequence of a wrong value.
    """

    source: Path
    output: Path
    manifest_path: Path
    config: Any
    assumed: dict[str, object]
    manifest: Manifest
    shown: Mapping[str, str] = field(default_factory=dict)
    values: tuple[ValueFinding, ...] = ()
    optimizer: ConvertedOptimizer | None = None
    doubts: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The files, the number of variables and what was assumed, on a line; ``manifest`` has everything."""
        assumed = "".join(f", assumed {name}={value!r}" for name, value in self.assumed.items())
        return f"Conversion({self.source} -> {self.output}, {self.manifest['output']['variables']} variables{assumed})"


_TOLD: Final = {*STATED, "hyper_parameters"}
"""Origins of values that somebody stated."""


def convert(
    checkpoint: PathText,
    output: PathText | None = None,
    *,
    config: PathText | None = None,
    mapping: PathText | None = None,
    values: dict[str, str] | None = None,
    norm_stats: PathText | None = None,
    data: PathText | None = None,
    transform: str | None = None,
    key: str | None = None,
    model: str | None = None,
    no_config: bool = False,
    strict: bool = False,
    force: bool = False,
    allow_nonfinite: bool = False,
    cast: bool = False,
    progress: Progress | None = None,
    dtype: str = "float32",
    max_memory: int | None = None,
    max_shard_size: int | None = None,
    with_optimizer: bool = False,
    optimizer: str | None = None,
    optimizer_key: str | None = None,
    parameter_names: PathText | None = None,
) -> Conversion:
    """Convert a PyTorch checkpoint to a Keras model file.

    Args:
        checkpoint: ``.pt``, ``.pth``, ``.ckpt``, ``.bin`` or ``.safetensors`` file; the index of shards
            (``.index.json``); a folder that contains one of these, such as a model's folder with its ``config.json``;
            or a ``.tar.gz`` archive with a checkpoint and, if there is one, its ``config.yaml``. ``ORGANIZATION/NAME``,
            or ``ORGANIZATION/NAME@REVISION``, is a checkpoint on the Hugging Face Hub.
        output: ``.keras`` (default: next to the checkpoint), ``.safetensors``, ``.weights.h5`` or ``.npz``; a name that
            ends in ``/`` is a folder of safetensors shards, and one that ends in ``.orbax`` an Orbax checkpoint.
        config: training configuration (YAML); values that it does not specify are inferred from the shapes or assumed.
        mapping: your own mapping table, instead of the matching one that comes with wdport.
        values: individual configuration values as text, such as ``{"num_heads": "8"}``.
        norm_stats: mean and standard deviation per feature (JSON or NPZ), kept with the model, so that samples
            can be converted to the units of the data; a JSON file may also have the features' ``names``.
        data: the data set that the model was trained on, to compute the statistics from; its column names become
            the features' names.
        transform: how the training windows were made from the data: "zscore", "log1p-volume", "ohlc-atr" or your own
            ``module:class``, see :mod:`wdport.uses.data.transforms`; by default "zscore", applied to the unmodified
            columns.
        key: dotted key of the state_dict if the file holds more than one; "ema" selects an average of the weights, and
            "raw" the unaveraged weights.
        model: ``module:function`` that builds your own Keras model, if the table does not name it.
        no_config: do not read the training configuration (config.yaml) next to the checkpoint.
        strict: raise an error instead of assuming a value.
        force: replace an existing output.
        allow_nonfinite: accept NaN and infinity among the weights.
        cast: accept float64 weights that float32 cannot hold exactly.
        progress: called with (bytes done, total bytes).
        dtype: dtype of the variables in a ``.safetensors`` or ``.npz`` file, an ``.orbax`` folder or a folder of
            shards: "float32", "bfloat16" or "float16".
        max_memory: bytes of memory for tensors, for the same formats; larger tensors are processed in pieces.
        max_shard_size: maximum bytes per shard; the output is then a folder.
        with_optimizer: also convert the state of the optimizer, to ``NAME.optimizer.safetensors`` next to the output;
            all of its moments are in memory at once. :func:`wdport.load_optimizer` loads it.
        optimizer: "adam" or "adamw", if the checkpoint comes from an older version of PyTorch and does not distinguish
            the two.
        optimizer_key: dotted key of the optimizer's state if the file holds more than one.
        parameter_names: JSON file with a list of the names of the optimizer's parameters, in the order of its groups;
            needed if the shapes allow more than one assignment.

    Returns:
        A :class:`Conversion`; ``output`` is the path of the written file.

    Raises:
        WdportError: see `wdport.base.errors`; nothing is written, and an existing output is unchanged.
    """
    files = {"config": config, "mapping": mapping, "norm_stats": norm_stats, "data": data,
             "parameter_names": parameter_names}  # fmt: skip
    require_paths("output", *files, checkpoint=checkpoint, output=output, **files)
    require_values(values)
    _require_bytes(max_memory=max_memory, max_shard_size=max_shard_size)
    checkpoint = find_checkpoint(str(os.fspath(checkpoint)))
    inputs = InputFiles(checkpoint=checkpoint, **files)
    folder = max_shard_size is not None or str(output or "").endswith(os.sep)
    target = choose_target(inputs, Path(output) if output else None, force, folder)
    request = OptimizerRequest(with_optimizer, optimizer, optimizer_key, parameter_names)
    optimizer_file = request.target(target.path, inputs, force)
    storage = Storage(dtype, max_memory, max_shard_size)
    streams = storage.streams(target)
    units = read_units(norm_stats, data, transform)
    settings = Settings(
        config,
        values,
        mapping,
        key,
        strict,
        None if units is None else units.flags(),
        model=model,
        shapes=streams,
        beside=not no_config,
    )
    with prepare(checkpoint, settings) as prepared:
        # Again: shards and a config.json are inputs that are only known once the checkpoint is open.
        require_apart([("-o", target.path), ("-o", target.manifest.path)], prepared.checkpoint.files)
        lint = ValueLint(prepared.plan, dtype)
        with request.written(prepared, optimizer_file) as (moved, set_weights):
            stream = VariableStream(prepared, storage.dtypes(prepared), max_memory, allow_nonfinite, cast, lint.add)
            if streams:
                write = partial(write_streamed, stream, target, storage, progress, with_optimizer)
            else:
                write = partial(write_arrays, prepared, target, stream.arrays(progress))
            manifest, hashes = write_converted(target, write)
            set_weights(hashes)
        odd = lint.findings(prepared.checkpoint)
    assumed, labels = prepared.resolved.assumed, prepared.family.shown
    guesses = prepared.family.guesses if isinstance(prepared.family, Guessing) else {}
    doubts = {name: why for name, why in guesses.items() if name in assumed}
    # Somebody who stated a part of the configuration has looked at it; the rest is then their choice.
    if len(doubts) < len(guesses) and _TOLD & set(prepared.resolved.origins.values()):
        doubts = {}
    return Conversion(Path(checkpoint), target.path, target.manifest.path, prepared.config, assumed, manifest, labels,
                      odd, moved, doubts)  # fmt: skip


def write_converted(target: ModelTarget, write: Callable[[Path], tuple[Manifest, Written]]) -> tuple[Manifest, Hashes]:
    """Write a file or a folder with ``write``, and the manifest next to it; return that manifest and the hashes."""
    with ExitStack() as stack:
        if target.format in (FOLDER, ORBAX):
            # The manifest is renamed last: whoever finds it finds the folder that it describes.
            (beside,) = stack.enter_context(replacing(target.manifest))
            file = stack.enter_context(whole_folder(target.output, holds_ours))
        else:
            file, beside = stack.enter_context(replacing(target.output, target.manifest))
        inside, written = write(file)
        manifest = manifest_with_file(inside, target, written)
        beside.write_text(render_manifest(manifest), encoding="utf-8")
    return manifest, written.hashes


def write_arrays(
    prepared: Prepared, target: Target, arrays: Iterator[tuple[str, Array]], file: Path
) -> tuple[Manifest, Written]:
    """Write one variable after another to ``file``; return the manifest inside, and what was written."""
    with ThreadPoolExecutor(1) as pool:
        # The whole file is hashed while its arrays are converted: hashlib releases Python's lock.
        source_hash = pool.submit(prepared.checkpoint.file_sha256)

        def manifest(hashes: Hashes | None) -> Manifest:
            return make_manifest(prepared, target, hashes, source_hash.result() if hashes else BLANK)

        written = _write(prepared, target, file, arrays, lambda hashes: sealed(manifest(hashes)))
        return manifest(written.hashes), written


def _write(
    prepared: Prepared, target: Target, file: Path, arrays: Iterator[tuple[str, Array]], manifest: MakeManifest
) -> Written:
    """Write the file, with Keras's writer if the model is the user's, so that Keras can also read its variables."""
    family, config = prepared.family, prepared.config
    variables = prepared.variables
    if isinstance(family, KeptByKeras) and target.format in KERAS:
        saver = family
        return write_by_keras(
            file, target, lambda path: saver.save(config, path, arrays), lambda path: saver.read(config, path), manifest
        )
    document = family.keras_document(config) if isinstance(family, Documented) else {}
    return write_model(file, target, variables, arrays, manifest, document, prepared.kept)


def _require_bytes(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise UsageError(name, f"is {value!r}, not a number of bytes", "give an int, such as 512 << 20")
