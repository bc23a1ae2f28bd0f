"""The public training configuration as a JSON Schema, from the lists that its reader uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wdport.declared import NOT_READ, given
from wdport.diffusion.schedules import NAMES as SCHEDULES
from wdport.families.waveletdiff.config import MOST, PREDICTION_TARGETS
from wdport.families.waveletdiff.public_form import IGNORED, READ, TRAINING, UNREAD, WAVELET

_TYPES: Final = {int: "integer", float: "number", str: "string", bool: "boolean"}

_MEANINGS: Final[Mapping[tuple[str, str], str]] = {
    ("model", "embed_dim"): "Token width of the detail levels; that of the approximation is twice as large.",
    ("model", "num_heads"): "Attention heads; they divide embed_dim.",
    ("model", "num_layers"): "Transformer blocks of a detail level; the approximation has two more.",
    ("model", "time_embed_dim"): "Width of the time embedding; even, at least 4.",
    ("model", "dropout"): "Dropout rate of the training; inference does not use it.",
    ("model", "prediction_target"): "What the network predicts: the noise, or the clean coefficients.",
    ("attention", "use_cross_level_attention"): "Whether the levels attend to one another.",
    ("noise", "schedule"): "Noise schedule of the diffusion.",
    ("dataset", "seq_len"): "Time steps of a series, T.",
}

_VALUES: Final[Mapping[str, Mapping[str, object]]] = {
    **{name: {"minimum": 1, "maximum": most} for name, most in MOST.items()},
    "time_embed_dim": {"minimum": 4, "maximum": MOST["time_embed_dim"], "multipleOf": 2},
    "dropout": {"minimum": 0, "exclusiveMaximum": 1},
    "prediction_target": {"enum": list(PREDICTION_TARGETS)},
    "noise_schedule": {"enum": list(SCHEDULES)},
}

_WAVELET: Final = {
    "type": {
        "description": "PyWavelets name of the wavelet, or auto, which depends on the length of the series.",
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "examples": ["db2", "auto"],
    },
    "levels": {
        "description": "Levels of the transform, or auto, which depends on the length of the series.",
        "anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}, {"type": "null"}],
    },
}


def settings_schema() -> dict[str, object]:
    """Every section and name that the file may have; others are refused, and ignored ones have no effect."""
    read = {section for section, _ in (*READ, *WAVELET)}
    told = [given(section, given(key, {"not": {"type": "null"}})) for section, key in READ]
    return {
        "type": "object",
        "description": "Training configuration of a WaveletDiff model in its public form. Null means not given.",
        "properties": {section: _section(section, section in read) for section in IGNORED},
        "additionalProperties": False,
        "anyOf": [*told, given("wavelet", {"type": "object", "minProperties": 1})],
    }


def _section(section: str, read: bool) -> dict[str, Any]:
    known: dict[str, object] = {key: _value((at, key), *READ[at, key]) for at, key in READ if at == section}
    known |= _WAVELET if section == "wavelet" else {}
    ignored = {key: {"description": f"{NOT_READ}: it has no effect on the network."} for key in IGNORED[section]}
    others: dict[str, object] = {} if section in (*TRAINING, *UNREAD) else {"additionalProperties": False}
    inside = {"type": "object", "properties": {**known, **ignored}, **others}
    if not read:
        return {"description": f"{NOT_READ}: it concerns training.", "anyOf": [inside, {"not": {"type": "object"}}]}
    return {"description": f"Settings under `{section}`.", "anyOf": [inside, {"type": "null"}]}


def _value(place: tuple[str, str], name: str, kind: type) -> dict[str, object]:
    told = {"type": _TYPES[kind], **_VALUES.get(name, {})}
    return {"description": _MEANINGS[place], "anyOf": [told, {"type": "null"}]}
