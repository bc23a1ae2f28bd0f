"""Settings from outside: the public training script's YAML form, and ``--set NAME=VALUE`` flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wdport.errors import MisfitError, UsageError
from wdport.wavelets.lengths import auto_level, auto_wavelet

_FIELDS: dict[tuple[str, str], tuple[str, type]] = {
    ("model", "embed_dim"): ("embed_dim", int),
    ("model", "num_heads"): ("num_heads", int),
    ("model", "num_layers"): ("num_layers", int),
    ("model", "time_embed_dim"): ("time_embed_dim", int),
    ("model", "dropout"): ("dropout", float),
    ("model", "prediction_target"): ("prediction_target", str),
    ("attention", "use_cross_level_attention"): ("cross_level_attention", bool),
    ("noise", "schedule"): ("noise_schedule", str),
    ("dataset", "seq_len"): ("seq_len", int),
}
"""Where a field of :class:`Config` stands in the public form; its other entries do not matter here."""

_FLAGS: dict[str, Callable[[str], Any]] = {
    "num_heads": int,
    "prediction_target": str,
    "noise_schedule": str,
    "wavelet": str,
    "boundary_mode": str,
    "seq_len": int,
    "dropout": float,
}


def read_settings(document: Mapping[str, Any], where: str | Path) -> dict[str, Any]:
    """The fields that a configuration file gives; raises :class:`MisfitError` for a wrong type."""
    found: dict[str, Any] = {}
    for (section, key), (name, kind) in _FIELDS.items():
        value = _section(document, section, where).get(key)
        if value is None:
            continue
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise MisfitError((where, f"{section}.{key}"), f"{value!r} is no {kind.__name__}", "correct the value")
        found[name] = value
    if not found:
        raise MisfitError(where, "no setting of a WaveletDiff model in it", "give the training configuration")
    # The public form has no field for the boundary mode: its pipeline always extends symmetrically.
    found["boundary_mode"] = "symmetric"
    _read_wavelet(_section(document, "wavelet", where), found, where)
    return found


def _read_wavelet(section: Mapping[str, Any], found: dict[str, Any], where: str | Path) -> None:
    """Wavelet name and group count, resolving ``auto`` by the length as the public code does."""
    name, levels, seq_len = section.get("type"), section.get("levels"), found.get("seq_len")
    if name is not None and not isinstance(name, str):
        raise MisfitError((where, "wavelet.type"), f"{name!r} is no name", "give auto or a wavelet of PyWavelets")
    if name == "auto":
        name = auto_wavelet(seq_len) if seq_len else None
    if name is not None:
        found["wavelet"] = name
    if levels == "auto":
        try:
            levels = auto_level(seq_len, name) if seq_len and name else None
        except ValueError as error:
            raise MisfitError((where, "wavelet.type"), str(error), "give a wavelet of PyWavelets") from None
    if levels is not None:
        if type(levels) is not int or levels < 1:
            raise MisfitError((where, "wavelet.levels"), f"{levels!r} is no level count", "give auto or a number")
        found["levels"] = levels


def _section(document: Mapping[str, Any], name: str, where: str | Path) -> Mapping[str, Any]:
    section = document.get(name) if isinstance(document, Mapping) else None
    if section is not None and not isinstance(section, Mapping):
        raise MisfitError((where, name), "not a group of settings", "indent its settings below it")
    return section or {}


def parse_setting(key: str, text: str) -> Any:
    """The value of one ``--set KEY=VALUE``; raises :class:`UsageError`."""
    if key not in _FLAGS:
        raise UsageError("--set", f"unknown name {key!r}", f"use one of {', '.join(_FLAGS)}")
    try:
        return _FLAGS[key](text)
    except ValueError:
        raise UsageError(f"--set {key}", f"{text!r} is not a number", "give a number") from None
