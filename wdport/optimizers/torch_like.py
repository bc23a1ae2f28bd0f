"""Keras optimizers with PyTorch's arithmetic: Adam, AdamW and SGD, with parameter groups and clipping by norm.

Keras's own differ from `torch.optim`: its Adam adds epsilon before the bias correction, its SGD multiplies the momentum
by the learning rate, and it has no parameter groups. References: Kingma and Ba, arXiv 1412.6980; Loshchilov and Hutter,
arXiv 1711.05101; Sutskever et al., ICML 2013; `torch.optim` of PyTorch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
from jax import Array as Tensor

from wdport.base.errors import UsageError
from wdport.models.interface import Array, KerasVariable

CLIP_EPSILON = 1e-6
"""The constant that `torch.nn.utils.clip_grad_norm_` adds to the norm."""


def clip_factor(gradients: Sequence[Tensor | Array], largest: float) -> Tensor:
    """Return the factor for every gradient that makes their norm over all parameters at most ``largest``."""
    norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
    return jnp.minimum(largest / (norm + CLIP_EPSILON), 1.0)


@dataclass(frozen=True)
class AdamGroup:
    """Hyper-parameters of a group under Adam, with torch's names and defaults.

    ``decoupled_weight_decay`` is AdamW: the decay is not part of the gradient.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    amsgrad: bool = False
    maximize: bool = False
    decoupled_weight_decay: bool = True


@dataclass(frozen=True)
class SGDGroup:
    """Hyper-parameters of a group under SGD, with torch's names and defaults."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False


def ema_decay(decay: float, steps: Tensor) -> Tensor:
    """The decay of a moving average at the step after ``steps`` others, as diffusers' ``EMAModel`` computes it: 0 at
    the first, which copies the weights, and then rising to ``decay``. With the same decay everywhere, 91 % of the
    average after 96 steps would be the initial weights."""
    return jnp.where(steps > 0, jnp.minimum(decay, (1.0 + steps) / (10.0 + steps)), 0.0)


class _TableRate(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of the first group, for progress bars and logs."""

    def __init__(self, rates: Array, start: int) -> None:
        self.rates, self.start = rates, start

    def __call__(self, step: Any) -> Tensor:
        return _at(self.rates, jnp.array(step) - self.start, jnp.result_type(float))

    def get_config(self) -> dict[str, object]:
        return {"rates": self.rates.tolist(), "start": self.start}


