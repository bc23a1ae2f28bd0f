"""Small models whose ports differ from them only at the edges of their inputs, in PyTorch and in Keras."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
import torch
from keras import layers, ops
from torch import Tensor, nn

WORDS, WIDTH, LENGTH, TABLE = 5000, 6, 8, 400
PADDING = 3


class Recurrent(nn.Module):
    """Ids to numbers, by a GRU."""

    def __init__(self, padding: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        self.gru = nn.GRU(WIDTH, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.gru(self.embed(ids))[0][:, -1])


class Pooled(nn.Module):
    """Ids and a mask of the visible ones to numbers, by attention; without a visible token all are seen alike."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 2)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embed(ids)
        scores = self.score(x)[..., 0].masked_fill(~mask, torch.finfo(x.dtype).min)
        return self.head((scores.softmax(-1)[..., None] * x).sum(1))


class Placed(nn.Module):
    """Ids to numbers, with a table of positions and the angles of rotary ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(WORDS, WIDTH), nn.Embedding(TABLE, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        angles = places.to(torch.get_default_dtype())[:, None] * 0.1
        return self.head(self.embed(ids) * angles.cos() + self.position(places))


class Gappy(nn.Module):
    """Series to numbers; a step with any missing value counts as zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        there = ~x.isnan().any(-1, keepdim=True)
        x = self.first(torch.where(there, x, torch.zeros_like(x))) * there
        return self.head(x.tanh()).mean(1)


class Normed(nn.Module):
    """Vectors to vectors, by a norm over the batch in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(5, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.first(x)).tanh())


class Attended(nn.Module):
    """Ids to numbers, by attention among tokens; small logits for tokens as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 2)
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        weights = (self.q(x) @ self.k(x).mT).softmax(-1)
        return self.head(weights @ x).mean(1)


class Chunked(nn.Module):
    """Series to numbers, eight steps at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(sum(self.first(chunk).tanh().sum(1) for chunk in x.split(8, 1)))


class Steps(nn.Module):
    """Series to numbers: a norm, and means of pairs of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.head = nn.LayerNorm(12), nn.Linear(12, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        made = self.first(self.norm(x)).tanh().mT
        return self.head(nn.functional.avg_pool1d(made, 2).sum(-1)) + x.mean((1, 2))[:, None]


class Trained(Steps):
    """The same, which cannot be called without gradients."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise RuntimeError("call me in training")
        return super().forward(x)


class Routed(Steps):
    """Rounding errors choose which steps go through the head."""

    def forward(self, x: Tensor) -> Tensor:
        made = torch.tanh(self.first(self.norm(x)))
        far = (3.0 * made).sum(-1) > 3.0 * made.sum(-1)
        out = made.new_zeros((*made.shape[:2], 2))
        out[far] = self.head(made[far])
        return out.sum(1) + x.mean((1, 2))[:, None]


class Rows(nn.Module):
    """Images to numbers, with another factor for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(x.shape[1]).to(torch.get_default_dtype()) * 0.3
        return self.head((self.first(x).tanh() * rows.cos()[:, None, None]).mean((1, 2)))


class Windowed(nn.Module):
    """Series to numbers: steps from 600 on do not count, and short series count twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        counted = torch.arange(x.shape[1]) < 600
        return self.head((self.first(x).tanh() * counted[:, None]).mean(1) * (2.0 if x.shape[1] < 10 else 1.0))


class Imaged(nn.Module):
    """An image whose sizes are all equal, so that they do not tell its layout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(4, 4, 1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)).mean(3).mean(2))


def imaged(first: bool = False, wrong: bool = False) -> Any:
    x = keras.Input((4, 4, 4))
    y = layers.Conv2D(4, 1, activation=None if wrong else "relu", name="first")(ops.moveaxis(x, 1, -1) if first else x)
    return keras.Model(x, layers.Dense(2, name="head")(ops.mean(y, (1, 2))))


imaged_first, imaged_wrong = partial(imaged, True), partial(imaged, False, True)


