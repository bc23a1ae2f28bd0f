"""Find an encoder's configuration: shapes determine all of it; given values must agree.

Dilations leave no trace in a file. Block i has 2^i: the public code builds no other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from wdport.errors import MisfitError, UsageError
from wdport.families.ts2vec.config import Config
from wdport.mapping.axes import Shape
from wdport.model import UNITS, Document, Resolved, Source

FIELDS = ("input_dims", "hidden_dims", "output_dims", "depth", "kernel_size")

NAMES = {**{name: name for name in FIELDS}, "repr_dims": "output_dims"}
"""Names of the fields in a configuration file; ``repr_dims`` is that of the public training script."""

_BLOCK = re.compile(r"feature_extractor\.net\.(0|[1-9][0-9]{0,5})\.conv[12]\.conv\.weight")

_OUT = ("conv1.conv", "conv2.conv", "projector")
"""The parts of the last block; each has as many channels as the representation."""


def read_settings(document: Document, where: str | Path) -> dict[str, object]:
    """Read the fields of a configuration file; raises :class:`MisfitError` if it has none, or one of another type.

    Its other settings concern training and are ignored.
    """
    found: dict[str, object] = {}
    for key, name in NAMES.items():
        if key not in document:
            continue
        value = document[key]
        if type(value) is not int:
            raise MisfitError((where, key), f"{str(value)[:40]!r} is not a whole number", "correct the value")
        if found.setdefault(name, value) != value:
            raise MisfitError((where, key), f"is {value}, and {name} is {found[name]}", "keep the right one")
    if not found:
        raise MisfitError(where, "holds no setting of a TS2Vec encoder", "leave it out: shapes determine all of them")
    return found


def parse_setting(key: str, text: str) -> int:
    """The value of one ``--set KEY=VALUE``; raises :class:`UsageError`."""
    if key not in FIELDS:
        raise UsageError("--set", f"unknown name {key[:40]!r}", f"use one of {', '.join(FIELDS)}")
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--set {key}", f"{text[:40]!r} is not a whole number", "give a number") from None


def resolve(source: Source, config: Document, flags: Document) -> Resolved:
    """The configuration; raises :class:`MisfitError` if the file lacks a layer or a given value contradicts it."""
    if any(name in flags for name in UNITS):
        fix = "leave out --norm-stats and --data: normalise the series before encoding"
        raise UsageError("statistics", "a ts2vec encoder keeps none", fix)
    told = from_shapes(source.shapes)
    if lacking := [name for name in FIELDS if told.get(name) is None]:
        what = f"{', '.join(lacking)} cannot be determined from its shapes"
        raise MisfitError(source.path, what, "use a complete checkpoint")
    given = [(name, value, "config") for name, value in config.items()]
    given += [(name, value, "flag") for name, value in flags.items()]
    faults = [f"{name} is {value} in the {origin} but {told.get(name)} in the file"
              for name, value, origin in given if told.get(name) != value]  # fmt: skip
    if faults:
        raise MisfitError(source.path, "; ".join(faults), "correct the value or leave it out", faults)
    try:
        return Resolved(Config.from_dict(told), dict.fromkeys(FIELDS, "shapes"))
    except ValueError as error:
        raise MisfitError(source.path, str(error), "use a checkpoint of this model") from None


def from_shapes(shapes: Mapping[str, Shape]) -> dict[str, int | None]:
    """Every field as determined by the shapes; ``None`` for a field that they do not determine.

    Each size is read from several tensors and the most frequent value is used, so that a single wrong tensor is
    reported by the plan and does not change the configuration.
    """
    last = _contiguous(int(found[1]) for name in shapes if (found := _BLOCK.fullmatch(name))) - 1
    first, end = "feature_extractor.net.0.conv", f"feature_extractor.net.{last}"
    kernels = [shape[2] for name, shape in shapes.items() if _BLOCK.fullmatch(name) and len(shape) == 3]
    return {
        "input_dims": _most(shapes, ("input_fc.weight", 1)),
        "hidden_dims": _most(shapes, ("input_fc.bias", 0), ("input_fc.weight", 0), (f"{first}1.conv.weight", 1)),
        "output_dims": _most(shapes, *((f"{end}.{part}.bias", 0) for part in _OUT)),
        "depth": last if last >= 0 else None,
        "kernel_size": Counter(kernels).most_common(1)[0][0] if kernels else None,
    }  # fmt: skip


def _contiguous(numbers: Iterable[int]) -> int:
    """The count of consecutive numbers from 0: a stray name does not make a model larger."""
    found = set(numbers)
    return next(i for i in range(len(found) + 1) if i not in found)


def _most(shapes: Mapping[str, Shape], *places: tuple[str, int]) -> int | None:
    """The most frequent size among these tensors' axes."""
    sizes = [shapes[name][axis] for name, axis in places if len(shapes.get(name, ())) > axis]
    return Counter(sizes).most_common(1)[0][0] if sizes else None
