"""What a wrong array or layer computes, told from its values where it holds, and silence where nothing fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from wdport.compare.recognize import attention_difference, difference
from wdport.compare.relations import added_relations, permutation, relations, variable_relations

RNG = np.random.default_rng(0)
X, A, B = (RNG.standard_normal((4, 5, 6)) for _ in range(3))
KNOWN = {"the output of a": A, "the output of b": B}

Change = Callable[[np.ndarray], np.ndarray]
STATED: dict[str, tuple[Change, str]] = {
    "another layer's": (lambda x: A, "is the output of a"),
    "a term is missing": (lambda x: x - A, "lacks the output of a"),
    "a term is doubled": (lambda x: x + B, "has the output of b in it once too often"),
    "a part of a term": (lambda x: x + 0.25 * B, "has 0.25 times the output of b too much"),
    "the wrong term": (lambda x: x + A - B, "has the output of a in it in place of the output of b"),
    "scaled": (lambda x: 0.125 * x, "is 0.125 times what it should be"),
    "negative": (lambda x: -x, "has the opposite sign"),
    "less": (lambda x: x - 1, "is 1 less than it should be"),
    "more, larger": (lambda x: 3 * x + 2, "is 3 times what it should be, plus 2"),
    "less, larger": (lambda x: -3 * x - 2, "is -3 times what it should be, minus 2"),
    "a part is missing": (lambda x: x - 0.25 * B, "lacks 0.25 times the output of b"),
    "left out": (lambda x: x * (np.arange(120).reshape(x.shape) % 10 > 0), "is zero at 12 of 120 places and right"),
    "complement": (lambda x: 1 - x, "is 1 minus what it should be"),
    "zeros": (np.zeros_like, "is all zeros"),
    "bfloat16": (lambda x: (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float), ""),
    "float32": (lambda x: x.astype(np.float32).astype(float), "is rounded to float32"),
    "float16": (lambda x: x.astype(np.float16).astype(float), "is rounded to float16"),
    "clipped": (lambda x: np.clip(x, -0.5, 1.0), "is limited to -0.5 .. 1"),
    "clipped below": (lambda x: np.maximum(x, -0.5), "is limited to -0.5 or more"),
    "nearly right": (lambda x: x * (1 + 1e-8), "is 1.00000001 times what it should be"),
    "dropped": (lambda x: x * (np.arange(120).reshape(x.shape) % 10 > 0) / 0.9, "is zero at 12 of 120 places"),
    "floor": (np.floor, "is rounded down"),
    "first sample": (lambda x: np.broadcast_to(x[:1], x.shape), "is the first sample's for every sample"),
    "mean sample": (lambda x: np.broadcast_to(x.mean(0), x.shape), "is the batch's mean for every sample"),
    "reversed": (lambda x: x[:, ::-1], "is reversed along axis 1"),
    "rolled": (lambda x: np.roll(x, 2, axis=2), "is rolled by 2 along axis 2"),
    "rolled back": (lambda x: np.roll(x, -1, axis=2), "is rolled by -1 along axis 2"),
    "exchanged": (lambda x: x[:, [0, 3, 2, 1, 4]], "is exchanged at 1 and 3 along axis 1"),
    "reshaped": (lambda x: x.swapaxes(1, 2).reshape(x.shape), "has the right values in another order"),
    "one vector": (lambda x: x + A[0, 0], "is off by one vector, the same at every sample and position"),
}  # fmt: skip


@pytest.mark.parametrize("case", STATED)
def test_what_holds_is_stated(case: str) -> None:
    change, text = STATED[case]
    told = relations(np.ascontiguousarray(change(X)), X, KNOWN)
    assert [each[: len(text)] for each in told] == ([text] if text else [])  # truncated bfloat16 is not rounded


@pytest.mark.parametrize("case", [case for case, (_, text) in STATED.items() if text])
def test_what_nearly_holds_is_not_stated(case: str) -> None:
    wrong = np.ascontiguousarray(STATED[case][0](X)) + 1e-6 * RNG.standard_normal(X.shape)
    assert relations(wrong, X, KNOWN) == []


def test_nothing_is_said_of_equal_arrays_other_shapes_or_nan() -> None:
    assert relations(X, X, KNOWN) == []
    assert relations(X + 1e-13, X, KNOWN) == []
    assert relations(X[:, :4], X, KNOWN) == []
    assert relations(X * np.nan, X, KNOWN) == []


def test_a_replaced_number_is_no_limit() -> None:
    ids = np.array([[0, 13, 5, 7], [9, 2, 0, 4]])
    assert relations(np.where(ids == 0, 2, ids), ids, {}) == []


def test_another_scale_of_a_norm_is_no_other_epsilon() -> None:
    normed = (X - X.mean(-1, keepdims=True)) / X.std(-1, keepdims=True)
    scale, shift = RNG.standard_normal((2, 6))
    assert difference(X, scale * normed + shift, normed) == []
    other = scale * (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-3) + shift
    assert difference(X, scale * normed + shift, other) == [
        "layer norm: epsilon 0.001 where the reference has epsilon 0"
    ]


def test_what_a_layer_adds_to_its_input() -> None:
    table = RNG.standard_normal((5, 6))
    told = added_relations(A + np.roll(table, 1, axis=0), A + table, {"its input": A})
    assert told == ["adds to its input what is rolled by 1 along axis 1"]
    assert added_relations(A + table * B, A + table, {"its input": A}) == []


def test_any_permutation_is_found() -> None:
    order = RNG.permutation(5)
    found = permutation(X[:, order], X, 1)
    assert found is not None
    assert np.array_equal(found, order)
    assert permutation(X, X, 1) is None


KERNEL, SQUARE = RNG.standard_normal((6, 3, 2)), RNG.standard_normal((6, 6))
VARIABLES: dict[str, tuple[Change, str]] = {
    "as it was stored": (lambda x: x.reshape(6, 6).T.reshape(x.shape), "is not transposed"),
    "heads and widths": (
        lambda x: x.reshape(6, 2, 3).transpose(0, 2, 1).reshape(x.shape),
        "is in another order along axes 1 to 2",
    ),
    "heads": (lambda x: x[:, ::-1], "is reversed along axis 1"),
    "another's": (lambda x: 2.0 * KERNEL + 1.0, "is the value of b"),
    "zeros": (np.zeros_like, "is all zeros"),
    "twice": (lambda x: 2.0 * x, "is 2 times what it should be"),
    "float16": (lambda x: x.astype(np.float16).astype(float), "is rounded to float16"),
    "a shuffle": (lambda x: RNG.permuted(x, axis=None), "has the right values in another order"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_wrong_variable_is_described(name: str) -> None:
    change, text = VARIABLES[name]
    others = {"the value of a": SQUARE, "the value of b": 2.0 * KERNEL + 1.0}
    assert variable_relations(change(KERNEL), KERNEL, others) == [text]


def test_a_square_matrix_may_be_read_as_its_transpose() -> None:
    assert variable_relations(SQUARE.T, SQUARE, {}) == ["is not transposed"]
    assert variable_relations(SQUARE, SQUARE, {}) == []
    assert variable_relations(RNG.standard_normal(SQUARE.shape), SQUARE, {}) == []


DRAWN = np.random.default_rng(1)
SERIES = DRAWN.standard_normal((3, 5, 8))
GAIN, SHIFT = (torch.tensor(DRAWN.standard_normal(8)) for _ in range(2))

Layer = Callable[[torch.Tensor], torch.Tensor]
PAIRS: dict[str, tuple[Layer, Layer, str]] = {
    "gelu": (nn.GELU(), nn.GELU("tanh"), "activation: GELU by tanh where the reference has GELU"),
    "silu": (nn.GELU(), nn.SiLU(), "activation: SiLU where the reference has GELU"),
    "sigmoid": (nn.Sigmoid(), nn.Hardsigmoid(), "activation: hard sigmoid where the reference has sigmoid"),
    "leaky": (nn.ELU(), nn.LeakyReLU(0.3), "activation: leaky ReLU 0.3 where the reference has ELU"),
    "elu": (nn.ELU(), nn.SELU(), "activation: SELU where the reference has ELU"),
    "missing": (nn.Mish(), nn.Identity(), "activation: none where the reference has Mish"),
    "softmax": (nn.Softmax(2), nn.Softmax(1), "softmax: axis 1 where the reference has axis 2"),
    "layer norm": (
        lambda x: functional.layer_norm(x, (8,), GAIN, SHIFT, 1e-5),
        lambda x: functional.layer_norm(x, (8,), GAIN, SHIFT, 1e-3),
        "layer norm: epsilon 0.001 where the reference has epsilon 1e-05",
    ),
    "RMS norm": (
        lambda x: functional.rms_norm(x, (8,), GAIN, 1e-8),
        lambda x: functional.rms_norm(x, (8,), GAIN, 1e-6),
        "RMS norm: epsilon 1e-06 where the reference has epsilon 1e-08",
    ),
    "unbiased": (
        lambda x: functional.layer_norm(x, (8,), eps=1e-5),
        lambda x: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5),
        "layer norm: epsilon 1e-05, variance by n - 1 where the reference has epsilon 1e-05",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRS)
def test_a_difference_is_told(case: str) -> None:
    right, wrong, text = PAIRS[case]
    made = [layer(torch.tensor(SERIES)).numpy() for layer in (right, wrong)]
    assert difference(SERIES, *made) == [text]
    assert difference(SERIES, made[0], made[0]) == []
    assert difference(SERIES, made[0], made[1] * (1 + 1e-6 * DRAWN.standard_normal(SERIES.shape))) == []
    assert difference(SERIES, made[0] + DRAWN.standard_normal(SERIES.shape), made[1]) == []


def heads(q: np.ndarray, k: np.ndarray, v: np.ndarray, count: int, **how: object) -> np.ndarray:
    """Merged heads by PyTorch."""
    parts = [torch.tensor(part).unflatten(-1, (count, -1)).transpose(1, 2) for part in (q, k, v)]
    made = functional.scaled_dot_product_attention(*parts, **how)  # type: ignore[arg-type]
    return np.asarray(made.transpose(1, 2).flatten(2).numpy())


Q, K, V = (DRAWN.standard_normal((3, 5, 8)) for _ in range(3))
ATTENTIONS: dict[str, tuple[np.ndarray, str]] = {
    "heads": (heads(Q, K, V, 4), "num_heads 4 where the reference has 2"),
    "one head": (heads(Q, K, V, 1), "num_heads 1 where the reference has 2"),
    "scale": (heads(Q, K, V, 2, scale=1.0), "logit scale 1 where the reference has 1/sqrt(head width)"),
    "causal": (heads(Q, K, V, 2, is_causal=True), "mask causal mask where the reference has no mask"),
    "roles": (heads(K, Q, V, 2), "key, query, value in the places of query, key, value"),
    "noise": (heads(Q, K, V, 2) + 1e-6 * Q, ""),
}


@pytest.mark.parametrize("case", ATTENTIONS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_attention_differences_are_told(case: str, order: tuple[int, int, int]) -> None:
    """Whichever of the parts is query, key and value; others may lie beside them."""
    wrong, text = ATTENTIONS[case]
    parts = [(Q, K, V)[at] for at in order]
    assert attention_difference([*parts, Q + K], heads(Q, K, V, 2), wrong) == ([text] if text else [])


def test_fewer_keys_than_queries() -> None:
    few = [K[:, :3], V[:, :3]]
    told = attention_difference([Q, *few], heads(Q, *few, 2), heads(Q, *few, 8))
    assert told == ["num_heads 8 where the reference has 2"]
