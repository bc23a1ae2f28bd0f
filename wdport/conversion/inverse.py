"""Convert a converted file back to the tensors of its checkpoint, by the inverse rules.

The model does not contain tables that the conversion checked and tensors that it dropped. They are taken from the
checkpoint if it is given; otherwise tables are recomputed, and dropped tensors are left out. Values get the
checkpoint's dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from wdport.base.errors import MisfitError
from wdport.checkpoint import Checkpoint, open_checkpoint
from wdport.conversion.load import Converted, sound_variables
from wdport.conversion.manifest_schema import Account, Manifest
from wdport.conversion.prepare import Settings, planned, prepared_from
from wdport.conversion.rounding import typed
from wdport.mapping.moves import Plan
from wdport.mapping.table import Table, choose_table
from wdport.models.interface import Array


@dataclass(frozen=True)
class Restored:
    """The tensors of a checkpoint by name, in its order.

    ``recomputed`` are tables computed by a formula, equal to the checkpoint's within their tolerance; ``left_out`` maps
    names to the reason for which the conversion dropped them; ``chosen`` are those that arithmetic does not restore bit
    for bit: see :mod:`wdport.mapping.rearrange`. ``prefixes`` of the checkpoint's names are left out, as the module's
    names have none. ``plan`` is the conversion's, ``key`` the entry of the checkpoint that held the weights.
    """

    tensors: Mapping[str, Array]
    recomputed: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    plan: Plan | None = None
    key: str | None = None


def restored(
    converted: Converted, table: Table | None = None, like: Path | None = None, key: str | None = None
) -> Restored:
    """Return every tensor of the checkpoint that ``converted`` was made from, in the form of ``like`` if given.

    Args:
        converted: the converted file, or a file that Keras saved after more training, which needs ``like``.
        table: the user's own table, if no shipped one was used.
        like: the checkpoint, or another of the same model.
        key: the entry of ``like`` that holds the weights.

    Raises:
        MisfitError: the file does not describe the checkpoint, or ``like`` belongs to another model.
    """
    variables = dict(sound_variables(converted))
    if like is None:
        return _by_manifest(converted, table, variables)
    with open_checkpoint(like, key=key, likely=converted.source_key) as checkpoint:
        return _by_checkpoint(converted, table, variables, checkpoint)


def _by_manifest(converted: Converted, table: Table | None, variables: Mapping[str, Array]) -> Restored:
    if converted.account is None:
        fix = "give the checkpoint that it was made from, or another of the same class and sizes, with `--like`"
        raise MisfitError(converted.path, "was saved by Keras and does not describe the checkpoint", fix)
    manifest = cast("Manifest", converted.account.manifest)
    constants = converted.family.constants(converted.config)
    shapes = {entry["source"]: tuple(entry["shape"]) for entry in manifest["tensors"]}
    shapes |= {entry["source"]: constants[entry["constant"]].shape for entry in manifest["checks"]}
    shapes |= {name: shapes[same] for name, same in manifest["ties"].items()}
    # The manifest has no shapes of dropped tensors; the plan only needs their names.
    shapes |= dict.fromkeys(manifest["drops"], ())
    # The same plan as at the conversion, made again from names and shapes: its rules then run backwards.
    table = table or choose_table(shapes, converted.path)
    _require_table(converted.account, table, converted.path)
    plan, _ = planned(converted.path, table, converted.family, converted.config, shapes)
    dtypes = {entry["source"]: entry["dtype"] for entry in manifest["tensors"]}
    dtypes |= {name: dtypes[same] for name, same in manifest["ties"].items()}
    tensors = _inverted(converted.path, plan, variables, dtypes)
    tables = {name: typed(constants[constant].values, "float32") for name, constant in plan.checks.items()
              if name not in tensors}  # fmt: skip
    prefixes = tuple(manifest["source"]["prefixes"])
    return Restored({**tensors, **tables}, tuple(tables), dict(plan.drops), _chosen(plan), prefixes, plan,
                    manifest["source"]["key"])  # fmt: skip


def _by_checkpoint(
    converted: Converted, table: Table | None, variables: Mapping[str, Array], checkpoint: Checkpoint
) -> Restored:
    what, fix = f"does not belong to the model in {converted.path.name}", "give a checkpoint of it"
    if table is None and choose_table(checkpoint.tensors, checkpoint.path).family != converted.family.name:
        raise MisfitError(checkpoint.path, what, fix)
    settings = Settings(
        known=asdict(converted.config), mapping=table.path if table else None, own=converted.family if table else None
    )
    try:
        prepared = prepared_from(checkpoint, settings)
    except MisfitError as error:
        if table is not None:
            raise
        # The configuration is that of the model, so the user cannot correct it, as the message advises.
        raise MisfitError(checkpoint.path, f"{what}: {error.what}", fix, error.details) from None
    dtypes = {name: info.dtype for name, info in checkpoint.tensors.items()}
    tensors = _inverted(converted.path, prepared.plan, variables, dtypes)
    plan = prepared.plan
    rest = {name: typed(checkpoint.read(name), dtypes[name]) for name in (*plan.checks, *plan.drops)}
    every = {**tensors, **rest}
    # In the checkpoint's order: `named_parameters` and the optimizer's indices depend on it.
    return Restored({name: every[name] for name in checkpoint.tensors}, chosen=_chosen(plan),
                    prefixes=checkpoint.prefixes, plan=plan, key=checkpoint.key)  # fmt: skip


def _require_table(account: Account, table: Table, path: Path) -> None:
    if table.sha256 != account.mapping.sha256:
        fix = "give the table that converted it with `--mapping`, or the checkpoint with --like"
        raise MisfitError(path, f"was converted with another {account.mapping.name} than {table.path}", fix)


def _inverted(path: Path, plan: Plan, variables: Mapping[str, Array], dtypes: Mapping[str, str]) -> dict[str, Array]:
    if changed := plan.changed_fills(variables.__getitem__):
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        what = f"does not hold {changed[0].fill} any more{more}, and the PyTorch model has no tensor for it"
        fix = "give the PyTorch layer this tensor and the table a row for it, or set trainable = False before training"
        raise MisfitError((path, changed[0].target), what, fix)
    return {name: typed(array, dtypes[name]) for name, array in plan.invert(variables.__getitem__)}


def _chosen(plan: Plan) -> tuple[str, ...]:
    return tuple(name for move in plan.moves if not move.exact for name in move.sources)
