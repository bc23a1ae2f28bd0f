"""`wdport train`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import click

from wdport.cli.completion import SERIES, File
from wdport.cli.devices import parse_devices
from wdport.cli.documents import require_document
from wdport.cli.failures import leave
from wdport.cli.machine import require_jax
from wdport.cli.options import parse_values
from wdport.cli.requests import request_of, request_options
from wdport.cli.trained import Wanted, is_checkpoint, run
from wdport.cli.verb import Verb
from wdport.errors import UsageError, WdportError
from wdport.files.inputs import InputFiles
from wdport.training.folder import FILES, require_run_folder


@click.command(name="train", cls=Verb)
@click.argument("data", type=File([*SERIES, ".npy"]))
@request_options(Wanted)
def command(data: str, **options: Any) -> int:
    """Train a model on DATA: a series, whose windows are taken, or clean states (n, *shape) in an .npy file.

    Writes model.keras, metrics.csv and the state of the run to a folder. Run the same command again to continue an
    interrupted run; its losses are those of an uninterrupted one. A run with another model, other data or other options
    is refused.
    """
    wanted = request_of(Wanted, options, data=Path(data), folder=Path(options["folder"]),
                        values=parse_values(options["values"]))  # fmt: skip
    chosen, join = parse_devices(wanted.devices, wanted.distributed)
    if wanted.shard_weights and chosen is None:
        raise UsageError("--shard-weights", "needs several devices", "add --devices all")
    _require_positive({"--lr": wanted.lr, "--clip": wanted.clip, "--ema": wanted.ema, "--min-snr": wanted.min_snr})
    for option, value in (("--weight-decay", wanted.weight_decay), ("--energy", wanted.energy)):
        if value is not None and not (isfinite(value) and value >= 0.0):
            raise UsageError(option, f"is {value:g}", "give a number from 0")
    _require_begun(wanted)
    inputs = InputFiles(model=wanted.resume, data=data, mapping=wanted.mapping, config=wanted.config,
                        condition=wanted.condition)  # fmt: skip
    inputs.with_manifests("model").with_experiment("model")
    require_run_folder(wanted.folder, inputs)
    outputs = {f"-o, {name}": wanted.folder / name for name in FILES}
    document = require_document(wanted.json_file, inputs, outputs, wanted.force)
    require_jax()
    try:
        join()  # before the model is read: a builder of the user's own may use JAX
        _require_readable(wanted, inputs)
        run(wanted, inputs, chosen, document)
    except WdportError as error:
        if wanted.distributed is None:
            raise
        leave(error)
    return 0


def _require_begun(wanted: Wanted) -> None:
    """Raise :class:`UsageError` unless it is known what is trained, and the options are for that."""
    if wanted.resume is None and wanted.config is None:
        raise UsageError("--resume", "is missing", "give a converted model, a checkpoint, or --config for a new model")
    if wanted.resume is not None and not is_checkpoint(wanted.resume):
        for option, value in (("--config", wanted.config), ("--set", wanted.values), ("--key", wanted.key),
                              ("--no-config", wanted.no_config)):  # fmt: skip
            if value:
                raise UsageError(option, "is for a checkpoint or a new model", "leave it out: a model is resumed")
    if wanted.resume is None and wanted.no_config:
        raise UsageError("--no-config", "is for a checkpoint", "leave it out, or add --resume CHECKPOINT")
    if wanted.resume is None and wanted.mapping:
        raise UsageError("--mapping", "is for a converted model", "add --resume MODEL")
    if wanted.recipe is not None:
        parts = {"--lr": wanted.lr, "--schedule": wanted.schedule, "--clip": wanted.clip,
                 "--weight-decay": wanted.weight_decay, "--min-snr": wanted.min_snr}  # fmt: skip
        for option, part in parts.items():
            if part is not None:
                raise UsageError(option, f"is part of the {wanted.recipe} recipe", "leave out one of the two")
    if wanted.warmup is not None and wanted.schedule not in (None, "cosine"):
        raise UsageError("--warmup", f"is for the cosine schedule, not {wanted.schedule}", "leave it out")


def _require_readable(wanted: Wanted, inputs: InputFiles) -> None:
    """Check the model before JAX is imported; raises :class:`WdportError`."""
    from wdport.checkpoint.known import require_sha256
    from wdport.conversion.load import open_converted
    from wdport.conversion.optimiser_file import optimiser_beside
    from wdport.families.choice import own_model

    if wanted.resume is None:
        return
    inputs.check(partial(require_sha256, wanted.resume, wanted.sha256))
    if is_checkpoint(wanted.resume):
        return
    open_converted(wanted.resume, own_model(wanted.mapping, wanted.function, None, ()))
    beside = optimiser_beside(Path(wanted.resume))
    if beside.is_file() and wanted.schedule is not None:
        raise UsageError("--schedule", f"is for a new optimizer, and {beside.name} is used", "leave it out")


def _require_positive(options: Mapping[str, float | None]) -> None:
    for option, value in options.items():
        most = 1.0 if option == "--ema" else inf
        if value is not None and not (0.0 < value < most):
            raise UsageError(option, f"is {value:g}", "give a number above 0" + (" and below 1" if most == 1.0 else ""))
