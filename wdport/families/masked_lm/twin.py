"""EuroBertForMaskedLM in PyTorch: our own implementation, with exactly the library's module names.

A converted model is compared with it if transformers is not installed; a test compares it with the library.
Source: transformers 5.23.0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from wdport.families.masked_lm.config import Config

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU, "gelu": nn.GELU, "gelu_pytorch_tanh": partial(nn.GELU, approximate="tanh"), "relu": nn.ReLU,
    "mish": nn.Mish,
}  # fmt: skip

Angles = tuple[Tensor, Tensor]
"""Cosines and sines (1, N, D)."""


class RMSNorm(nn.Module):
    """Over the last axis; the root is computed in at least float32."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(channels)), eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        x = hidden_states.to(torch.float32)
        normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * normal.to(hidden_states.dtype)


class Rotary(nn.Module):
    """Positions (1, N) -> cosines and sines of the angles, in at least float32."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        exponents = torch.arange(0, config.width, 2, dtype=torch.float32) / config.width
        self.frequencies: Tensor
        self.register_buffer("frequencies", 1.0 / config.rope_theta**exponents, persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> Angles:
        angles = (position_ids[..., None].to(torch.float32) * self.frequencies.to(torch.float32)).repeat(1, 1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def turned(x: Tensor, angles: Angles) -> Tensor:
    """Heads (B, H, N, D) turned by the angles."""
    cosines, sines = (each[:, None] for each in angles)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class Attention(nn.Module):
    """(B, N, C) -> (B, N, C); ``attention_mask`` (B, 1, 1, N) is added to the logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels, width, bias = config.hidden_size, config.width, config.attention_bias
        self.head_dim, self.shared = width, config.num_attention_heads // config.kv_heads
        self.q_proj = nn.Linear(channels, config.num_attention_heads * width, bias)
        self.k_proj = nn.Linear(channels, config.kv_heads * width, bias)
        self.v_proj = nn.Linear(channels, config.kv_heads * width, bias)
        self.o_proj = nn.Linear(config.num_attention_heads * width, channels, bias)

    def forward(self, hidden_states: Tensor, position_embeddings: Angles, attention_mask: Tensor) -> Tensor:
        q, k, v = (
            each(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turned(q, position_embeddings), turned(k, position_embeddings)
        k, v = (each.repeat_interleave(self.shared, dim=1) for each in (k, v))
        logits = q @ k.transpose(2, 3) * self.head_dim**-0.5 + attention_mask
        weights = logits.softmax(dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """(B, N, C) -> (B, N, C)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels, width, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj, self.up_proj = nn.Linear(channels, width, bias), nn.Linear(channels, width, bias)
        self.down_proj = nn.Linear(width, channels, bias)
        self.act_fn = ACTIVATIONS[config.hidden_act]()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """(B, N, C) -> (B, N, C)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(config), Mlp(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states: Tensor, position_embeddings: Angles, attention_mask: Tensor) -> Tensor:
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, position_embeddings, attention_mask)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class Encoder(nn.Module):
    """Tokens (B, N) and a mask (B, N) to features (B, N, C)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        hidden = torch.zeros(attention_mask.shape, dtype=x.dtype)
        hidden = hidden.masked_fill(attention_mask == 0, torch.finfo(x.dtype).min)[:, None, None]
        angles = self.rotary_emb(x, torch.arange(input_ids.shape[1])[None])
        for layer in self.layers:
            x = layer(x, angles, hidden)
        return self.norm(x)


class MaskedLMTwin(nn.Module):
    """Tokens (B, N) and the mask of padding (B, N), true for tokens that are read, to logits (B, N, T)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Encoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, config.mlp_bias)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.lm_head(self.model(input_ids, attention_mask))
