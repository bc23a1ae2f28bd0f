"""Open a checkpoint with the user's settings, and determine its configuration and its plan.

Known wrapper prefixes are removed when the names are read.

All faults that names, shapes and four small tables show are refused here, before any weight is read and without
importing keras, jax or torch. `convert` and `verify` both start here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wdport.base.errors import InputError, MisfitError
from wdport.base.limits import MAX_KEPT_BYTES
from wdport.base.options import PathText
from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.checkpoint.faults import SPLIT_COMPLEX
from wdport.checkpoint.foreign import foreign_tensors
from wdport.checkpoint.model_folder import read_adjacent, read_config
from wdport.checkpoint.regular_file import read_option
from wdport.checkpoint.tensor import HALF_ROUNDING
from wdport.families.registry import family_of, find_family
from wdport.families.roles import Accompanied, ConfiguredBeside, Family, KeptByKeras, OwnFamily
from wdport.mapping.axes import Shape
from wdport.mapping.moves import digest_of
from wdport.mapping.names import PatternIndex
from wdport.mapping.plan import Misfits, Plan, make_plan
from wdport.mapping.prefixes import common_prefix
from wdport.mapping.strict_yaml import load_yaml, read_yaml
from wdport.mapping.table import Table, choose_table, load_table
from wdport.mapping.ties import needed_names
from wdport.models.interface import Array, ConfigurationSource, Constant, Resolved, Signature, Stated


def use_prefix(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Remove a prefix that the table's names lack, or add one that they have; return a sentence about it, or
    nothing."""
    if (prefix := common_prefix(table, checkpoint.tensors)) is None:
        return ()
    count, total = len(prefix.names), len(checkpoint.tensors)
    some = "every name" if count == total else f"{count} of {total} names"
    if prefix.missing:
        checkpoint.give_names(prefix.names)
        lack = "lacks" if count == total else "lack"
        return (f"{some} {lack} the table's prefix '{prefix.text}', which is added",)
    if count == total:
        checkpoint.leave_out(prefix.text)
    else:
        checkpoint.give_names(prefix.names)
    has = "has" if count == total else "have"
    return (f"{some} {has} the prefix '{prefix.text}', which is removed",)


def use_new_names(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Rename modules and tensors that have a former name in the table; return a sentence about it, or nothing.

    A tensor keeps its old name, which no row claims, if another tensor already has the new one.
    """
    formerly = [pair for row in table.taps for pair in row.formerly]
    index, renamed = PatternIndex(was for was, _ in formerly), dict[str, str]()
    for name in checkpoint.tensors:
        module, dot, last = name.rpartition(".")
        # The name of a tensor, such as gamma, or that of a submodule, whose tensors keep their last part.
        for position, indices, rest in [*((*hit, "") for hit in index.find(name)),
                                        *((*hit, dot + last) for hit in index.find(module))]:  # fmt: skip
            now = f"{formerly[position][1].format(indices)}{rest}"
            if now not in checkpoint.tensors and now not in renamed.values():
                renamed[name] = now
    if not renamed:
        return ()
    checkpoint.give_names(renamed)
    first, now = next(iter(renamed.items()))
    return (f"{len(renamed)} tensors have former names and are renamed, such as {first} to {now}",)


def use_ties(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Give a tied tensor the name that the table ties it to, if the file leaves that name out; return sentences about
    it."""
    # A file of safetensors.torch.save_model states all names of a tensor; the table need not have rows for all of them.
    index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
    stated = [name for name, info in checkpoint.tensors.items() if info.stored_name in checkpoint.omitted]
    checkpoint.forget([name for name in stated if not index.find(name)])
    # Whether a row with a feature applies is known only from the configuration.
    rows = [row for row in table.rows if row.when is None]
    names = needed_names(rows, checkpoint.tensors)
    for name, present in names.items():
        checkpoint.also_name(present, name)
    return tuple(f"{name} is not in the file; the table ties it to {present}" for name, present in names.items())


def adapt_names(checkpoint: Checkpoint, table: Table) -> tuple[str, ...]:
    """Rename the checkpoint's tensors as the table names them; return sentences about it."""
    steps = (use_prefix, use_new_names, use_ties)
    parts = checkpoint.parts
    joined = f"names are joined with dots: the file has a table for {_listed(parts)}" if parts else ""
    return (*filter(None, [joined]), *(note for step in steps for note in step(checkpoint, table)))


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:_SHOWN]) + (", ..." if len(parts) > _SHOWN else "")


