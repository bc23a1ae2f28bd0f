"""`wdport train`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import click

from wdport.cli.completion import CHECKPOINTS, CONVERTED, SERIES, File, Folder
from wdport.cli.devices import parse_devices
from wdport.cli.documents import json_option, require_document
from wdport.cli.failures import leave
from wdport.cli.machine import require_jax
from wdport.cli.options import (
    TABLE,
    key_option,
    no_config_option,
    own_mapping_option,
    own_model_option,
    parse_values,
    sha256_option,
)
from wdport.cli.trained import Wanted, is_checkpoint, run
from wdport.cli.verb import OneOf, Verb, Whole
from wdport.dtype_policies import POLICIES
from wdport.errors import UsageError, WdportError
from wdport.files.inputs import InputFiles
from wdport.model import PUBLIC, SCHEDULES
from wdport.training.folder import FILES, require_run_folder


@click.command(name="train", cls=Verb)
@click.argument("data", type=File([*SERIES, ".npy"]))
@click.option("--resume", metavar="MODEL|CHECKPOINT", type=File([*CONVERTED, *CHECKPOINTS]), help="Converted model to "
              "train, with its optimizer (convert --with-optimizer) if that is beside it; or a PyTorch "
              "checkpoint.")  # fmt: skip
@click.option("--config", metavar="FILE", type=TABLE, help="Training configuration (YAML): of CHECKPOINT, or, without "
              "--resume, of a new model.")  # fmt: skip
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="One configuration value; repeatable.")
@click.option("-o", "--output", required=True, metavar="FOLDER", type=Folder(),
              help="Folder of the run; an unfinished run in it resumes.")  # fmt: skip
@click.option("--transform", metavar="NAME", help="How windows are made of DATA: zscore, log1p-volume, ohlc-atr, or "
              "your own MODULE:CLASS.  [default: the model's; of a new one z-scores]")  # fmt: skip
@click.option("--condition", metavar="FILE", type=File([".npy"]), help="The condition of every state (n, ...), for a "
              "model that takes one.  [default: from DATA, of prices]")  # fmt: skip
@click.option("--recipe", type=OneOf([PUBLIC]), metavar="public", help="Train as the model's public script: steps "
              "drawn by the Min-SNR law, OneCycle to 1e-3 or the file's cosine_warmup, weight decay 1e-5, gradients "
              "clipped at 1.")  # fmt: skip
@click.option("--epochs", type=Whole(1, 1 << 24), help="Epochs in all.  [default: --config's, or 1]")
@click.option("--batch-size", type=Whole(1, 1 << 20), help="States in a step.  [default: --config's, or 32]")
@click.option("--lr", type=float, metavar="RATE", help="Learning rate.  [default: the optimizer's schedule; of a new "
              "one --config's, or 1e-4]")  # fmt: skip
@click.option("--schedule", type=OneOf(SCHEDULES), help="Of a new optimizer: constant, onecycle or cosine, with --lr "
              "as the largest rate.  [default: --config's, or constant]")  # fmt: skip
@click.option("--warmup", type=Whole(1, 1 << 32), metavar="N", help="Steps in which a cosine schedule's rate rises.")
@click.option("--weight-decay", type=float, help="AdamW's weight decay.  [default: the optimizer's, or 0.01]")
@click.option("--clip", type=float, metavar="NORM", help="Clip gradients to this norm over all variables.")
@click.option("--ema", type=float, metavar="DECAY", help="Also keep a moving average of the weights, such as 0.999.")
@click.option("--min-snr", type=float, metavar="GAMMA", help="Min-SNR weighting, such as 5.")
@click.option("--energy", type=float, help="Weight of an energy term.  [default: --config's, or 0]")
@click.option("--dtype", type=OneOf([name for name in POLICIES if name != "bfloat16"]), default="float32",
              show_default=True, help="Keras dtype policy of the "
              "network. With mixed_bfloat16 it computes in bfloat16; weights, noise and transform are "
              "float32.")  # fmt: skip
@click.option("--seed", type=Whole(0, (1 << 31) - 1), default=0, show_default=True,
              help="Random seed of order, noise, times, dropout, and the weights of a new model.")  # fmt: skip
@click.option("--save-every", type=Whole(1, 1 << 32), metavar="N", help="Save the state every N steps, too.  "
              "[default: after every epoch]")  # fmt: skip
@click.option("--stream/--no-stream", default=None, help="Read the data batch by batch, or keep them on the device.  "
              "[default: by their size]")  # fmt: skip
@click.option("--devices", metavar="all|N", help="Divide every batch among all devices, or the first N.  [default: 1]")
@click.option("--distributed", metavar="HOST:PORT,I/N", help="Run as process I (0 to N-1) of N that share every batch; "
              "process 0 listens at HOST:PORT and writes the files. Or auto, as under Slurm.")  # fmt: skip
@click.option("--shard-weights", is_flag=True, help="Also divide weights and moments among the devices.")
@click.option("--orbax", is_flag=True, help="Save the state as an Orbax checkpoint, of which every process writes its "
              "part.")  # fmt: skip
@click.option("--tensorboard", is_flag=True, help="Also write the metrics as events for TensorBoard.")
@click.option("--force", is_flag=True, help="Start again in a folder with another run, and replace --json's file.")
@own_mapping_option
@own_model_option
@key_option
@no_config_option
@sha256_option
@json_option
def command(
    data: str, output: str, sha256: str | None, json_file: str | None, pairs: tuple[str, ...],
    devices: str | None, distributed: str | None, **options: Any,
) -> int:  # fmt: skip
    """Train a model on DATA: a series, whose windows are taken, or clean states (n, *shape) in an .npy file.

    Writes model.keras, metrics.csv and the state of the run to a folder. Run the same command again to continue an
    interrupted run; its losses are those of an uninterrupted one. A run with another model, other data or other options
    is refused.
    """
    wanted = Wanted(data=Path(data), folder=Path(output), values=parse_values(pairs), **options)
    chosen, join = parse_devices(devices, distributed)
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
    document = require_document(json_file, inputs, outputs, wanted.force)
    require_jax()
    try:
        join()  # before the model is read: a builder of the user's own may use JAX
        _require_readable(wanted, inputs, sha256)
        run(wanted, inputs, chosen, document)
    except WdportError as error:
        if distributed is None:
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


def _require_readable(wanted: Wanted, inputs: InputFiles, sha256: str | None) -> None:
    """Check the model before JAX is imported; raises :class:`WdportError`."""
    from wdport.checkpoint.known import require_sha256
    from wdport.conversion.load import open_converted
    from wdport.conversion.optimiser_file import optimiser_beside
    from wdport.families.choice import own_model

    if wanted.resume is None:
        return
    inputs.check(partial(require_sha256, wanted.resume, sha256))
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
