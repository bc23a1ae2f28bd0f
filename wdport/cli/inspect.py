"""`wdport inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from wdport.base.errors import InputError, WdportError, printable
from wdport.base.options import JSON, KEY, SHA256, Operand, Option
from wdport.checkpoint import open_checkpoint
from wdport.checkpoint.error_context import located
from wdport.checkpoint.expected_hash import require_sha256
from wdport.checkpoint.hub import hub_name
from wdport.checkpoint.state_dict import layout_text
from wdport.cli.click_options import verb
from wdport.cli.console import counted, facts, first_of, size
from wdport.cli.documents import give, require_document
from wdport.conversion.manifest_schema import contradiction_of
from wdport.files.inputs import InputFiles, sha256_at
from wdport.files.json_document import NamedFile
from wdport.files.keras_file import open_weights
from wdport.files.manifest_seal import manifest_of
from wdport.files.model_files import read_metadata, read_variables, size_at
from wdport.files.model_target import KERAS, format_at

if TYPE_CHECKING:
    from msgspec import UnsetType

    from wdport.checkpoint import Checkpoint
    from wdport.cli.results import InspectionDocument, StoredTensor
    from wdport.conversion.manifest_schema import Account, ConfigEntry

MANIFEST_END: Final = ".wdport.json"
CONTENTS: Final = ("key", "prefixes", "other_keys", "ignored", "not_read", "shared")
"""Facts about a checkpoint that the document repeats."""

MOST_LINES: Final = 10
MOST_NAMES: Final = 4


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """The command's argument and options."""

    file: Annotated[str, Operand(files="model")]
    key: Annotated[str | None, KEY] = None
    sha256: Annotated[str | None, SHA256] = None
    every: Annotated[bool, Option("List every tensor.", names=("--tensors",))] = False
    json_file: Annotated[str | None, JSON] = None


@verb("inspect", InspectRequest)
def command(request: InspectRequest) -> None:
    """Show the layout, configuration and tensors of FILE: a checkpoint, an experiment's folder or archive, or a
    converted model."""
    file = request.file
    if file.endswith(MANIFEST_END):
        what = "is the manifest of a converted model"
        raise InputError(Path(file), what, f"give the model itself: {Path(file).name.removesuffix(MANIFEST_END)}")
    inputs = InputFiles(file=file).with_manifests("file").with_experiment("file")
    inputs.check(partial(require_sha256, file, request.sha256))
    document = require_document(request.json_file, inputs)
    inspection = _converted(Path(file)) or _checkpoint(Path(file), request.key)
    inputs.end_reading()
    give("inspection", lambda: inspection, document, lambda: _text(inspection, request.every), asked=True)


def _converted(path: Path) -> InspectionDocument | None:
    """The account of a converted model; ``None`` if ``path`` is not one."""
    from wdport.conversion.load import UNTOLD, open_account
    from wdport.mapping.table import CUSTOM

    form = format_at(path)
    if form is None or (form not in KERAS and read_metadata(path).manifest is None):
        return None  # a checkpoint, which may have the same format
    account, _ = open_account(path)
    if account is None:
        return replace(_shipped(path), manifest=f"none: saved by Keras, {UNTOLD}")
    if account.family == CUSTOM:
        _check_own(path, account)
        built_by = str(account.values["keras"])
        model = f"your own, built by {built_by}"
        inspection = _inspection_of(path, model, account.config, account.variables, account.dtypes)
        inspection = replace(inspection, built_by=built_by)
    else:
        inspection = _shipped(path)
    notes: Any = account.manifest.get("notes")
    return replace(
        inspection,
        source=NamedFile(account.source.name, account.source.sha256),
        mapping=NamedFile(account.mapping.name, account.mapping.sha256),
        manifest=_manifest(path, account),
        notes=[str(note) for note in notes or ()],
    )


def _shipped(path: Path) -> InspectionDocument:
    """A model of a family of wdport's; its variables are read for their hashes."""
    from wdport.conversion.load import open_converted, sound_variables

    converted = open_converted(path)
    for _ in sound_variables(converted):
        pass
    config = _entries(converted.config.to_dict(), converted.origins)
    variant = converted.account.variant if converted.account else "variant unknown"
    model = f"{converted.family.name}, {variant}"
    return _inspection_of(path, model, config, converted.variables, converted.dtypes or {})


def _entries(values: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, ConfigEntry]:
    return {name: {"value": value, "origin": origins.get(name, "default")} for name, value in values.items()}


def _check_own(path: Path, account: Account) -> None:
    """Check a user's own model without building it: the values of a file or folder that has them by name, an archive's
    CRC, and that the file has the structure that Keras writes."""
    if format_at(path) not in KERAS:
        for _ in read_variables(path, account.variables, account.digests, account.dtypes):
            pass
    else:
        with located(path), open_weights(path):
            pass


def _inspection_of(
    path: Path, model: str, config: Mapping[str, ConfigEntry], variables: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, str],
) -> InspectionDocument:  # fmt: skip
    from wdport.cli.results import InspectionDocument, StoredTensor

    return InspectionDocument(
        file=_file_name(path),
        what=f"converted model ({format_at(path)})",
        bytes=size_at(path),
        model=model,
        config=config,
        tensors={name: StoredTensor(dtypes.get(name, "float32"), list(shape)) for name, shape in variables.items()},
    )