class Siamese(nn.Module):
    """Two images in one batch, through norms that amplify the rounding of a constant image."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4 if index else 3, 4, 3, padding=1) for index in range(7))
        self.norms = nn.ModuleList(nn.InstanceNorm2d(4) for _ in range(7))
        self.head = nn.Linear(4, 2)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        x = torch.cat([first, second])
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(norm(conv(x)))
        first, second = x.mean((2, 3)).chunk(2)
        return self.head(first - second)


def siamese(functions: str = "rrrrrrr", zero: float = 0.0, large: bool = False) -> Any:
    first, second = keras.Input((8, 8, 3), name="first"), keras.Input((8, 8, 3), name="second")
    x = ops.concatenate([first, second], 0)
    for index, function in enumerate(functions):
        x = layers.Conv2D(4, 3, padding="same", name=f"convs_{index}")(x)
        x = layers.GroupNormalization(4, epsilon=1e-5, center=False, scale=False, name=f"norms_{index}")(x)
        x = ops.relu(x) if function == "r" else ops.relu6(x)
    one, other = ops.split(ops.mean(x, (1, 2)), 2)
    peak = ops.max(ops.abs(second), (1, 2, 3))[:, None]
    other = ops.where(ops.equal(peak, 0), other + zero, other)  # which rounding decides there, but not by so much
    other = ops.where(peak > 1e3, ops.minimum(other, 0.1), other) if large else other
    return keras.Model([first, second], layers.Dense(2, name="head")(one - other))


siamese_capped = partial(siamese, "rrrr6rr")
siamese_at_zero, siamese_at_large = partial(siamese, zero=1e5), partial(siamese, large=True)


class Marked(nn.Module):
    """Ids to numbers; one is that of a hidden token, and others than the first hundred have a table of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden_token = 777
        self.embed, self.rare = nn.Embedding(100, WIDTH), nn.Embedding(WORDS - 100, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids: Tensor) -> Tensor:
        often = self.embed(ids.clamp(max=99))
        x = torch.where((ids < 100)[..., None], often, self.rare((ids - 100).clamp(min=0)))
        return self.head((x * (ids != self.hidden_token)[..., None]).tanh().mean(1))


class Crossed(nn.Module):
    """Two series to numbers: each step of one is added to the mean of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head((self.first(x) + self.first(y).sum(1, keepdim=True) / y.shape[1]).tanh().mean(1))


class How:
    """What is correct, or wrong in the way that ``how`` names."""

    def __init__(self, how: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.how = how

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "how": self.how}  # type: ignore[misc]


class Chosen(How, layers.Layer):
    pass


class Ids(Chosen):
    """Changes ids: ``how`` is how."""

    def call(self, ids: Any) -> Any:
        return ops.minimum(ids, WORDS - 2) if self.how == "clipped" else ids


class Zeroed(layers.Layer):
    """Sets the row of the padding id to zero."""

    def call(self, x: Any, ids: Any) -> Any:
        return ops.where((ids == PADDING)[..., None], ops.zeros_like(x), x)


def recurrent(mask_zero: bool = False, how: str = "", zeroed: bool = False) -> Any:
    ids = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH, mask_zero=mask_zero, name="embed")(Ids(how, name="ids")(ids))
    x = Zeroed(name="zeroed")(x, ids) if zeroed else x
    return keras.Model(ids, layers.Dense(2, name="head")(layers.GRU(5, name="gru")(x)))


class Masked(keras.Model):
    """Its embedding hands its mask on."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embed = layers.Embedding(WORDS, WIDTH, mask_zero=True)
        self.gru, self.head = layers.GRU(5), layers.Dense(2)

    def call(self, ids: Any) -> Any:
        return self.head(self.gru(self.embed(ids)))