class TorchOptimizer(keras.optimizers.Optimizer):
    """Base class of the optimizers, with parameter groups, learning rates for every step, and clipping.

    Args:
        groups: the groups' hyper-parameters.
        members: for every trainable variable of the model, in order, the number of its group; None for the first.
        rates: learning rate of every step and group, (S,) or (S, G), instead of the groups' own rates; after the last
            step, the last rate applies.
        momenta: the same for ``betas[0]`` or ``momentum``, if it is scheduled too.
        clip_norm: the gradients are multiplied by a common factor so that their norm over all variables is at most
            this, as ``torch.nn.utils.clip_grad_norm_`` does.
        late: for every trainable variable, how many fewer steps it took than the others; None if all took the same
            number.
        start: number of steps taken before the first entry of ``rates`` and ``momenta``.
        use_ema: Keras's moving average of the weights, whose decay rises as :func:`ema_decay` states.
        ema_momentum: the decay that it rises to.
        gradient_accumulation_steps: Keras's number of batches whose mean gradient one step uses.

    Without ``rates``, you can set the learning rate of the first group with ``optimizer.learning_rate = 1e-4``; the
    rates of the other groups keep their ratio to it.
    """

    Group: type

    @property
    def moments(self) -> dict[str, list[KerasVariable | None]]:
        """The state variables by PyTorch's name for the moment, one for each trainable variable."""
        raise NotImplementedError

    def __init__(
        self,
        groups: Sequence[Any],
        members: Sequence[int] | None = None,
        rates: Array | Sequence[object] | None = None,
        momenta: Array | Sequence[object] | None = None,
        clip_norm: float | None = None,
        late: Sequence[int] | None = None,
        start: int = 0,
        name: str | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        gradient_accumulation_steps: int | None = None,
        **unsupported: object,
    ) -> None:
        # Keras stores its own arguments in a configuration; their defaults are accepted.
        if rejected := {key for key, value in unsupported.items() if value not in (None, False)}:
            raise UsageError(sorted(rejected)[0], "is not an argument of this optimizer", "leave it out")
        if not groups:
            raise UsageError("groups", "is empty", "give at least one group")
        parsed_groups = tuple(group if not isinstance(group, Mapping) else self._group(group) for group in groups)
        rate_table = _table("rates", rates, len(parsed_groups))
        momentum_table = _table("momenta", momenta, len(parsed_groups))
        rate = _TableRate(rate_table[:, 0], start) if rate_table is not None else float(parsed_groups[0].lr)
        super().__init__(rate, name=name, use_ema=use_ema, ema_momentum=ema_momentum,
                         gradient_accumulation_steps=gradient_accumulation_steps)  # fmt: skip
        self._final_averages = True
        self.groups, self.rates, self.momenta = parsed_groups, rate_table, momentum_table
        self.members = tuple(members) if members is not None else None
        self.clip_norm = clip_norm
        self.late = tuple(late) if late is not None else None
        self.start = start

    @classmethod
    def _group(cls, options: Mapping[str, Any]) -> Any:
        names = {field.name for field in fields(cls.Group)}
        if wrong := set(options) - names:
            raise UsageError(sorted(wrong)[0], f"is not a setting of {cls.__name__}", f"known: {', '.join(names)}")
        return cls.Group(**{name: tuple(value) if name == "betas" else value for name, value in options.items()})

    @property
    def averages(self) -> list[KerasVariable]:
        """The moving averages of the trainable variables, in their order; none if they are not averaged."""
        return list(self._model_variables_moving_average) if self.use_ema else []

    def start_average(self, decay: float) -> None:
        """Average the variables from the next step on with ``decay``; ``fit`` does not replace the weights with the
        averages at its end. The optimizer is built."""
        if not self.averages:
            self._model_variables_moving_average = self.add_optimizer_variables(self._trainable_variables, "average")
        self.use_ema, self.ema_momentum, self._final_averages = True, decay, False

    def finalize_variable_values(self, var_list: Sequence[KerasVariable]) -> None:
        """As Keras's, which replaces the weights with their averages; not after :meth:`start_average`."""
        if self._final_averages:
            super().finalize_variable_values(var_list)

    @property
    def _taken(self) -> Tensor:
        """The steps that were taken; batches whose gradients are only accumulated are none."""
        return jnp.asarray(self.iterations)

    def _clip_gradients(self, grads: Sequence[Any]) -> list[Any]:
        """Called by Keras, with accumulated gradients where they are accumulated."""
        if self.clip_norm is None:
            return list(grads)
        factor = clip_factor(grads, self.clip_norm)
        return [gradient * factor for gradient in grads]

    def _update_model_variables_moving_average(self, trainable_variables: Sequence[KerasVariable]) -> None:
        decay, counted = ema_decay(self.ema_momentum, self._taken - self.start), None
        if accumulated := self.gradient_accumulation_steps:
            counted = (self._iterations.value + 1) % accumulated == 0
        for variable, average in zip(trainable_variables, self._model_variables_moving_average, strict=True):
            value = (decay * average.value + (1.0 - decay) * variable.value).astype(average.dtype)
            average.assign(value if counted is None else jnp.where(counted, value, average.value))

    def _member(self, index: int) -> int:
        return self.members[index] if self.members is not None else 0

    def _rate(self, group: int, dtype: Any) -> Tensor:
        if self.rates is not None:
            return _at(self.rates[:, group], self._taken - self.start, dtype)
        first = np.asarray(self.groups[0].lr, self.learning_rate.dtype)
        # The rates of the other groups have no ratio to a rate of 0.
        if not first:
            return jnp.asarray(self.groups[group].lr if group else self.learning_rate.value, dtype)
        # Keras's variable has Keras's default dtype; unless it is set, the quotient is 1 exactly
        scale: Tensor = self.learning_rate.value.astype(dtype) / jnp.asarray(first, dtype)
        return scale * float(self.groups[group].lr)

    def _momentum(self, group: int, constant: float, dtype: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The momentum m, 1 - m and log m of this step, each rounded once from float64."""
        table = np.array([constant]) if self.momenta is None else self.momenta[:, group]
        # The logarithm of 0 is -inf, for which the bias correction is 1.
        with np.errstate(divide="ignore"):
            forms = (table, 1.0 - table, np.log(table))
        first, rest, log = (_at(form, self._taken - self.start, dtype) for form in forms)
        return first, rest, log

    def _step(self, index: int, dtype: Any) -> Tensor:
        """The number of this step for a variable, from 1."""
        late = self.late[index] if self.late is not None else 0
        step: Tensor = (self._taken + (1 - late)).astype(dtype)
        return step

    def get_config(self) -> dict[str, Any]:
        """The arguments, for Keras's own files."""
        return {
            "groups": [asdict(group) for group in self.groups],
            "members": self.members,
            "rates": None if self.rates is None else self.rates.tolist(),
            "momenta": None if self.momenta is None else self.momenta.tolist(),
            "clip_norm": self.clip_norm,
            "late": self.late,
            "start": self.start,
            "name": self.name,
            "use_ema": self.use_ema,
            "ema_momentum": self.ema_momentum,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: object = None) -> TorchOptimizer:
        """The inverse of :meth:`get_config`."""
        return cls(**config)


@keras.saving.register_keras_serializable("wdport")
class Adam(TorchOptimizer):
    """Adam and AdamW as `torch.optim` computes them: epsilon is added after the bias correction."""

    Group = AdamGroup

    @property
    def moments(self) -> dict[str, list[KerasVariable | None]]:
        """First and second moments and, for AMSGrad, the largest second moments."""
        return {"exp_avg": self.first, "exp_avg_sq": self.second, "max_exp_avg_sq": self.largest}

    def build(self, variables: Sequence[KerasVariable]) -> None:
        """Create the moments of every variable, initialized to zero."""
        if self.built:
            return
        super().build(variables)
        self.first = self.add_optimizer_variables(variables, "exp_avg")
        self.second = self.add_optimizer_variables(variables, "exp_avg_sq")
        ams = [self.groups[self._member(index)].amsgrad for index in range(len(variables))]
        self.largest = [self.add_variable_from_reference(variable, "max_exp_avg_sq") if one else None
                        for variable, one in zip(variables, ams, strict=True)]  # fmt: skip

    def update_step(self, gradient: Any, variable: KerasVariable, learning_rate: Any) -> None:
        """One step of one variable."""
        index, dtype = self._get_variable_index(variable), jnp.dtype(variable.dtype)
        number = self._member(index)
        group: AdamGroup = self.groups[number]
        rate = self._rate(number, dtype)
        beta1, rest1, log1 = self._momentum(number, group.betas[0], dtype)
        step = self._step(index, dtype)
        slope, value = jnp.asarray(gradient, dtype), variable.value
        slope = -slope if group.maximize else slope
        if group.weight_decay and group.decoupled_weight_decay:
            value = value * (1.0 - rate * group.weight_decay)
        elif group.weight_decay:
            slope = slope + group.weight_decay * value
        first = self.first[index].value * beta1 + rest1 * slope
        second = self.second[index].value * group.betas[1] + (1.0 - group.betas[1]) * (slope * slope)
        size = second
        if (maximum := self.largest[index]) is not None:
            size = jnp.maximum(maximum.value, second)
            maximum.assign(size)
        # 1 - beta ** step, without the loss of digits that float32 has there
        correction1, correction2 = -jnp.expm1(step * log1), -jnp.expm1(step * _log(group.betas[1]))
        size = jnp.sqrt(size) / jnp.sqrt(correction2) + group.eps
        self.first[index].assign(first)
        self.second[index].assign(second)
        variable.assign(value - rate / correction1 * (first / size))


@keras.saving.register_keras_serializable("wdport")
class SGD(TorchOptimizer):
    """SGD as `torch.optim.SGD` computes it: the momentum does not contain the learning rate."""

    Group = SGDGroup

    @property
    def moments(self) -> dict[str, list[KerasVariable | None]]:
        """The momentum."""
        return {"momentum_buffer": self.buffer}

    def build(self, variables: Sequence[KerasVariable]) -> None:
        """Create the momentum of every variable, initialized to zero."""
        if self.built:
            return
        super().build(variables)
        self.buffer = self.add_optimizer_variables(variables, "momentum_buffer")

    def update_step(self, gradient: Any, variable: KerasVariable, learning_rate: Any) -> None:
        """One step of one variable."""
        index, dtype = self._get_variable_index(variable), jnp.dtype(variable.dtype)
        number = self._member(index)
        group: SGDGroup = self.groups[number]
        slope, value = jnp.asarray(gradient, dtype), variable.value
        slope = -slope if group.maximize else slope
        if group.weight_decay:
            slope = slope + group.weight_decay * value
        if group.momentum:
            momentum, _, _ = self._momentum(number, group.momentum, dtype)
            share = jnp.asarray(1.0 - group.dampening, dtype)
            if group.dampening:  # torch begins with the gradient itself
                share = jnp.where(self._step(index, dtype) <= 1, jnp.ones((), dtype), share)
            buffer = self.buffer[index].value * momentum + share * slope
            self.buffer[index].assign(buffer)
            slope = slope + momentum * buffer if group.nesterov else buffer
        variable.assign(value - self._rate(number, dtype) * slope)


def last_rate(optimizer: keras.optimizers.Optimizer) -> float:
    """The learning rate of the last step; of the first group, if there are groups, and of the next step for a schedule
    of Keras."""
    if not isinstance(optimizer, TorchOptimizer) or optimizer.rates is None:
        return float(np.asarray(optimizer.learning_rate))
    rates = optimizer.rates
    # Beyond the last rate, it holds.
    last = int(np.asarray(optimizer._taken)) - 1 - optimizer.start
    return float(rates[min(max(last, 0), len(rates) - 1), 0])


def _table(name: str, values: Array | Sequence[object] | None, groups: int) -> Array | None:
    if values is None:
        return None
    table = np.asarray(values, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or not len(table) or table.shape[1] not in (1, groups):
        expected = f"(steps,) or (steps, {groups})"
        raise UsageError(name, f"has shape {table.shape}, not {expected}", "give one column for each group")
    return np.broadcast_to(table, (len(table), groups))


def _at(table: Array, step: Tensor, dtype: Any) -> Tensor:
    # A table of one value is a constant of the program, and takes no memory on the device.
    values = np.unique(table)
    if len(values) == 1:
        return jnp.asarray(values[0], dtype)
    # After its last step the table's last rate holds.
    return jnp.asarray(table, dtype)[jnp.clip(step, 0, len(table) - 1)]


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0.0 else -math.inf
