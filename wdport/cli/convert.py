"""`wdport convert`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wdport.base.errors import InputError, printable
from wdport.base.options import (
    DATA,
    FORCE_OUTPUT,
    JSON,
    KEY,
    MAPPING,
    MODEL,
    NO_CONFIG,
    NORM_STATS,
    SHA256,
    TRANSFORM,
    Operand,
    Option,
)
from wdport.checkpoint.expected_hash import require_sha256
from wdport.checkpoint.state_dict import layout_text
from wdport.cli.click_options import arguments, verb
from wdport.cli.console import LONGEST_FACT, console, facts, first_of, progress_bar, size
from wdport.cli.documents import give, require_document
from wdport.files.inputs import InputFiles
from wdport.files.manifest_seal import file_sha256, manifest_of
from wdport.files.model_target import KERAS, default_output, format_at

if TYPE_CHECKING:
    from wdport.cli.results import ConversionDocument
    from wdport.conversion.convert import Conversion
    from wdport.conversion.manifest_schema import ConfigEntry, Manifest
    from wdport.conversion.values import ValueFinding

MOST_VALUES = 10
"""Unusual values printed per level; all are in the JSON."""

MOST_NAMES = 3
"""Names of dropped tensors printed per reason."""


@dataclass(frozen=True, kw_only=True)
class ConvertRequest:
    """The command's argument and options."""

    checkpoint: Annotated[str, Operand(files="checkpoint")]
    output: Annotated[str | None, Option(
        "NAME.keras, .safetensors, .weights.h5, .npz, .orbax or FOLDER/ (shards).  [default: .keras next to the input]",
        files="converted")] = None  # fmt: skip
    dtype: Annotated[str, Option(
        "Store variables as bfloat16 or float16 (.safetensors, .npz, .orbax, folder); overflow is an error.",
        choices=("float32", "bfloat16", "float16"), group="outputs")] = "float32"  # fmt: skip
    max_memory: Annotated[str | None, Option(
        "Memory limit for tensors, such as 512MiB (.safetensors, .npz, folder).", "SIZE")] = None  # fmt: skip
    max_shard_size: Annotated[str | None, Option(
        "Maximum size of a shard in a folder, such as 5GB.  [default: 5GB]",
        "SIZE", group="outputs")] = None  # fmt: skip
    config: Annotated[str | None, Option(
        "Training configuration (YAML), for settings that the shapes do not determine.",
        files="table")] = None  # fmt: skip
    values: Annotated[dict[str, str], Option(
        "One configuration value, such as num_heads=8; repeatable.", "KEY=VALUE", group="model")]  # fmt: skip
    norm_stats: Annotated[str | None, NORM_STATS] = None
    data: Annotated[str | None, DATA] = None
    transform: Annotated[str | None, TRANSFORM] = None
    mapping: Annotated[str | None, MAPPING] = None
    model: Annotated[str | None, MODEL] = None
    key: Annotated[str | None, KEY] = None
    no_config: Annotated[bool, NO_CONFIG] = False
    sha256: Annotated[str | None, SHA256] = None
    strict: Annotated[bool, Option(
        "Fail instead of assuming settings that neither the file nor the configuration "
        "specifies.")] = False  # fmt: skip
    force: Annotated[bool, FORCE_OUTPUT] = False
    cast: Annotated[bool, Option("Accept float64 weights that float32 cannot represent exactly.")] = False
    allow_nonfinite: Annotated[bool, Option("Accept NaN and infinite weights.")] = False
    with_optimizer: Annotated[bool, Option(
        "Also convert the optimizer's state (Adam, AdamW, SGD), to NAME.optimizer.safetensors next to the output.",
        group="outputs")] = False  # fmt: skip
    optimizer: Annotated[str | None, Option(
        "Kind of the optimizer, adam or adamw, if the checkpoint does not specify it.",
        "NAME", choices=("adam", "adamw"), group="inputs")] = None  # fmt: skip
    optimizer_key: Annotated[str | None, Option(
        "Key of the optimizer's state, if the checkpoint contains several.",
        "NAME", group="inputs")] = None  # fmt: skip
    parameter_names: Annotated[str | None, Option(
        "Names of the parameters in the optimizer's order (JSON list), if the shapes do not determine them.",
        files=(".json",))] = None  # fmt: skip
    json_file: Annotated[str | None, JSON] = None