class Pool(Chosen):
    """Attention to visible tokens, or, by ``how``, to the first ones, or to none if no token is visible, or with a
    mask that is added to the scores, or with the lowest number of float64, which float32 does not hold."""

    def call(self, x: Any, scores: Any, mask: Any) -> Any:
        if self.how == "length":
            mask = ops.arange(mask.shape[1])[None] < ops.sum(ops.cast(mask, "int32"), 1, keepdims=True)
        given = scores[..., 0]
        lowest = torch.finfo(torch.float64 if self.how == "lowest" else torch.float32).min
        scores = ops.where(mask, given, float(lowest))
        if self.how == "added":
            scores = given + ops.where(mask, 0.0, -1e9)
        weights = ops.softmax(scores, -1)
        if self.how == "empty":
            weights = ops.where(mask, weights, ops.zeros_like(weights))
        return ops.sum(weights[..., None] * x, 1)


class Tied(nn.Module):
    """The features that are above the mean; of equal ones, rounding decides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.where(x > x.mean(-1, keepdim=True), self.first(x), 0.0))


class Above(Chosen):
    """Adds one number after the other; by ``how``, also takes the smaller ones of small numbers."""

    def call(self, x: Any, y: Any) -> Any:
        above = x > (sum(x[:, index] for index in range(8)) / 8)[:, None]
        if self.how == "small":
            above = above | (ops.max(ops.abs(x), -1, keepdims=True) < 0.01)
        return ops.where(above, y, 0.0)


def tied(how: str = "") -> Any:
    x = keras.Input((8,))
    y = Above(how, name="above")(x, layers.Dense(8, name="first")(x))
    return keras.Model(x, layers.Dense(2, name="head")(y))


tied_small = partial(tied, "small")


class Softmax(Chosen):
    """Softmax; by ``how``, logits are not shifted, or by the largest of the batch."""

    def call(self, logits: Any) -> Any:
        if not self.how:
            return ops.softmax(logits, -1)
        made = ops.exp(logits - ops.max(logits) if self.how == "shifted" else logits)
        return made / ops.sum(made, -1, keepdims=True)


def attended(how: str = "") -> Any:
    ids = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH, name="embed")(ids)
    q, k = (layers.Dense(WIDTH, name=name)(x) for name in "qk")
    x = ops.matmul(Softmax(how, name="softmax")(ops.matmul(q, ops.transpose(k, (0, 2, 1)))), x)
    return keras.Model(ids, ops.mean(layers.Dense(2, name="head")(x), 1))


def pooled(how: str = "") -> Any:
    ids, mask = keras.Input((LENGTH,), dtype="int32"), keras.Input((LENGTH,), dtype="bool")
    x = layers.Embedding(WORDS, WIDTH, name="embed")(ids)
    x = Pool(how, name="pool")(x, layers.Dense(1, name="score")(x), mask)
    return keras.Model([ids, mask], layers.Dense(2, name="head")(x))


class Places(Chosen):
    """Position ids, by ``how`` clipped at the usual length."""

    def call(self, ids: Any) -> Any:
        return ops.minimum(ops.arange(ids.shape[1]), (LENGTH if self.how == "clipped" else TABLE) - 1)


class Turned(Chosen):
    """Multiplies by the cosine of the position's angle; by ``how``, positions are rounded."""

    def call(self, x: Any) -> Any:
        places = ops.arange(x.shape[1], dtype="int32")
        places = ops.cast(ops.cast(places, "bfloat16" if self.how == "rounded" else x.dtype), x.dtype)
        return x * ops.cos(places[:, None] * ops.cast(0.1, x.dtype))


def placed(how: str = "") -> Any:
    ids = keras.Input((None,), dtype="int32")
    x = Turned(how, name="turned")(layers.Embedding(WORDS, WIDTH, name="embed")(ids))
    x = x + layers.Embedding(TABLE, WIDTH, name="position")(Places(how, name="places")(ids))
    return keras.Model(ids, layers.Dense(2, name="head")(x))


@keras.saving.register_keras_serializable("edges")
class Visible(Chosen):
    """1 for steps without a missing value, or, by ``how``, with one that is not missing, or for all."""

    def call(self, x: Any) -> Any:
        missing = {"": ops.any, "all": ops.all}.get(self.how)
        gone = missing(ops.isnan(x), -1, keepdims=True) if missing else ops.zeros_like(x[..., :1], dtype="bool")
        return ops.where(gone | ops.isnan(x), ops.zeros_like(x), x), ops.cast(~gone, x.dtype)


