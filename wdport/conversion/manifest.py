"""The manifest of a conversion: its inputs, its steps and its output.

It is stored in the file, and with the file's hash next to it. The same inputs give the same manifest: it contains
hashes and versions, but no dates and no absolute paths.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wdport.base.version import VERSION
from wdport.checkpoint.hub import hub_name
from wdport.conversion.manifest_schema import Manifest, OutputEntry, TargetEntry
from wdport.conversion.prepare import Prepared
from wdport.files.manifest_seal import BLANK
from wdport.files.model_files import Hashes, Written
from wdport.files.model_target import Target

FORMAT: Final = 2
_PACKAGES = ("numpy", "keras", "jax", "h5py")


def make_manifest(
    prepared: Prepared,
    target: Target,
    hashes: Hashes | None,
    source_sha256: str = BLANK,
    dtypes: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the manifest for the file, as JSON values; without ``hashes`` a placeholder of the same size.

    ``dtypes`` are those of the variables, float32 by default.
    """
    checkpoint, plan, table = prepared.checkpoint, prepared.plan, prepared.table
    # In a safetensors file the manifest precedes the values: it gets its place before their hashes are known.
    digests = hashes.variables if hashes else dict.fromkeys(prepared.variables, BLANK)
    dtypes = dtypes or {}
    manifest: Manifest = {
        "manifest": FORMAT,
        "wdport": VERSION,
        "source": {
            "name": checkpoint.path.name,
            "hub": hub_name(checkpoint.path),
            "sha256": source_sha256,
            "format": checkpoint.format,
            "layout": checkpoint.layout,
            "key": checkpoint.key,
            "prefixes": list(checkpoint.prefixes),
            "other_keys": list(checkpoint.other_keys),
            "not_read": list(checkpoint.not_read),
        },
        "mapping": {
            "name": _name(table.path),
            "sha256": table.sha256,
            "family": table.family,
            "variant": table.variant,
        },
        "output": _output(prepared, target, hashes),
        "config": {
            name: {"value": value, "origin": prepared.resolved.origins.get(name, "default")}
            for name, value in prepared.config.to_dict().items()
        },
        "assumed": prepared.resolved.assumed,
        "alternatives": dict(prepared.resolved.alternatives),
        "notes": [*prepared.notes, *prepared.resolved.notes],
        "tensors": [
            {
                "source": source,
                "dtype": checkpoint.tensors[source].dtype,
                "shape": list(checkpoint.tensors[source].shape),
                "rule": move.rule.name,
                "combine": move.combine,
                "table": move.file or _name(table.path),
                "line": move.line,
                "recomputed": source in prepared.recomputed,
                "targets": [_target(prepared, name, digests[name], dtypes.get(name)) for name in move.targets],
            }
            for move in plan.moves
            for source in move.sources
        ],
        "checks": [
            {"source": c.source, "constant": c.constant, "error": c.error, "tolerance": c.tolerance}
            for c in prepared.comparisons
        ],
        "drops": dict(plan.drops),
        "ties": dict(plan.ties),
        "ignored": dict(checkpoint.ignored),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }
    if plan.fills:
        manifest["filled"] = [
            {
                **_target(prepared, fill.target, digests[fill.target], dtypes.get(fill.target)),
                "fill": fill.fill,
                "table": fill.file or _name(table.path),
                "line": fill.line,
            }
            for fill in plan.fills
        ]
    return manifest


def manifest_with_file(manifest: Manifest, target: Target, written: Written) -> Manifest:
    """Return the manifest to be written next to the file: the same, with the name, hash and size of the whole file."""
    entry: OutputEntry = {**manifest["output"], "name": target.path.name, "sha256": written.sha256,
                          "bytes": written.size}  # fmt: skip
    return {**manifest, "output": entry}


def render_manifest(manifest: Manifest) -> str:
    """Return a manifest as text; JSON has no infinities, so they are refused."""
    return json.dumps(manifest, indent=1, allow_nan=False) + "\n"


def _target(prepared: Prepared, name: str, sha256: str, dtype: str | None) -> TargetEntry:
    entry: TargetEntry = {"path": name, "shape": list(prepared.variables[name]), "sha256": sha256}
    if dtype not in (None, "float32"):
        entry["dtype"] = str(dtype)
    return entry


def _output(prepared: Prepared, target: Target, hashes: Hashes | None) -> OutputEntry:
    entry: OutputEntry = {"format": target.format, "variables": len(prepared.variables)}
    if target.format == "keras":
        entry["config_json"] = (hashes and hashes.config_json) or BLANK
        if prepared.kept:
            entry["kept"] = {name: hashlib.sha256(data).hexdigest() for name, data in prepared.kept.items()}
    return entry


def _name(path: str) -> str:
    """Return a table's path as given, but never an absolute one."""
    return Path(path).name if Path(path).is_absolute() else path


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and refusals need none

    try:
        return version(package)
    except PackageNotFoundError:
        return None
