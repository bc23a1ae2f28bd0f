"""Training with a loss between outputs and targets, and of masked language models, whose targets are tokens that the
network does not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import UsageError, printable
from wdport.families.registry import known_model
from wdport.families.user_functions import find_function
from wdport.models.interface import Array, KerasModel, Vocabulary
from wdport.models.keras_inputs import model_arguments, symbolic_inputs
from wdport.models.keras_runtime import call_names, said_by
from wdport.nets.random_bits import one_loop
from wdport.recording.errors import one_line
from wdport.uses.training.network_training import NetworkTraining, pair_of, refusal
from wdport.uses.training.training_data import Data, StateSource, arrays_of

LossFunction = Callable[[Any, Any], Any]
"""Takes targets and outputs (B, ...), and returns losses (B, ...)."""

MSE, CROSS_ENTROPY = "mse", "cross_entropy"
LOSSES: Final = (MSE, CROSS_ENTROPY)
"""Names of losses: the mean squared error, and the cross-entropy of classes (B, ...) and logits (B, ..., K)."""

MAX_REASON: Final = 110
"""Characters of an error of a model that fit a message."""

KEPT_SHARE, RANDOM_SHARE = 0.1, 0.1
"""Of the masked tokens, these shares are left as they are and replaced by random tokens. Source: Devlin et al., BERT,
arXiv:1810.04805, section 3.1."""


def require_none(transform: str | None) -> None:
    if transform is not None:
        raise UsageError("--transform", "is for a model of series", "leave it out")


class SummedTraining(NetworkTraining):
    """A loss that is a mean over the items of a batch: ``call`` returns the ``sum`` (B,) of the losses of every sample,
    the ``count`` (B,) of its items, and maybe ``hits`` (B,), how many of them are predicted right."""

    def loss_values(self, y_pred: dict[str, Tensor], weights: Tensor | None) -> tuple[dict[str, Tensor], Tensor | None]:
        # A sample of weight 0 that fills a batch may have targets whose loss is NaN.
        total = {name: jnp.sum(values if weights is None else jnp.where(weights == 0, 0, values * weights))
                 for name, values in y_pred.items()}  # fmt: skip
        # Without items, the loss is 0 instead of NaN.
        count = jnp.where(total["count"] > 0, total["count"], 1)
        losses = {"loss": total["sum"] / count}
        return losses | ({"accuracy": total["hits"] / count} if "hits" in total else {}), total["count"]


class SupervisedTraining(SummedTraining):
    """``fit`` takes pairs of inputs (N, ...), an array or a structure of them, and targets (N, ...)."""

    beside: ClassVar[str] = "targets"

    def __init__(self, network: KerasModel, loss: str | LossFunction, seed: int = 0) -> None:
        super().__init__(network, ("accuracy",) if loss == CROSS_ENTROPY else (), seed)
        self.loss_function = loss_function(loss)
        self.loss_name = loss if isinstance(loss, str) else name_of(loss)
        self.own_loss = loss not in LOSSES

    def call(self, inputs: Any, training: bool | None = None) -> dict[str, Tensor]:
        """The losses of every sample, see :class:`SummedTraining`."""
        samples, targets = pair_of(inputs, "inputs", "targets")
        outputs = self.network(*self._arguments(samples), training=training)
        losses = jnp.asarray(self._sample_losses(jnp.asarray(targets), outputs), self.variable_dtype)
        sums = losses.reshape(len(losses), -1).mean(axis=1)
        sample_losses = {"sum": sums, "count": jnp.ones_like(sums)}
        if self.loss_name == CROSS_ENTROPY:
            hits = jnp.argmax(outputs, axis=-1) == targets
            sample_losses["hits"] = hits.reshape(len(losses), -1).mean(axis=1, dtype=sums.dtype)
        return self.penalized(sample_losses)

    def _arguments(self, samples: Any) -> tuple[Any, ...]:
        """Arguments of the network's call."""
        return model_arguments(self.network, samples) if isinstance(samples, (list, tuple)) else (samples,)

    def _sample_losses(self, targets: Tensor, outputs: Any) -> Any:
        """The losses (B, ...) of a batch; raises :class:`UsageError` for a function that does not return them."""
        self._require_single(outputs)
        try:
            losses = self.loss_function(targets, outputs)
        except Exception as error:  # of the user's code, or targets that do not fit
            fix = "correct the function, or the targets"
            raise refusal("loss", f"{self.loss_name} raises {one_line(error)}", fix) from error
        shape, batch = getattr(losses, "shape", None), targets.shape[:1]
        if not shape or shape[:1] != batch:
            what = f"{self.loss_name} returns {'no array' if shape is None else f'the shape {tuple(shape)}'}"
            raise refusal("loss", what, "return the losses (B, ...) of all samples, not their mean")
        # NumPy's rules would pair every target with every output.
        if targets.ndim < len(shape) and targets.shape != shape and getattr(outputs, "shape", None) == (*batch, 1):
            what = f"have shape {targets.shape}, the outputs {outputs.shape}, and the losses {tuple(shape)}"
            raise refusal("targets", what, f"give {(*batch, 1)}")
        if self.loss_name == MSE and targets.shape != outputs.shape:
            raise refusal("targets", f"have shape {targets.shape}", f"give {tuple(outputs.shape)}")
        return losses

    def source(self, data: Data, stream: bool | None, beside: Array | None, transform: str | None) -> StateSource:
        """See :meth:`NetworkTraining.source`; ``beside`` are the targets."""
        require_none(transform)
        names = input_names(self.network)
        source = arrays_of(data, self.variable_dtype, stream, beside, names)
        if source.condition is None:
            raise UsageError("targets", f"are missing, and {self.loss_name} needs them", "give those of all samples")
        self._require_stated(source, source.keys or tuple(names))
        self._require_fit(source.feed(np.zeros(1, np.int32)), source)
        return source

    def _require_stated(self, source: StateSource, names: tuple[str, ...]) -> None:
        """Raise :class:`UsageError` for inputs, of these names, that are not those that the network states."""
        arrays, symbolic = [source.data, *source.others], symbolic_inputs(self.network)
        registration = known_model(self.network)
        family: Any = registration and registration[0]
        ports = family.signature(registration[1]).inputs if registration else ()
        for index, array in enumerate(arrays):
            where = ("data", names[index]) if len(arrays) > 1 and index < len(names) else "data"
            tensor = symbolic[index] if len(symbolic) == len(arrays) else None
            integers = ports[index].integers if index < len(ports) and ports[index].kind == "int" else None
            shape: Any = getattr(tensor, "shape", None)
            # Keras adds or removes a last axis of 1.
            same_rank = isinstance(shape, tuple) and len(shape) == array.ndim
            if same_rank and not _fits(array.shape[1:], shape[1:]):
                what = f"do not fit the model: a sample has shape {array.shape[1:]}, and the model takes {shape[1:]}"
                raise UsageError(where, what, "give the inputs of the model")
            is_integer = integers is not None or "int" in str(getattr(tensor, "dtype", ""))
            if is_integer and array.dtype.kind == "f" and not np.array_equal(array, np.rint(array)):
                raise UsageError(where, "have fractions, and the model takes whole numbers", "give whole numbers")
            if integers is not None and (array.min() < integers.start or array.max() >= integers.stop):
                what = f"have values from {array.min()} to {array.max()}"
                raise UsageError(where, what, f"give {integers.start} to {integers.stop - 1}, or correct the table")

    def _require_fit(self, fed: Array, source: StateSource) -> None:
        """Raise :class:`UsageError` if the network does not take the samples, or its outputs do not fit the targets."""
        targets = source.condition
        assert targets is not None
        sample = jax.eval_shape(source.take, source.held, fed)
        others = [jax.ShapeDtypeStruct((1, *array.shape[1:]), array.dtype) for array in source.others]
        try:
            # Not a plain call, in which layers with dropout would keep values of the tracing.
            output: Any = jax.eval_shape(self._network_output, source.structure([sample, *others]))
        except Exception as error:  # Keras has no class of its own for them
            expected = getattr(self.network, "input_shape", None)
            if isinstance(expected, tuple) and not _fits(sample.shape, expected):
                reason = f"and the model takes {expected[1:]}"
            else:
                reason = _reason(error)
            what = f"do not fit the model: a sample has shape {sample.shape[1:]}, {printable(reason, None)}"
            raise UsageError("data", what, "give the inputs of the model") from None
        self._require_single(output)
        if self.own_loss:
            return
        expected = output.shape[1:] if self.loss_name == MSE else output.shape[1:-1]
        if targets.shape[1:] != expected:
            what = f"have shape {targets.shape}"
            raise UsageError("targets", what, f"give ({', '.join(map(str, (len(targets), *expected)))})")
        if self.loss_name == CROSS_ENTROPY:
            classes = output.shape[-1]
            if targets.dtype.kind not in "iu":
                raise UsageError("targets", f"have the dtype {targets.dtype}", "give classes, whole numbers")
            if targets.min() < 0 or targets.max() >= classes:
                raise UsageError("targets", "have other classes than the model", f"give 0 to {classes - 1}")

    def _require_single(self, outputs: Any) -> None:
        if not self.own_loss and not hasattr(outputs, "shape"):
            raise refusal("loss", f"{self.loss_name} is for a model of one output", "give a function")

    def _network_output(self, samples: Any) -> Any:
        variables = ([variable.value for variable in group]
                     for group in (self.network.trainable_variables, self.network.non_trainable_variables))  # fmt: skip
        mode = {"training": False} if self.network._call_has_training_arg else {}
        return self.network.stateless_call(*variables, *self._arguments(samples), **mode)[0]

    def settings(self) -> dict[str, Any]:
        return {"loss": self.loss_name}