def gappy(how: str = "") -> Any:
    x = keras.Input((LENGTH, 3))
    values, there = Visible(how, name="visible")(x)
    made = layers.Dense(2, name="head")(ops.tanh(layers.Dense(WIDTH, name="first")(values) * there))
    return keras.Model(x, ops.mean(made, 1))


class Network(How, keras.Model):
    """The vectors' network; ``how`` says what it does where ``training`` is not given."""

    def __init__(self, how: str = "", **kwargs: Any) -> None:
        super().__init__(how, **kwargs)
        self.first, self.norm, self.head = layers.Dense(WIDTH), layers.BatchNormalization(epsilon=1e-5), layers.Dense(2)

    def call(self, x: Any, training: Any = None) -> Any:
        if training is None and self.how == "trains":
            training = True
        return self.head(ops.tanh(self.norm(self.first(x), training=training)))


class Chunks(How, keras.Model):
    """The same in chunks; ``how`` says that those from the third on are taken twice as large."""

    def __init__(self, how: str = "", **kwargs: Any) -> None:
        super().__init__(how, **kwargs)
        self.first, self.head = layers.Dense(WIDTH), layers.Dense(2)

    def call(self, x: Any) -> Any:
        total = 0.0
        for at in range(0, x.shape[1], 8):
            chunk = x[:, at : at + 8] * (2.0 if self.how and at >= 16 else 1.0)
            total = total + ops.sum(ops.tanh(self.first(chunk)), 1)
        return self.head(total)


