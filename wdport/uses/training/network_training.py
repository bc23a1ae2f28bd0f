"""The step of ``fit`` that every training model has, whatever its objective is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Any, ClassVar, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import UsageError
from wdport.base.jax_settings import narrow_run, weakly
from wdport.models.interface import Array, KerasModel
from wdport.models.keras_runtime import seed_dropout
from wdport.nets.boundary import compile_options, gradients_once
from wdport.uses.devices import LostProcess
from wdport.uses.training.placement import Placement, placement_of_distribution
from wdport.uses.training.training_data import Data, StateSource


def step_options(dtype: str) -> dict[str, Any]:
    """Options for :func:`jax.jit` of a step of training a network that computes in ``dtype``."""
    return {**compile_options(), **(narrow_run() if dtype == "bfloat16" else {})}


PENALTY: Final = "penalty"


def refusal(where: str, what: str, fix: str) -> UsageError:
    """A :class:`UsageError` to raise within ``call``."""
    error = UsageError(where, what, fix)
    vars(error)["_keras_call_info_injected"] = True  # otherwise Keras raises a RuntimeError in its place
    return error


def pair_of(inputs: Any, first: str, second: str) -> tuple[Any, Any]:
    """The pair of arrays that ``fit`` gets as one argument; raises :class:`UsageError`."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise refusal("fit", f"gets no pair of {first} and {second}", f"write fit(({first}, {second}))")
    return inputs[0], inputs[1]


def _weights(y: Any, sample_weight: Any, class_weight: Any = None) -> Any:
    """The weights among these arguments of Keras, which ignores ``sample_weight`` where there are no targets."""
    if class_weight is not None or (y is not None and sample_weight is not None):
        raise UsageError("fit", "takes one array of weights", "give one weight for each sample")
    return sample_weight if y is None else y


