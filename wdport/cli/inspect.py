"""`wdport inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict, cast

import click

from wdport.checkpoint.known import require_sha256
from wdport.cli.completion import CHECKPOINTS, CONVERTED, File
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.options import facts, key_option, sha256_option, size
from wdport.cli.verb import Verb
from wdport.errors import InputError, WdportError, printable
from wdport.files.inputs import InputFiles
from wdport.files.target import KERAS, format_at

if TYPE_CHECKING:
    from wdport.checkpoint import Checkpoint
    from wdport.conversion.account import Account
    from wdport.conversion.entries import ConfigEntry

MANIFEST_END: Final = ".wdport.json"
MOST_LINES: Final = 10
MOST_NAMES: Final = 4


class Stored(TypedDict):
    """One tensor or variable."""

    dtype: str
    shape: list[int]


class Found(TypedDict):
    """The contents of a file, as printed; a checkpoint and a user's own model have additional entries."""

    file: str
    what: str
    bytes: int
    model: str
    config: dict[str, ConfigEntry]
    tensors: dict[str, Stored]
    built_by: NotRequired[str]
    source: NotRequired[dict[str, str]]
    mapping: NotRequired[dict[str, str]]
    manifest: NotRequired[str]
    files: NotRequired[dict[str, str]]
    config_json: NotRequired[Mapping[str, object] | None]
    key: NotRequired[str | None]
    prefixes: NotRequired[list[str]]
    other_keys: NotRequired[list[str]]
    ignored: NotRequired[dict[str, str]]
    not_read: NotRequired[list[str]]
    shared: NotRequired[list[list[str]]]
    notes: NotRequired[list[str]]


@click.command(name="inspect", cls=Verb)
@click.argument("file", type=File([*CHECKPOINTS, *CONVERTED]))
@key_option
@sha256_option
@click.option("--tensors", "every", is_flag=True, help="List every tensor.")
@json_option
def command(file: str, key: str | None, sha256: str | None, every: bool, json_file: str | None) -> int:
    """Show what is in FILE, a checkpoint, an experiment's folder or archive, or a converted model: layout,
    configuration, tensors."""
    if file.endswith(MANIFEST_END):
        what = "is the manifest of a converted model"
        raise InputError(Path(file), what, f"give the model itself: {Path(file).name.removesuffix(MANIFEST_END)}")
    inputs = InputFiles(file=file).with_manifests("file").with_experiment("file")
    inputs.check(partial(require_sha256, file, sha256))
    document = require_document(json_file, inputs)
    found = _converted(Path(file)) or _checkpoint(Path(file), key)
    inputs.end_reading()
    give("inspection", lambda: cast(Mapping[str, object], found), document, lambda: _text(found, every), asked=True)
    return 0


def _converted(path: Path) -> Found | None:
    """The account of a converted model; ``None`` if ``path`` is not one."""
    from wdport.conversion.load import UNTOLD, open_account
    from wdport.files.model_files import read_beside
    from wdport.mapping.table import CUSTOM

    form = format_at(path)
    if form is None:
        return None
    if form not in KERAS and read_beside(path).manifest is None:
        return None  # a checkpoint in this format
    account, _ = open_account(path)
    if account is None or account.family != CUSTOM:
        found = _shipped(path)
    else:
        _check_own(path, account)
        built_by = str(account.values["keras"])
        found = _found(path, f"your own, built by {built_by}", account.config, account.variables, account.dtypes)
        found["built_by"] = built_by
    if account is None:
        found["manifest"] = f"none: saved by Keras, {UNTOLD}"
    else:
        found["source"] = {"name": account.source.name, "sha256": account.source.sha256}
        found["mapping"] = {"name": account.mapping.name, "sha256": account.mapping.sha256}
        found["manifest"] = _manifest(path, account)
        notes: Any = account.manifest.get("notes")
        found["notes"] = [str(note) for note in notes or ()]
    return found


def _shipped(path: Path) -> Found:
    """A model of a family of wdport's; its variables are read for their hashes."""
    from wdport.conversion.load import open_converted, sound_variables

    converted = open_converted(path)
    for _ in sound_variables(converted):
        pass
    values, origins = converted.config.to_dict(), converted.origins
    config: dict[str, ConfigEntry] = {
        name: {"value": value, "origin": origins.get(name, "default")} for name, value in values.items()
    }
    variant = converted.account.variant if converted.account else "variant unknown"
    dtypes = converted.dtypes or {}
    return _found(path, f"{converted.family.name}, {variant}", config, converted.variables, dtypes)


def _check_own(path: Path, account: Account) -> None:
    """Check a user's own model without building it: the values of a file or folder that has them by name, an archive's
    CRC, and that the file has the structure that Keras writes."""
    from wdport.checkpoint.located import located
    from wdport.files.model_files import read_variables
    from wdport.files.weights_file import open_weights

    if format_at(path) not in KERAS:
        for _ in read_variables(path, account.variables, account.digests, account.dtypes):
            pass
    else:
        with located(path), open_weights(path):
            pass


def _found(
    path: Path,
    model: str,
    config: Mapping[str, ConfigEntry],
    variables: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, str],
) -> Found:
    from wdport.files.model_files import size_at

    return {
        "file": path.name,
        "what": f"converted model ({format_at(path)})",
        "bytes": size_at(path),
        "model": model,
        "config": dict(config),
        "tensors": {name: {"dtype": dtypes.get(name, "float32"), "shape": list(s)} for name, s in variables.items()},
    }