_SHOWN = 4


_MOVE = "correct it, or move it out of the folder"


@dataclass(frozen=True)
class Settings:
    """The user's settings for a checkpoint: a configuration file, single values, a table, a key.

    ``strict`` refuses any assumption. ``units`` are the
    :meth:`~wdport.uses.data.units.Units.flags` of the data. ``known`` is a complete
    configuration, as a converted file contains it, instead of a configuration file and the configuration stored in the
    checkpoint. ``model``, ``reference`` and ``inputs`` are for the user's own model: functions that build it in
    Keras and in PyTorch, as ``module:name``, and its inputs, if the table does not state them; ``own`` is all of this
    with its table, if it was read before. ``shapes`` means that only the shapes of the variables of a user's own model
    are needed, so that no memory is allocated for their values. Without ``beside`` a training
    configuration next to the checkpoint is not read. ``likely`` is the key of a file with several, where
    ``key`` is not given.
    """

    config: PathText | None = None
    values: Mapping[str, str] | None = None
    mapping: PathText | None = None
    key: str | None = None
    strict: bool = False
    units: Mapping[str, object] | None = None
    known: Mapping[str, object] | None = None
    model: str | None = None
    reference: str | None = None
    inputs: Sequence[str] = ()
    own: Family | None = None
    shapes: bool = False
    beside: bool = True
    likely: str | None = None


@dataclass(frozen=True)
class TableComparison:
    """Comparison of one constant tensor with its recomputed values: largest absolute difference and its bound."""

    source: str
    constant: str
    error: float | None
    tolerance: float | None


@dataclass(frozen=True)
class Prepared:
    """An open checkpoint with a plan that accounts for every tensor; ``stated`` is its configuration as it is written,
    if that is known."""

    checkpoint: Checkpoint
    table: Table
    family: Family
    resolved: Resolved
    plan: Plan
    constants: Mapping[str, Constant]
    comparisons: tuple[TableComparison, ...]
    variables: Mapping[str, Shape] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stated: Stated | None = None

    @property
    def config(self) -> Any:
        """The configuration, of the family's type."""
        return self.resolved.config

    @cached_property
    def kept(self) -> dict[str, bytes]:
        """Files next to the checkpoint that the family's models keep, by name; raises :class:`InputError`."""
        path, names = self.checkpoint.path, self.family.kept if isinstance(self.family, Accompanied) else ()
        folder = path if path.is_dir() else path.parent
        return {name: read_option(folder / name, MAX_KEPT_BYTES, _MOVE) for name in names if (folder / name).is_file()}

    @property
    def recomputed(self) -> tuple[str, ...]:
        """Tensors whose stored values are ruined by 16-bit storage and which are recomputed instead."""
        checkpoint = self.checkpoint.tensors
        return tuple(
            c.source
            for c in self.comparisons
            if checkpoint[c.source].dtype in HALF_ROUNDING and c.tolerance is not None
        )


@contextmanager
def prepare(path: PathText, settings: Settings) -> Iterator[Prepared]:
    """Open ``path`` and plan its conversion; closes the file on exit.

    Raises ``InputError`` for an invalid file, ``MisfitError`` if table, configuration and file do not fit.
    """
    with open_checkpoint(Path(path), key=settings.key, likely=settings.likely) as checkpoint:
        yield prepared_from(checkpoint, settings)


