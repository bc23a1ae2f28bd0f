"""TS2Vec's encoder in PyTorch, by the public code's module names: the reference of a comparison.

The modules ``gelu1``, ``gelu2`` and ``pool`` replace function calls of the public code; they have no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from wdport.models.interface import Array
from wdport.uses.ts2vec.config import Config


class SameConvolution(nn.Module):
    """(B, C, T) -> (B, C', T), dilated, with symmetric zero padding."""

    def __init__(self, before: int, after: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(before, after, kernel, padding=(kernel - 1) * dilation // 2, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Block(nn.Module):
    """(B, C, T) -> (B, C', T)."""

    def __init__(self, before: int, after: int, kernel: int, dilation: int, last: bool) -> None:
        super().__init__()
        self.conv1 = SameConvolution(before, after, kernel, dilation)
        self.conv2 = SameConvolution(after, after, kernel, dilation)
        self.projector = nn.Conv1d(before, after, 1) if last or before != after else None
        self.gelu1, self.gelu2 = nn.GELU(), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.projector is None else self.projector(x)
        return self.conv2(self.gelu2(self.conv1(self.gelu1(x)))) + shortcut


class Blocks(nn.Module):
    """(B, H, T) -> (B, D, T)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(Block(*block[:2], config.kernel_size, block[2], i == config.depth)
              for i, block in enumerate(config.blocks))
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class MaxOverTime(nn.Module):
    """(B, T, D) -> (B, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(dim=1)


class TS2Vec(nn.Module):
    """Series (B, T, F), NaN at missing steps -> representation (B, T, D), embedding (B, D)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_fc = nn.Linear(config.input_dims, config.hidden_dims)
        self.feature_extractor = Blocks(config)
        self.repr_dropout = nn.Dropout(0.1)
        self.pool = MaxOverTime()

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        missing = series.isnan().any(dim=-1, keepdim=True)
        x = self.input_fc(series.masked_fill(missing, 0.0)).masked_fill(missing, 0.0)
        # torch convolves (B, C, T).
        x = self.repr_dropout(self.feature_extractor(x.transpose(1, 2))).transpose(1, 2)
        return x, self.pool(x)


def build_reference(config: Config, tensors: Mapping[str, Array], dtype: str) -> TS2Vec:
    """The encoder in evaluation mode with these weights, every one of them used; ``dtype`` float32 or float64."""
    with torch.device("meta"):
        # On the meta device modules have no storage, and torch draws no random weights.
        model = TS2Vec(config)
    state = {name: torch.from_numpy(array).to(getattr(torch, dtype)) for name, array in tensors.items()}
    # `assign`, since a meta tensor cannot be copied into.
    model.load_state_dict(state, assign=True)
    return model.eval()
