"""`wdport train`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

import click

from wdport.cli.completion import SERIES, File, Folder
from wdport.cli.documents import give, json_option, require_document
from wdport.cli.machine import require_jax, start_jax
from wdport.cli.options import MODEL, facts, own_mapping_option, own_model_option, sha256_option, size
from wdport.cli.progress import steps
from wdport.cli.verb import OneOf, Verb, Whole
from wdport.errors import UsageError, printable
from wdport.files.manifests import file_sha256
from wdport.files.writable import by_name, with_manifests

SCHEDULES = ("constant", "onecycle")
OURS = ("state.npz", "metrics.csv", "model.keras", "model.ema.keras", "model.optimizer.safetensors")
"""The files of a run."""


@click.command(name="train", cls=Verb)
@click.argument("data", type=File([*SERIES, ".npy"]))
@click.option("--resume", "model", required=True, metavar="MODEL", type=MODEL, help="Converted model to train, with "
              "its optimizer (convert --with-optimizer) if that is beside it.")  # fmt: skip
@click.option("-o", "--output", required=True, metavar="FOLDER", type=Folder(),
              help="Folder of the run; an unfinished run in it goes on.")  # fmt: skip
@click.option("--epochs", type=Whole(1, 1 << 24), default=1, show_default=True, help="Epochs in all.")
@click.option("--batch-size", type=Whole(1, 1 << 20), default=32, show_default=True, help="States in a step.")
@click.option("--lr", type=float, metavar="RATE", help="Learning rate.  [default: the optimizer's schedule; without "
              "one, 1e-4]")  # fmt: skip
@click.option("--schedule", type=OneOf(SCHEDULES), help="Of a new optimizer: constant, or onecycle to --lr.  "
              "[default: constant]")  # fmt: skip
@click.option("--weight-decay", type=float, help="AdamW's weight decay.  [default: the optimizer's, or 0.01]")
@click.option("--clip", type=float, metavar="NORM", help="Clip gradients to this norm over all variables.")
@click.option("--ema", type=float, metavar="DECAY", help="Also keep a moving average of the weights, such as 0.999.")
@click.option("--min-snr", type=float, metavar="GAMMA", help="Min-SNR weighting, such as 5.")
@click.option("--energy", type=float, default=0.0, help="Weight of an energy term.")
@click.option("--seed", type=Whole(0, (1 << 31) - 1), default=0, show_default=True,
              help="Random seed of order, noise and times.")  # fmt: skip
@click.option("--save-every", type=Whole(1, 1 << 32), metavar="N", help="Save the state every N steps, too.  "
              "[default: after every epoch]")  # fmt: skip
@own_mapping_option
@own_model_option
@sha256_option
@json_option
def command(
    data: str,
    model: str,
    output: str,
    lr: float | None,
    schedule: str | None,
    weight_decay: float | None,
    clip: float | None,
    mapping: str | None,
    function: str | None,
    sha256: str | None,
    json_file: str | None,
    **settings: Any,
) -> int:
    """Train a converted model on DATA: a series, whose windows are taken, or clean states (n, *shape) in an .npy file.

    Writes model.keras, metrics.csv and the state of the run to a folder. Run the same command again to continue an
    interrupted run; its losses are those of an uninterrupted one.
    """
    from wdport.checkpoint.known import require_sha256
    from wdport.conversion.load import open_converted
    from wdport.conversion.optimiser_file import optimiser_beside
    from wdport.families.choice import own_model

    require_sha256(model, sha256)
    _require_positive({"--lr": lr, "--clip": clip, "--ema": settings["ema"], "--min-snr": settings["min_snr"]})
    open_converted(model, own_model(mapping, function, None, ()))
    folder, beside = Path(output), optimiser_beside(Path(model))
    _require_own(folder)
    inputs = with_manifests(by_name(model=model, data=data, mapping=mapping), ["model"])
    require_document(json_file, inputs, {}, True)
    if beside.is_file() and schedule is not None:
        raise UsageError("--schedule", f"is for a new optimizer, and {beside.name} is used", "leave it out")
    require_jax()
    start_jax()
    from wdport.conversion.load import load_model
    from wdport.training.load import load_optimizer, save_optimizer
    from wdport.training.run import train
    from wdport.training.saved import save_trained

    began = time.monotonic()
    made = load_model(model, mapping=mapping, model=function)
    changed = {} if weight_decay is None else {"weight_decay": weight_decay}
    if beside.is_file():
        optimizer: Any = load_optimizer(beside, made, learning_rate=lr, settings=changed, clip_norm=clip)
    else:
        optimizer = _new(lr or 1e-4, schedule, changed, clip)
    with steps() as show:
        told = train(made, data, folder, optimizer=optimizer, report=_reporting(show), **settings)
    save_trained(made, folder / "model.keras")
    if beside.is_file():
        save_optimizer(optimizer, made, folder / "model.optimizer.safetensors", like=beside, force=True)
    if told.averaged is not None:
        save_trained(made, folder / "model.ema.keras", told.averaged)
    written = [folder / name for name in OURS if (folder / name).is_file()]
    document = {
        "model": Path(model).name,
        "data": {"name": Path(data).name, "sha256": file_sha256(Path(data))},
        "steps": told.steps,
        "resumed_optimizer": beside.name if beside.is_file() else None,
        "epochs": [dict(epoch) for epoch in told.epochs],
        "outputs": [{"name": path.name, "sha256": file_sha256(path), "bytes": path.stat().st_size} for path in written],
        "seconds": round(time.monotonic() - began, 3),
    }
    give("training", lambda: document, json_file, lambda: _text(document, folder))
    return 0


def _new(rate: float, schedule: str | None, settings: Mapping[str, Any], clip: float | None) -> Callable[[int], Any]:
    """AdamW for a number of steps."""
    from wdport.optimisers.rates import one_cycle
    from wdport.optimisers.torch_like import Adam

    def make(total: int) -> Any:
        if schedule != "onecycle":
            return Adam([{"lr": rate, **settings}], clip_norm=clip)
        cycle = one_cycle(total, rate)
        return Adam([{"lr": rate, **settings}], rates=cycle.rate, momenta=cycle.beta1, clip_norm=clip)

    return make


def _reporting(show: Callable[[str], None] | None) -> Callable[[int, int, Callable[[], float]], None] | None:
    """Shows the step, its loss and the rate, at most a few times a second; None without a terminal."""
    if show is None:
        return None
    show("compiling")
    began: list[float] = []
    last = [0.0]

    def report(done: int, total: int, loss: Callable[[], float]) -> None:
        now = time.monotonic()
        began.append(now) if not began else None
        if now - last[0] > 0.2 or done == total:
            last[0] = now
            rate = (done - 1) / max(now - began[0], 1e-9)
            show(f"step {done} of {total}, loss {loss():.4g}" + (f", {rate:.3g} steps/s" if rate else ""))

    return report


def _require_own(folder: Path) -> None:
    """Raise :class:`UsageError` for a folder that holds anything but a run."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(folder, "is not a folder", "give another name with -o")
    others = sorted(path.name for path in folder.iterdir() if path.name not in OURS) if folder.is_dir() else []
    if others:
        what = f"has {printable(others[0], 40)}, which is not of a run"
        raise UsageError(folder, what, "give another folder with -o")