@verb("convert", ConvertRequest)
def command(request: ConvertRequest) -> None:
    """Convert a PyTorch CHECKPOINT (.ckpt, .pt, .pth, .bin, .safetensors, .tar.gz, or a folder) into a Keras model.

    Writes the model and checks it by reading it back (a folder is hashed while it is written instead), and writes a
    manifest, OUTPUT.wdport.json, next to the model.
    """
    checkpoint, output = request.checkpoint, request.output
    if format_at(Path(checkpoint)) in KERAS:
        what = "is a Keras model, not a PyTorch checkpoint"
        raise InputError(Path(checkpoint), what, "give the checkpoint; wdport inspect shows what is in this file")
    require_sha256(checkpoint, request.sha256)
    read = InputFiles(
        checkpoint=checkpoint, config=request.config, mapping=request.mapping, norm_stats=request.norm_stats,
        data=request.data, parameter_names=request.parameter_names,
    ).with_experiment("checkpoint")  # fmt: skip
    path = Path(output) if output else default_output(Path(checkpoint))
    outputs = {"-o": path, "the manifest": manifest_of(path)}
    document = require_document(request.json_file, read, outputs, request.force)
    from wdport.conversion.convert import convert
    from wdport.conversion.stream_writer import parse_size

    sizes = {"max_memory": parse_size("--max-memory", request.max_memory),
             "max_shard_size": parse_size("--max-shard-size", request.max_shard_size)}  # fmt: skip
    with progress_bar("converting") as progress:
        conversion = convert(**arguments(convert, request, progress=progress, **sizes))
    give("conversion", lambda: _document(conversion), document, lambda: _summary(conversion))
    if conversion.doubts:
        assumptions = "; ".join(f"{name}={conversion.assumed[name]} ({why})" for name, why in conversion.doubts.items())
        console.warn(
            f"assumed, since neither file nor configuration states them: {assumptions}; give --config FILE or --set"
        )


def _summary(conversion: Conversion) -> str:
    text = _text(conversion.manifest, str(conversion.output), conversion.shown)
    return "\n".join([text, *_optimizer(conversion), *values_text(conversion.values)])


def _optimizer(conversion: Conversion) -> list[str]:
    """A summary of the converted optimizer."""
    optimizer = conversion.optimizer
    if optimizer is None:
        return []
    groups = f" in {optimizer.groups} groups" if optimizer.groups > 1 else ""
    schedule = f", {optimizer.schedule}" if optimizer.schedule else ""
    left = f"; {len(optimizer.left_out)} left out with their tensors" if optimizer.left_out else ""
    what = f"{optimizer.kind} of {optimizer.parameters} parameters{groups}, {optimizer.steps} steps{schedule}{left}"
    note = ""
    if schedule and optimizer.kind == "SGD":
        # Lightning counts the steps itself, and only the file that is written knows.
        note = "SGD counts no steps: pass steps_per_epoch to load_optimizer if the schedule advances once an epoch"
    elif optimizer.position and optimizer.steps > optimizer.position and not optimizer.steps % optimizer.position:
        note = (
            f"the schedule is at {optimizer.position}, so it is taken to advance every "
            f"{optimizer.steps // optimizer.position} steps; pass steps_per_epoch to load_optimizer if it does not"
        )
    wrote = f"{optimizer.path} ({size(optimizer.path.stat().st_size)})"
    return [facts([("optimizer", what), ("note", note), ("wrote", wrote)])]


def _document(conversion: Conversion) -> ConversionDocument:
    from wdport.cli.results import OptimizerFacts

    optimizer = None
    if conversion.optimizer is not None:
        summary = dict(vars(conversion.optimizer))
        path, _ = summary.pop("path"), summary.pop("position")
        optimizer = OptimizerFacts(name=path.name, sha256=file_sha256(path), **summary)
    return {**conversion.manifest, "values": conversion.values, "optimizer": optimizer}