def prepared_from(checkpoint: Checkpoint, settings: Settings) -> Prepared:
    """Prepare an open checkpoint, removing a name prefix that the table lacks; raises as :func:`prepare` does."""
    prepared = planned_from(checkpoint, settings)
    return replace(prepared, comparisons=_compare(checkpoint, prepared.plan, prepared.constants))


def planned_from(checkpoint: Checkpoint, settings: Settings) -> Prepared:
    """Plan without comparing the checked tables: only tensor headers are read, and what a family needs to determine its
    configuration."""
    table = load_table(Path(settings.mapping)) if settings.mapping else None
    try:
        table = table or choose_table(checkpoint.tensors, checkpoint.path)
        return _planned_from(checkpoint, settings, table)
    except MisfitError as error:
        index = PatternIndex(pattern for row in table.rows for pattern in row.torch) if table else None
        if kind := foreign_tensors(name for name in checkpoint.tensors if not (index and index.find(name))):
            raise MisfitError(checkpoint.path, kind.what, kind.fix, error.details) from None
        if checkpoint.parts:
            fix = f"correct the table, or give one part of the file with `--key`: {_listed(checkpoint.parts)}"
            raise MisfitError(error.where, error.what, fix, error.details) from None
        raise


def _planned_from(checkpoint: Checkpoint, settings: Settings, table: Table) -> Prepared:
    notes = [*adapt_names(checkpoint, table)]
    _require_real(checkpoint, table)
    family = settings.own or family_of(table, settings.model, settings.reference, settings.inputs)
    if settings.mapping:
        # First: building a user's model may take long, and its message would not name the table.
        _require_its_model(table, checkpoint)
    if (configured := _configured(checkpoint, family, settings)) is not None:
        notes.append(f"configuration from {configured[1].name} next to the checkpoint")
    resolved = _resolve(checkpoint, family, settings, configured)
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    if settings.shapes and isinstance(family, KeptByKeras):
        variables = family.outline(resolved.config)
    else:
        variables = family.variables(resolved.config)
    plan, constants = planned(checkpoint.path, table, family, resolved.config, shapes, variables)
    if isinstance(family, OwnFamily):
        notes += family.remarks()
    return Prepared(checkpoint, table, family, resolved, plan, constants, (), variables, tuple(notes))


def _require_real(checkpoint: Checkpoint, table: Table) -> None:
    """Refuse a complex tensor that the table does not drop: no rule converts it."""
    dropped = PatternIndex(pattern for row in table.rows if row.drop is not None for pattern in row.torch)
    for name, info in checkpoint.tensors.items():
        if info.dtype.startswith("complex") and not dropped.find(name):
            what = f"has dtype {info.dtype}, which no row converts"
            raise InputError((checkpoint.path, name), what, SPLIT_COMPLEX)


def _require_its_model(table: Table, checkpoint: Checkpoint) -> None:
    """Refuse a table named by the user that matches no tensor, with or without prefixes, before a model is built."""
    index = PatternIndex(pattern for row in table.rows for pattern in row.torch)
    if not any(index.find(part) for name in checkpoint.tensors for part in _without_prefixes(name)):
        what = f"is for another model: it names none of the {len(checkpoint.tensors)} tensors"
        raise MisfitError(Path(table.path), f"{what} in {checkpoint.path.name}", "give this model's table")