def _require_positive(options: Mapping[str, float | None]) -> None:
    for option, value in options.items():
        most = 1.0 if option == "--ema" else inf
        if value is not None and not 0.0 < value < most:
            raise UsageError(option, f"is {value:g}", "give a number above 0" + (" and below 1" if most == 1.0 else ""))


def _text(document: Mapping[str, Any], folder: Path) -> str:
    epochs = document["epochs"]
    first, last = epochs[0], epochs[-1]
    shown = [("loss", f"{first['loss']:.4g} in the first epoch, {last['loss']:.4g} in the last")]
    parts = [name for name in last if name not in ("epoch", "steps", "loss", "learning_rate", "seconds")]
    if len(parts) > 1:
        shown.append(("by level", ", ".join(f"{name} {last[name]:.4g}" for name in parts)))
    resumed = document["resumed_optimizer"]
    rows = [
        ("trained", f"{document['steps']} steps in {len(epochs)} epochs"),
        ("optimizer", f"resumed from {resumed}" if resumed else "new, AdamW"),
        *shown,
        ("took", f"{document['seconds']:.1f} s"),
        *(("wrote", f"{folder / each['name']} ({size(each['bytes'])})") for each in document["outputs"]),
    ]
    return f"{printable(document['model'], None)}: trained\n{facts(rows)}"
