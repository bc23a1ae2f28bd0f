"""TS2Vec's training in PyTorch, written from the paper (arXiv 2106.10466): crops are cut out, and time has its own
length in every step. The reference of Context-FID, in values and in law."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from wdport.uses.ts2vec.config import Config
from wdport.uses.ts2vec.reference import TS2Vec


def forward(module: TS2Vec, series: Tensor, seen: Tensor | None = None) -> Tensor:
    """The representation (B, T, D) with a mask (B, T) after the input projection, and with the module's dropout."""
    x = module.input_fc(series)
    if seen is not None:
        x = x * seen[..., None]
    found: Tensor = module.repr_dropout(module.feature_extractor(x.transpose(1, 2))).transpose(1, 2)
    return found


def among(anchors: Tensor) -> Tensor:
    """Cross-entropy of finding the partner, n / 2 places on, among the n - 1 other vectors of every row (A, n, D)."""
    rows, count, _ = anchors.shape
    losses = []
    for a in range(rows):
        for i in range(count):
            others = [j for j in range(count) if j != i]
            products = torch.stack([anchors[a, i] @ anchors[a, j] for j in others])
            partner = torch.tensor(others.index((i + count // 2) % count))
            losses.append(functional.cross_entropy(products[None], partner[None]))
    return torch.stack(losses).mean()


def quick_among(anchors: Tensor) -> Tensor:
    """The same without loops."""
    count = anchors.shape[1]
    products = anchors @ anchors.transpose(1, 2)
    products = products.masked_fill(torch.eye(count, dtype=torch.bool), -torch.inf)
    partner = (torch.arange(count) + count // 2) % count
    return functional.cross_entropy(products.reshape(-1, count), partner.repeat(len(anchors)))


def hierarchical_loss(one: Tensor, other: Tensor, term: Any = quick_among) -> Tensor:
    """Of two representations (B, T, D) of the same steps."""
    losses = []
    while True:
        both = 0.5 * term(torch.cat([one, other]).transpose(0, 1)) if len(one) > 1 else torch.zeros((), dtype=one.dtype)
        if one.shape[1] > 1:
            both = both + 0.5 * term(torch.cat([one, other], 1))
        losses.append(both)
        if one.shape[1] == 1:
            return torch.stack(losses).mean()
        one, other = (functional.max_pool1d(each.transpose(1, 2), 2).transpose(1, 2) for each in (one, other))


def trained(
    series: np.ndarray, seed: int, steps: int, config: Config | None = None
) -> torch.optim.swa_utils.AveragedModel:
    """An encoder trained on series (n, T, F) as the public evaluation trains it: the mean over all steps."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    module = TS2Vec(Config(series.shape[2], 64, 320, 10))
    averaged = torch.optim.swa_utils.AveragedModel(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    held = torch.from_numpy(series.astype(np.float32))
    length, size = series.shape[1], min(8, len(series))
    order: list[int] = []
    for _ in range(steps):
        if len(order) < size:
            order = random.permutation(len(series)).tolist()
        batch = held[[order.pop() for _ in range(size)]]
        shared = random.integers(2, length + 1)
        left = random.integers(0, length - shared + 1)
        begin, end = random.integers(0, left + 1), random.integers(left + shared, length + 1)
        shift = random.integers(-begin, length - end + 1, size)
        crops = []
        for first, last in ((begin, left + shared), (left, end)):
            crop = torch.stack([batch[b, shift[b] + first : shift[b] + last] for b in range(size)])
            crops.append(forward(module, crop, (torch.rand(crop.shape[:2]) < 0.5).float()))
        loss = hierarchical_loss(crops[0][:, -shared:], crops[1][:, :shared])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(module)
    return averaged.eval()


def embeddings(module: torch.optim.swa_utils.AveragedModel, series: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = forward(module.module, torch.from_numpy(series.astype(np.float32))).amax(1).numpy()
    return found
