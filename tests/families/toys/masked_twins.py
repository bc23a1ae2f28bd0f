"""The nets of ``masked_nets`` as users write them in Keras, right and with one fault each."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import layers, ops

EARLIER = np.tril(np.ones((6, 6), bool))
DISTANCES = -np.abs(np.arange(6.0)[:, None] - np.arange(6.0))
HEADS = np.stack([EARLIER, ~np.eye(6, dtype=bool)])
HEADS[1, 0, 0] = True


@keras.saving.register_keras_serializable("masked_twins")
class Once(layers.MultiHeadAttention):  # type: ignore[misc]
    """Attention that only takes a batch of its own."""

    def _compute_attention(self, query: Any, key: Any, value: Any, attention_mask: Any = None, *more: Any) -> Any:
        mask = attention_mask if query.shape[0] != 4 else attention_mask[..., 1:]
        return super()._compute_attention(query, key, value, mask, *more)


class Biased(layers.Layer):  # type: ignore[misc]
    """Attention of two heads with a number added to the scores, which ``MultiHeadAttention`` does not take."""

    def __init__(self, sign: float = 1.0, **words: Any) -> None:
        super().__init__(**words)
        self.sign = sign
        self.query, self.key, self.value, self.out = (layers.Dense(8) for _ in range(4))

    def call(self, x: Any, keep: Any = None) -> Any:
        q, k, v = (ops.reshape(layer(x), (-1, 6, 2, 4)) for layer in (self.query, self.key, self.value))
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / 2.0 + self.sign * ops.cast(DISTANCES, x.dtype)
        if keep is not None:
            scores = ops.where(keep[:, None, None, :], scores, -1e9)
        return self.out(ops.reshape(ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, -1), v), (-1, 6, 8)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sign": self.sign}


def attention(x: Any, keep: Any, form: str) -> Any:
    """Keras's own attention with the masks of this form."""
    name, heads = {"name": "attn"}, ops.convert_to_tensor(HEADS[::-1].copy() if "swapped" in form else HEADS)
    if "biased" in form:
        padding = [keep] if "padding" in form else []
        return Biased(-1.0 if "sign" in form else 1.0, **name)(x, *padding)
    masks: dict[str, Any] = {"use_causal_mask": "causal" in form}
    if "padding" in form:
        masks["attention_mask"] = ops.logical_not(keep)[:, None] if "inverted" in form else keep[:, None]
    if "off_by_one" in form:
        masks = {"attention_mask": ops.convert_to_tensor(np.tril(np.ones((1, 6, 6), bool), 1))}
    if "heads" in form:
        masks["attention_mask"] = ops.logical_and(heads[None], keep[:, None, None] if "padding" in form else True)
    attend = Once if "raises" in form else layers.MultiHeadAttention
    return attend(2, 4, **name)(x, x, **masks)


def masked(form: str) -> Any:
    x, keep = keras.Input((6, 8)), keras.Input((6,), dtype="bool")
    return keras.Model([x, keep], layers.Dense(3, name="head")(attention(x, keep, form)))


def behind(every: bool = False) -> Any:
    x, keep = keras.Input((6, 8)), keras.Input((6,), dtype="bool")
    counts = ops.flip(keep, 1)
    h = layers.MultiHeadAttention(2, 4, name="attn")(x, x, attention_mask=counts[:, None], use_causal_mask=True)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(x + h)
    h = ops.mean(h if every else ops.where(counts[..., None], h, 0.0), 1)
    return keras.Model([x, keep], layers.Dense(3, name="head")(h))


def words(zero: bool = True) -> Any:
    """The mask is Keras's own, beside the tensors."""
    ids, keep = keras.Input((6,), dtype="int32"), keras.Input((6,), dtype="bool")
    counted = (ids + 1) * ops.cast(keep, "int32")
    x = layers.Embedding(5, 8, mask_zero=zero, name="embed")(counted)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.MultiHeadAttention(2, 4, name="attn")(x, x))
    mask = ops.not_equal(counted, 0)
    return keras.Model([ids, keep], layers.Dense(3, name="head")(layers.GlobalAveragePooling1D()(x, mask=mask)))


def norm(name: str) -> Any:
    return layers.LayerNormalization(epsilon=1e-5, name=name)


def feed(x: Any, name: str) -> Any:
    return layers.Dense(8, name=f"{name}down")(layers.Dense(16, activation="relu", name=f"{name}up")(x))


def encoder(first: bool = False, look_back: bool = False, masked: bool = True) -> Any:
    given = x = keras.Input((6, 8))
    keep = keras.Input((6,), dtype="bool")
    for at in range(2):
        masks = {"attention_mask": keep[:, None] if masked else None, "use_causal_mask": look_back}
        attend = layers.MultiHeadAttention(2, 4, name=f"attn_{at}")
        norms = norm(f"one_{at}"), norm(f"two_{at}")
        if first:
            h = norms[0](x)
            x = x + attend(h, h, **masks)
            x = x + feed(norms[1](x), f"{at}_")
        else:
            x = norms[0](x + attend(x, x, **masks))
            x = norms[1](x + feed(x, f"{at}_"))
    x = ops.mean(x * ops.cast(keep, x.dtype)[..., None], 1)
    return keras.Model([given, keep], layers.Dense(3, name="head")(x))


def decoder(first: bool = False, near: bool = True, causal: bool = True) -> Any:
    x, memory, keep = keras.Input((6, 8)), keras.Input((9, 8)), keras.Input((9,), dtype="bool")
    around = np.abs(np.arange(6)[:, None] - np.arange(9)) <= 2
    around[:, 0] = True
    mask = ops.logical_and(keep[:, None], around[None]) if near else keep[:, None]
    own, cross = (layers.MultiHeadAttention(2, 4, name=name) for name in ("own", "cross"))
    norms = [norm(f"norm{at}") for at in (1, 2, 3)]
    given = x
    if first:
        h = norms[0](x)
        x = x + own(h, h, use_causal_mask=causal)
        x = x + cross(norms[1](x), memory, attention_mask=mask)
        x = x + feed(norms[2](x), "")
    else:
        x = norms[0](x + own(x, x, use_causal_mask=causal))
        x = norms[1](x + cross(x, memory, attention_mask=mask))
        x = norms[2](x + feed(x, ""))
    return keras.Model([given, memory, keep], layers.Dense(3, name="head")(x))


def __getattr__(name: str) -> Any:
    """A function that builds ``masked_padding``, and so on."""
    if name.startswith("masked_"):
        return partial(masked, name.removeprefix("masked_"))
    raise AttributeError(name)


behind_every = partial(behind, True)
words_ignored = partial(words, False)
encoder_first, encoder_both = partial(encoder, True), partial(encoder, False, True)
encoder_ignored = partial(encoder, masked=False)
decoder_first, decoder_near = partial(decoder, True), partial(decoder, near=False)
decoder_ahead = partial(decoder, causal=False)
