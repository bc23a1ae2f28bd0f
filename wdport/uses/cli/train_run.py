"""Run `wdport train`: begin with a converted model, a checkpoint or a new model, train it, write it, and report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wdport.base.errors import MisfitError, UsageError, printable
from wdport.checkpoint.checkpoint import open_checkpoint
from wdport.checkpoint.optimizer import has_optimizer
from wdport.cli.click_options import arguments, refuse
from wdport.cli.console import console, facts, size, steps
from wdport.cli.documents import Destination, give
from wdport.conversion.convert import convert
from wdport.conversion.converted_optimizer import load_optimizer, save_optimizer
from wdport.conversion.load import load_model, open_converted
from wdport.conversion.optimizer_file import optimizer_path
from wdport.conversion.prepare import training_configuration
from wdport.families.registry import known_model, own_model
from wdport.families.roles import Family
from wdport.files.atomic import scratch_folder
from wdport.files.inputs import InputFiles
from wdport.files.json_document import NamedFile, output_file
from wdport.files.locked_folder import RunFolder
from wdport.models.interface import PUBLIC, Array, KerasModel, Recipe
from wdport.models.keras_runtime import set_variable, variables_by_path
from wdport.optimizers.recipe import RATE, optimizer_of
from wdport.uses.cli.prompts import TEXTS, read_lines
from wdport.uses.cli.results import TrainingDocument
from wdport.uses.cli.train_request import TrainRequest, is_checkpoint
from wdport.uses.data.arrays import npy_array
from wdport.uses.data.numpy_files import WITH_BOOLEANS
from wdport.uses.data.series import read_series
from wdport.uses.data.table import data_file
from wdport.uses.diffusion.process import UNIFORM
from wdport.uses.generation.prompts import require_words, words_of
from wdport.uses.roles import Fresh
from wdport.uses.training.initial import is_library_configuration
from wdport.uses.training.model import family_recipe, new_configuration, new_model, recipe_of, training_model
from wdport.uses.training.network_training import NetworkTraining
from wdport.uses.training.placement import wait_for_all
from wdport.uses.training.run import Report, TrainingRun, save_trained, train
from wdport.uses.training.run_folder import FILES
from wdport.uses.training.supervised import MaskedTraining
from wdport.uses.training.training_data import require_finite


@dataclass(frozen=True)
class _Begin:
    """The start of a run: ``make`` builds the model under a dtype policy; ``optimizer_file`` is None if the model has
    none, and ``resumed`` the name of the optimizer's file as the user gave it."""

    make: Callable[[str | None], KerasModel]
    optimizer_file: Path | None
    recipe: Recipe
    resumed: str = ""


def run(request: TrainRequest, inputs: InputFiles, devices: int | str | None, document: Destination) -> None:
    """Train, and write the files; of several processes the first one does."""
    began = time.monotonic()
    with _begun(request) as begin:
        recipe = _chosen(request, begin.recipe)
        model = begin.make(None if request.dtype == "float32" else request.dtype)
        changed = {} if request.weight_decay is None else {"weight_decay": request.weight_decay}
        if begin.optimizer_file is not None:
            optimizer: Any = load_optimizer(begin.optimizer_file, model, learning_rate=request.lr, settings=changed,
                                            clip_norm=recipe.clip,
                                            gradient_accumulation_steps=recipe.gradient_accumulation_steps)  # fmt: skip
            if optimizer.rates is not None and len(optimizer.rates) == 1:
                rate = f"the rate stays {float(optimizer.rates[0, 0]):.3g} unless --lr is given"
                console.note(f"{begin.resumed}: its learning-rate schedule has ended; {rate}")
        else:
            optimizer = optimizer_of(recipe, request.warmup, request.config or "--recipe")
        _note_recipe(request, recipe, begin)
        first = jax.process_index() == 0

        def finish(held: RunFolder, result: TrainingRun) -> None:
            plain = model if request.dtype == "float32" else _plain(begin, model)
            save_trained(plain, held.output("model.keras"))
            if begin.optimizer_file is not None:
                state = held.output("model.optimizer.safetensors").path
                save_optimizer(optimizer, model, state, like=begin.optimizer_file, force=True)
            for name, weights in (("model.ema.keras", result.averaged), ("model.best.keras", result.best)):
                if weights is not None:
                    save_trained(plain, held.output(name), weights)

        training = training_model(**arguments(training_model, request, model=model, energy=recipe.energy or 0.0,
                                              law=recipe.law or UNIFORM))  # fmt: skip
        data = _data(request, training)
        digest = inputs.sha256("data")
        inputs.end_reading()
        with steps() as show:
            result = train(**arguments(
                train, request, model=training, data=data, optimizer=optimizer, recipe=recipe,
                condition=_beside(request.condition), targets=_beside(request.targets), devices=devices,
                report=_reporting(show) if first else None, finish=finish,
            ))  # fmt: skip
        wait_for_all()
    if first:
        content = TrainingDocument(
            model=request.name, data=NamedFile(request.data.name, digest), steps=result.steps,
            resumed_optimizer=begin.resumed if begin.optimizer_file else None, epochs=result.epochs,
            outputs=[output_file(path) for name in FILES if (path := request.folder / name).is_file()],
            seconds=round(time.monotonic() - began, 3),
        )  # fmt: skip
        give("training", lambda: content, document, lambda: _text(content, request.folder))


