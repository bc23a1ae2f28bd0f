"""Keras twins of :mod:`.graphs`, right and wrong ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
from keras import layers, ops


class Convolution(layers.Layer):
    def __init__(self, after: int, loops: bool = True, ends: tuple[int, int] = (0, 1), **options: Any) -> None:
        super().__init__(**options)
        self.after, self.loops, self.ends = after, loops, ends
        self.linear = layers.Dense(after, use_bias=False)

    def build(self, x_shape: Any, edges_shape: Any) -> None:
        self.linear.build(x_shape)
        self.bias = self.add_weight(shape=(self.after,), name="bias")

    def compute_output_shape(self, x_shape: Any, edges_shape: Any) -> Any:
        return (x_shape[0], self.after)

    def call(self, x: Any, edges: Any) -> Any:
        count = ops.shape(x)[0]
        source, target = edges[self.ends[0]], edges[self.ends[1]]
        if self.loops:
            nodes = ops.arange(count, dtype=edges.dtype)
            source, target = ops.concatenate([source, nodes]), ops.concatenate([target, nodes])
        degree = ops.segment_sum(ops.ones(ops.shape(target), dtype=x.dtype), target, count)
        weight = ops.rsqrt(ops.take(degree, source)) * ops.rsqrt(ops.take(degree, target))
        x = self.linear(x)
        return ops.segment_sum(weight[:, None] * ops.take(x, source, axis=0), target, count) + self.bias

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "after": self.after, "loops": self.loops, "ends": self.ends}


def edge_list(**options: Any) -> keras.Model:
    nodes = keras.Input(batch_shape=(None, 6), name="nodes")
    edges = keras.Input(batch_shape=(2, None), dtype="int32", name="edges")
    x = ops.relu(Convolution(16, name="first")(nodes, edges))
    return keras.Model([nodes, edges], Convolution(5, name="second", **options)(x, edges))


edge_list_turned = partial(edge_list, ends=(1, 0))


class Dense(keras.Model):
    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis
        self.own, self.others = layers.Dense(16, name="own"), layers.Dense(16, use_bias=False, name="others")
        self.norm, self.out = layers.LayerNormalization(epsilon=1e-5, name="norm"), layers.Dense(3, name="out")

    def call(self, x: Any, adj: Any) -> Any:
        weights = ops.abs(adj)
        weights = weights / ops.maximum(ops.sum(weights, self.axis, keepdims=True), 1e-6)
        return self.out(ops.relu(self.norm(self.own(x) + self.others(weights @ x))))


def dense() -> keras.Model:
    return Dense()


def dense_columns() -> keras.Model:
    return Dense(axis=0)


class Attention(layers.Layer):
    def __init__(self, after: int, heads: int, by: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.after, self.heads, self.by = after, heads, by
        self.linear = layers.Dense(heads * after, use_bias=False)

    def build(self, x_shape: Any, edges_shape: Any) -> None:
        self.linear.build(x_shape)
        shape = (self.heads, self.after)
        self.source, self.target = (self.add_weight(shape=shape, name=name) for name in ("source", "target"))

    def call(self, x: Any, edges: Any) -> Any:
        count = ops.shape(x)[0]
        x = ops.reshape(self.linear(x), (-1, self.heads, self.after))
        scores = ops.take(ops.sum(x * self.source, -1), edges[0], 0) + ops.take(
            ops.sum(x * self.target, -1), edges[1], 0
        )
        scores = ops.leaky_relu(scores, 0.2)
        highest = ops.segment_max(scores, edges[self.by], count)
        weights = ops.exp(scores - ops.take(highest, edges[self.by], 0))
        total = ops.segment_sum(weights, edges[self.by], count)
        weights = weights / (ops.take(total, edges[self.by], 0) + 1e-16)
        y = ops.segment_sum(weights[..., None] * ops.take(x, edges[0], 0), edges[1], count)
        return ops.reshape(y, (-1, self.heads * self.after))


class Attended(keras.Model):
    def __init__(self, by: int = 1) -> None:
        super().__init__()
        self.gat, self.out = Attention(4, 3, by, name="gat"), layers.Dense(5, name="out")

    def call(self, x: Any, edges: Any) -> Any:
        return self.out(ops.elu(self.gat(x, edges)))


def attended() -> keras.Model:
    return Attended()


def attended_by_source() -> keras.Model:
    return Attended(by=0)


def points(pooled: Any = ops.max) -> keras.Model:
    x = keras.Input(batch_shape=(None, 3), name="points")
    y = layers.Dense(16, activation="relu", name="lift_0")(x - ops.mean(x, 0))
    y = layers.Dense(16, name="lift_2")(y)
    y = ops.concatenate([pooled(y, 0, keepdims=True), ops.mean(y, 0, keepdims=True)], -1)
    y = layers.Dense(2, name="out_2")(layers.Dense(8, activation="relu", name="out_0")(y))
    return keras.Model(x, y[0])


def points_summed() -> keras.Model:
    return points(ops.sum)


class Words(keras.Model):
    def __init__(self, hidden: float = -1e9) -> None:
        super().__init__()
        self.hidden = hidden
        self.embed, self.qkv, self.proj = layers.Embedding(50, 16), layers.Dense(48), layers.Dense(16)
        self.norm, self.head = layers.LayerNormalization(epsilon=1e-5), layers.Dense(7)

    def call(self, ids: Any, mask: Any = None, bias: Any = None) -> Any:
        x = self.embed(ids)
        shape = ops.shape(x)
        q, k, v = ops.transpose(ops.reshape(self.qkv(self.norm(x)), (*shape[:2], 3, 2, 8)), (2, 0, 3, 1, 4))
        scores = q @ ops.swapaxes(k, -1, -2) / 8**0.5
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = ops.where(mask[:, None, None], scores, self.hidden)
        y = ops.reshape(ops.transpose(ops.softmax(scores) @ v, (0, 2, 1, 3)), shape)
        return self.head(x + self.proj(y))


def words() -> keras.Model:
    return Words()


def words_visible() -> keras.Model:
    return Words(hidden=0.0)


def mixed(turned: bool = False) -> keras.Model:
    """Takes a dictionary in another order than the statement of the inputs."""
    scale, fine, wide = (keras.Input((n,), name=name) for n, name in ((8, "scale"), (6, "fine"), (6, "wide")))
    first, second = (wide, fine) if not turned else (fine, wide)
    y = ops.relu(layers.Dense(8, name="left")(first)) + layers.Dense(8, name="right")(second)
    return keras.Model({"scale": scale, "image": {"fine": fine, "wide": wide}}, layers.Dense(3, name="out")(y * scale))


def mixed_turned() -> keras.Model:
    return mixed(turned=True)


class Mean(keras.Model):
    def __init__(self, least: float = 1.0) -> None:
        super().__init__()
        self.least = least
        self.layer, self.own, self.out = layers.Dense(8), layers.Dense(8, use_bias=False), layers.Dense(3)
        self.norm = layers.BatchNormalization(epsilon=1e-5)

    def call(self, x: Any, edges: Any) -> Any:
        source, target = ops.unstack(edges, axis=0)
        total = ops.segment_sum(ops.take(x, source, axis=0), target, x.shape[0])
        count = ops.segment_sum(ops.ones((edges.shape[1], 1), dtype=x.dtype), target, x.shape[0])
        y = self.norm(self.layer(total / ops.maximum(count, self.least)) + self.own(x))
        return ops.log_softmax(self.out(ops.relu(y)))


def averaged() -> keras.Model:
    return Mean()


def averaged_by_none() -> keras.Model:
    """Divides by zero where a node has no neighbours."""
    return Mean(least=0.0)