def input_names(network: KerasModel) -> dict[str, bool]:
    """The names of a network's inputs, and whether it needs them: those of its mapping table, of its symbolic inputs,
    or of its ``call``; empty if that has a single argument."""
    if (registration := known_model(network)) is not None:
        family: Any = registration[0]
        return {port.keras_name or port.name: not port.optional for port in family.signature(registration[1]).inputs}
    struct = getattr(network, "_inputs_struct", None)
    if struct is not None:
        return dict.fromkeys(struct if isinstance(struct, dict) else (tensor.name for tensor in network.inputs), True)
    names = [name for name in call_names(network) if name not in ("training", "mask")]
    # A single argument may be a list or a dictionary. Which of several have defaults, a call shows.
    return {name: name == names[0] for name in names} if len(names) > 1 else {}


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(size in (None, length) for length, size in pairs)


def _reason(error: Exception) -> str:
    """What an error of a model says; its class if that is long."""
    text = said_by(error)
    says = 0 < len(text) < MAX_REASON
    return f"and the model says: {text}" if says else f"and the model raises {type(error).__name__}"


def name_of(function: Any) -> str:
    """``module:name`` of a function, or of the class of another object that can be called."""
    named = function if hasattr(function, "__name__") else type(function)
    return f"{named.__module__}:{named.__name__}"


