"""Networks whose inputs have no batch axis: graphs as lists of edges or as matrices, and sets of points."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Convolution(nn.Module):
    """Kipf and Welling's layer on a list of edges (2, E): sums over neighbours and the node itself, normalised by the
    roots of both degrees."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear, self.bias = nn.Linear(before, after, bias=False), nn.Parameter(torch.zeros(after))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        loops = torch.arange(len(x), device=x.device)
        source, target = torch.cat([edges, torch.stack([loops, loops])], 1)
        degree = torch.zeros(len(x), dtype=x.dtype).index_add(0, target, torch.ones(len(target), dtype=x.dtype))
        weight = degree[source].rsqrt() * degree[target].rsqrt()
        x = self.linear(x)
        return torch.zeros_like(x).index_add(0, target, weight[:, None] * x[source]) + self.bias


class EdgeList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = Convolution(6, 16), Convolution(16, 5)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        return self.second(self.first(nodes, edges).relu(), edges)


class Dense(nn.Module):
    """A graph as a matrix of weights: the mean over neighbours, and the node itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.own, self.others, self.norm, self.out = (
            nn.Linear(6, 16), nn.Linear(6, 16, bias=False), nn.LayerNorm(16), nn.Linear(16, 3),
        )  # fmt: skip

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        weights = adj.abs()
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-6)
        return self.out(self.norm(self.own(x) + self.others(weights @ x)).relu())


class Attention(nn.Module):
    """A graph attention of several heads: a softmax over the edges that end at a node."""

    def __init__(self, before: int, after: int, heads: int) -> None:
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(before, heads * after, bias=False)
        self.source, self.target = (nn.Parameter(torch.randn(heads, after)) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        x = self.linear(x).unflatten(-1, (self.heads, -1))
        scores = (x * self.source).sum(-1)[source] + (x * self.target).sum(-1)[target]
        scores = nn.functional.leaky_relu(scores, 0.2)
        highest = torch.full((len(x), self.heads), -torch.inf, dtype=x.dtype)
        highest = highest.scatter_reduce(0, target[:, None].expand_as(scores), scores, "amax")
        weights = (scores - highest[target]).exp()
        total = torch.zeros_like(highest).index_add(0, target, weights)
        weights = weights / (total[target] + 1e-16)
        return torch.zeros_like(x).index_add(0, target, weights[..., None] * x[source]).flatten(1)


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gat, self.out = Attention(6, 4, 3), nn.Linear(12, 5)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.out(nn.functional.elu(self.gat(x, edges)))


class Points(nn.Module):
    """One vector of a set of points (N, 3)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lift = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16))
        self.out = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, points: Tensor) -> Tensor:
        features = self.lift(points - points.mean(0))
        return self.out(torch.cat([features.amax(0), features.mean(0)]))


class Words(nn.Module):
    """A transformer with a mask of padding, true at the tokens that count, and a bias by distance (heads, T, T)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.proj = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 7)

    def forward(self, ids: Tensor, bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x = self.embed(ids)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / 8**0.5
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -1e9)
        x = x + self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.head(x)


class Mixed(nn.Module):
    """Takes two inputs of one shape, and a third."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right, self.out = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, wide: Tensor, fine: Tensor, scale: Tensor) -> Tensor:
        return self.out((self.left(wide).relu() + self.right(fine)) * scale)


def edge_list() -> nn.Module:
    return EdgeList()


def dense() -> nn.Module:
    return Dense()


def attended() -> nn.Module:
    return Attended()


def points() -> nn.Module:
    return Points()


def words() -> nn.Module:
    return Words()


def mixed() -> nn.Module:
    return Mixed()


class Mean(nn.Module):
    """The mean over the neighbours of a node, zeros if it has none, and the node itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.own, self.norm = nn.Linear(6, 8), nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        target = edges[1][:, None]
        total = torch.zeros_like(x).scatter_add(0, target.expand(-1, x.shape[1]), x[edges[0]])
        count = torch.zeros(len(x), 1, dtype=x.dtype).scatter_add(0, target, torch.ones_like(target, dtype=x.dtype))
        return self.out(self.norm(self.layer(total / count.clamp(min=1)) + self.own(x)).relu()).log_softmax(-1)


def averaged() -> nn.Module:
    return Mean()
