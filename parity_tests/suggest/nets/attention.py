"""Networks with attention: encoders, decoders, pictures and words."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, NARROW = 16, 12


def attention() -> nn.MultiheadAttention:
    return nn.MultiheadAttention(WIDTH, 2, batch_first=True)


class EncoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = attention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x, ignore):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, key_padding_mask=ignore, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class DecoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.cross = attention(), attention()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x, memory, ignore, later):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=later, need_weights=False)[0]
        h = self.norm2(x)
        x = x + self.cross(h, memory, memory, key_padding_mask=ignore, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm3(x))))


class Translator(nn.Module):
    """An encoder-decoder transformer: packed attention, masks, learned positions, an output head tied to an
    embedding."""

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


class SquareAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.v_proj, self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (4, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(x.transpose(1, 2).flatten(2))


class SquareMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class SquareBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(WIDTH, eps=1e-6), nn.RMSNorm(WIDTH, eps=1e-6)
        self.attention, self.mlp = SquareAttention(), SquareMlp()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Square(nn.Module):
    """A decoder of which every weight is d x d: queries, keys, values, outputs, gates; shapes say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WIDTH, WIDTH), nn.Embedding(WIDTH, WIDTH)
        self.layers = nn.ModuleList([SquareBlock() for _ in range(3)])
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class VitBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.gamma_1, self.gamma_2 = nn.Parameter(torch.full((WIDTH,), 0.1)), nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.gamma_1 * self.attn(h, h, h, need_weights=False)[0]
        return x + self.gamma_2 * self.fc2(F.gelu(self.fc1(self.ln_2(x))))


class ViT(nn.Module):
    """A vision transformer: patches, a class token, positions and layer scales as bare parameters, packed attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.1)
        self.pos_embed = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.1)
        self.blocks = nn.ModuleList([VitBlock() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
        self.head = nn.Linear(WIDTH, 6)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0]) * self.logit_scale


class FusedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(NARROW, elementwise_affine=False, eps=1e-6)
        self.modulate = nn.Linear(NARROW, 2 * NARROW)
        self.qkv = nn.Linear(NARROW, 3 * NARROW)
        self.proj = nn.Linear(NARROW, NARROW)
        self.gate, self.up, self.down = nn.Linear(NARROW, 16), nn.Linear(NARROW, 16), nn.Linear(16, NARROW)

    def forward(self, x, condition):
        scale, shift = self.modulate(F.silu(condition))[:, None].chunk(2, -1)
        h = self.norm(x) * (1 + scale) + shift
        q, k, v = self.qkv(h).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.proj(h)
        return x + self.down(torch.sigmoid(self.gate(x)) * self.up(x))


class Fused(nn.Module):
    """Projections in one matrix here and in several there: queries, keys and values; scale and shift; two gates."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.condition = nn.Linear(4, NARROW), nn.Linear(1, NARROW)
        self.blocks = nn.ModuleList([FusedBlock() for _ in range(2)])
        self.out = nn.Linear(NARROW, 4)

    def forward(self, x, t):
        condition = self.condition(t[:, None])
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, condition)
        return self.out(x)


class GptLinear(nn.Module):
    """x W + b, with W (in, out)."""

    def __init__(self, out: int, before: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(before, out) * 0.02)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x):
        return x @ self.weight + self.bias


class GptNorm(nn.Module):
    """Root mean square norm by hand, whose scale is stored less one."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(NARROW))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + self.offset)


class GptBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = GptNorm(), GptNorm()
        self.c_attn, self.c_proj = GptLinear(3 * NARROW, NARROW), GptLinear(NARROW, NARROW)
        self.c_fc, self.c_out = GptLinear(NARROW, NARROW), GptLinear(NARROW, NARROW)
        self.register_buffer("bias", torch.ones(8, 8, dtype=torch.bool).tril()[None, None])

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).split(NARROW, -1)
        q, k, v = (each.unflatten(-1, (3, -1)).transpose(1, 2) for each in (q, k, v))
        scores = (q @ k.transpose(-1, -2)) / (NARROW // 3) ** 0.5
        weights = scores.masked_fill(~self.bias[:, :, : x.shape[1], : x.shape[1]], float("-inf")).softmax(-1)
        x = x + self.c_proj((weights @ v).transpose(1, 2).flatten(2))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A small GPT-2: linear layers stored in x out by a class of its own, fused qkv, a causal buffer, a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(12, NARROW), nn.Embedding(12, NARROW)
        self.h = nn.ModuleList([GptBlock() for _ in range(2)])
        self.ln_f = GptNorm()
        self.lm_head = nn.Linear(NARROW, 12, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Stack(nn.Module):
    """PyTorch's own transformer encoder, whose fast path calls none of its layers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 3, 12, activation="gelu", batch_first=True)
        self.inward = nn.Linear(12, 12)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(12), enable_nested_tensor=False)
        self.outward = nn.Linear(12, 12)

    def forward(self, x):
        return self.outward(self.encoder(self.inward(x)))


class Tower(nn.Module):
    """Two inputs, two outputs in a nested tuple: a picture and words, a cross attention with a width of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.image1, self.image2 = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 1)
        self.words = nn.Embedding(15, 12)
        self.attend = nn.MultiheadAttention(12, 2, kdim=8, vdim=8, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.left, self.right = nn.Linear(12, 12), nn.Linear(12, 12)
        self.similar = nn.Bilinear(12, 12, 1)

    def forward(self, image, words):
        x = self.image2(F.silu(self.image1(image))).flatten(2).transpose(1, 2)
        q = self.words(words)
        y, _ = self.attend(q, x, x)
        y = self.norm(q + y).mean(1)
        a, b = F.normalize(self.left(y), dim=-1), F.normalize(self.right(y), dim=-1)
        return (a, b), self.similar(a, b)


encdec, square, vit, fused, gpt, stack, tower = Translator, Square, ViT, Fused, Gpt, Stack, Tower