def values_text(findings: Sequence[ValueFinding]) -> list[str]:
    """Findings about a checkpoint's values, one line each: at most ``MOST_VALUES`` per level, and how many more."""
    lines = []
    for level in ("warning", "note"):
        texts = [printable(finding.text, LONGEST_FACT) for finding in findings if finding.level == level]
        lines += [f"  {level:<8} {text}" for text in first_of(texts, MOST_VALUES)]
    return lines


def _text(manifest: Manifest, output: str, labels: Mapping[str, str]) -> str:
    """A short text summary: input, assumptions, checks, output.

    The model is already written, so nothing here may fail: any value may be missing from a family.
    """
    source, mapping, written = manifest["source"], manifest["mapping"], manifest["output"]
    prefixes = source["prefixes"] or ()
    layout = layout_text(source["layout"], source["key"])
    layout += f", {' '.join(prefixes)} stripped" if prefixes else ""
    used, checked = ({row["source"] for row in manifest[name]} for name in ("tensors", "checks"))
    counts = f"{len(used)} used, {len(checked - used)} more checked, {len(manifest['drops'])} dropped"
    recomputed = [row["source"] for row in manifest["tensors"] if row["recomputed"]]
    errors = [row["error"] for row in manifest["checks"] if row["error"] is not None]
    config = {name: f"{row['value']} ({row['origin']})" for name, row in manifest["config"].items()}
    variant = f", {mapping['variant']} layout" if mapping["variant"] else ""
    heading = f"{source['hub'] or source['name']}: {mapping['family']}{variant}"
    rows = [
        ("file", f"{layout}; {mapping['name']}"),
        ("model", ", ".join(f"{label} {config[name]}" for name, label in labels.items() if name in config)),
        ("assumed", ", ".join(f"{name}={value}" for name, value in manifest["assumed"].items())),
        ("fits too", "; ".join(f"{name}: {text}" for name, text in manifest["alternatives"].items())),
        ("series", _units(manifest["config"])),
        ("features", _features(manifest["config"])),
        ("tensors", f"{counts}; every variable filled once"),
        *(("dropped", text) for text in first_of(_dropped(manifest["drops"]), MOST_VALUES)),
        *(("filled", text) for text in _dropped({row["path"]: row["fill"] for row in manifest.get("filled", ())})),
        ("keeps", ", ".join(written.get("kept", ()))),
        ("stored as", written.get("dtype", "")),
        ("tables", f"largest difference from the formula {max(errors):.1e}" if errors else ""),
        ("recomputed", f"{', '.join(recomputed)} (not accurate in 16 bits)" if recomputed else ""),
        *(("note", note) for note in manifest.get("notes", [])),
        ("ignored", ", ".join(f"{name} ({why})" for name, why in manifest["ignored"].items())),
        ("wrote", f"{output} ({size(written['bytes'])}, {written['variables']} variables)"),
    ]
    return f"{printable(heading, LONGEST_FACT)}\n{facts(rows)}"


def _dropped(drops: Mapping[str, str]) -> list[str]:
    """The tensors that the table drops or fills, a line for each reason, with the names of the first few."""
    names: dict[str, list[str]] = {}
    for name, why in drops.items():
        names.setdefault(why, []).append(name)
    return [
        ", ".join(listed[:MOST_NAMES]) + (f" and {len(listed) - MOST_NAMES} more" * (len(listed) > MOST_NAMES))
        + f": {why}" for why, listed in names.items()
    ]  # fmt: skip


def _features(config: Mapping[str, ConfigEntry]) -> str:
    """The names of the features; "" for a model without any."""
    names = config["feature_names"]["value"] if "feature_names" in config else None
    return ", ".join(map(str, names)) if isinstance(names, (list, tuple)) else ""


def _units(config: Mapping[str, ConfigEntry]) -> str:
    """The units of samples; "" for a model without units."""
    if "norm_mean" not in config:
        return ""
    transform = config["transform"]["value"] if "transform" in config else None
    if "window_statistics" in config:
        return f"in the units of the data, by {transform} and the statistics of its windows"
    if config["norm_mean"]["value"] is None:
        return "in standard units; for the units of the data, pass --data or --norm-stats, with --transform"
    columns = f"{transform} of the columns" if transform else "the z-score of the columns as they are"
    return f"in the units of the data, by {columns} (mean and std of every feature)"