def _without_prefixes(name: str) -> list[str]:
    """Return the name, and the name without its first part, its first two parts, and so on."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def signature_of(path: PathText, settings: Settings) -> Signature:
    """Return the inputs and outputs of a checkpoint's network, by its family; raises as :func:`prepare` does, but uses
    only names, shapes and configuration."""
    with open_checkpoint(Path(path), key=settings.key, likely=settings.likely) as checkpoint:
        table = choose_table(checkpoint.tensors, checkpoint.path)
        family = find_family(table.family, table.path)
        configured = _configured(checkpoint, family, settings)
        return family.signature(_resolve(checkpoint, family, settings, configured).config)


def planned(
    path: Path,
    table: Table,
    family: Family,
    config: object,
    shapes: Mapping[str, Shape],
    variables: Mapping[str, Shape] | None = None,
) -> tuple[Plan, Mapping[str, Constant]]:
    """Return the plan for tensors with these names and shapes, and the family's constants; raises
    :class:`MisfitError`."""
    constants = family.constants(config)
    constant_shapes = {name: constant.shape for name, constant in constants.items()}
    targets = family.variables(config) if variables is None else variables
    plan = make_plan(table, shapes, targets, constant_shapes, family.features(config))
    if isinstance(plan, Misfits):
        hint = getattr(family, "hint", None)  # of a user's own model
        if hint:
            add = f"{plan.row}, or correct the Keras model" if plan.row else _OWN
            # Libraries, such as transformers, load files with other names than those of their classes.
            add = _RENAMED if _with_other_names(plan.faults) else add
            raise _misfit(path, table, plan.faults, (plan.sized and hint(config)) or add)
        raise _misfit(path, table, plan.faults, _dropping(table, plan.unexpected) if plan.unexpected else _FIX)
    return plan, constants


def _resolve(
    checkpoint: Checkpoint, family: Family, settings: Settings, configured: tuple[dict[str, object], Path] | None
) -> Resolved:
    stated_values, flags = user_configuration(family, settings)
    if configured is not None:
        stated_values = family.read_settings(*configured)
    configuration = stated_values if settings.config or configured else dict(settings.known or {})
    source = source_of(checkpoint)
    # A complete configuration is that of a converted file; what the checkpoint stores must not change it.
    resolved = family.resolve(replace(source, saved=None) if settings.known else source, configuration, flags)
    if settings.units is not None:
        # Settings that the units add come as flags, but their origin is the data, not the user.
        stated = {"transform", *(settings.values or {})}
        origins = {
            name: "data" if origin == "flag" and name not in stated else origin
            for name, origin in resolved.origins.items()
        }
        resolved = replace(resolved, origins=origins)
    if settings.strict and resolved.assumed:
        assumed = ", ".join(f"{name}={value}" for name, value in resolved.assumed.items())
        fix = "give them with `--config FILE` or `--set NAME=VALUE`, or leave out `--strict`"
        raise MisfitError(checkpoint.path, f"`--strict` rejects assumed values ({assumed})", fix)
    return resolved


def _configured(checkpoint: Checkpoint, family: Family, settings: Settings) -> tuple[dict[str, object], Path] | None:
    """The training configuration next to the checkpoint and its path, if the family reads one and the user gives no
    other."""
    if not settings.beside or settings.config or settings.known:
        return None
    return training_configuration(checkpoint, family)


def training_configuration(checkpoint: Checkpoint, family: Family) -> tuple[dict[str, object], Path] | None:
    """The training configuration next to the checkpoint and its path, if it is one of the family; raises
    :class:`InputError` for a file of that name that cannot be read."""
    if not isinstance(family, ConfiguredBeside) or (config_file := checkpoint.training_config) is None:
        return None
    try:
        document = load_yaml(config_file.data, config_file.path).plain()
    except InputError as error:
        raise InputError(
            config_file.path, error.what, "correct it, move it away, or convert with --no-config"
        ) from None
    return (document, config_file.path) if family.is_configuration(document) else None


def user_configuration(family: Family, settings: Settings) -> tuple[dict[str, object], dict[str, object]]:
    """Return the user's configuration: from a file, and from single values and statistics."""
    config: dict[str, object] = {}
    if settings.config:
        file = Path(settings.config)
        config = family.read_settings(read_yaml(file, "give the training configuration").plain(), file)
    flags = {name: family.parse_setting(str(name), text) for name, text in (settings.values or {}).items()}
    return config, {**flags, **(settings.units or {})}


