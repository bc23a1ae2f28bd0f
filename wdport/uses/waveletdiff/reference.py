"""WaveletDiff in PyTorch: our own implementation, with exactly the public keys, shapes and order; and its training
loss.

A converted model is compared with it if the user's own code is not available. Source: arXiv
2510.11839. Built in float64, it is float64 throughout: every table is computed in the dtype in which it is used, and
nothing is cast down.

The loss shares nothing with the port's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn

from wdport.models.interface import Array, Batch
from wdport.uses.diffusion.schedules import noise_schedule
from wdport.uses.waveletdiff.config import Config
from wdport.uses.waveletdiff.variables import position_table, time_frequencies


class PositionalEncoding(nn.Module):
    """Adds the position table, buffer ``pe`` (L, D), to tokens (B, L, D)."""

    pe: Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("pe", torch.tensor(position_table(length, width), dtype=torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[: x.shape[1]]


class TimeEmbedding(nn.Module):
    """(B,) -> (B, T); ``gain`` turns time back into steps."""

    emb: Tensor

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.gain = gain
        self.register_buffer("emb", torch.tensor(time_frequencies(width), dtype=torch.get_default_dtype()))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, value: Tensor) -> Tensor:
        angle = (value * self.gain)[:, None] * self.emb
        return self.mlp(torch.cat([angle.sin(), angle.cos()], dim=-1))


class AdaptiveLayerNorm(nn.Module):
    """scale * LN(x) + shift, [scale | shift] linear in the time embedding, scale first."""

    def __init__(self, width: int, time_width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-5, elementwise_affine=False)
        self.ada_lin = nn.Linear(time_width, 2 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.ada_lin(time)[:, None, :].chunk(2, dim=-1)
        return scale * self.norm(x) + shift


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-8) * scale over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-8) * self.scale


class PackedAttention(nn.MultiheadAttention):
    """torch's packed attention, returning only the attended output."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__(width, num_heads, dropout=dropout, batch_first=True)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # type: ignore[override]
        # With need_weights torch computes the softmax explicitly, instead of calling scaled_dot_product_attention.
        return super().forward(query, key, value, need_weights=True, average_attn_weights=False)[0]