def loss_function(loss: str | LossFunction) -> LossFunction:
    """The function of a name of :data:`LOSSES`, or of ``module:function``; raises :class:`UsageError`."""
    if callable(loss):
        return loss
    if loss == MSE:
        return lambda targets, outputs: (outputs - targets.astype(outputs.dtype)) ** 2
    if loss == CROSS_ENTROPY:
        return cross_entropy
    if not isinstance(loss, str) or ":" not in loss:
        raise UsageError("loss", f"{loss!r} is unknown", f"give {', '.join(LOSSES)} or MODULE:FUNCTION")
    return find_function(loss)


def cross_entropy(classes: Tensor, logits: Tensor) -> Tensor:
    """The cross-entropy (...) of classes (...) and logits (..., K), at least in float32; NaN for other classes."""
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    chosen = jnp.take_along_axis(wide, classes[..., None], axis=-1)[..., 0]
    is_class = (classes >= 0) & (classes < logits.shape[-1])
    return jnp.where(is_class, jax.nn.logsumexp(wide, axis=-1) - chosen, jnp.nan)


class MaskedTraining(SummedTraining):
    """Trains a masked language model: ``fit`` takes tokens (N, L), of which every step masks others.

    Of the masked tokens, 80 % become the mask token, 10 % a random one, and 10 % stay. The loss is the mean
    cross-entropy of the masked tokens. Tokens ``padding`` are neither masked nor read.
    """

    def __init__(
        self, network: KerasModel, vocabulary: Vocabulary, rate: float = 0.15, span: int = 1, seed: int = 0
    ) -> None:
        super().__init__(network, ("accuracy",), seed)
        self.vocabulary, self.rate, self.span = vocabulary, rate, span

    def call(self, inputs: Any, training: bool | None = None) -> dict[str, Tensor]:
        """The losses of the masked tokens of every sample, see :class:`SummedTraining`."""
        tokens = jnp.asarray(inputs)
        visible = jnp.ones(tokens.shape, bool) if self.vocabulary.padding is None else tokens != self.vocabulary.padding
        masked, corrupted = self.corrupt(self.key(training), tokens, visible)
        logits = self.network((corrupted, visible), training=training)
        counted = masked.astype(self.variable_dtype)
        losses = jnp.where(masked, cross_entropy(tokens, logits).astype(self.variable_dtype), 0)
        hits = (jnp.argmax(logits, axis=-1) == tokens) * counted
        sums = {"sum": losses.sum(axis=1), "count": counted.sum(axis=1), "hits": hits.sum(axis=1)}
        return self.penalized(sums)

    def corrupt(self, key: Tensor, tokens: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Which tokens (B, L) are masked, and what the network gets in place of all."""
        first, second, third = (one_loop(part) for part in jax.random.split(key, 3))
        # A token is masked if a span begins at it or at one of the span - 1 before it.
        begins = jax.random.bernoulli(first, 1.0 - (1.0 - self.rate) ** (1.0 / self.span),
                                      (len(tokens), tokens.shape[1] + self.span - 1))  # fmt: skip
        covered = begins[:, : tokens.shape[1]]
        for offset in range(1, self.span):
            covered = covered | begins[:, offset : offset + tokens.shape[1]]
        masked = visible & covered
        kind = jax.random.uniform(second, tokens.shape)
        random = jax.random.randint(third, tokens.shape, 0, self.vocabulary.size, tokens.dtype)
        assert self.vocabulary.mask is not None
        replaced = jnp.where(kind < KEPT_SHARE, tokens, jnp.where(kind < KEPT_SHARE + RANDOM_SHARE, random,
                                                                  self.vocabulary.mask))  # fmt: skip
        return masked, jnp.where(masked, replaced, tokens)

    def source(self, data: Data, stream: bool | None, beside: Array | None, transform: str | None) -> StateSource:
        """See :meth:`NetworkTraining.source`; ``data`` are tokens (n, L)."""
        require_none(transform)
        source = arrays_of(data, self.variable_dtype, stream, None, {"tokens": True})
        tokens = source.data
        size = self.vocabulary.size
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() >= size:
            raise UsageError("data", "are not tokens of the model", f"give whole numbers (n, L) from 0 to {size - 1}")
        return source

    def settings(self) -> dict[str, Any]:
        return {"mask_rate": self.rate, "mask_span": self.span}
