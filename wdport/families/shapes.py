"""The configuration that the names and shapes of a checkpoint's tensors determine; the rest is given, or has a
default."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from wdport.errors import MisfitError, UsageError, did_you_mean
from wdport.fields import Fields, fields_of
from wdport.mapping.axes import Shape
from wdport.model import UNITS, ConfigurationSource, Document, Resolved

Shapes = Mapping[str, Shape]

NUMBER: Final = "(0|[1-9][0-9]{0,5})"
"""Pattern of an index in a tensor's name."""

_INDEX: Final = re.compile(rf"\.{NUMBER}\.")


def size(shapes: Shapes, name: str, axis: int) -> int | None:
    """The size of an axis of a tensor; ``None`` if there is no such tensor or axis."""
    shape = shapes.get(name, ())
    return shape[axis] if axis < len(shape) else None


def most_frequent(sizes: Iterable[int | None]) -> int | None:
    """The most frequent of the sizes that are known, so that a single wrong tensor is reported by the plan and does not
    change the configuration."""
    counts = Counter(dimension for dimension in sizes if dimension is not None)
    return counts.most_common(1)[0][0] if counts else None


def consecutive(indices: Iterable[int]) -> int:
    """The count of consecutive numbers from 0: a stray name does not make a model larger."""
    index_set = set(indices)
    return next(i for i in range(len(index_set) + 1) if i not in index_set)


def count(shapes: Shapes, prefix: str) -> int:
    """The count of blocks after ``prefix``."""
    matches = (_INDEX.match(name, len(prefix)) for name in shapes if name.startswith(prefix))
    return consecutive(int(match[1]) for match in matches if match)


def any_below(shapes: Shapes, prefix: str) -> bool:
    """Whether the name of a tensor begins with ``prefix``."""
    return any(name.startswith(prefix) for name in shapes)


C = TypeVar("C", bound=Fields)


def read_fields(configuration: type[Fields], document: Document, where: str | Path) -> dict[str, object]:
    """The fields in a configuration file, by name; raises :class:`MisfitError` for an unknown name or a wrong value."""
    declared = fields_of(configuration)
    values: dict[str, object] = {}
    for name, value in document.items():
        if name not in declared:
            fix = did_you_mean(str(name), declared, f"use some of {', '.join(declared)}")
            raise MisfitError((where, name), "is not a field of this model's configuration", fix)
        try:
            values[name] = declared[name].checked(value, configuration.wording)
        except ValueError as error:
            raise MisfitError(where, str(error), "correct the value") from None
    return values


def resolve_fields(
    configuration: type[C],
    source: ConfigurationSource,
    sizes: Mapping[str, object],
    config: Document,
    flags: Document,
    model: str,
) -> Resolved:
    """The configuration of ``sizes``, which the shapes determine, and of given values.

    Args:
        configuration: the dataclass of the fields.
        source: the checkpoint.
        sizes: a value of every field that the shapes should determine; ``None`` if these shapes do not.
        config: values from a configuration file.
        flags: single values.
        model: what the model is, for errors: "an encoder".

    Raises:
        MisfitError: a size or a required field is not known, a given value contradicts the shapes, or a value is
            invalid.
        UsageError: statistics are given, which the model has no place for.
    """
    if any(name in flags for name in UNITS):
        fix = "leave out `--norm-stats` and `--data`: normalise the series before encoding"
        raise UsageError("statistics", f"{model} keeps none", fix)
    require_determined(sizes, source.path)
    stated = [(name, value, "config") for name, value in config.items()]
    stated += [(name, value, "flag") for name, value in flags.items()]
    if faults := contradicted(stated, sizes):
        raise MisfitError(source.path, "; ".join(faults), "correct the value or leave it out", faults)
    values: dict[str, Any] = {**{name: value for name, value, _ in stated}, **sizes}
    origins = {**{name: origin for name, _, origin in stated}, **dict.fromkeys(sizes, "shapes")}
    try:
        resolved = configuration.from_dict(values)
    except ValueError as error:
        fix = "use a checkpoint of this model" if not stated else "give the right values with `--config` or `--set`"
        raise MisfitError(source.path, str(error), fix) from None
    return Resolved(resolved, {name: origins.get(name, "assumed") for name in fields_of(configuration)})


def require_determined(sizes: Mapping[str, object], path: Path) -> None:
    """Raise :class:`MisfitError` if the shapes do not determine a size that they should."""
    if lacking := [name for name, value in sizes.items() if value is None]:
        what = f"{', '.join(lacking)} cannot be determined from its shapes"
        raise MisfitError(path, what, "use a complete checkpoint")


def contradicted(stated: Iterable[tuple[str, object, str]], sizes: Mapping[str, object]) -> list[str]:
    """Faults of ``stated`` fields, each with its value and its origin, that are not what the file has."""
    return [f"{name} is {value} in the {origin} but {sizes[name]} in the file"
            for name, value, origin in stated if name in sizes and sizes[name] != value]  # fmt: skip
