"""Recognise from inputs and outputs what a layer without weights computes: a form and its setting.

Both sides are compared with the same list of forms. If both have the same form with different settings, that
difference is the cause. No layer's code, name or class is used, so it works for any model and for recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
from scipy import special

from wdport.compare.activations import by_name
from wdport.compare.layouts import AFTER
from wdport.compare.relations import same
from wdport.models.interface import Array

EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Form:
    """A kind of function and its setting, such as "layer norm" and "epsilon 1e-05".

    ``normed``, ``scale`` and ``shift`` are a norm's values and what is fitted to them, by channel.
    """

    kind: str
    setting: str
    normed: Array | None = field(default=None, repr=False, compare=False)
    scale: Array | float = field(default=1.0, repr=False, compare=False)
    shift: Array | float = field(default=0.0, repr=False, compare=False)

    def becomes(self, other: Form, right: Array) -> bool:
        """Whether the setting of ``other``, and nothing else, makes this form's outputs ``right``."""
        return other.normed is None or same(other.normed * self.scale + self.shift, right)


def forms(inputs: Array, outputs: Array) -> Iterator[Form]:
    """Every form that maps ``inputs`` to ``outputs``."""
    if inputs.shape == outputs.shape and np.all(np.isfinite(outputs)):
        yield from _activations(inputs, outputs)
        yield from _softmaxes(inputs, outputs)
        yield from _norms(inputs, outputs)


def difference(inputs: Array, right: Array, wrong: Array) -> list[str]:
    """How ``wrong`` differs from ``right``, both computed from ``inputs``: one sentence, or none."""
    theirs = list(forms(inputs, right))
    if not theirs or same(right, wrong):
        return []
    for wrong_form in forms(inputs, wrong):
        for form in theirs:
            if wrong_form.kind == form.kind and wrong_form.setting != form.setting and wrong_form.becomes(form, right):
                return [f"{wrong_form.kind}: {wrong_form.setting} where the reference has {form.setting}"]
    return []


def _activations(inputs: Array, outputs: Array) -> Iterator[Form]:
    inputs = inputs.astype(np.float64)
    for name, function in _ACTIVATIONS.items():
        with np.errstate(over="ignore", invalid="ignore"):
            if same(function(inputs), outputs):
                yield Form("activation", name)


_STATED = ((by_name(name), function) for name, function in AFTER.items())
_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    **{stated.shown: function for stated, function in _STATED if stated and "axis" not in stated.parameters},
    "GELU by sigmoid": lambda x: x * special.expit(1.702 * x),
    "one minus sigmoid": lambda x: special.expit(-x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "leaky ReLU 0.2": lambda x: np.where(x > 0, x, 0.2 * x),
    "leaky ReLU 0.3": lambda x: np.where(x > 0, x, 0.3 * x),
}
"""Functions that a table may state, and others, by name in messages; softmaxes, which have an axis, are apart."""


def _softmaxes(inputs: Array, outputs: Array) -> Iterator[Form]:
    for axis in range(inputs.ndim):
        with np.errstate(invalid="ignore"):  # where a mask hides all
            values = special.softmax(inputs, axis=axis)
        if same(values, outputs):
            yield Form("softmax", f"axis {axis}")
    if same(inputs, outputs):
        yield Form("softmax", "none")


def _norms(inputs: Array, outputs: Array) -> Iterator[Form]:
    """Norms over the last axis; a scale and a shift per channel are fitted, so weights need not be known."""
    if inputs.ndim < 2 or inputs.shape[-1] < 2 or not np.all(np.isfinite(inputs)):
        return
    size = inputs.shape[-1]
    centred = inputs - inputs.mean(-1, keepdims=True)
    square = (centred**2).sum(-1, keepdims=True)
    spreads = {"layer norm": [("", centred, square / size), (", variance by n - 1", centred, square / (size - 1))],
               "RMS norm": [("", inputs, (inputs**2).mean(-1, keepdims=True))]}  # fmt: skip
    for kind, choices in spreads.items():
        for more, values, variance in choices:
            for epsilon in EPSILONS:
                roots = {"": np.sqrt(variance + epsilon), " outside the root": np.sqrt(variance) + epsilon}
                for where, root in roots.items():
                    with np.errstate(divide="ignore", invalid="ignore"):
                        normed = values / root
                    if np.all(np.isfinite(normed)) and (fit := _affine(normed, outputs)) is not None:
                        yield Form(kind, f"epsilon {epsilon:g}{where}{more}", normed, *fit)


def _affine(normed: Array, outputs: Array) -> tuple[Array | float, Array | float] | None:
    """The scale and the shift, by channel, that make ``normed`` the ``outputs``; ``None`` if there are none."""
    if same(normed, outputs):
        return 1.0, 0.0
    x, y = (array.reshape(-1, array.shape[-1]) for array in (normed, outputs))
    # Any two points lie on a line, so a few samples prove nothing.
    if len(x) < 4:
        return None
    away = x - x.mean(0)
    square = (away**2).sum(0)
    # A least-squares line per channel; a constant channel has no slope and only its shift.
    scale = (away * (y - y.mean(0))).sum(0) / np.where(square > 0, square, 1.0)
    return (scale, y.mean(0) - scale * x.mean(0)) if same(y.mean(0) + scale * away, y) else None