@contextmanager
def _begun(request: TrainRequest) -> Iterator[_Begin]:
    """What the run begins with; a checkpoint is converted to a temporary folder."""
    config: Any = request.config
    if request.resume is None and is_library_configuration(request.config):
        _require_no_recipe(request)
        yield _Begin(lambda dtype: new_model(config, values=request.values, seed=request.seed, dtype=dtype), None,
                     Recipe())  # fmt: skip
        return
    if request.resume is None:
        recipe = recipe_of(config, request.recipe == PUBLIC)
        series = read_series(request.data)
        family, resolved, assumed = new_configuration(config, series, request.values, request.transform)
        if assumed:
            listed = ", ".join(f"{name}={value}" for name, value in assumed.items())
            console.note(f"{request.name} does not state these sizes, which are assumed: {listed}")
        yield _Begin(lambda dtype: family.fresh(resolved, request.seed, dtype), None, recipe)
        return
    with scratch_folder() as folder:
        path = Path(request.resume)
        if is_checkpoint(request.resume):
            path = _converted(request, Path(folder) / "begin.keras")
        table = own_model(request.mapping, request.function, None, ())
        family = open_converted(path, table).family
        recipe = _recipe(request, family) if is_checkpoint(request.resume) or request.recipe is not None else Recipe()
        optimizer_file = optimizer_path(path)
        table_path = None if table is None and is_checkpoint(request.resume) else request.mapping
        yield _Begin(lambda dtype: load_model(path, dtype, mapping=table_path, model=request.function),
                     optimizer_file if optimizer_file.is_file() else None, recipe,
                     optimizer_file.name if path == Path(request.resume) else request.name)  # fmt: skip


def _recipe(request: TrainRequest, family: Family) -> Recipe:
    """The recipe of the configuration that is given, or of the file next to the checkpoint."""
    public = request.recipe == PUBLIC
    if request.config:
        return recipe_of(request.config, public)
    if not isinstance(family, Fresh):
        _require_no_recipe(request)
        return Recipe()
    configured = None
    if is_checkpoint(str(request.resume)) and not request.no_config:
        with open_checkpoint(Path(str(request.resume)), key=request.key) as checkpoint:
            configured = training_configuration(checkpoint, family)
    if configured is None and not public:
        return Recipe()
    document, where = configured or ({}, "--recipe")
    return family_recipe(family, document, where, public)


def _require_no_recipe(request: TrainRequest) -> None:
    refuse(request, ["recipe"], "this model has no public training script", "leave it out")


def _beside(path: str | None) -> Array | None:
    """The array of a file for every sample; raises :class:`InputError` also if a value is not finite."""
    if path is None:
        return None
    with data_file(path) as file:
        array = npy_array(file, WITH_BOOLEANS)
    require_finite(array, Path(path))
    return array


def _data(request: TrainRequest, training: NetworkTraining) -> Array | str:
    """The data file, or the tokens of a text in samples of ``--length`` for a masked language model."""
    if not isinstance(training, MaskedTraining) or request.data.suffix not in TEXTS:
        refuse(request, ["length"], "is for a text and a masked language model", "leave it out")
        return str(request.data)
    family: Any
    family, _ = known_model(training.network) or (None, None)
    assert training.vocabulary.mask is not None
    words = require_words(words_of(training.network, family, training.vocabulary.mask), "DATA")
    tokens = np.concatenate([words.encode(line, goes_on=False) for line in read_lines(request.data)])
    count = len(tokens) // request.length
    if not count:
        what = f"has {len(tokens)} tokens, and a sample has {request.length}"
        raise UsageError(request.data, what, "give a longer text, or a smaller --length")
    return tokens[: count * request.length].reshape(count, request.length)


def _chosen(request: TrainRequest, recipe: Recipe) -> Recipe:
    """A recipe with the values of options in place of its own."""
    options = {"learning_rate": request.lr, **arguments(Recipe, request)}
    return replace(recipe, **{name: value for name, value in options.items() if value is not None})


