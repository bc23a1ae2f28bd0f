"""PyTorch's own transformers and recurrent layers."""

from __future__ import annotations

from torch import nn

from parity_tests.port.entries import entry

GROUP = "torch layers"


@entry(GROUP, "src: b t=9..14 32", "src_key_padding_mask: b t, mask")
def transformer_encoder_post_norm() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)


@entry(GROUP, "src: t=9..14 b 32")
def transformer_encoder_pre_norm() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", norm_first=True)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(32), enable_nested_tensor=False)


@entry(GROUP, "tgt: b u=7..11 32", "memory: b t=9..14 32", "tgt_mask: u u", "memory_key_padding_mask: b t, mask")
def transformer_decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), 2)


@entry(GROUP, "src: b t=9..14 32", "tgt: b u=7..11 32")
def transformer() -> nn.Module:
    return nn.Transformer(32, 4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=64, batch_first=True)


@entry(GROUP, "query: b u=7..11 32", "key: b t=9..14 20", "value: b t 24")
def multihead_attention() -> nn.Module:
    return nn.MultiheadAttention(32, 4, kdim=20, vdim=24, batch_first=True)


@entry(GROUP, "input: b t=9..14 8")
def lstm() -> nn.Module:
    return nn.LSTM(8, 16, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True)


@entry(GROUP, "input: t=9..14 b 8", "hx: 2 b 16")
def gru() -> nn.Module:
    return nn.GRU(8, 16, num_layers=2)
