"""Functions and layers of PyTorch with arguments that a port may pass over."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.porting.port_nets import IMAGE, SEQUENCE, Situation, conv, linear, net, parameter

RESULTS: dict[str, Situation] = {
    "a layer as the model": Situation(lambda: nn.Linear(8, 3), ("x: b 8",)),
    "layers as the model": Situation(lambda: nn.Sequential(nn.Conv2d(4, 5, 3), nn.ReLU()), (IMAGE,)),
    "an LSTM of two equal layers": net(
        lambda m, x: m.rnn(x)[0], SEQUENCE, rnn=lambda: nn.LSTM(8, 8, 2, batch_first=True)),
    "a window of the size of the image": net(lambda m, x: F.avg_pool2d(x, x.shape[2:]), IMAGE, hole="sizes"),
    "a window of the length": net(lambda m, x: F.max_pool1d(x.mT, x.size(1)), SEQUENCE, hole="sizes"),
    "a size of a pooling from a size": net(
        lambda m, x: F.adaptive_avg_pool1d(x.mT, x.size(1) // 2), SEQUENCE, hole="sizes"),
    "a number made of a weight": net(lambda m, x: x * m.s.exp().item(), s=parameter(), hole="value"),
    "dropout between layers": net(
        lambda m, x: m.rnn(x)[0], SEQUENCE, rnn=lambda: nn.GRU(8, 6, 3, batch_first=True, dropout=0.5)),
    "rounded decimals": net(lambda m, x: x.round(decimals=1), hole="arguments"),
    "rounded halves": net(lambda m, x: (x * 4).round() / 4 + (x.round() + 0.5).round()),
    "scatter that adds": net(lambda m, x: x.scatter(1, x.argsort(1) // 2, x, reduce="add"), hole="reduce"),
    "scatter_reduce": net(lambda m, x: x.scatter_reduce(1, x.argsort(1) // 2, x, "amax"), hole="scatter_reduce"),
    "norms of a matrix": net(lambda m, x: torch.linalg.norm(x @ x.T, ord=2), hole="matrices"),
    "column sums of a matrix": net(lambda m, x: torch.linalg.norm(x @ x.T, ord=1), hole="matrices"),
    "norms of vectors": net(lambda m, x: torch.linalg.norm(x, dim=1) + torch.linalg.vector_norm(x, 1, 1)),
    "a largest norm": net(lambda m, x: torch.linalg.vector_norm(x, float("inf"), 1), hole="order inf"),
    "a norm of order three": net(lambda m, x: x.norm(3, 1), hole="order 3"),
    "descending": net(lambda m, x: x.sort(1, descending=True)[0] + x.argsort(1, descending=True), hole="sort"),
    "sums of truth": net(lambda m, x: (x > 0).cumsum(1) + (x > 0).sum(1, keepdim=True) + (x > 0).long().cumsum(1)),
    "means of truth": net(lambda m, x: (x > 0).double().mean(1) + torch.sum(x > 0, 1)),
    "a sum with a dtype": net(lambda m, x: x.sum(1, dtype=torch.float32)),
    "other corrections": net(lambda m, x: x.var(1, correction=2) + x.std(1, correction=0)),
    "mean and variance": net(lambda m, x: torch.var_mean(x, 1), hole="var_mean"),
    "a softmax over samples": net(lambda m, x: x.softmax(0) + F.normalize(x, dim=0), "x: 3 8"),
    "flattened parts": net(lambda m, x: x.flatten(1, 2) + m.conv(x).flatten(1, 2), IMAGE, conv=conv()),
    "moved axes": net(lambda m, x: m.conv(x).movedim((1, 2), (3, 1)) * m.conv(x).swapaxes(1, -1).swapaxes(1, 2),
                      IMAGE, conv=conv()),
    "einsum with an ellipsis": net(lambda m, x: torch.einsum("...ij,...kj->...ik", x, x), SEQUENCE),
    "einsum with spaces": net(lambda m, x: torch.einsum("b t c, b s c -> b t s", x, x), SEQUENCE),
    "bands of an image": net(lambda m, x: m.conv(x).tril(1) + m.conv(x).triu(-1), IMAGE, conv=conv()),
    "a diagonal": net(lambda m, x: torch.diagonal(x @ x.mT, dim1=1, dim2=2), SEQUENCE, hole="diagonal"),
    "joined kinds": net(lambda m, x: torch.cat([x, (x > 0).long()], 1)),
    "resized sequences": net(lambda m, x: F.interpolate(x, scale_factor=2) + F.interpolate(
        x, scale_factor=2, mode="linear"), "x: b 4 t=7..9"),
    "resized volumes": net(lambda m, x: F.interpolate(x, scale_factor=2, mode="trilinear"), "x: b 2 3 4 5"),
    "pooled to one row": net(lambda m, x: F.adaptive_avg_pool2d(x, (1, None)), IMAGE, hole="free"),
    "pooled with margins": net(lambda m, x: F.max_pool2d(x, 3, padding=1) + F.avg_pool2d(
        x, 3, padding=1, count_include_pad=False), IMAGE),
    "pooled with a divisor": net(lambda m, x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE),
    "pooled powers": net(lambda m, x: F.lp_pool2d(x, 2, 2), IMAGE, hole="lp_pool2d"),
    "a fill of a tensor": net(lambda m, x: x.masked_fill(x > 0, x.mean())),
    "a mask of an image": net(lambda m, x: m.conv(x).masked_fill(x[:, :1] > 0, -1.0), IMAGE, conv=conv()),
    "truth of numbers": net(lambda m, x: x.bool() & torch.any(x - x, 1, True).logical_not()),
    "all at once": net(lambda m, x: x.max() - x.min() + x.prod() + x.sum() + x.argmax(), hole="argmax"),
    "smallest along": net(lambda m, x: x.min(1)),
    "gates": net(lambda m, x: F.glu(x, 1)),
    "slopes": net(lambda m, x: F.prelu(m.conv(x), m.slope), IMAGE, conv=conv(), slope=parameter(4)),
    "one slope": net(lambda m, x: F.prelu(m.conv(x), m.slope), IMAGE, conv=conv(), slope=parameter(1)),
    "noise of a softmax": net(lambda m, x: F.gumbel_softmax(x), hole="other values"),
    "powers of whole numbers": net(lambda m, ids: ids**2 + 2**ids - ids.abs(), "ids: b 7, below 11"),
    "whole parts": net(lambda m, x: (x * 3).to(torch.int32) + (x * 3).trunc().long() + (x * 3).floor().int()),
    "other dtypes": net(lambda m, x, ids: x.type_as(ids) + ids.to(x).long(), "x: b 7", "ids: b 7, below 11"),
    "made of sizes": net(lambda m, x: x + torch.full((x.shape[1], 1), 0.5) + x.new_full((x.size(1), 1), x.size(2)),
                         SEQUENCE),
    "counted down": net(lambda m, x: x[:, 0] * torch.arange(8, 0, -1) + torch.arange(0.0, 0.8, 0.1), SEQUENCE),
    "counted down from a size": net(lambda m, x: x + torch.arange(x.shape[1], 0, -1)[:, None], SEQUENCE),
    "a tensor of a size": net(lambda m, x: x * torch.tensor(x.shape[1]) + torch.tensor([x.shape[1], 2]).sum(),
                                 SEQUENCE),
    "inner parts": net(lambda m, x: x[:, 1:-1] + x[:, -3:-2] + x[:, :-2], SEQUENCE),
    "ellipses": net(lambda m, x: m.conv(x)[..., 1] + m.conv(x)[0, ..., None, 1].squeeze(-1), IMAGE, conv=conv()),
    "steps of an image": net(lambda m, x: m.conv(x)[:, ::2, 1::2, -3:], IMAGE, conv=conv()),
    "rows one by one": net(lambda m, x: [row * 2 for row in x[0]], "x: b 3 8"),
    "fewer parts": net(lambda m, x: [part * 2 for part in x.chunk(3, 1)], "x: b 4"),
    "windows of an image": net(lambda m, x: m.conv(x).unfold(2, 3, 2).sum(-1), IMAGE, conv=conv()),
    "turned from the end": net(lambda m, x: m.conv(x).flip((-1, 1)).roll(1, -1), IMAGE, conv=conv()),
    "turned as a whole": net(lambda m, x: x.roll(3), hole="roll"),
    "a vector and a matrix": net(lambda m, x: x[0] @ m.w + torch.mv(m.w.T, x[0]) + x[0].dot(x[0]) + x @ m.w,
                                 w=parameter(8, 8)),
    "products of parts": net(lambda m, x: torch.outer(x[0], x[0]) + torch.kron(x[0, :2], x[0, :4]), hole="kron"),
    "index_fill": net(lambda m, x: x.index_fill(1, torch.tensor([0, 2]), 0.5), hole="index_fill"),
    "index_copy": net(lambda m, x: x.index_copy(1, torch.tensor([0, 2]), x[:, :2]), hole="index_copy"),
    "searched": net(lambda m, x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), hole="bucketize"),
    "clamped by tensors": net(lambda m, x: x.clamp(min=x.mean(1, True)) + torch.minimum(x, x[:1])),
    "a softmax with a dtype": net(lambda m, x: F.softmax(x, -1, dtype=torch.float32)),
    "not a number": net(lambda m, x: torch.nan_to_num(x.sqrt()) + x.sqrt().isnan(), hole="nan_to_num"),
    "angles": net(lambda m, x: torch.atan2(x, x.flip(1)) + x.tanh().atanh() + x.asinh() + torch.deg2rad(x),
                  hole="atanh"),
    "a function of Bessel": net(lambda m, x: torch.special.i0(x), hole="i0"),
}  # fmt: skip


def image_layer(make: Any, inputs: str = IMAGE, hole: str = "") -> Situation:
    return net(lambda m, x: m.layer(m.conv(x)), inputs, hole=hole, layer=make, conv=conv())


LAYERS: dict[str, Situation] = {
    "uneven margins": image_layer(lambda: nn.Conv2d(4, 5, (3, 2), padding=(1, 0), stride=(2, 1))),
    "gaps": image_layer(lambda: nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=4)),
    "one kernel for each channel": image_layer(lambda: nn.Conv2d(4, 4, 3, padding=1, stride=2, groups=4)),
    "a causal convolution": net(lambda m, x: m.conv(F.pad(x.mT, (2, 0))).mT, SEQUENCE, conv=lambda: nn.Conv1d(8, 8, 3)),
    "a convolution with same margins": image_layer(lambda: nn.Conv2d(4, 4, 3, padding="same", dilation=2)),
    "a replicated border": image_layer(lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate")),
    "transposed in one axis": net(lambda m, x: m.conv(x), "x: b 4 t=7..9",
                                  conv=lambda: nn.ConvTranspose1d(4, 5, 4, 2, 1)),
    "a transposed convolution with gaps": image_layer(lambda: nn.ConvTranspose2d(4, 5, 3, dilation=2)),
    "batch norm without weights": image_layer(lambda: nn.BatchNorm2d(4, affine=False, eps=1e-3)),
    "instance norm with statistics": image_layer(lambda: nn.InstanceNorm2d(4, track_running_stats=True)),
    "instance norm without weights": image_layer(lambda: nn.InstanceNorm2d(4)),
    "group norm without weights": image_layer(lambda: nn.GroupNorm(2, 4, affine=False)),
    "a norm without a shift": net(lambda m, x: m.norm(x), norm=lambda: nn.LayerNorm(8, bias=False)),
    "a norm with an epsilon": net(lambda m, x: m.norm(x), norm=lambda: nn.RMSNorm(8, eps=1e-3)),
    "attention of other keys": net(lambda m, x, y: m.attn(x, y, y)[0], SEQUENCE, "y: b 4 6", attn=lambda:
                                   nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)),
    "attention with time first": net(lambda m, x: m.attn(x, x, x), "x: t=7..9 b 8",
                                     attn=lambda: nn.MultiheadAttention(8, 2)),
    "weights of every head": net(lambda m, x: m.attn(x, x, x, average_attn_weights=False), SEQUENCE,
                                 attn=lambda: nn.MultiheadAttention(8, 2, batch_first=True)),
    "an encoder layer": net(lambda m, x: m.layer(x), SEQUENCE, layer=lambda:
                            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)),
    "a decoder layer": net(lambda m, x: m.layer(x, x.flip(1)), SEQUENCE, layer=lambda:
                           nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, activation="gelu")),
    "a size to reach": image_layer(lambda: nn.Upsample(size=(5, 6), mode="bilinear")),
    "borders of layers": image_layer(lambda: nn.Sequential(
        nn.ReflectionPad2d((1, 0, 2, 1)), nn.ReplicationPad2d(1), nn.ZeroPad2d((0, 1, 2, 0)), nn.ConstantPad2d(1, 0.5),
        nn.CircularPad2d(1))),
    "layers of values": image_layer(lambda: nn.Sequential(
        nn.Hardswish(), nn.Threshold(0.1, -1.0), nn.Softshrink(0.2), nn.RReLU(), nn.CELU(0.5), nn.Tanhshrink(),
        nn.LeakyReLU(0.3), nn.ELU(0.5), nn.Hardtanh(-0.5, 0.7), nn.SELU(), nn.LogSigmoid(), nn.Softsign())),
    "layers along axes": image_layer(lambda: nn.Sequential(nn.Softmax(1), nn.LogSoftmax(2), nn.Softmin(3))),
    "layers that drop": image_layer(lambda: nn.Sequential(
        nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout(), nn.Identity()), hole="AlphaDropout"),
    "pooled in one axis": net(lambda m, x: m.b(m.a(x)), "x: b 4 t=8..12", a=lambda: nn.MaxPool1d(3, 2, 1),
                              b=lambda: nn.AvgPool1d(2, padding=1)),
    "a distance of two": net(lambda m, x: m.d(x, x.flip(1)) + m.c(x, x.flip(1)), d=lambda: nn.PairwiseDistance(),
                             c=lambda: nn.CosineSimilarity(1)),
    "a first layer after an image": net(
        lambda m, x: m.lin(F.max_pool2d(m.conv(x), 2).view(x.size(0), -1)), "x: b 4 6 6", conv=conv(), lin=linear(36)),
    "a recurrent layer of a plain cell": net(
        lambda m, x: m.rnn(x), SEQUENCE, rnn=lambda: nn.RNN(8, 5, nonlinearity="relu", batch_first=True)),
    "a recurrent layer without biases": net(
        lambda m, x: m.rnn(x)[0], SEQUENCE, rnn=lambda: nn.GRU(8, 5, bias=False, batch_first=True)),
    "a recurrent layer with time first": net(lambda m, x: m.rnn(x), "x: t=7..9 b 8", rnn=lambda: nn.LSTM(8, 5)),
}  # fmt: skip
