"""What a layer computes, told from its values: held against PyTorch's own layers, and silent where nothing fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from wdport.compare.recognize import attention_difference, difference

RNG = np.random.default_rng(1)
X = RNG.standard_normal((3, 5, 8))
GAIN, SHIFT = (torch.tensor(RNG.standard_normal(8)) for _ in range(2))

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
    made = [layer(torch.tensor(X)).numpy() for layer in (right, wrong)]
    assert difference(X, *made) == [text]
    assert difference(X, made[0], made[0]) == []
    assert difference(X, made[0], made[1] * (1 + 1e-6 * RNG.standard_normal(X.shape))) == []
    assert difference(X, made[0] + RNG.standard_normal(X.shape), made[1]) == []


def heads(q: np.ndarray, k: np.ndarray, v: np.ndarray, count: int, **how: object) -> np.ndarray:
    """Merged heads by PyTorch."""
    parts = [torch.tensor(part).unflatten(-1, (count, -1)).transpose(1, 2) for part in (q, k, v)]
    made = functional.scaled_dot_product_attention(*parts, **how)  # type: ignore[arg-type]
    return np.asarray(made.transpose(1, 2).flatten(2).numpy())


Q, K, V = (RNG.standard_normal((3, 5, 8)) for _ in range(3))
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