def source_of(checkpoint: Checkpoint) -> ConfigurationSource:
    """Return what a family may read of a checkpoint."""
    tensors = checkpoint.tensors
    return ConfigurationSource(
        checkpoint.path,
        {name: info.shape for name, info in tensors.items()},
        {name: info.dtype for name, info in tensors.items()},
        checkpoint.read,
        checkpoint.hyper_parameters,
        lambda: _document(checkpoint),
        lambda name: read_adjacent(checkpoint.path, name),
    )


def _document(checkpoint: Checkpoint) -> Mapping[str, object]:
    """Return the configuration in the checkpoint's folder; empty if there is none."""
    if isinstance(checkpoint.config, dict):
        return checkpoint.config
    beside = checkpoint.path.parent / "config.json"
    return read_config(beside) if checkpoint.path.is_file() and beside.is_file() else {}


_FIX = "correct the checkpoint or give a table with `--mapping FILE`"
_OWN = "correct the table, or the Keras model"
_RENAMED = "load it in PyTorch and save the state_dict of the loaded model, whose names are those of the table"


def _with_other_names(faults: Sequence[str]) -> bool:
    """Whether about as many tensors are missing as are unexpected, and those are most of the faults."""
    missing, unexpected = (sum(text.startswith(word) for text in faults) for word in ("missing ", "unexpected "))
    return min(missing, unexpected) >= _SEVERAL and 2 * min(missing, unexpected) >= len(faults) - _SEVERAL


_SEVERAL = 8
"""Tensors with other names from which on a library may have renamed them."""


def _dropping(table: Table, names: Sequence[str]) -> str:
    """Return the lines of a table that leave out tensors that the network does not need."""
    row = f'  - {{torch: {names[0]}, drop: "why"}}'
    return (
        f"if it is not needed, give a table with `--mapping`: `include: [{Path(table.path).stem}]`, `tensors:`, `{row}`"
    )


def _misfit(path: Path, table: Table, faults: tuple[str, ...], fix: str = _FIX) -> MisfitError:
    count = f"{len(faults)} misfits with {table.path}: " if len(faults) > 1 else ""
    return MisfitError(path, f"{count}{faults[0]}", fix, faults)


def _compare(checkpoint: Checkpoint, plan: Plan, constants: Mapping[str, Constant]) -> tuple[TableComparison, ...]:
    """Compare every ``check:`` tensor with its constant, and dropped ones with their digests; raises
    :class:`MisfitError` naming all that differ."""
    other = [name for name, digest in plan.digests.items() if digest_of(checkpoint.read(name)) != digest]
    if other:
        what = f"{other[0]} has other values than the constructor of the PyTorch model, which the Keras model has"
        raise MisfitError(checkpoint.path, what, "build the PyTorch model that the checkpoint is of, and port that")
    comparisons, faults = [], []
    for source, name in plan.checks.items():
        constant = constants[name]
        if constant.tolerance is None:
            comparisons.append(TableComparison(source, name, None, None))
            continue
        stored: Array = checkpoint.read(source).astype(np.float64)
        # A table stored in 16 bits differs by its rounding, and is recomputed anyway.
        relative = HALF_ROUNDING.get(checkpoint.tensors[source].dtype, 0.0)
        difference = np.abs(stored - constant.values)
        error = float(np.max(difference, initial=0.0))
        comparisons.append(TableComparison(source, name, error, constant.tolerance))
        # Negated, so that NaN, which compares false, is a fault.
        if not np.all(difference <= constant.tolerance + relative * np.abs(constant.values)):
            faults.append(
                f"{source} is not {name}: it differs by {error:.1e}, rounding explains at most {constant.tolerance:.0e}"
            )
    if faults:
        raise _misfit(checkpoint.path, plan.table, tuple(faults))
    return tuple(comparisons)
