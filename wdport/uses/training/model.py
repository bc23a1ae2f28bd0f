"""A converted or a new network with its training objective, as a Keras model for ``compile`` and ``fit``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import keras
from jax import Array as Tensor

from wdport.base.errors import MisfitError, UsageError, require_paths
from wdport.base.options import require_number, require_within
from wdport.conversion.load import load_model
from wdport.families.registry import all_families, known_model
from wdport.families.roles import ConfiguredBeside, Family, Trained
from wdport.files.atomic import scratch_folder
from wdport.mapping.strict_yaml import nodes_of, read_yaml
from wdport.models.interface import (
    MASK_RATE,
    MAX_SPAN,
    Array,
    Diffused,
    Document,
    KerasModel,
    LossPart,
    Recipe,
    Vocabulary,
)
from wdport.models.keras_inputs import model_arguments
from wdport.models.keras_runtime import require_policy, seed_dropout, variables_by_path
from wdport.uses.data.series import Series, series_of
from wdport.uses.data.units import units_of
from wdport.uses.diffusion.loss import DiffusionLoss, Errors
from wdport.uses.diffusion.noise import check_seed
from wdport.uses.diffusion.process import UNIFORM
from wdport.uses.roles import Completing, Fresh, Sampled
from wdport.uses.training.initial import convert_initial_model, is_library_configuration
from wdport.uses.training.network_training import NetworkTraining, pair_of
from wdport.uses.training.supervised import LOSSES, LossFunction, MaskedTraining, SupervisedTraining
from wdport.uses.training.training_data import Data, StateSource, source_of


@keras.saving.register_keras_serializable("wdport")
class DiffusionTraining(NetworkTraining):
    """Trains a network on clean states: every step draws new noise and new times.

    ``fit`` takes clean states (N, *shape), or (states, condition) for a network with one, such as labels.
    """

    beside: ClassVar[str] = "condition"

    def __init__(
        self, network: KerasModel, about: Diffused, loss: DiffusionLoss, seed: int = 0, dropped: float = 0.0
    ) -> None:
        # A single part is the loss itself.
        super().__init__(network, [part.name for part in loss.parts] if len(loss.parts) > 1 else [], seed)
        self.about, self.diffusion_loss, self.dropped, self.law = about, loss, dropped, UNIFORM
        self.conditioned = about.condition is not None and about.condition.taken

    def call(self, inputs: Any, training: bool | None = None) -> dict[str, Tensor]:
        """The errors of every sample; see :class:`~wdport.uses.diffusion.loss.Errors`."""
        clean, condition = pair_of(inputs, "states", "condition") if self.conditioned else (inputs, None)
        # States, noise and errors in the dtype of the variables; the network itself computes in its policy's.
        clean = jnp.asarray(clean, self.variable_dtype)
        key = self.key(training)
        if self.dropped and training is not False:
            key, other = jax.random.split(key)
            missing = jax.random.bernoulli(other, self.dropped, clean.shape[:1])
            condition = self._without(jnp.asarray(condition), missing)
        drawn = self.diffusion_loss.draw(key, clean)
        if training is False:  # every batch of a validation has times spread evenly
            drawn = drawn._replace(uniform=(jnp.arange(len(clean), dtype=clean.dtype) + 0.5) / len(clean))
        arguments = [*self.diffusion_loss.noisy(clean, drawn), *([] if condition is None else [condition])]
        result: Any = self.network(*model_arguments(self.network, arguments), training=training)
        output: Tensor = result[0] if isinstance(result, (list, tuple)) else result
        return self.penalized(self.diffusion_loss.errors(output.astype(clean.dtype), clean, drawn)._asdict())

    def _without(self, condition: Tensor, missing: Tensor) -> Tensor:
        """The condition (B, ...), with the value that means none where ``missing`` (B,)."""
        null = None if self.about.condition is None else self.about.condition.null
        assert null is not None
        return jnp.where(
            missing.reshape(-1, *[1] * (condition.ndim - 1)), jnp.asarray(null, condition.dtype), condition
        )

    def loss_values(self, y_pred: dict[str, Tensor], weights: Tensor | None) -> tuple[dict[str, Tensor], Tensor | None]:
        errors = Errors(**y_pred)
        parts = {**self.diffusion_loss.by_part(errors, weights), "loss": self.diffusion_loss.total(errors, weights)}
        return parts, None if weights is None else jnp.sum(weights)

    def source(self, data: Data, stream: bool | None, beside: Array | None, transform: str | None) -> StateSource:
        """See :meth:`NetworkTraining.source`; ``beside`` is the condition."""
        return source_of(data, self.about, self.variable_dtype, stream, beside, transform)

    def settings(self) -> dict[str, Any]:
        further: dict[str, Any] = {} if self.law == UNIFORM else {"law": self.law}
        if self.dropped:
            further["drop_condition"] = self.dropped
        return {"energy": self.diffusion_loss.energy, "min_snr": self.diffusion_loss.min_snr, **further}


def training_model(
    model: KerasModel, *, loss: str | LossFunction | None = None, energy: float = 0.0, min_snr: float | None = None,
    seed: int = 0, law: str = UNIFORM, drop_condition: float = 0.0, mask_rate: float = MASK_RATE, mask_span: int = 1,
) -> NetworkTraining:  # fmt: skip
    """Return a Keras model that trains ``model`` with ``loss``, or with the objective of its family.

    The objective of a model that draws samples is the mean squared error of the network's prediction, as a weighted sum
    over the parts of a state if the family has such weights, at the times that the network was trained on. That of a
    masked language model is the cross-entropy of masked tokens.

    Args:
        model: a converted model, from :func:`wdport.load_model`; with ``loss``, any Keras model.
        loss: "mse", "cross_entropy" of logits in the last axis, ``module:function``, or a function of targets and
            outputs (B, ...) that returns losses (B, ...).
        energy: weight of an energy term: the difference of the sums of squares, by part and feature.
        min_snr: gamma of Min-SNR weighting, such as 5; None for none.
        seed: seed of noise, times, and the model's dropout.
        law: how steps are drawn: "uniform", or "min-snr", which draws steps with much noise more often.
        drop_condition: probability with which the condition of a state is replaced by the value that means "no
            condition", which guidance needs.
        mask_rate: share of the tokens that are masked.
        mask_span: number of consecutive tokens that are masked together.

    Returns:
        The model for ``compile`` and ``fit``. ``fit`` takes clean states (N, *shape), or a pair of them and the
        condition (N, ...); tokens (N, L); or, with ``loss``, a pair of inputs and targets (N, ...).

    Raises:
        UsageError: the model has no objective that wdport knows, or an argument is for another one.
    """
    seed = check_seed(seed)
    if not isinstance(model, keras.Model):
        raise UsageError("model", f"is a {type(model).__name__}, not a Keras model", "load it with wdport.load_model")
    if not model.built:
        raise UsageError("model", "is not built, so it has no weights", "give it an Input, or call it on a batch first")
    family: Any
    family, config = known_model(model) or (None, None)
    masked = loss is None and isinstance(family, Completing)
    sampled = loss is None and not masked and isinstance(family, Sampled)
    _require_unused("a model that draws samples", sampled, energy=energy != 0.0, min_snr=min_snr is not None,
                    law=law != UNIFORM, drop_condition=drop_condition != 0.0)  # fmt: skip
    _require_unused("a masked language model", masked, mask_rate=mask_rate != MASK_RATE, mask_span=mask_span != 1)
    seed_dropout(model, seed)
    training: NetworkTraining
    if loss is not None:
        training = SupervisedTraining(model, loss, seed)
    elif masked:
        training = _masked_training(model, family.vocabulary(config), mask_rate, mask_span, seed)
    elif sampled:
        training = _diffusion_training(model, family, config, law, energy, min_snr, drop_condition, seed)
    else:
        fix = f"give a loss: {', '.join(LOSSES)} or MODULE:FUNCTION"
        raise UsageError("model", "has no training objective that wdport knows", fix)
    # The network is built already; Keras would otherwise build the model at its first call.
    training.build(None)
    return training


def _require_unused(what: str, applies: bool, **changed: bool) -> None:
    """Raise :class:`UsageError` if an argument for another objective is given."""
    for name, is_changed in changed.items():
        if is_changed and not applies:
            raise UsageError(name, f"is for {what}", "leave it out")


def _diffusion_training(
    model: KerasModel, family: Any, config: Any, law: str, energy: float, min_snr: float | None, dropped: float,
    seed: int,
) -> NetworkTraining:  # fmt: skip
    if why := family.unsampled(config):
        raise UsageError("model", f"cannot be trained: {why}", "train it with Keras's own losses")
    if energy and not isinstance(family, Trained):
        raise UsageError("energy", f"{family.name} has no energy term", "leave it out")
    require_within("above 0", min_snr=min_snr)
    require_number("from 0", energy=energy)
    tables = {name.replace("/", "."): variable.value for name, variable in variables_by_path(model).items()}
    about = family.diffused(config)
    require_number("from 0 and below 1", drop_condition=dropped)
    if dropped and (about.condition is None or about.condition.null is None):
        what = "the model has no value that means no condition"
        raise UsageError("drop_condition", what, "name it in the model's table or with `--set`, or leave this out")
    parts = tuple(family.loss_parts(config)) if isinstance(family, Trained) else ()
    noising = family.process(config, tables.__getitem__).noising(law)
    loss = DiffusionLoss(noising, parts or (LossPart("state", about.shape[0], 1.0),), energy, min_snr)
    training = DiffusionTraining(model, about, loss, seed, float(dropped))
    training.law = law
    return training


def _masked_training(model: KerasModel, vocabulary: Vocabulary, rate: float, span: int, seed: int) -> NetworkTraining:
    if vocabulary.mask is None:
        raise UsageError("model", "names no mask token", "convert it with `--set mask_token_id=N`")
    require_number("above 0 and below 1", mask_rate=rate)
    require_number((1, MAX_SPAN), mask_span=span)
    return MaskedTraining(model, vocabulary, float(rate), int(span), seed)


def new_model(
    config: str | PathLike[str] | Mapping[str, object],
    data: Array | Series | str | PathLike[str] | None = None,
    *,
    values: Mapping[str, str] | None = None,
    seed: int = 0,
    dtype: str | None = None,
    transform: str | None = None,
) -> KerasModel:
    """Return a model with random initial weights, for training from scratch.

    Args:
        config: the training configuration, a YAML file or its contents; or the ``config.json`` of a class of diffusers
            or transformers, or a folder that contains it, whose weights are then those that the library begins with.
        data: with a training configuration, the series that the model will be trained on, which determines the number
            of features, and their names, means and standard deviations.
        values: individual configuration values as text, such as ``{"num_heads": "8"}``.
        seed: seed of the weights.
        dtype: Keras dtype policy, as for :func:`wdport.load_model`.
        transform: how windows are made from the data, as for :func:`wdport.convert`; by default "zscore".

    Returns:
        The Keras model, built; its variables are the same under every policy but float64.

    Raises:
        InputError: a file cannot be read.
        MisfitError: the configuration has unknown or invalid settings.
        UsageError: the data are missing, or the model takes none.
        MachineError: the library of the class is not installed.
    """
    seed = check_seed(seed)
    require_policy(dtype)
    if isinstance(config, (str, PathLike)) and is_library_configuration(str(config)):
        if data is not None or transform is not None:
            what = "does not determine anything of this model"
            raise UsageError("transform" if data is None else "data", what, "leave it out")
        with scratch_folder() as folder:
            return load_model(convert_initial_model(Path(config), seed, values or {}, Path(folder)), dtype)
    if data is None:
        raise UsageError("data", "is missing", "give the series that the model will be trained on")
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
    settings.update({name: family.parse_setting(str(name), text) for name, text in (values or {}).items()})
    settings.update(units_of(series_of(data), transform).fresh_flags())
    return family, *family.fresh_config(settings, where)


def recipe_of(config: str | PathLike[str] | Mapping[str, object], public: bool = False) -> Recipe:
    """How the model is trained by a training configuration, or by the public script with it; raises as
    :func:`new_model`."""
    document, where = _document(config)
    return family_recipe(trainable_family(where, document), document, where, public)


def family_recipe(family: Any, document: Document, where: str | Path, public: bool) -> Recipe:
    """The same for a family with the role :class:`~wdport.uses.roles.Fresh`."""
    # Read for its errors: unknown and invalid settings are refused before anything is taken from the file.
    if document or not public:
        family.read_settings(document, where)
    recipe: Recipe = family.recipe(document, where, public)
    return recipe


def _document(config: str | PathLike[str] | Mapping[str, object]) -> tuple[Document, str | Path]:
    if isinstance(config, Mapping):
        document: Document = nodes_of(config).plain()  # the names of settings as text
        return document, "config"
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
        names = " and ".join(family.name for family in families)
        what = f"could be of the families {names}" if families else "is of no family that is trained from scratch"
        raise MisfitError(where, what, "convert a checkpoint instead")
    return families[0]