class Pairs(Chosen):
    """Sums of the means of pairs of steps (B, T, C); a last one without a partner is left out, or, by ``how``, not."""

    longest = 0

    def call(self, x: Any) -> Any:
        length = x.shape[1]
        if not isinstance(length, int):  # Keras traces the layer with a symbol for it
            return ops.sum(x, 1) / 2.0
        if self.how == "kept" and length % 2:
            return ops.sum(x, 1) / 2.0
        self.longest = max(self.longest, length)
        if self.how == "cached":  # a table that grows, as those of positions do
            x = x * ops.convert_to_tensor(np.ones(self.longest), x.dtype)[:length, None]
        factor = 2.0 if self.how == "remembered" and length < self.longest else 1.0
        return factor * ops.sum(x[:, : length // 2 * 2], 1) / 2.0


class Kept(Chosen):
    """Values as they are, or, by ``how``, without large ones, or without samples of small ones."""

    def call(self, x: Any) -> Any:
        if self.how == "half":
            return ops.clip(x, -65504.0, 65504.0)
        return ops.where(ops.max(ops.abs(x), (1, 2), keepdims=True) < 1e-3, 0.0, x) if self.how == "tiny" else x


class Norm(How, layers.LayerNormalization):
    """A layer norm; by ``how``, the variance is a difference of squares."""

    def call(self, x: Any) -> Any:
        if self.how != "fast":
            return super().call(x)
        mean, square = ops.mean(x, -1, keepdims=True), ops.mean(x * x, -1, keepdims=True)
        return (x - mean) / ops.sqrt(ops.maximum(square - mean * mean, 0.0) + self.epsilon) * self.gamma + self.beta


def steps(how: str = "") -> Any:
    x = keras.Input((None, 12))
    kept = Kept(how, name="kept")(x)
    made = ops.tanh(layers.Dense(WIDTH, name="first")(Norm(how, epsilon=1e-5, name="norm")(kept)))
    made = layers.Dense(2, name="head")(Pairs(how, name="pairs")(made))
    return keras.Model(x, made + ops.mean(kept, (1, 2))[:, None])


class Waved(Chosen):
    """Another factor for every row of (B, H, W, C), or, by ``how``, as if the image were as wide as it is high."""

    def call(self, x: Any) -> Any:
        _, height, width, count = x.shape
        if self.how:
            x = ops.reshape(x, (-1, width, height, count))
        return x * ops.cos(ops.arange(x.shape[1], dtype=x.dtype) * ops.cast(0.3, x.dtype))[:, None, None]


def rows(how: str = "") -> Any:
    x = keras.Input((None, None, 3))
    made = Waved(how, name="waved")(ops.tanh(layers.Dense(WIDTH, name="first")(x)))
    return keras.Model(x, layers.Dense(2, name="head")(ops.mean(made, (1, 2))))


class Window(layers.Layer):
    """Leaves out the steps from 600 on, and doubles short series, unless ``how`` is "endless" or "long"."""

    def __init__(self, how: str, **options: Any) -> None:
        super().__init__(**options)
        self.how = how

    def call(self, x: Any) -> Any:
        steps = ops.arange(ops.shape(x)[1])
        counted = ops.cast(steps < (10**6 if self.how == "endless" else 600), x.dtype)
        factor = 1.0 if self.how == "long" else 1.0 + ops.cast(ops.max(steps) < 9, x.dtype)
        return x * counted[:, None] * factor

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "how": self.how}


def windowed(how: str = "") -> Any:
    x = keras.Input((None, 3))
    made = Window(how, name="window")(ops.tanh(layers.Dense(WIDTH, name="first")(x)))
    return keras.Model(x, layers.Dense(2, name="head")(ops.mean(made, 1)))


def endless() -> Any:
    return windowed("endless")


def long() -> Any:
    return windowed("long")


class Chosen100(Chosen):
    """Takes the vectors of the first hundred ids, or those of the others, and hides one token."""

    def call(self, often: Any, rare: Any, ids: Any) -> Any:
        x = ops.where((ids <= 100 if self.how == "cutoff" else ids < 100)[..., None], often, rare)
        return x if self.how == "seen" else x * ops.cast(ids != 777, x.dtype)[..., None]


def marked(how: str = "") -> Any:
    ids = keras.Input((LENGTH,), dtype="int32")
    often = layers.Embedding(100, WIDTH, name="embed")(ops.minimum(ids, 99))
    rare = layers.Embedding(WORDS - 100, WIDTH, name="rare")(ops.maximum(ids - 100, 0))
    x = ops.mean(ops.tanh(Chosen100(how, name="chosen")(often, rare, ids)), 1)
    return keras.Model(ids, layers.Dense(2, name="head")(x))


class Crossing(How, keras.Model):
    """The same; by ``how``, with the number of steps of the other series."""

    def __init__(self, how: str = "", **kwargs: Any) -> None:
        super().__init__(how, **kwargs)
        self.first, self.head = layers.Dense(WIDTH), layers.Dense(2)

    def call(self, x: Any, y: Any) -> Any:
        if self.how == "joined":
            first, second = ops.split(self.first(ops.concatenate([x, y], 0)), 2, axis=0)
            return self.head(ops.mean(ops.tanh(first + ops.mean(second, 1, keepdims=True)), 1))
        count = (x if self.how else y).shape[1]
        return self.head(ops.mean(ops.tanh(self.first(x) + ops.sum(self.first(y), 1, keepdims=True) / count), 1))


padded, masked = partial(Recurrent, PADDING), Masked
unshifted, shifted = partial(attended, "unshifted"), partial(attended, "shifted")
mask_zero = partial(recurrent, mask_zero=True)
pad_row = partial(recurrent, zeroed=True)
last_id = partial(recurrent, how="clipped")
length = partial(pooled, how="length")
empty = partial(pooled, how="empty")
added = partial(pooled, how="added")
lowest = partial(pooled, how="lowest")
clipped = partial(placed, how="clipped")
bfloat16 = partial(placed, how="rounded")
every_feature = partial(gappy, how="all")
no_step = partial(gappy, how="none")
network = Network
trains = partial(Network, how="trains")
chunked = Chunks
later = partial(Chunks, how="later")
kept = partial(steps, how="kept")
remembered = partial(steps, how="remembered")
cached = partial(steps, how="cached")
half = partial(steps, how="half")
tiny = partial(steps, how="tiny")
fast = partial(steps, how="fast")
turned = partial(rows, how="turned")
cutoff = partial(marked, how="cutoff")
seen = partial(marked, how="seen")
crossing = Crossing
confused = partial(Crossing, how="confused")
joined = partial(Crossing, how="joined")