def _manifest(path: Path, account: Account) -> str:
    """The state of the manifest beside the file."""
    from wdport.conversion.account import torn
    from wdport.files.inputs import sha256_at
    from wdport.files.manifests import manifest_of

    if not manifest_of(path).exists():
        return f"{manifest_of(path).name} is missing; the file holds the same"
    return torn(path, account, sha256_at(path)) or f"{manifest_of(path).name} agrees"


def _checkpoint(path: Path, key: str | None) -> Found:
    """The contents of a checkpoint, and its model if a shipped table matches."""
    from wdport.checkpoint import open_checkpoint

    with open_checkpoint(path, key=key) as checkpoint:
        found: Found = {
            "file": path.name,
            "what": f"checkpoint ({checkpoint.format}, {checkpoint.layout})",
            "bytes": sum(file.stat().st_size for file in checkpoint.files.values()),
            "files": {name: str(file) for name, file in checkpoint.files.items()},
            "config_json": checkpoint.config,
            "model": "",
            "key": checkpoint.key,
            "prefixes": list(checkpoint.prefixes),
            "other_keys": list(checkpoint.other_keys),
            "ignored": dict(checkpoint.ignored),
            "not_read": list(checkpoint.not_read),
            "shared": [list(names) for names in checkpoint.shared],
            "config": {},
            "tensors": {
                name: {"dtype": info.dtype, "shape": list(info.shape)} for name, info in checkpoint.tensors.items()
            },
        }
        # last: it may take a prefix from the names
        found["model"], found["config"], found["notes"] = _recognise(checkpoint, key)
        return found


def _recognise(checkpoint: Checkpoint, key: str | None) -> tuple[str, dict[str, ConfigEntry], list[str]]:
    """Family, variant, configuration and notes; the reason if nothing matches."""
    from wdport.conversion.prepare import Settings, prepared_from

    try:
        prepared = prepared_from(checkpoint, Settings(key=key))
    except WdportError as error:
        return f"not recognised: {error.what}; {error.fix}", {}, []
    values, origins = prepared.config.to_dict(), prepared.resolved.origins
    config: dict[str, ConfigEntry] = {
        name: {"value": values[name], "origin": origins.get(name, "default")} for name in values
    }
    return f"{prepared.table.family}, {prepared.table.variant} layout ({prepared.table.path})", config, [
        *prepared.notes, *prepared.resolved.notes]  # fmt: skip


def _text(found: Found, every: bool) -> str:
    tensors = found["tensors"]
    dtypes: dict[str, int] = {}
    for info in tensors.values():
        dtypes[info["dtype"]] = dtypes.get(info["dtype"], 0) + 1
    values = sum(prod(info["shape"]) for info in tensors.values())
    rows = [
        ("kind", f"{found['what']}, {size(found['bytes'])}"),
        ("model", found["model"]),
        ("made from", _quoted(found.get("source"))),
        ("table", _quoted(found.get("mapping"))),
        ("manifest", found.get("manifest")),
        ("state_dict", found.get("key")),
        ("config.json", _config_json(found.get("config_json"))),
        ("prefixes", " ".join(found.get("prefixes", []))),
        ("beside it", ", ".join(found.get("other_keys", []))),
        ("ignored", ", ".join(f"{name} ({why})" for name, why in found.get("ignored", {}).items())),
        *_rows("not read", found.get("not_read", [])),
        *_rows("one storage", [_names(names) for names in found.get("shared", [])]),
        *_rows("note", found.get("notes", [])),
        ("tensors", f"{len(tensors)}, {values:,} values; {', '.join(f'{n} {name}' for name, n in dtypes.items())}"),
    ]
    parts = [printable(found["file"], None), facts(rows)]
    if found["config"]:
        settings = [(name, f"{printable(row['value'], LONGEST)}  ({row['origin']})")
                    for name, row in found["config"].items() if row["value"] not in ({}, [])]  # fmt: skip
        parts += ["config", facts(settings)]
    parts += ["tensors" if every else "groups", facts(_every(tensors) if every else _groups(tensors))]
    return "\n".join(parts)


LONGEST = 200
"""Characters of a value."""


def _quoted(file: Mapping[str, str] | None) -> str:
    return f"{file['name']}, SHA-256 {file['sha256'][:16]}" if file else ""


def _config_json(config: Mapping[str, object] | None) -> str:
    if config is None:
        return ""
    kind = next((f"; {name} {config[name]}" for name in ("model_type", "_class_name") if name in config), "")
    return f"{len(config)} entries{kind}"


def _rows(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """One row per line, the label before the first."""
    more = len(lines) - MOST_LINES
    shown = [*lines[:MOST_LINES], f"and {more} more, all with --json"] if more > 0 else lines
    return [(label if number == 0 else "", line) for number, line in enumerate(shown)]


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _every(tensors: Mapping[str, Stored]) -> list[tuple[str, str]]:
    return [(name, f"{info['dtype']} {tuple(info['shape'])}") for name, info in tensors.items()]


def _groups(tensors: Mapping[str, Stored]) -> list[tuple[str, str]]:
    """Tensor counts by the first part of the name, with its number if one follows."""
    groups: dict[str, list[int]] = {}
    for name, info in tensors.items():
        parts = name.replace("/", ".").split(".")
        end = 2 if len(parts) > 2 and parts[1].isdigit() else 1
        groups.setdefault(".".join(parts[:end]), []).append(prod(info["shape"]))
    return [
        (name, f"{len(counts)} tensor{'' if len(counts) == 1 else 's'}, {sum(counts):,} values")
        for name, counts in groups.items()
    ]