def _file_name(path: Path) -> str:
    """The name of a file or folder, also of `.` and `..`."""
    return hub_name(path) or (path.resolve().name if path.name in ("", "..") else path.name)


def _manifest(path: Path, account: Account) -> str:
    """The state of the manifest next to the file."""
    if not manifest_of(path).exists():
        return f"{manifest_of(path).name} is missing; the file holds the same"
    return contradiction_of(path, account, sha256_at(path)) or f"{manifest_of(path).name} agrees"


def _checkpoint(path: Path, key: str | None) -> InspectionDocument:
    """The contents of a checkpoint, and its model if a shipped table matches."""
    from wdport.cli.results import InspectionDocument, StoredTensor

    with open_checkpoint(path, key=key) as checkpoint:
        inspection = InspectionDocument(
            file=_file_name(path),
            what=f"checkpoint ({checkpoint.format}, {layout_text(checkpoint.layout, checkpoint.key)})",
            bytes=sum(file.stat().st_size for file in checkpoint.files.values()),
            files={name: str(file) for name, file in checkpoint.files.items()},
            config_json=checkpoint.config,
            model="",
            config={},
            tensors={name: StoredTensor(info.dtype, info.shape) for name, info in checkpoint.tensors.items()},
            **{name: getattr(checkpoint, name) for name in CONTENTS},
        )
        # last: it may take a prefix from the names
        model, config, notes = _recognise(checkpoint, key)
        return replace(inspection, model=model, config=config, notes=notes)


def _recognise(checkpoint: Checkpoint, key: str | None) -> tuple[str, dict[str, ConfigEntry], list[str]]:
    """Family, variant, configuration and notes; the reason if nothing matches."""
    from wdport.conversion.prepare import Settings, prepared_from

    try:
        prepared = prepared_from(checkpoint, Settings(key=key))
    except WdportError as error:
        return f"not recognised: {error.what}; {error.fix}", {}, []
    table, resolved = prepared.table, prepared.resolved
    model = f"{table.family}, {table.variant} layout ({table.path})"
    return model, _entries(prepared.config.to_dict(), resolved.origins), [*prepared.notes, *resolved.notes]


def _text(inspection: InspectionDocument, every: bool) -> str:
    tensors = inspection.tensors
    dtypes = Counter(info.dtype for info in tensors.values())
    values = sum(prod(info.shape) for info in tensors.values())
    rows = [
        ("kind", f"{inspection.what}, {size(inspection.bytes)}"),
        ("model", inspection.model),
        ("made from", _quoted(inspection.source)),
        ("table", _quoted(inspection.mapping)),
        ("manifest", inspection.manifest or ""),
        ("state_dict", inspection.key or ""),
        ("config.json", _config_json(inspection.config_json)),
        ("prefixes", " ".join(inspection.prefixes or ())),
        ("other keys", ", ".join(inspection.other_keys or ())),
        ("ignored", ", ".join(f"{name} ({why})" for name, why in (inspection.ignored or {}).items())),
        *_rows("not read", inspection.not_read or ()),
        *_rows("one storage", [_names(names) for names in inspection.shared or ()]),
        *_rows("note", inspection.notes or ()),
        ("tensors", f"{len(tensors)}, {values:,} values; {', '.join(f'{n} {name}' for name, n in dtypes.items())}"),
    ]
    parts = [printable(inspection.file, None), facts(rows)]
    if inspection.config:
        settings = [(name, f"{printable(row['value'], LONGEST)}  ({row['origin']})")
                    for name, row in inspection.config.items() if row["value"] not in ({}, [])]  # fmt: skip
        parts += ["config", facts(settings)]
    listed = [(name, f"{info.dtype} {tuple(info.shape)}") for name, info in tensors.items()]
    parts += ["tensors", facts(listed)] if every else ["groups", facts(_groups(tensors))]
    return "\n".join(parts)


LONGEST = 200
"""Characters of a value."""


def _quoted(file: NamedFile | UnsetType) -> str:
    return f"{file.name}, SHA-256 {file.sha256[:16]}" if file else ""


def _config_json(config: Mapping[str, object] | UnsetType | None) -> str:
    if not isinstance(config, Mapping):
        return ""
    kind = next((f"; {name} {config[name]}" for name in ("model_type", "_class_name") if name in config), "")
    return f"{len(config)} entries{kind}"


def _rows(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """One row per line, the label before the first."""
    return [(label if number == 0 else "", line) for number, line in enumerate(first_of(lines, MOST_LINES))]


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _groups(tensors: Mapping[str, StoredTensor]) -> list[tuple[str, str]]:
    """Tensor counts by the first part of the name, with its number if one follows."""
    groups: dict[str, list[int]] = {}
    for name, info in tensors.items():
        parts = name.replace("/", ".").split(".")
        end = 2 if len(parts) > 2 and parts[1].isdigit() else 1
        groups.setdefault(".".join(parts[:end]), []).append(prod(info.shape))
    return [(name, f"{counted(len(counts), 'tensor')}, {sum(counts):,} values") for name, counts in groups.items()]