class NormalizedAttention(nn.Module):
    """Attention with separate projections and per-head RMS norms of query and key."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.q_norm, self.k_norm = RMSNorm(width // num_heads), RMSNorm(width // num_heads)
        self.out_proj = nn.Linear(width, width)
        self.dropout = dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (self.num_heads, -1))
            for projection, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        q, k = self.q_norm(q), self.k_norm(k)
        logits = torch.einsum("bqhk,bshk->bhqs", q, k) * q.shape[-1] ** -0.5
        weights = nn.functional.dropout(logits.softmax(dim=-1), self.dropout, self.training)
        return self.out_proj(torch.einsum("bhqs,bshk->bqhk", weights, v).flatten(-2))


class TransformerBlock(nn.Module):
    """Pre-norm block: tokens (B, L, D), time embedding (B, T) -> (B, L, D)."""

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.norm1 = AdaptiveLayerNorm(width, config.time_embed_dim)
        self.attn = _attention(config, width)
        self.norm2 = AdaptiveLayerNorm(width, config.time_embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(config.dropout),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        a = self.norm1(x, time)
        x = x + self.dropout(self.attn(a, a, a))
        return x + self.mlp(self.norm2(x, time))


class LevelTransformer(nn.Module):
    """One coefficient group (B, L, F) -> tokens (B, L, D); ``output_proj`` is called by the network."""

    def __init__(self, config: Config, index: int) -> None:
        super().__init__()
        width = config.widths[index]
        self.input_proj = nn.Linear(config.features, width)
        self.pos_encoding = PositionalEncoding(config.level_lengths[index], width)
        self.blocks = nn.ModuleList(TransformerBlock(config, width) for _ in range(config.depths[index]))
        self.output_proj = nn.Linear(width, config.features)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.dropout(self.pos_encoding(self.input_proj(x)))
        for block in self.blocks:
            x = block(x, time)
        return x


class CrossLevelAttention(nn.Module):
    """Tokens of all groups -> the same shapes, each group plus the attention of its pooled vector to the others."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        cross, widths = config.cross_width, config.widths
        rows = torch.randn(config.groups, cross) * 0.1
        self.level_position_embeddings = nn.Parameter(rows / rows.norm(dim=-1, keepdim=True))
        self.level_aggregators = nn.ModuleList(
            nn.Sequential(nn.Linear(w, w // 2), nn.GELU(), nn.Linear(w // 2, 1), nn.Softmax(dim=1)) for w in widths
        )
        self.level_projections = nn.ModuleList(nn.Linear(w, cross) for w in widths)
        self.cross_attention_layers = nn.ModuleList(_attention(config, cross) for _ in widths)
        self.level_expanders = nn.ModuleList(nn.Linear(cross, w) for w in widths)
        self.cross_norm = nn.ModuleList(AdaptiveLayerNorm(w, config.time_embed_dim) for w in widths)
        self.cross_level_gates = nn.ModuleList(
            nn.Sequential(nn.Linear(w + config.time_embed_dim, w), nn.Sigmoid()) for w in widths
        )

    def forward(self, tokens: list[Tensor], time: Tensor) -> list[Tensor]:
        pooled = [
            self.level_projections[i]((self.level_aggregators[i](h) * h).sum(dim=1)) + self.level_position_embeddings[i]
            for i, h in enumerate(tokens)
        ]
        summary = torch.stack(pooled, dim=1)
        return [h + self._update(i, h, summary, time) for i, h in enumerate(tokens)]

    def _update(self, i: int, h: Tensor, summary: Tensor, time: Tensor) -> Tensor:
        others = torch.cat([summary[:, :i], summary[:, i + 1 :]], dim=1)
        attended = self.cross_attention_layers[i](summary[:, i : i + 1], others, others)
        expanded = self.level_expanders[i](attended[:, 0])
        normed = self.cross_norm[i](expanded[:, None].expand_as(h), time)
        gate = self.cross_level_gates[i](torch.cat([h, time[:, None].expand(-1, h.shape[1], -1)], dim=-1))
        return gate * normed


class WaveletDiff(nn.Module):
    """Coefficients (B, C, F) and time (B,) = step / 1000 -> prediction (B, C, F)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        schedule = noise_schedule("exponential" if config.noise_schedule == "custom" else config.noise_schedule)
        for name, values in schedule._asdict().items():
            self.register_buffer(f"{name}_all", torch.tensor(values, dtype=torch.get_default_dtype()))
        self.level_transformers = nn.ModuleList(LevelTransformer(config, i) for i in range(config.groups))
        self.time_embedding = TimeEmbedding(config.time_embed_dim, 1000.0)
        self.scale_embedding = TimeEmbedding(config.time_embed_dim, 1.0) if config.scale_embedding else None
        self.cross_level_attention = CrossLevelAttention(config) if config.cross_level_attention else None
        # Last, as in the public code, so that it also overwrites the initial weights of the norms' projections.
        self.apply(_initialize)

    def forward(self, coefficients: Tensor, time: Tensor, scale: Tensor | None = None) -> Tensor:
        embedded = self.time_embedding(time)
        if self.scale_embedding is not None and scale is not None:
            embedded = embedded + self.scale_embedding(torch.log1p(10.0 * scale))
        groups = [coefficients[:, s] for s in self.config.level_slices]
        tokens = [level(x, embedded) for level, x in zip(self.level_transformers, groups, strict=True)]
        if self.cross_level_attention is not None:
            tokens = self.cross_level_attention(tokens, embedded)
        return torch.cat(
            [level.get_submodule("output_proj")(h) for level, h in zip(self.level_transformers, tokens, strict=True)],
            dim=1,
        )


def build_reference(config: Config, tensors: Mapping[str, Array], dtype: str) -> WaveletDiff:
    """The network in evaluation mode with these weights, every one of them used; ``dtype`` float32 or float64.

    In float32 the weights are the arrays of ``tensors`` themselves and the tables those of the file; in
    float64 the tables are computed (the lift: a float32 table in float64 would be off by 2e-6).
    """
    with _undrawn():
        model = WaveletDiff(config).eval()
    state = {name: torch.from_numpy(array).to(getattr(torch, dtype)) for name, array in tensors.items()}
    if dtype == "float64":
        state |= {name: torch.tensor(table, dtype=torch.float64) for name, table in _tables(config).items()}
    model.load_state_dict(state, assign=True)
    return model


def random_tensors(config: Config, seed: int) -> dict[str, Array]:
    """A state_dict of this network with every parameter random, biases and norms included, float32."""
    generator = torch.Generator().manual_seed(seed)
    module = WaveletDiff(config)
    with torch.no_grad():
        for parameter in module.parameters():
            centre, spread = (0.1, 0.3) if parameter.ndim == 1 else (0.0, parameter.shape[-1] ** -0.5)
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread + centre)
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


@contextmanager
def _undrawn() -> Iterator[None]:
    """Context in which parameters are uninitialised, since they are replaced at once.

    Not the meta device: initialisation there imports half of torch's compiler, 2.4 s.
    """

    def keep(tensor: Tensor, *_: object, **__: object) -> Tensor:
        return tensor

    names = ("kaiming_uniform_", "xavier_uniform_", "xavier_normal_", "uniform_", "zeros_", "constant_")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(nn.init, name, keep))
        yield


def _tables(config: Config) -> dict[str, Array]:
    """Every buffer of the network in float64; a custom noise schedule is that of the file."""
    tables = {"time_embedding.emb": time_frequencies(config.time_embed_dim)}
    if config.scale_embedding:
        tables["scale_embedding.emb"] = time_frequencies(config.time_embed_dim)
    for i, (length, width) in enumerate(zip(config.level_lengths, config.widths, strict=True)):
        tables[f"level_transformers.{i}.pos_encoding.pe"] = position_table(length, width)
    if config.noise_schedule != "custom":
        tables |= {f"{name}_all": table for name, table in noise_schedule(config.noise_schedule)._asdict().items()}
    return tables


def _attention(config: Config, width: int) -> nn.Module:
    kind = NormalizedAttention if config.qk_norm else PackedAttention
    return kind(width, config.num_heads, config.dropout)


def _initialize(module: nn.Module) -> None:
    """Initialise all linear layers Xavier-uniform with zero biases, as the public script does."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def training_loss(
    network: torch.nn.Module, batch: Batch, alpha_bar: Array, level_lengths: Sequence[int], target: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and prediction of a network in the dtype of ``batch``, on the device of the network.

    ``batch`` has ``clean`` and ``noise`` (B, C, F), ``uniform`` (B,) in [0, 1) and, for a network that takes one,
    ``scale`` (B,). ``target`` is "noise" or
    "coefficient"; ``alpha_bar`` (1001,) is indexed by the step.
    """
    device = next(network.parameters()).device
    drawn = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
    clean, noise = drawn["clean"], drawn["noise"]
    # Truncated: steps 0 to 999.
    steps = (drawn["uniform"] * 1000).long()
    step_alpha_bar = torch.tensor(alpha_bar).to(clean)[steps].view(-1, 1, 1)
    noisy = step_alpha_bar.sqrt() * clean + (1 - step_alpha_bar).sqrt() * noise
    scale = [drawn["scale"]] if "scale" in drawn else []
    prediction = network(noisy, steps.to(clean) / 1000, *scale)
    expected = noise if target == "noise" else clean
    raw = [(2.0 if level == 0 else 1.0) / length for level, length in enumerate(level_lengths)]
    loss, start = clean.new_zeros(()), 0
    for weight, length in zip(raw, level_lengths, strict=True):
        difference = prediction[:, start : start + length] - expected[:, start : start + length]
        loss = loss + weight / sum(raw) * difference.pow(2).mean()
        start += length
    return loss, prediction