# --- Attention -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttentionForm:
    """How queries, keys and values (B, L, E) become merged heads (B, L, E)."""

    heads: int
    scale: str = "1/sqrt(head width)"
    over: str = "keys"
    split: str = "heads outermost"
    merge: str = "heads outermost"
    mask: str = "no mask"

    def settings(self) -> dict[str, str]:
        return {"num_heads": str(self.heads), "logit scale": self.scale, "softmax over": self.over,
                "heads split with": self.split, "heads merged with": self.merge, "mask": self.mask}  # fmt: skip


def attention_difference(parts: Sequence[Array], right: Array, wrong: Array) -> list[str]:
    """As :func:`difference`, for merged heads of attention: ``parts`` are arrays that include query, key and value."""
    parts = [part.reshape(*part.shape[:2], -1) for part in parts if part.ndim >= 3]
    width = right.reshape(*right.shape[:2], -1).shape[-1]
    right, wrong = (array.reshape(*array.shape[:2], -1) for array in (right, wrong))
    # Roles are found from values; no argument's name is used.
    for roles in permutations(range(len(parts)), 3):
        query, key, value = (parts[role] for role in roles)
        if not query.shape[-1] == key.shape[-1] == value.shape[-1] == width or key.shape != value.shape:
            continue
        heads = next((h for h in _divisors(width) if same(_attend(AttentionForm(h), query, key, value), right)), None)
        if heads is None or query.shape != right.shape:
            continue
        for other in _variants(AttentionForm(heads), width):
            if same(_attend(other, query, key, value), wrong):
                theirs = AttentionForm(heads).settings()
                return [f"{name} {ours} where the reference has {theirs[name]}"
                        for name, ours in other.settings().items() if ours != theirs[name]]  # fmt: skip
        return _exchanged(AttentionForm(heads), (query, key, value), wrong)
    return []


def _exchanged(attention: AttentionForm, parts: tuple[Array, Array, Array], wrong: Array) -> list[str]:
    names = ("query", "key", "value")
    for roles in permutations(range(3)):
        chosen = [parts[role] for role in roles]
        if roles != (0, 1, 2) and chosen[1].shape == chosen[2].shape and same(_attend(attention, *chosen), wrong):
            return [f"{', '.join(names[role] for role in roles)} in the places of {', '.join(names)}"]
    return []


def _divisors(width: int) -> list[int]:
    return [count for count in range(1, width + 1) if width % count == 0]


def _variants(attention: AttentionForm, width: int) -> Iterator[AttentionForm]:
    """Every variant that differs in one setting."""
    for heads in _divisors(width):
        if heads != attention.heads:
            yield replace(attention, heads=heads)
    for scale in _SCALES:
        yield replace(attention, scale=scale)
    yield replace(attention, over="queries")
    for layout in ("heads innermost", "heads outermost, tokens and heads exchanged"):
        yield replace(attention, split=layout)
        yield replace(attention, merge=layout)
    for mask in ("causal mask", "itself left out"):
        yield replace(attention, mask=mask)


_SCALES: dict[str, Callable[[int, int], float]] = {
    "1/sqrt(head width)": lambda head, width: head**-0.5,
    "1/sqrt(width)": lambda head, width: width**-0.5,
    "1/head width": lambda head, width: 1 / head,
    "1": lambda head, width: 1.0,
    "sqrt(head width)": lambda head, width: head**0.5,
}


def _attend(attention: AttentionForm, query: Array, key: Array, value: Array) -> Array:
    width = query.shape[-1]
    q, k, v = (_split(part, attention) for part in (query, key, value))
    logits = np.einsum("bqhk,bshk->bhqs", q, k) * _SCALES[attention.scale](width // attention.heads, width)
    if attention.mask != "no mask":
        square = logits.shape[-2:]
        visible = np.tril(np.ones(square)) if attention.mask == "causal mask" else 1 - np.eye(*square)
        logits = np.where(visible > 0, logits, -np.inf)
    if not np.all(np.isfinite(logits.max(-1))):
        return np.full(query.shape, np.nan)
    with np.errstate(invalid="ignore"):
        weights = special.softmax(logits, axis=-1 if attention.over == "keys" else -2)
    return _merge(np.einsum("bhqs,bshk->bqhk", weights, v), attention)


def _split(part: Array, attention: AttentionForm) -> Array:
    batch, length, width = part.shape
    if attention.split == "heads innermost":
        return part.reshape(batch, length, width // attention.heads, attention.heads).swapaxes(2, 3)
    if attention.split != "heads outermost":
        return part.reshape(batch, attention.heads, length, width // attention.heads).swapaxes(1, 2)
    return part.reshape(batch, length, attention.heads, width // attention.heads)


def _merge(values: Array, attention: AttentionForm) -> Array:
    batch, length = values.shape[:2]
    if attention.merge == "heads innermost":
        values = values.swapaxes(2, 3)
    elif attention.merge != "heads outermost":
        values = values.swapaxes(1, 2)
    return values.reshape(batch, length, -1)
