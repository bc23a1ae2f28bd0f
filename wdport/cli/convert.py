"""`wdport convert`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from wdport.checkpoint.known import require_sha256
from wdport.cli.options import LONGEST_FACT, facts, key_option, mapping_option, parse_values, sha256_option, size
from wdport.cli.progress import progress_bar
from wdport.errors import printable

if TYPE_CHECKING:
    from wdport.conversion.entries import ConfigEntry, Manifest
    from wdport.conversion.value_finding import ValueFinding

MOST_VALUES = 10
"""Odd values of one level that are printed; all are in the JSON."""


@click.command(name="convert")
@click.argument("checkpoint")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="NAME.keras, .safetensors, .weights.h5, .npz, .orbax or FOLDER/ (shards).  [default: .keras beside the input]",
)
@click.option(
    "--dtype",
    metavar="DTYPE",
    default="float32",
    show_default=True,
    help="Store variables as bfloat16 or float16 (.safetensors, .npz, folder); overflow is refused.",
)
@click.option("--max-memory", metavar="SIZE", help="Memory for tensors, such as 512MiB (.safetensors, .npz, folder).")
@click.option("--max-shard-size", metavar="SIZE", help="Of a file in a folder of shards, such as 5GB.  [default: 5GB]")
@click.option("--config", metavar="FILE", help="Training configuration (YAML), for what shapes cannot tell.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One value, such as num_heads=8; repeatable.")
@click.option("--norm-stats", metavar="FILE", help="Mean and std per feature (JSON, NPZ), kept with the model.")
@click.option("--data", metavar="FILE", help="The training data, to compute them from (CSV, NPY, ARFF, MAT).")
@mapping_option
@click.option("--model", metavar="MODULE:FUNCTION", help="Your own Keras model, if the table does not name it.")
@key_option
@sha256_option
@click.option("--strict", is_flag=True, help="Refuse assumptions about what neither file nor configuration tells.")
@click.option("--force", is_flag=True, help="Replace an existing output; never a symbolic link.")
@click.option("--cast", is_flag=True, help="Accept float64 weights that float32 cannot hold exactly.")
@click.option("--allow-nonfinite", is_flag=True, help="Accept NaN and infinity among the weights.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest and odd values as JSON.")
def command(
    checkpoint: str,
    output: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    norm_stats: str | None,
    data: str | None,
    mapping: str | None,
    model: str | None,
    key: str | None,
    sha256: str | None,
    strict: bool,
    force: bool,
    cast: bool,
    allow_nonfinite: bool,
    as_json: bool,
    dtype: str,
    max_memory: str | None,
    max_shard_size: str | None,
) -> int:
    """Convert a PyTorch CHECKPOINT (.ckpt, .pt, .pth, .safetensors, or a folder of shards) into a Keras model file.

    Writes the model, re-reads and compares it (a folder is hashed as it is written), and puts a manifest
    FILE.wdport.json beside it.
    """
    values = parse_values(pairs)
    require_sha256(checkpoint, sha256)
    from wdport.conversion.river import convert
    from wdport.conversion.storage import parse_size
    from wdport.conversion.value_finding import to_json

    with progress_bar("converting") as progress:
        conversion = convert(
            checkpoint,
            output,
            config=config,
            mapping=mapping,
            values=values,
            norm_stats=norm_stats,
            data=data,
            key=key,
            model=model,
            strict=strict,
            force=force,
            cast=cast,
            allow_nonfinite=allow_nonfinite,
            progress=progress,
            dtype=dtype,
            max_memory=parse_size("--max-memory", max_memory),
            max_shard_size=parse_size("--max-shard-size", max_shard_size),
        )
    manifest = conversion.manifest
    if as_json:
        click.echo(json.dumps({**manifest, "values": to_json(conversion.values)}, indent=1))
    else:
        click.echo(_text(manifest, str(conversion.output), conversion.shown))
        echo_values(conversion.values)
    return 0


def echo_values(found: Sequence[ValueFinding]) -> None:
    """What is odd about a checkpoint's values, a line each; nothing where nothing is."""
    from wdport.conversion.value_finding import by_level

    for level, text in by_level(found, MOST_VALUES):
        click.echo(f"  {level:<8} {printable(text, LONGEST_FACT)}")


def _text(manifest: Manifest, output: str, shown: Mapping[str, str]) -> str:
    """A few lines for a person: what went in, what was assumed, what was checked, what came out.

    The model is in place by now, so nothing here may fail: a family need not have any one value, nor a value for it.
    """
    source, mapping = manifest["source"], manifest["mapping"]
    prefixes = source["prefixes"] or ()
    layout = f"{source['layout']}, {' '.join(prefixes)} stripped" if prefixes else source["layout"]
    counts = [len(manifest["tensors"]), len(manifest["checks"]), len(manifest["drops"])]
    recomputed = [row["source"] for row in manifest["tensors"] if row["recomputed"]]
    errors = [row["error"] for row in manifest["checks"] if row["error"] is not None]
    told = {name: f"{row['value']} ({row['origin']})" for name, row in manifest["config"].items()}
    variant = f", {mapping['variant']} layout" if mapping["variant"] else ""
    heading = f"{source['name']}: {mapping['family']}{variant}"
    rows = [
        ("file", f"{layout}; {mapping['name']}"),
        ("model", ", ".join(f"{label} {told[name]}" for name, label in shown.items() if name in told)),
        ("assumed", ", ".join(f"{name}={value}" for name, value in manifest["assumed"].items())),
        ("fits too", "; ".join(f"{name}: {text}" for name, text in manifest["alternatives"].items())),
        ("series", _units(manifest["config"])),
        ("tensors", f"{counts[0]} used, {counts[1]} checked, {counts[2]} dropped; every variable filled once"),
        ("stored as", manifest["output"].get("dtype", "")),
        ("tables", f"largest difference from the formula {max(errors):.1e}" if errors else ""),
        ("recomputed", f"{', '.join(recomputed)} (16 bits ruin them)" if recomputed else ""),
        *(("note", note) for note in manifest.get("notes", [])),
        ("ignored", ", ".join(f"{name} ({why})" for name, why in manifest["ignored"].items())),
        ("wrote", f"{output} ({size(manifest['output']['bytes'])}, {manifest['output']['variables']} variables)"),
    ]
    return f"{printable(heading, LONGEST_FACT)}\n{facts(rows)}"


def _units(config: Mapping[str, ConfigEntry]) -> str:
    """Whether samples can come out in the units of the data; "" for a model that knows of none."""
    if "norm_mean" not in config:
        return ""
    if config["norm_mean"]["value"] is None:
        return "in z-score units; --norm-stats or --data gives those of the data"
    return "in the units of the data, by the mean and std of every feature"
