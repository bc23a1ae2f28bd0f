"""An encoder-decoder transformer: packed attention, masks, learned positions, an output head tied to an embedding."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, HIDDEN = 16, 2, 24


def attention() -> nn.MultiheadAttention:
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)


class EncoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = attention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x, ignore):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, key_padding_mask=ignore, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class DecoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.cross = attention(), attention()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x, memory, ignore, later):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=later, need_weights=False)[0]
        h = self.norm2(x)
        x = x + self.cross(h, memory, memory, key_padding_mask=ignore, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm3(x))))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(30, WIDTH), nn.Embedding(30, WIDTH)
        self.source_position = nn.Parameter(torch.randn(1, 9, WIDTH) * 0.1)
        self.target_position = nn.Parameter(torch.randn(1, 7, WIDTH) * 0.1)
        self.encoder = nn.ModuleList([EncoderBlock() for _ in range(2)])
        self.decoder = nn.ModuleList([DecoderBlock() for _ in range(2)])
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 30, bias=False)
        self.head.weight = self.target.weight
        self.register_buffer("later", torch.ones(7, 7, dtype=torch.bool).triu(1))

    def forward(self, source, target, keep):
        ignore = ~keep
        memory = self.source(source) + self.source_position
        for block in self.encoder:
            memory = block(memory, ignore)
        memory = self.encoder_norm(memory)
        x = self.target(target) + self.target_position
        for block in self.decoder:
            x = block(x, memory, ignore, self.later)
        return self.head(self.decoder_norm(x))


build = Translator
