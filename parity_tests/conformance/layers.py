"""Keras twins of what is one module in PyTorch and several calls in Keras."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

Widths = Sequence[tuple[int, int]]


class Twin(keras.layers.Layer):  # type: ignore[misc]
    """A layer of layers, each of which makes its variables when it is called."""

    def build(self, *_: Any) -> None:
        """Keras would try a symbolic call here, which not every twin can answer."""


class Padded(Twin):
    """A layer after a padding: ``widths`` before and after along every axis but the first of the batch."""

    def __init__(self, make: Any, widths: Widths, mode: str = "constant", value: float | None = None, **given: Any):
        super().__init__()
        self.inner, self.widths, self.mode, self.value = make(**given), widths, mode, value

    def call(self, x: Any) -> Any:
        value = {"constant_values": self.value} if self.value is not None else {}
        return self.inner(ops.pad(x, ((0, 0), *self.widths), mode=self.mode, **value))


class Cut(Twin):
    """A transposed convolution with ``valid``, less what PyTorch's ``padding`` takes off and more of what
    ``output_padding`` adds: ``widths`` cut off before and after along every axis; negative ones are zeros plus bias."""

    def __init__(self, make: Any, widths: Widths, **given: Any):
        super().__init__()
        self.inner, self.widths = make(**given), widths

    def call(self, x: Any) -> Any:
        made = self.inner(x)
        sides = [(max(-after, 0)) for _, after in self.widths]
        if any(sides):
            bias = self.inner.bias if self.inner.use_bias else 0.0
            made = ops.pad(made - bias, ((0, 0), *((0, side) for side in sides), (0, 0))) + bias
        cuts = [slice(before, size - max(after, 0)) for size, (before, after) in zip(made.shape[1:-1], self.widths)]  # noqa: B905
        return made[(slice(None), *cuts)]


class Function(Twin):
    """A function of ``keras.activations`` or ``keras.ops`` by name, with its options."""

    def __init__(self, name: str, **options: Any):
        super().__init__()
        self.activation = partial(getattr(keras.activations, name, None) or getattr(ops, name), **options)

    def call(self, x: Any) -> Any:
        return self.activation(x)


class Offset(Twin):
    """RMS normalisation whose scale is stored less one: x / rms(x) * (offset + scale)."""

    def __init__(self, epsilon: float, offset: float = 1.0):
        super().__init__()
        self.epsilon, self.offset = epsilon, offset

    def build(self, shape: Sequence[int]) -> None:
        self.scale = self.add_weight(shape=shape[-1:], name="scale")

    def call(self, x: Any) -> Any:
        return x * ops.rsqrt(ops.mean(ops.square(x), -1, keepdims=True) + self.epsilon) * (self.offset + self.scale)


class AfterStep(Twin):
    """A running statistic of batch normalization after one step of training."""

    def __init__(self, statistic: str, **given: Any):
        super().__init__()
        self.inner, self.statistic = keras.layers.BatchNormalization(**given), statistic

    def call(self, x: Any) -> Any:
        if not self.inner.built:
            self.inner.build(x.shape)
        before = [ops.copy(v.value) for v in self.inner.non_trainable_variables]
        self.inner(x, training=True)
        after = ops.copy(getattr(self.inner, self.statistic).value)
        for variable, value in zip(self.inner.non_trainable_variables, before, strict=True):
            variable.assign(value)  # what a second call finds is what was filled in
        return after


class Ordered(Twin):
    """An attention layer of Keras, which takes query, value and key, called with query, key and value."""

    def __init__(
        self, make: Any = keras.layers.MultiHeadAttention, mask: Any = None, causal: bool = False, **given: Any
    ):
        super().__init__()
        self.inner, self.mask, self.causal = make(**given), mask, causal

    def call(self, query: Any, key: Any, value: Any) -> Any:
        mask = None if self.mask is None else np.asarray(self.mask)
        return self.inner(query, value, key, attention_mask=mask, use_causal_mask=self.causal)


class Masked(Twin):
    """A recurrent layer told which steps count, zero at the others."""

    def __init__(self, make: Any, lengths: Sequence[int], inverted: bool = False, **given: Any):
        super().__init__()
        self.inner, self.lengths, self.inverted = make(**given), tuple(lengths), inverted

    def call(self, x: Any) -> Any:
        counts = np.arange(x.shape[1])[None] < np.asarray(self.lengths)[:, None]
        out = self.inner(x, mask=ops.convert_to_tensor(counts != self.inverted))
        return out * counts[..., None]


class Started(Twin):
    """A recurrent layer that begins with a state of ``value`` in every unit, or with zeros."""

    def __init__(self, make: Any, states: int, value: float, **given: Any):
        super().__init__()
        self.inner, self.states, self.value = make(**given), states, value

    def call(self, x: Any) -> Any:
        state = ops.full((x.shape[0], self.inner.units), self.value, dtype=x.dtype)
        return self.inner(x, initial_state=[state] * self.states)


class Stack(Twin):
    """Layers ``rnn_0``, ``rnn_1`` ..., one after the other; ``reverse`` runs them in the other order."""

    def __init__(self, make: Any, count: int, reverse: bool = False, **given: Any):
        super().__init__()
        self.count, self.reverse = count, reverse
        for at in range(count):
            setattr(self, f"rnn_{at}", make(**given))

    def call(self, x: Any) -> Any:
        for at in range(self.count)[:: -1 if self.reverse else 1]:
            x = getattr(self, f"rnn_{at}")(x)
        return x


class Cell(Twin):
    """One step of a recurrent cell from a state of 1/3 in every unit."""

    def __init__(self, make: Any, states: int, **given: Any):
        super().__init__()
        self.inner, self.states = make(**given), states

    def call(self, x: Any) -> Any:
        state = ops.full((x.shape[0], self.inner.units), 1 / 3, dtype=x.dtype)
        return self.inner(x, [state] * self.states)[0]


class Shuffle(Twin):
    """Depth to space with channels last: each channel of the output is ``r * r`` neighbouring ones of the input, or
    with ``channels_slowest`` false every c-th, as TensorFlow has it."""

    def __init__(self, r: int, channels_slowest: bool = True):
        super().__init__()
        self.r, self.slowest = r, channels_slowest

    def call(self, x: Any) -> Any:
        b, h, w, c = x.shape
        r, c = self.r, c // self.r**2
        if self.slowest:
            parts = ops.transpose(ops.reshape(x, (b, h, w, c, r, r)), (0, 1, 4, 2, 5, 3))
        else:
            parts = ops.transpose(ops.reshape(x, (b, h, w, r, r, c)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(parts, (b, h * r, w * r, c))
