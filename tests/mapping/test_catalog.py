"""Each named rule against the same rearrangement written out by hand, and against PyTorch's own layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn import functional

from wdport.mapping.arrays import Array, apply_rule
from wdport.mapping.axes import RULES, find_rule, parse_rule
from wdport.mapping.table import parse_table

EMBED, HEADS, HEAD = 12, 3, 4
NEAR = {"rtol": 0.0, "atol": 1e-12}


def moved(name: str, tensor: torch.Tensor | Array, targets: Sequence[tuple[int, ...]]) -> list[Array]:
    """The tensor by the named rule into targets of these shapes."""
    rule = RULES[name]
    array = np.asarray(tensor.detach() if isinstance(tensor, torch.Tensor) else tensor)
    return apply_rule(rule, [array], rule.sizes([array.shape], targets))


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def test_the_rules_are_these_and_no_others() -> None:
    assert set(RULES) == {
        "identity", "linear", "conv1d", "conv2d", "conv3d", "depthwise_conv1d", "depthwise_conv2d",
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "attention_packed_weight", "attention_packed_bias",
        "attention_weight", "attention_bias", "attention_output",
    }  # fmt: skip
    assert all(find_rule(name) is rule and rule.name == name for name, rule in RULES.items())
    assert find_rule("transpose") is None
    assert find_rule(" a b -> b a") == parse_rule("a b -> b a", "a b -> b a")
    with pytest.raises(TypeError):
        RULES["other"] = RULES["linear"]  # type: ignore[index]


def test_identity_is_the_tensor() -> None:
    for shape in ((), (3,), (2, 3)):
        np.testing.assert_array_equal(moved("identity", draw(*shape), [shape])[0], draw(*shape))


def test_linear_is_the_transpose_and_computes_the_same() -> None:
    layer = torch.nn.Linear(5, 3, dtype=torch.float64)
    (kernel,) = moved("linear", layer.weight, [(5, 3)])
    np.testing.assert_array_equal(kernel, layer.weight.detach().numpy().T)
    x = draw(7, 5)
    y = layer(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(x @ kernel + layer.bias.detach().numpy(), y, **NEAR)


def test_conv1d_is_the_transpose_and_computes_the_same() -> None:
    layer = torch.nn.Conv1d(3, 5, 4, bias=False, dtype=torch.float64)
    (kernel,) = moved("conv1d", layer.weight, [(4, 3, 5)])
    np.testing.assert_array_equal(kernel, layer.weight.detach().numpy().transpose(2, 1, 0))
    x = draw(2, 9, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, 4, axis=1)
    y = layer(torch.tensor(x).mT).mT.detach().numpy()
    np.testing.assert_allclose(np.einsum("blcw,wco->blo", windows, kernel), y, **NEAR)


@pytest.fixture
def attention() -> torch.nn.MultiheadAttention:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(EMBED, HEADS, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(layer.in_proj_bias)
    torch.nn.init.normal_(layer.out_proj.bias)
    return layer.eval()


def test_packed_attention_computes_what_torch_does(attention: torch.nn.MultiheadAttention) -> None:
    """Query, key and value by einsum with the moved kernels, out through the moved output kernel."""
    kernels = moved("attention_packed_weight", attention.in_proj_weight, [(EMBED, HEADS, HEAD)] * 3)
    biases = moved("attention_packed_bias", attention.in_proj_bias, [(HEADS, HEAD)] * 3)
    (out,) = moved("attention_output", attention.out_proj.weight, [(HEADS, HEAD, EMBED)])
    inputs = [draw(2, length, EMBED) for length in (5, 7, 7)]
    q, k, v = (
        np.einsum("ble,ehd->blhd", x, kernel) + bias for x, kernel, bias in zip(inputs, kernels, biases, strict=True)
    )
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) / HEAD**0.5
    weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    mixed = np.einsum("bhqk,bkhd->bqhd", weights, v)
    ours = np.einsum("bqhd,hde->bqe", mixed, out) + attention.out_proj.bias.detach().numpy()
    theirs, attended = attention(*map(torch.tensor, inputs), average_attn_weights=False)
    np.testing.assert_allclose(weights, attended.detach().numpy(), **NEAR)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), **NEAR)


def test_packed_attention_written_out() -> None:
    weight, bias = draw(3 * EMBED, EMBED), draw(3 * EMBED)
    kernels = moved("attention_packed_weight", weight, [(EMBED, HEADS, HEAD)] * 3)
    biases = moved("attention_packed_bias", bias, [(HEADS, HEAD)] * 3)
    for part in range(3):
        for head in range(HEADS):
            rows = slice(part * EMBED + head * HEAD, part * EMBED + (head + 1) * HEAD)
            np.testing.assert_array_equal(kernels[part][:, head], weight[rows].T)
            np.testing.assert_array_equal(biases[part][head], bias[rows])


def test_separate_attention_computes_what_torch_does() -> None:
    weight, bias, x = draw(EMBED, EMBED), draw(EMBED), draw(2, 5, EMBED)
    (kernel,) = moved("attention_weight", weight, [(EMBED, HEADS, HEAD)])
    (shift,) = moved("attention_bias", bias, [(HEADS, HEAD)])
    theirs = functional.linear(*map(torch.tensor, (x, weight, bias))).unflatten(-1, (HEADS, HEAD))
    np.testing.assert_allclose(np.einsum("ble,ehd->blhd", x, kernel) + shift, theirs.numpy(), **NEAR)


def test_attention_output_reads_the_heads_side_by_side() -> None:
    weight, x = draw(5, EMBED), draw(2, 7, HEADS, HEAD)
    (kernel,) = moved("attention_output", weight, [(HEADS, HEAD, 5)])
    theirs = functional.linear(torch.tensor(x).flatten(-2), torch.tensor(weight))
    np.testing.assert_allclose(np.einsum("blhd,hdo->blo", x, kernel), theirs.numpy(), **NEAR)


@pytest.mark.parametrize("name", sorted(RULES))
def test_tables_know_every_rule(name: str) -> None:
    """A rule with a stacked target takes a list, every other one a single name."""
    keras = "[q, k, v]" if RULES[name].target.stacked else "a"
    text = f"""{{format: 1, family: f, variant: v, signature: a, sections: [
        {{tensors: [{{torch: a, keras: {keras}, rule: {name}}}]}}]}}"""
    assert parse_table(text.encode(), "t.yaml").rows[0].rules == (RULES[name],)
