"""Names of the public training configuration: those that are read, those that are ignored, and near misses; its JSON
Schema.

Unknown names are refused: a misspelt name would otherwise be ignored, and its value assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from wdport.base.fields import fields_of
from wdport.base.shared_types import NOT_READ, given
from wdport.models.interface import Document
from wdport.uses.waveletdiff.config import Config, Public

READ: Final[Mapping[tuple[str, str], tuple[str, type]]] = {
    (place.section, place.key or name): (name, field.kind)
    for name, field in fields_of(Config).items()
    if (place := field.marker(Public))
}
"""Section, name and type of each field of :class:`Config`; the two names of ``wavelet`` are read separately."""

WAVELET: Final = (("wavelet", "type"), ("wavelet", "levels"))

TRAINING: Final = frozenset({"energy", "optimizer", "sampling", "training"})
"""Sections of training and sampling, whose other names are ignored."""

UNREAD: Final = frozenset({"compile", "data", "evaluation", "loss", "paths", "performance"})
"""Sections that do not concern the network, whatever they have."""

IGNORED: Final[Mapping[str, tuple[str, ...]]] = {
    "attention": (),
    "compile": ("enabled", "mode", "dynamic", "fullgraph", "backend"),
    "conditioning": ("enabled",),
    "data": ("data_dir", "normalize_data", "num_workers", "shuffle", "pin_memory", "batch_size"),
    "dataset": ("name", "path", "data_dir", "num_features"),
    "energy": ("weight",),
    "evaluation": ("num_samples", "inline_eval_every_n_epochs", "inline_eval_n_samples", "batch_size", "seed"),
    "model": (),
    "loss": (),
    "noise": ("beta_start", "beta_end", "gamma", "nu", "prior"),
    "optimizer": ("lr", "learning_rate", "type", "name", "scheduler_type", "warmup_epochs", "weight_decay", "betas",
                  "beta1", "beta2", "eps", "max_lr", "start_lr", "final_lr", "min_lr", "pct_start", "div_factor",
                  "final_div_factor", "patience", "factor"),
    "paths": ("output_dir", "data_dir", "checkpoint_dir", "log_dir"),
    "performance": ("precision", "matmul_precision"),
    "sampling": ("method", "ddim_eta", "ddim_steps", "num_samples", "batch_size", "seed"),
    "training": ("lr", "learning_rate", "batch_size", "epochs", "max_epochs", "save_model", "log_every_n_epochs",
                 "num_workers", "seed",
                 "accelerator", "devices", "strategy", "precision", "gradient_clip_val", "gradient_clip_algorithm",
                 "accumulate_grad_batches", "check_val_every_n_epoch", "enable_progress_bar", "ema_decay"),
    "wavelet": (),
}  # fmt: skip
"""Names, by section, that affect neither the network nor the transform from series to coefficients."""

ALSO_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    **{place.key or name: place.also for name, field in fields_of(Config).items() if (place := field.marker(Public))},
    "noise_schedule": ("schedule", "beta_schedule"),
    "type": ("wavelet", "wavelet_type", "wavelet_name", "name"),
    "wavelet": ("type", "wavelet_type", "wavelet_name"),
    "boundary_mode": ("mode", "padding_mode", "extension_mode", "boundary"),
    "levels": ("level", "wavelet_levels", "num_levels"),
}
"""Synonyms of the names that are read."""

_CLOSE: Final = 0.8


def is_public(document: object) -> bool:
    """Whether a document has the sections of the public form, whatever they have."""
    return (
        isinstance(document, Mapping)
        and "model" in document
        and len({"wavelet", "noise", "dataset"} & set(document)) > 1
    )


def unknown_names(document: Document) -> list[tuple[str, str]]:
    """Dotted name and remedy of everything in ``document`` that the public form does not have."""
    remedies: list[tuple[str, str]] = []
    for section, inside in document.items():
        if section not in IGNORED:
            remedies.append((section, _remedy(section, inside)))
        elif isinstance(inside, Mapping) and section not in UNREAD:
            names = [*_read(section), *IGNORED[section]]
            unknown = [name for name in inside if name not in names]
            # Trainers have many settings that are not listed here; only a name that may be the network's is reported.
            if section in TRAINING:
                unknown = [name for name in unknown if _is_ours(str(name), names)]
            remedies += [(f"{section}.{name}", _misplaced(section, name)) for name in unknown]
    return remedies


def _is_ours(name: str, names: list[str]) -> bool:
    """Whether a name of a section of training is one of the network's, or nearly one of the section's own."""
    return any(name == key for _, key in READ) or bool(get_close_matches(name, names, n=1, cutoff=_CLOSE))


def near(name: str, names: Iterable[str]) -> str | None:
    """The one of ``names`` that ``name`` probably means: another spelling, a synonym, or a typo."""
    plain = {_plain(candidate): candidate for candidate in names}
    # Names first: a synonym of one field may be the name of another.
    also = {_plain(other): candidate for candidate in plain.values() for other in ALSO_CALLED.get(candidate, ())}
    key = _plain(name)
    if key in plain or key in also:
        return plain.get(key) or also[key]
    close = get_close_matches(key, plain, n=1, cutoff=_CLOSE)
    return plain[close[0]] if close else None


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _remedy(name: str, value: object) -> str:
    """The remedy for a top-level name that is not a section."""
    if isinstance(value, Mapping):
        section = near(name, IGNORED)
        return f"did you mean {section}?" if section else _UNKNOWN
    return _place(name) or _UNKNOWN


def _misplaced(section: str, name: str) -> str:
    """The remedy for a name that its section does not have."""
    meant = near(name, _read(section))
    if meant:
        return f"did you mean {section}.{meant}?"
    ignored = get_close_matches(name, IGNORED[section], n=1, cutoff=_CLOSE)
    return _place(name) or (f"did you mean {section}.{ignored[0]}?" if ignored else _UNKNOWN)


def _place(name: str) -> str | None:
    """Where a name that is read belongs."""
    places = [*READ, *WAVELET]
    exact = [f"{section}.{key}" for section, key in places if key == name]
    exact += [f"{section}.{name}" for section, names in IGNORED.items() if name in names]
    if exact:
        return f"move it to its section, as {exact[0]}"
    meant = near(name, [key for _, key in places])
    return next((f"did you mean {section}.{key}?" for section, key in places if key == meant), None)


def _read(section: str) -> list[str]:
    return [key for where, key in (*READ, *WAVELET) if where == section]


_UNKNOWN: Final = "remove it if the network does not need it"

_WAVELET: Final = {
    "type": {
        "description": "PyWavelets name of the wavelet, or auto, which depends on the length of the series.",
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "examples": ["db2", "auto"],
    },
    "levels": {
        "description": "Number of levels of the transform, or auto, which depends on the length of the series.",
        "anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}, {"type": "null"}],
    },
}


def settings_schema() -> dict[str, object]:
    """Every section and name that the file may have; others are refused, and ignored ones have no effect."""
    read = {section for section, _ in (*READ, *WAVELET)}
    alternatives = [given(section, given(key, {"not": {"type": "null"}})) for section, key in READ]
    return {
        "type": "object",
        "description": "Training configuration of a WaveletDiff model in its public form. Null means not given.",
        "properties": {section: _section(section, section in read) for section in IGNORED},
        "additionalProperties": False,
        "anyOf": [*alternatives, given("wavelet", {"type": "object", "minProperties": 1})],
    }


def _section(section: str, read: bool) -> dict[str, Any]:
    properties: dict[str, object] = {key: _value(name) for (group, key), (name, _) in READ.items() if group == section}
    properties |= _WAVELET if section == "wavelet" else {}
    ignored = {key: {"description": f"{NOT_READ}: it has no effect on the network."} for key in IGNORED[section]}
    others: dict[str, object] = {} if section in (*TRAINING, *UNREAD) else {"additionalProperties": False}
    inside = {"type": "object", "properties": {**properties, **ignored}, **others}
    if not read:
        return {"description": f"{NOT_READ}: it concerns training.", "anyOf": [inside, {"not": {"type": "object"}}]}
    return {"description": f"Settings under `{section}`.", "anyOf": [inside, {"type": "null"}]}


def _value(name: str) -> dict[str, object]:
    """JSON Schema of a field, where null means not given."""
    declared = fields_of(Config)[name]
    value = {"type": "string", **declared.type.schema_of_value()}
    return {"description": declared.description, "anyOf": [value, {"type": "null"}]}
