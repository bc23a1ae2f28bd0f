"""A small GPT-2: linear layers stored in x out by a class of its own, fused qkv, a causal buffer, a tied head."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH = 12, 3, 8


class Conv1D(nn.Module):
    """x W + b, with W (in, out)."""

    def __init__(self, out: int, before: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(before, out) * 0.02)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Norm(nn.Module):
    """Root mean square norm by hand, whose scale is stored less one."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + self.offset)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = Norm(), Norm()
        self.c_attn, self.c_proj = Conv1D(3 * WIDTH, WIDTH), Conv1D(WIDTH, WIDTH)
        self.c_fc, self.c_out = Conv1D(WIDTH, WIDTH), Conv1D(WIDTH, WIDTH)
        self.register_buffer("bias", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None])

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, -1)
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (q, k, v))
        scores = (q @ k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
        weights = scores.masked_fill(~self.bias[:, :, : x.shape[1], : x.shape[1]], float("-inf")).softmax(-1)
        x = x + self.c_proj((weights @ v).transpose(1, 2).flatten(2))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(12, WIDTH), nn.Embedding(12, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(2)])
        self.ln_f = Norm()
        self.lm_head = nn.Linear(WIDTH, 12, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


build = Gpt
