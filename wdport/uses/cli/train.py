"""`wdport train`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from wdport.base.errors import UsageError, WdportError
from wdport.checkpoint.expected_hash import require_sha256
from wdport.cli.click_options import refuse, verb
from wdport.cli.documents import require_document
from wdport.cli.machine import leave, parse_devices, require_jax, start_jax
from wdport.files.inputs import InputFiles
from wdport.uses.cli.train_request import TrainRequest, is_checkpoint
from wdport.uses.training.run_folder import FILES, require_run_folder


@verb("train", TrainRequest)
def command(request: TrainRequest) -> None:
    """Train a model on DATA: a series, which is cut into windows; a folder of images; or clean states (n, *shape) in an
    .npy file. For a masked language model, DATA is a text (.txt) or tokens (n, L) in an .npy file; with --loss, it is
    inputs (n, ...) in an .npy file, or several inputs by name in an .npz file.

    Writes model.keras, metrics.csv and the state of the run to a folder. Run the same command again to resume an
    interrupted run; its losses are those of an uninterrupted run. Rejects a folder that contains a run with another
    model, other data or other options.
    """
    chosen, join = parse_devices(request.devices, request.distributed, request.shard_weights)
    _require_begun(request)
    inputs = InputFiles(model=request.resume, data=request.data, mapping=request.mapping, config=request.config,
                        condition=request.condition, targets=request.targets)  # fmt: skip
    inputs.with_manifests("model").with_experiment("model")
    require_run_folder(request.folder, inputs)
    outputs = {f"-o, {name}": request.folder / name for name in FILES}
    document = require_document(request.json_file, inputs, outputs, request.force)
    require_jax()
    try:
        join()  # before the model is read: a builder of the user's own may use JAX
        _require_readable(request, inputs)
        start_jax(request.dtype)
        from wdport.uses.cli.train_run import run

        run(request, inputs, chosen, document)
    except WdportError as error:
        if request.distributed is None:
            raise
        leave(error)


def _require_begun(request: TrainRequest) -> None:
    """Raise :class:`UsageError` unless it is known what is trained, and the options are for that."""
    if request.resume is None and request.config is None:
        raise UsageError("--resume", "is missing", "give a converted model, a checkpoint, or --config for a new model")
    if request.resume is not None and not is_checkpoint(request.resume):
        names, fix = ("config", "values", "key", "no_config"), "leave it out: a model is resumed"
        refuse(request, names, "is for a checkpoint or a new model", fix)
    if request.resume is None:
        refuse(request, ["no_config"], "is for a checkpoint", "leave it out, or add --resume CHECKPOINT")
        refuse(request, ["mapping"], "is for a converted model", "add --resume MODEL")
    for option, value in (("--loss", request.loss), ("--targets", request.targets)):
        if value is None and (request.loss or request.targets):
            raise UsageError(option, "is missing", "give --loss and --targets together")
    if request.recipe is not None:
        parts = ("lr", "schedule", "clip", "weight_decay", "min_snr")
        refuse(request, parts, f"is part of the {request.recipe} recipe", "leave out one of the two")
    if request.warmup is not None and request.schedule not in (None, "cosine"):
        raise UsageError("--warmup", f"is for the cosine schedule, not {request.schedule}", "leave it out")


def _require_readable(request: TrainRequest, inputs: InputFiles) -> None:
    """Check the model before JAX is imported; raises :class:`WdportError`."""
    from wdport.conversion.load import open_converted
    from wdport.conversion.optimizer_file import optimizer_path
    from wdport.families.registry import own_model

    if request.resume is None:
        return
    inputs.check(partial(require_sha256, request.resume, request.sha256))
    if is_checkpoint(request.resume):
        return
    open_converted(request.resume, own_model(request.mapping, request.function, None, ()))
    optimizer_file = optimizer_path(Path(request.resume))
    if optimizer_file.is_file():
        what = f"is for a new optimizer, and {optimizer_file.name} is used"
        refuse(request, ("schedule", "warmup"), what, "leave it out")
