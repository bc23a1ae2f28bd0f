"""Compare Keras's description of a model in a ``.keras`` file with that of the model that its function builds now.

A file of the user's own model holds its graph and its settings, which ``keras.saving.load_model`` follows, while the
comparison runs the function. If the function has changed since, a verdict on it would not hold for the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from wdport.model import Document, KerasModel

_IGNORED: Final = frozenset({"seed", "shared_object_id", "compile_config", "build_config"})
"""Keys whose values do not change what a trained model computes, or that repeat its shapes."""

_ABSENT: Final = object()


def description(model: KerasModel) -> Document:
    """What Keras writes as ``config.json`` for this model."""
    import keras

    document: dict[str, object] = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    return document


def first_difference(saved: Document, now: Document, same_release: bool) -> str:
    """The first difference between two descriptions, in words; "" if there is none.

    Keys that only one of them has count if both come from the same release of Keras.
    """
    return next(_differences(saved, now, "", same_release), "")


def _differences(saved: object, now: object, layer: str, strict: bool, key: str = "") -> Iterator[str]:
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        layer = _name(saved) or layer
        for name in dict.fromkeys((*saved, *now)):
            one, other = saved.get(name, _ABSENT), now.get(name, _ABSENT)
            if name not in _IGNORED and (strict or _ABSENT not in (one, other)):
                yield from _differences(one, other, layer, strict, name)
    elif isinstance(saved, list) and isinstance(now, list):
        names = [[_name(element) for element in side] for side in (saved, now)]
        for index, (ours, theirs) in enumerate((names, names[::-1])):
            if unmatched := [name for name in ours if name and name not in theirs]:
                yield f"layer {unmatched[0]} is only in {'what it makes now' if index else 'the file'}"
                return
        if len(saved) != len(now):
            yield _sentence(layer, key, saved, now)
            return
        for one, other in zip(saved, now, strict=True):
            yield from _differences(one, other, layer, strict, key)
    elif saved != now or type(saved) is not type(now):
        yield _sentence(layer, key, saved, now)


def _name(value: object) -> str:
    """The name of a described layer; "" for anything else."""
    if not isinstance(value, Mapping) or "class_name" not in value or str(value["class_name"]).endswith("Policy"):
        return ""
    inner = value.get("config")
    return str(inner.get("name") or "") if isinstance(inner, Mapping) else ""


def _sentence(layer: str, key: str, saved: object, now: object) -> str:
    where = f"layer {layer} has {key}" if layer else f"it has {key}"
    return f"{where} {_short(saved)} in the file and {_short(now)} now"


def _short(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."
