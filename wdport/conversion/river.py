"""The river: read, plan, apply, write. A checkpoint in, a Keras model file and its manifest out.

Arrays pass one at a time, so peak memory is about one tensor; keras, jax and torch are not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wdport.conversion.apply import Progress, converted_arrays
from wdport.conversion.entries import Manifest
from wdport.conversion.manifest import make_manifest, manifest_beside, render_manifest
from wdport.conversion.prepare import PathText, Prepared, Settings, prepare
from wdport.conversion.value_finding import ValueFinding
from wdport.conversion.values import ValueLint
from wdport.data.series import read_series
from wdport.data.statistics import Statistics, read_statistics
from wdport.errors import UsageError
from wdport.families.roles import Documented, KeptByKeras
from wdport.files.atomic import replacing
from wdport.files.manifests import BLANK, sealed
from wdport.files.model_files import Hashes, MakeManifest, Written, write_by_keras, write_model
from wdport.files.target import Target, choose_target
from wdport.files.writable import by_name, require_apart
from wdport.model import Array


@dataclass(frozen=True)
class Conversion:
    """What a conversion did; the same facts as the manifest, for reading in Python.

    ``manifest`` is its JSON content; ``assumed`` the configuration values that nothing told; ``shown`` the fields of
    the configuration that say most, and what each is called in a few words; ``values`` what is odd about the values.
    """

    source: Path
    output: Path
    manifest_path: Path
    config: Any
    assumed: dict[str, object]
    manifest: Manifest
    shown: Mapping[str, str] = field(default_factory=dict)
    values: tuple[ValueFinding, ...] = ()


def convert(
    checkpoint: PathText,
    output: PathText | None = None,
    *,
    config: PathText | None = None,
    mapping: PathText | None = None,
    values: dict[str, str] | None = None,
    norm_stats: PathText | None = None,
    data: PathText | None = None,
    key: str | None = None,
    model: str | None = None,
    strict: bool = False,
    force: bool = False,
    allow_nonfinite: bool = False,
    cast: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a PyTorch checkpoint into a Keras model file.

    Args:
        checkpoint: ``.pt``, ``.pth``, ``.ckpt`` or ``.safetensors`` file.
        output: ``.keras`` (default: beside the checkpoint), ``.safetensors`` or ``.weights.h5``.
        config: training configuration (YAML); what it does not say is read off the shapes or assumed.
        mapping: a mapping table of your own instead of the shipped one that fits.
        values: single configuration values as text, such as ``{"num_heads": "8"}``.
        norm_stats: mean and standard deviation per feature (JSON or NPZ), kept with the model, so that samples
            can come out in the units of the data.
        data: the data set that the model was trained on, to compute them from instead.
        key: dotted key of the state_dict where the file holds more than one.
        model: ``module:function`` that builds your own Keras model, where the table does not name it.
        strict: refuse any assumption.
        force: replace an existing output.
        allow_nonfinite: accept NaN and infinity among the weights.
        cast: accept float64 weights that float32 cannot hold exactly.
        progress: called with (bytes done, bytes in all).

    Raises:
        WdportError: see `wdport.errors`; nothing is written then, and an older output is untouched.
    """
    inputs = by_name(config=config, mapping=mapping, norm_stats=norm_stats, data=data)
    target = choose_target(Path(checkpoint), Path(output) if output else None, force, inputs)
    settings = Settings(config, values, mapping, key, strict, _statistics(norm_stats, data), model=model)
    with prepare(checkpoint, settings) as prepared, ThreadPoolExecutor(1) as pool:
        require_apart([("-o", target.path), ("-o", target.manifest)], prepared.checkpoint.files)
        source_hash = pool.submit(prepared.checkpoint.file_sha256)
        lint = ValueLint(prepared.plan)
        arrays = converted_arrays(prepared, allow_nonfinite, cast, progress, lint.see)

        def manifest(hashes: Hashes | None) -> Manifest:
            return make_manifest(prepared, target, hashes, source_hash.result() if hashes else BLANK)

        with replacing(target.path, target.manifest) as (file, beside):
            written = _write(prepared, target, file, arrays, lambda hashes: sealed(manifest(hashes)))
            whole = manifest_beside(manifest(written.hashes), target, written)
            beside.write_text(render_manifest(whole), encoding="utf-8")
            odd = lint.findings(prepared.checkpoint)
    assumed, shown = prepared.resolved.assumed, prepared.family.shown
    return Conversion(Path(checkpoint), target.path, target.manifest, prepared.config, assumed, whole, shown, odd)


def _write(
    prepared: Prepared, target: Target, file: Path, arrays: Iterator[tuple[str, Array]], manifest: MakeManifest
) -> Written:
    """By Keras's own writer where the model is the user's; its variables are then also read by Keras."""
    family, config = prepared.family, prepared.config
    variables = prepared.variables
    if isinstance(family, KeptByKeras) and target.format != "safetensors":
        own = family
        return write_by_keras(
            file, target, lambda path: own.save(config, path, arrays), lambda path: own.read(config, path), manifest
        )
    document = family.keras_document(config) if isinstance(family, Documented) else {}
    return write_model(file, target, variables, arrays, manifest, document)


def _statistics(norm_stats: PathText | None, data: PathText | None) -> Statistics | None:
    """The z-score statistics, from whichever of the two is given."""
    if norm_stats and data:
        raise UsageError("norm_stats", "given beside data, which it is computed from", "give one of the two")
    if norm_stats:
        return read_statistics(norm_stats)
    return Statistics.of(read_series(data).values) if data else None
