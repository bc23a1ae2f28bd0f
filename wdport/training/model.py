"""A converted or a new network with its training objective, as a Keras model for ``compile`` and ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import Array as Tensor

from wdport.data.series import Series, series_of
from wdport.data.units import units_of
from wdport.devices import LostProcess
from wdport.diffusion.loss import DiffusionLoss, Errors
from wdport.diffusion.process import UNIFORM
from wdport.errors import MisfitError, UsageError, require_paths
from wdport.families.registry import all_families, known_model
from wdport.families.roles import ConfiguredBeside, Family, Fresh, Sampled, Trained
from wdport.jax_settings import narrow_run, weakly
from wdport.keras_runtime import seed_dropout, variables_by_path
from wdport.mapping.strict_yaml import read_yaml
from wdport.model import Array, Document, KerasModel, LossPart, Recipe
from wdport.nets.boundary import compile_options, gradients_once
from wdport.training.placement import Placement


def step_options(dtype: str) -> dict[str, Any]:
    """Options for :func:`jax.jit` of a step of training a network that computes in ``dtype``."""
    return {**compile_options(), **(narrow_run() if dtype == "bfloat16" else {})}


@keras.saving.register_keras_serializable("wdport")
class DiffusionTraining(keras.Model):
    """Trains a network on clean states: every step draws new noise and new times from Keras's seed state.

    ``fit`` takes clean states (N, *shape), or (states, condition) for a network with one, such as labels. Its
    optional second argument is an array of sample weights (N,), with 0 for samples that only fill a batch; Keras
    ignores ``sample_weight`` where there are no targets. The network itself is the attribute ``network``, and is
    trained in place.
    """

    def __init__(
        self,
        network: KerasModel,
        loss: DiffusionLoss,
        seed: int = 0,
        conditioned: bool = False,
        dropped: float = 0.0,
        null: float | None = None,
    ) -> None:
        super().__init__(dtype=network.dtype_policy)
        self.network = network
        self.diffusion_loss = loss
        self.conditioned, self.dropped, self.null = conditioned, dropped, null
        self.law = UNIFORM
        # A variable of the model, so that it is saved and restored with the state of a run.
        self.seeds = keras.random.SeedGenerator(seed)
        self.validation_key = np.array(self.seeds.state.value)
        self.placement = Placement()
        # In place of Keras's mean of the loss, which counts states of weight 0. A single part is the loss itself.
        parts = [part.name for part in loss.parts] if len(loss.parts) > 1 else []
        self.trackers = [keras.metrics.Mean(name=name, dtype=self.variable_dtype) for name in ("loss", *parts)]

    def call(self, inputs: Any, training: bool | None = None) -> dict[str, Tensor]:
        """The errors of every sample; see :class:`~wdport.diffusion.loss.Errors`."""
        clean, condition = inputs if self.conditioned else (inputs, None)
        # States, noise and errors in the dtype of the variables; the network itself computes in its policy's.
        clean = jnp.asarray(clean, self.variable_dtype)
        # Every batch of a validation has the same noise, and times spread evenly, so that its losses can be compared.
        key = jnp.asarray(self.validation_key) if training is False else self.seeds.next()
        if self.dropped and training is not False:
            key, other = jax.random.split(key)
            condition = _dropped(jnp.asarray(condition), jax.random.bernoulli(other, self.dropped, clean.shape[:1]),
                                 self.null)  # fmt: skip
        drawn = self.diffusion_loss.draw(key, clean)
        if training is False:
            drawn = drawn._replace(uniform=(jnp.arange(len(clean), dtype=clean.dtype) + 0.5) / len(clean))
        arguments = [*self.diffusion_loss.noisy(clean, drawn), *([] if condition is None else [condition])]
        result: Any = self.network(arguments, training=training)
        output: Tensor = result[0] if isinstance(result, (list, tuple)) else result
        return self.diffusion_loss.errors(output.astype(clean.dtype), clean, drawn)._asdict()

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """The loss of a batch; ``y`` are weights of the samples."""
        return self.diffusion_loss.total(Errors(**y_pred), y)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """The loss and that of every part, as means over the epoch."""
        losses = {**self.diffusion_loss.by_part(Errors(**y_pred), y), "loss": self.compute_loss(y=y, y_pred=y_pred)}
        # Batches count by their samples: the last one of an epoch may be filled up.
        count = None if y is None else jnp.sum(y)
        for tracker in self.trackers:
            tracker.update_state(losses[tracker.name], sample_weight=count)
        return dict(self.get_metrics_result())

    def stateless_call(self, trainable_variables: Any, *args: Any, **kwargs: Any) -> Any:
        """As Keras's, with a boundary between the gradients of the variables and what uses them."""
        # Without it, XLA fuses the optimizer's update with the sums of the backward pass, and computes these more than
        # once.
        return super().stateless_call(gradients_once(list(trainable_variables)), *args, **kwargs)

    def make_train_function(self, force: bool = False) -> None:
        """Compile the step of ``fit`` with the options of :func:`step_options`, which Keras has no argument for.

        Under ``keras.distribution``, it is compiled by Keras.
        """
        before: Any = getattr(self, "train_function")  # which Keras declares nowhere
        super().make_train_function(force)
        if before is not None and not force:
            return
        if not self.run_eagerly and self.jit_compile and keras.distribution.distribution() is None:
            self.train_function = self._make_function(self._compiled_step())

    def _compiled_step(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        shardings = self.placement.shardings(self._get_jax_state(True, True, True, True))
        # The state is donated: a step writes the new one into the memory of the old one.
        compiled = jax.jit(weakly(self.train_step), donate_argnums=0,
                           compiler_options=step_options(self.network.compute_dtype),
                           out_shardings=None if shardings is None else (None, shardings))  # fmt: skip

        def step(state: Any, data: Any) -> tuple[Any, Any]:
            try:
                with self.placement.answering():
                    logs, state = compiled(state, data)
                    self.placement.settle(state)
            except LostProcess:
                # Else Keras reads the state, whose memory was given away, and its error hides this one.
                self._jax_state = None
                raise
            return logs, state

        return step

    def _setattr_hook(self, name: str, value: Any) -> tuple[str, Any]:
        # Keras looks for variables in every attribute; in the arrays of its state that took half a millisecond a step.
        return super()._setattr_hook(name, MappingProxyType(value) if name == "_jax_state" and value else value)

    @property
    def metrics(self) -> list[Any]:
        """The running means of Keras and of the parts."""
        keras_metrics = super().metrics
        # Keras resets these at the beginning of an epoch; those that it has found itself are not listed twice.
        return [*keras_metrics, *(tracker for tracker in self.trackers if tracker not in keras_metrics)]


def _dropped(condition: Tensor, missing: Tensor, null: float | None) -> Tensor:
    """The condition (B, ...), or ``null`` where ``missing`` (B,)."""
    assert null is not None
    return jnp.where(missing.reshape(-1, *[1] * (condition.ndim - 1)), jnp.asarray(null, condition.dtype), condition)


def training_model(
    model: KerasModel, *, energy: float = 0.0, min_snr: float | None = None, seed: int = 0, law: str = UNIFORM,
    drop_condition: float = 0.0,
) -> DiffusionTraining:  # fmt: skip
    """Return a Keras model that trains ``model`` with the objective of its family.

    The objective is the mean squared error of the network's prediction, as a weighted sum over the parts of a state if
    the family has such weights, at the times that the network was trained on.

    Args:
        model: a converted model that draws samples, from :func:`wdport.load_model`.
        energy: weight of an energy term: the difference of the sums of squares, by part and feature.
        min_snr: gamma of Min-SNR weighting, such as 5; None for none.
        seed: seed of noise, times, and the model's dropout.
        law: how steps are drawn: "uniform", or "min-snr", which draws steps with much noise more often.
        drop_condition: probability with which the condition of a state is replaced by the value that means "no
            condition", which guidance needs.

    Returns:
        The model for ``compile`` and ``fit``; ``fit`` takes clean states (N, *shape), or a pair of them and the
        condition (N, ...).

    Raises:
        UsageError: the model was not loaded by wdport, or draws no samples.
    """
    registration = known_model(model)
    if registration is None or not isinstance(registration[0], Sampled):
        raise UsageError("model", "has no training objective that wdport knows", "train it with Keras's own losses")
    family: Any = registration[0]
    config = registration[1]
    if why := family.unsampled(config):
        raise UsageError("model", f"cannot be trained: {why}", "train it with Keras's own losses")
    if energy and not isinstance(family, Trained):
        raise UsageError("energy", f"{family.name} has no energy term", "leave it out")
    tables = {name.replace("/", "."): variable.value for name, variable in variables_by_path(model).items()}
    about = family.diffused(config)
    loss = DiffusionLoss(family.process(config, tables.__getitem__).noising(law), _parts(family, config, about.shape),
                         energy, min_snr)  # fmt: skip
    seed_dropout(model, seed)
    condition = about.condition
    if drop_condition and (condition is None or condition.null is None):
        what = "the model has no value that means no condition"
        raise UsageError("drop_condition", what, "name it in the model's table or with `--set`, or leave this out")
    null = None if condition is None else condition.null
    training = DiffusionTraining(
        model, loss, seed, condition is not None and condition.taken, float(drop_condition), null
    )
    training.law = law
    # The network is built already; Keras would otherwise build the model at its first call.
    training.build(None)
    return training


def _parts(family: Any, config: Any, shape: tuple[int, ...]) -> tuple[LossPart, ...]:
    """The parts of a state, with the family's weights."""
    return tuple(family.loss_parts(config)) if isinstance(family, Trained) else (LossPart("state", shape[0], 1.0),)


def new_model(
    config: str | PathLike[str] | Mapping[str, object],
    data: Array | Series | str | PathLike[str],
    *,
    values: Mapping[str, str] | None = None,
    seed: int = 0,
    dtype: str | None = None,
    transform: str | None = None,
) -> KerasModel:
    """Return a model with random initial weights, for training from scratch.

    Args:
        config: the training configuration, a YAML file or its contents.
        data: the series that the model will be trained on, which determines the number of features, and their names,
            means and standard deviations.
        values: individual configuration values as text, such as ``{"num_heads": "8"}``.
        seed: seed of the weights.
        dtype: Keras dtype policy, as for :func:`wdport.load_model`.
        transform: how windows are made from the data, as for :func:`wdport.convert`; by default "zscore".

    Returns:
        The Keras model, built; its variables are the same under every policy but float64.

    Raises:
        InputError: a file cannot be read.
        MisfitError: the configuration has unknown or invalid settings.
    """
    family, resolved, _ = new_configuration(config, data, values, transform)
    model: KerasModel = family.fresh(resolved, seed, dtype)
    return model


def new_configuration(
    config: str | PathLike[str] | Mapping[str, object],
    data: Array | Series | str | PathLike[str],
    values: Mapping[str, str] | None,
    transform: str | None,
) -> tuple[Any, Any, dict[str, object]]:
    """The family of a new model, its configuration, and the sizes that the file does not state; raises as
    :func:`new_model`."""
    document, where = _document(config)
    family: Any = trainable_family(where, document)
    settings = family.read_settings(document, where)
    settings.update({name: family.parse_setting(name, text) for name, text in (values or {}).items()})
    settings.update(units_of(series_of(data), transform).fresh_flags())
    return family, *family.fresh_config(settings, where)


def recipe_of(config: str | PathLike[str] | Mapping[str, object], public: bool = False) -> Recipe:
    """How the model is trained by a training configuration, or by the public script with it; raises as
    :func:`new_model`."""
    document, where = _document(config)
    return family_recipe(trainable_family(where, document), document, where, public)


def family_recipe(family: Any, document: Document, where: str | Path, public: bool) -> Recipe:
    """The same for a family with the role :class:`~wdport.families.roles.Fresh`."""
    # Read for its errors: unknown and invalid settings are refused before anything is taken from the file.
    if document or not public:
        family.read_settings(document, where)
    recipe: Recipe = family.recipe(document, where, public)
    return recipe


def _document(config: str | PathLike[str] | Mapping[str, object]) -> tuple[Document, str | Path]:
    if isinstance(config, Mapping):
        return config, "config"
    require_paths("config", config=config)
    document = read_yaml(Path(config), "give the training configuration").plain()
    if not isinstance(document, Mapping):
        raise MisfitError(Path(config), "is not a mapping of sections", "give the training configuration")
    return document, Path(config)


def trainable_family(where: str | Path = "config", document: Document | None = None) -> Family:
    """The family whose models are trained from scratch: the only one, or that of the configuration; raises
    :class:`MisfitError`."""
    families: list[Family] = [family for family in all_families() if isinstance(family, Fresh)]
    if document is not None and len(families) > 1:
        families = [
            family for family in families if isinstance(family, ConfiguredBeside) and family.is_configuration(document)
        ]
    if len(families) != 1:
        raise MisfitError(where, f"could be of {len(families)} families", "convert a checkpoint instead")
    return families[0]