class NetworkTraining(keras.Model):
    """Trains the attribute ``network`` in place; what is random in a step is drawn from Keras's seed state.

    The optional second argument of ``fit``, or ``sample_weight``, is an array of sample weights (N,), with 0 for
    samples that only fill a batch. ``call`` returns a dict of arrays of which :meth:`loss_values` makes the loss, to
    which the penalties of the network's regularizers are added. :meth:`save` saves the network.

    Attributes:
        beside: the argument of :func:`wdport.train` with the arrays that ``fit`` takes beside the data, or "".
        own_loss: whether the loss is code of the user's.
    """

    beside: ClassVar[str] = ""

    def __init__(self, network: KerasModel, metrics: Sequence[str], seed: int) -> None:
        super().__init__(dtype=network.dtype_policy)
        self.network, self.seed, self.own_loss = network, seed, False
        # A variable of the model, so that it is saved and restored with the state of a run.
        self.seeds = keras.random.SeedGenerator(seed)
        self.validation_key = np.array(self.seeds.state.value)
        self.placement: Placement | None = None  # of the variables in a run of wdport.train
        # In place of Keras's mean of the loss, which counts samples of weight 0.
        self.trackers = [keras.metrics.Mean(name=name, dtype=self.variable_dtype) for name in ("loss", *metrics)]

    def reseed(self, seed: int) -> None:
        """Begin with another seed of noise, times and the network's dropout."""
        self.seed = seed
        self.seeds.state.assign(keras.random.SeedGenerator(seed).state.value)
        self.validation_key = np.array(self.seeds.state.value)
        seed_dropout(self.network, seed)

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any) -> None:
        """As Keras's, without a loss and metrics, since the model has an objective; raises :class:`UsageError`."""
        if loss is not None or any(kwargs.get(name) for name in ("metrics", "weighted_metrics", "loss_weights")):
            raise UsageError("compile", "this model has a loss and metrics already", "leave them out")
        super().compile(optimizer=optimizer, **kwargs)

    def fit(
        self, x: Any = None, y: Any = None, *arguments: Any, sample_weight: Any = None, class_weight: Any = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """As Keras's, with weights of the samples as ``y`` or ``sample_weight``; raises :class:`UsageError`."""
        return super().fit(x, _weights(y, sample_weight, class_weight), *arguments, **kwargs)

    def evaluate(
        self, x: Any = None, y: Any = None, *arguments: Any, sample_weight: Any = None, return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """As Keras's, with weights as in :meth:`fit`."""
        return super().evaluate(x, _weights(y, sample_weight), *arguments, return_dict=return_dict, **kwargs)

    def save(self, filepath: str | PathLike[str], overwrite: bool = True, **kwargs: Any) -> None:
        """Save the network, as :meth:`keras.Model.save` does."""
        self.network.save(filepath, overwrite=overwrite, **kwargs)

    def penalized(self, result: dict[str, Tensor]) -> dict[str, Tensor]:
        """``result``, of arrays (B, ...), with the penalties of regularizers; for the end of ``call``."""
        penalties = self.network.losses
        if not penalties:
            return result
        count = len(next(iter(result.values())))
        return {**result, PENALTY: jnp.full(count, sum(penalties), self.variable_dtype)}

    @abstractmethod
    def loss_values(self, y_pred: dict[str, Tensor], weights: Tensor | None) -> tuple[dict[str, Tensor], Tensor | None]:
        """The loss and the other metrics of a batch by name, and what the batch counts in their means."""

    @abstractmethod
    def source(self, data: Data, stream: bool | None, beside: Array | None, transform: str | None) -> StateSource:
        """The samples of ``data``; see :func:`wdport.train`. Raises :class:`UsageError`, :class:`InputError`."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What of the objective is compared with a run that is resumed."""

    def key(self, training: bool | None) -> Tensor:
        """A new random key; that of a validation is always the same, so that its losses can be compared."""
        return jnp.asarray(self.validation_key) if training is False else self.seeds.next()

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """The loss of a batch; ``y`` are weights of the samples."""
        return self._values(y_pred, y)[0]["loss"]

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """The loss and the other metrics, as means over the epoch."""
        # Batches count by their samples: the last one of an epoch may be filled up.
        losses, count = self._values(y_pred, y)
        for tracker in self.trackers:
            tracker.update_state(losses[tracker.name], sample_weight=count)
        return dict(self.get_metrics_result())

    def _values(self, y_pred: dict[str, Tensor], weights: Tensor | None) -> tuple[dict[str, Tensor], Tensor | None]:
        arrays = {name: values for name, values in y_pred.items() if name != PENALTY}
        losses, count = self.loss_values(arrays, weights)
        if PENALTY in y_pred:
            losses["loss"] = losses["loss"] + y_pred[PENALTY][0]
        return losses, count

    def _purge_model_variables(self, **_: bool) -> None:
        """Keras takes the values from the variables while a step runs; after an error there, they would be lost."""

    def stateless_call(self, trainable_variables: Any, *args: Any, **kwargs: Any) -> Any:
        """As Keras's, with a boundary between the gradients of the variables and what uses them."""
        # Without it, XLA fuses the optimizer's update with the sums of the backward pass, and computes these more than
        # once.
        return super().stateless_call(gradients_once(list(trainable_variables)), *args, **kwargs)

    def make_train_function(self, force: bool = False) -> None:
        """Compile the step of ``fit`` with the options of :func:`step_options`, which Keras has no argument for."""
        before: Any = getattr(self, "train_function")  # which Keras declares nowhere
        super().make_train_function(force)
        if before is not None and not force:
            return
        if not self.run_eagerly and self.jit_compile:
            self.train_function = self._make_function(self._compiled_step())

    def _compiled_step(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        placement, shardings = self.placement or placement_of_distribution(), None
        if placement is not None:
            shardings = jax.tree.map(lambda leaf: leaf.sharding, self._get_jax_state(True, True, True, True))
        # The state is donated: a step writes the new one into the memory of the old one.
        compiled: Any = jax.jit(weakly(self.train_step), donate_argnums=0,
                                compiler_options=step_options(self.network.compute_dtype),
                                out_shardings=None if shardings is None else (None, shardings))  # fmt: skip
        if placement is None or shardings is None:
            return compiled

        def step(state: Any, data: Any) -> tuple[Any, Any]:
            # Keras resets the metrics at the beginning of an epoch; elsewhere, they would need a second program.
            metrics = [value if value.sharding == sharding else placement.state(value)
                       for value, sharding in zip(state[-1], shardings[-1], strict=True)]  # fmt: skip
            try:
                with placement.answering():
                    logs, state = compiled((*state[:-1], metrics), data)
                    placement.settle(state)
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
        """The running means of :meth:`loss_values`, without Keras's own mean of the loss."""
        return list(self.trackers)