def _note_recipe(request: TrainRequest, recipe: Recipe, begin: _Begin) -> None:
    """Note how the public script trains, or how a new optimizer's run with its configuration differs from it."""
    if request.recipe is not None:
        steps = "steps by the Min-SNR law" if recipe.law else "uniform steps"
        new = begin.optimizer_file is None
        rate = f"{recipe.schedule} to {recipe.learning_rate:g}" if new else "the optimizer's own rates"
        summary = f"{steps}, {rate}, weight decay {recipe.weight_decay:g}, gradients clipped at {recipe.clip:g}"
        console.note(f"the public recipe: {summary}")
        return
    if begin.optimizer_file is not None or request.config is None or is_library_configuration(request.config):
        return
    try:
        public = recipe_of(request.config, True)
    except MisfitError:  # of a schedule that needs measured values
        return
    decay = 0.01 if recipe.weight_decay is None else recipe.weight_decay
    pairs = [("rate", recipe.learning_rate or RATE, public.learning_rate), ("weight decay", decay, public.weight_decay),
             ("clipping", recipe.clip or "none", public.clip), ("steps", "uniform", "by the Min-SNR law")]  # fmt: skip
    differ = "; ".join(f"{name} {ours} where that has {theirs}" for name, ours, theirs in pairs if ours != theirs)
    if differ:
        console.note(f"differs from the public training script: {differ} (--recipe public)")


def _converted(request: TrainRequest, path: Path) -> Path:
    """Convert the checkpoint, with its optimizer if it has one."""
    assert request.resume is not None
    with open_checkpoint(Path(request.resume), key=request.key) as checkpoint:
        with_optimizer = has_optimizer(checkpoint.tree)
    if with_optimizer:
        what = f"is for a new optimizer, and that of {Path(request.resume).name} is used"
        refuse(request, ["schedule"], what, "leave it out")
    series = None if request.mapping or request.data.suffix == ".npy" or request.data.is_dir() else request.data
    transform = request.transform if series is not None else None
    return convert(request.resume, path, config=request.config, values=request.values or None, mapping=request.mapping,
                   model=request.function, data=series, transform=transform, key=request.key,
                   no_config=request.no_config, with_optimizer=with_optimizer).output  # fmt: skip


def _plain(begin: _Begin, model: KerasModel) -> KerasModel:
    """The trained model under the float32 policy, as every converted model is stored."""
    plain = begin.make(None)
    values = variables_by_path(model)
    for name, variable in variables_by_path(plain).items():
        set_variable(variable, np.asarray(values[name].value))
    return plain


def _reporting(show: Callable[[str], None] | None) -> Report | None:
    """Shows the step, its loss and the rate, at most a few times a second; None without a terminal."""
    if show is None:
        return None
    show("compiling")
    began = last = 0.0

    def report(done: int, total: int, loss: Callable[[], float]) -> None:
        nonlocal began, last
        now = time.monotonic()
        began = began or now
        if now - last > 0.2 or done == total:
            last = now
            rate = (done - 1) / max(now - began, 1e-9)
            show(f"step {done} of {total}, loss {loss():.4g}" + (f", {rate:.3g} steps/s" if rate else ""))

    return report


def _text(document: TrainingDocument, folder: Path) -> str:
    epochs = document.epochs
    first, last = epochs[0], epochs[-1]
    loss_rows = [("loss", f"{first['loss']:.4g} in the first epoch, {last['loss']:.4g} in the last")]
    if "val_loss" in last:
        best = min(epochs, key=lambda row: row["val_loss"])
        loss_rows.append(("validation", f"loss {best['val_loss']:.4g} in epoch {best['epoch']:.0f}, the lowest"))
    parts = [name for name in last if name not in ("epoch", "steps", "loss", "learning_rate", "seconds")
             and not name.startswith("val_")]  # fmt: skip
    if "accuracy" in last:
        accuracy = f"{first['accuracy']:.1%} in the first epoch, {last['accuracy']:.1%} in the last"
        loss_rows.append(("accuracy", accuracy))
    elif len(parts) > 1:
        loss_rows.append(("by level", ", ".join(f"{name} {last[name]:.4g}" for name in parts)))
    resumed = document.resumed_optimizer
    rows = [
        ("trained", f"{document.steps} steps in {len(epochs)} epochs"),
        ("optimizer", f"resumed from {resumed}" if resumed else "new, AdamW"),
        *loss_rows,
        ("took", f"{document.seconds:.1f} s"),
        *(("wrote", f"{folder / output.name} ({size(output.bytes)})") for output in document.outputs),
    ]
    return f"{printable(document.model, None)}: trained\n{facts(rows)}"
