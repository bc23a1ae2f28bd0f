"""Normalizations and PReLU: epsilon, groups, axes, what is stored less one, momentum; activation functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from keras import layers
from torch import nn

from tests.mapping.kind_layers import Scale

from .layers import AfterStep, Function, Offset
from .pair import IMAGE, LAST, SEQ, VOLUME, Pair, State

TOKENS = ((2, 5, 8),)
LN, GN, BN, RMS = (
    layers.LayerNormalization,
    layers.GroupNormalization,
    layers.BatchNormalization,
    layers.RMSNormalization,
)
KERAS_EPSILON = {"Keras's epsilon 1e-3": {"epsilon": 1e-3}}


class PlusOne(nn.Module):
    """RMS normalisation as Gemma has it: the weight is stored less one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class Trained(nn.Module):
    """A running statistic of batch normalization after one step of training."""

    def __init__(self, statistic: str, momentum: float) -> None:
        super().__init__()
        self.bn, self.statistic = nn.BatchNorm2d(4, momentum=momentum), statistic

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = {name: tensor.clone() for name, tensor in self.bn.named_buffers()}
        self.bn.train()
        self.bn(x)
        after = getattr(self.bn, self.statistic).clone()
        for name, tensor in self.bn.named_buffers():
            tensor.copy_(before[name])  # what a second call finds is what was drawn
        self.bn.eval()
        return after  # type: ignore[no-any-return]


def untrained(module: nn.Module) -> State:
    return {name: torch.full_like(tensor, 0.25) for name, tensor in module.state_dict().items()}


PAIRS = (
    Pair("layer_norm", "layer_norm", partial(nn.LayerNorm, 8), partial(LN, epsilon=1e-5), TOKENS,
         KERAS_EPSILON | {"epsilon 1e-6": {"epsilon": 1e-6}}),
    Pair("layer_norm, eps 1e-12, small inputs", "layer_norm", partial(nn.LayerNorm, 8, eps=1e-12),
         partial(LN, epsilon=1e-12), TOKENS, {"epsilon 1e-5": {"epsilon": 1e-5}}, scale=1e-3),
    Pair("layer_norm over two axes", "layer_norm", partial(nn.LayerNorm, (5, 8)),
         partial(LN, axis=(-2, -1), epsilon=1e-5), TOKENS, KERAS_EPSILON),
    Pair("layer_norm of whole images", "layer_norm", lambda: nn.LayerNorm((4, 5, 6)),
         partial(LN, axis=(1, 2, 3), epsilon=1e-5), ((2, 4, 5, 6),), KERAS_EPSILON, LAST[2],
         row='axes: "b c h w -> b h w c"'),
    Pair("layer_norm, no bias", "layer_norm", partial(nn.LayerNorm, 8, bias=False),
         partial(LN, epsilon=1e-5, center=False), TOKENS, KERAS_EPSILON),
    Pair("layer_norm, no weights", "layer_norm", partial(nn.LayerNorm, 8, elementwise_affine=False),
         partial(LN, epsilon=1e-5, center=False, scale=False), TOKENS,
         KERAS_EPSILON | {"over the steps": {"axis": 1}, "over two axes": {"axis": (1, 2)}}),
    Pair("group_norm", "group_norm", partial(nn.GroupNorm, 2, 4), partial(GN, groups=2, epsilon=1e-5), IMAGE,
         KERAS_EPSILON | {"4 groups": {"groups": 4}, "1 group": {"groups": 1}}, LAST[2]),
    Pair("group_norm of sequences, channels first", "group_norm", partial(nn.GroupNorm, 2, 4),
         partial(GN, groups=2, axis=1, epsilon=1e-5), SEQ, KERAS_EPSILON | {"4 groups": {"groups": 4}},
         channels_first=True),
    Pair("group_norm, one group, eps 1e-8", "group_norm", partial(nn.GroupNorm, 1, 4, eps=1e-8),
         partial(GN, groups=1, epsilon=1e-8), SEQ, {"epsilon 1e-5": {"epsilon": 1e-5}, "4 groups": {"groups": 4}},
         LAST[1]),
    Pair("instance norm with weights", "group_norm", partial(nn.InstanceNorm2d, 4, affine=True),
         partial(GN, groups=-1, epsilon=1e-5), IMAGE, KERAS_EPSILON | {"2 groups": {"groups": 2}}, LAST[2]),
    Pair("instance norm without weights", "group_norm", partial(nn.InstanceNorm1d, 4),
         partial(GN, groups=-1, epsilon=1e-5, center=False, scale=False), SEQ,
         KERAS_EPSILON | {"1 group": {"groups": 1}}, LAST[1]),
    Pair("instance norm with running statistics", "batch_norm",
         partial(nn.InstanceNorm2d, 4, affine=True, track_running_stats=True), partial(BN, epsilon=1e-5), IMAGE,
         KERAS_EPSILON, LAST[2]),
    Pair("batch_norm of vectors", "batch_norm", partial(nn.BatchNorm1d, 4), partial(BN, epsilon=1e-5), ((6, 4),),
         KERAS_EPSILON),
    Pair("batch_norm of sequences", "batch_norm", partial(nn.BatchNorm1d, 4, eps=1e-4), partial(BN, epsilon=1e-4), SEQ,
         KERAS_EPSILON | {"epsilon 1e-5": {"epsilon": 1e-5}}, LAST[1]),
    Pair("batch_norm of images, channels first", "batch_norm", partial(nn.BatchNorm2d, 4),
         partial(BN, axis=1, epsilon=1e-5), IMAGE, KERAS_EPSILON, channels_first=True),
    Pair("batch_norm of images, all axes of the same size", "batch_norm", partial(nn.BatchNorm2d, 4),
         partial(BN, epsilon=1e-5), ((2, 4, 4, 4),), KERAS_EPSILON | {"the channels-first axis": {"axis": 1}},
         LAST[2]),
    Pair("batch_norm of volumes, no weights", "batch_norm", partial(nn.BatchNorm3d, 4, affine=False),
         partial(BN, epsilon=1e-5, center=False, scale=False), VOLUME, KERAS_EPSILON, LAST[3]),
    Pair("batch_norm, momentum 0.1: the mean after a step", "batch_norm", partial(Trained, "running_mean", 0.1),
         partial(AfterStep, "moving_mean", momentum=0.9, epsilon=1e-5), IMAGE,
         {"PyTorch's momentum unchanged": {"momentum": 0.1}, "Keras's momentum 0.99": {"momentum": 0.99}},
         LAST[2], "...", (".bn", "/inner"), no_outline="it compares a step of training", no_model="looks at training"),
    Pair("rms_norm", "rms_norm", partial(nn.RMSNorm, 8, eps=1e-6), partial(RMS, epsilon=1e-6), TOKENS,
         {"epsilon 1e-5": {"epsilon": 1e-5}}),
    Pair("rms_norm, eps None: float32's epsilon", "rms_norm", partial(nn.RMSNorm, 8),
         partial(RMS, epsilon=float(np.finfo(np.float32).eps)), TOKENS,
         {"float64's epsilon": {"epsilon": float(np.finfo(np.float64).eps)}, "Keras's epsilon": {"epsilon": 1e-6}},
         scale=1e-3),
    Pair("rms_norm of images with a weight (c, 1, 1)", "rms_norm", Scale, partial(RMS, epsilon=1e-6), IMAGE,
         {"epsilon 1e-5": {"epsilon": 1e-5}}, LAST[2], row='names: {weight: gamma}, axes: "b c h w -> b h w c"',
         unnamed={"epsilon 1e-5": "the module's own code has the epsilon"},
         no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("rms_norm, weight stored minus one", "rms_norm", PlusOne, partial(Offset, epsilon=1e-6), TOKENS,
         {"no +1": {"offset": 0.0}, "epsilon 1e-5": {"epsilon": 1e-5}},
         code=("offset",), unnamed={"epsilon 1e-5": "the module's own code has the epsilon"},
         no_outline="its module is written out, and not a layer of torch.nn"),
    Pair("prelu with one number", "prelu", nn.PReLU, partial(layers.PReLU, shared_axes=[1, 2, 3]), IMAGE,
         {"the slope of an untrained layer": {"state": untrained}}, LAST[2]),
    Pair("prelu of images", "prelu", partial(nn.PReLU, 4), partial(layers.PReLU, shared_axes=[1, 2]), ((2, 4, 4, 4),),
         {"shared as with channels first": {"shared_axes": [2, 3]}}, LAST[2]),
    Pair("prelu of sequences, channels first", "prelu", partial(nn.PReLU, 4), partial(layers.PReLU, shared_axes=[2]),
         ((2, 4, 4),), {"shared as with channels last": {"shared_axes": [1]}}, channels_first=True),
)  # fmt: skip


X = ((4, 50),)


def pair(name: str, torch: Any, keras: Any, wrong: dict[str, Any], no_model: str = "") -> Pair:
    """Inputs reach beyond every bend."""
    return Pair(name, "activation", torch, keras, X, wrong, scale=3.0, no_model=no_model)


class Drop(layers.Dropout):  # type: ignore[misc]
    """Dropout that is called with ``training``."""

    def __init__(self, rate: float, training: bool = False):
        super().__init__(rate, seed=0)
        self.training = training

    def call(self, x: Any) -> Any:
        return super().call(x, training=self.training)


def f(name: str, **options: Any) -> Any:
    """A function of Keras by name."""
    return partial(Function, name=name, **options)


ACTIVATIONS = (
    pair("gelu, erf", nn.GELU, f("gelu", approximate=False), {"tanh": {"approximate": True}}),
    pair("gelu, tanh", partial(nn.GELU, "tanh"), f("gelu", approximate=True), {"erf": {"approximate": False}}),
    pair("leaky_relu, slope 0.01", nn.LeakyReLU, partial(layers.LeakyReLU, negative_slope=0.01),
         {"the layer's 0.3": {"negative_slope": 0.3}, "the function's 0.2": {"negative_slope": 0.2}}),
    pair("leaky_relu, slope 0.2", partial(nn.LeakyReLU, 0.2), f("leaky_relu", negative_slope=0.2),
         {"PyTorch's 0.01": {"negative_slope": 0.01}}),
    pair("rrelu: the mean slope in inference", nn.RReLU, f("leaky_relu", negative_slope=(1 / 8 + 1 / 3) / 2),
         {"the lower slope": {"negative_slope": 1 / 8}, "the upper slope": {"negative_slope": 1 / 3}}),
    pair("relu", nn.ReLU, partial(layers.ReLU), {"relu6": {"max_value": 6.0}, "leaky": {"negative_slope": 0.01}}),
    pair("relu6", nn.ReLU6, partial(layers.ReLU, max_value=6.0), {"no maximum": {"max_value": None}}),
    pair("hardtanh (-2, 3)", partial(nn.Hardtanh, -2.0, 3.0), f("clip", x_min=-2.0, x_max=3.0),
         {"(-1, 1)": {"x_min": -1.0, "x_max": 1.0}, "(-3, 2)": {"x_min": -3.0, "x_max": 2.0}}),
    pair("elu, alpha 0.5", partial(nn.ELU, 0.5), partial(layers.ELU, alpha=0.5), {"alpha 1": {"alpha": 1.0}}),
    pair("celu, alpha 0.5", partial(nn.CELU, 0.5), f("celu", alpha=0.5), {"alpha 1": {"alpha": 1.0}}),
    pair("selu", nn.SELU, f("selu"), {"elu": {"name": "elu"}}),
    pair("silu", nn.SiLU, f("silu"), {"gelu": {"name": "gelu"}, "hard": {"name": "hard_silu"}}),
    pair("hardswish", nn.Hardswish, f("hard_silu"), {"smooth": {"name": "silu"}}),
    pair("hardsigmoid", nn.Hardsigmoid, f("hard_sigmoid"), {"smooth": {"name": "sigmoid"}}),
    pair("mish", nn.Mish, f("mish"), {"silu": {"name": "silu"}}),
    pair("softplus", partial(nn.Softplus, threshold=1e9), f("softplus"), {"relu": {"name": "relu"}},
         no_model="without its threshold PyTorch's overflows in float32"),
    pair("softsign", nn.Softsign, f("softsign"), {"tanh": {"name": "tanh"}}),
    pair("logsigmoid", nn.LogSigmoid, f("log_sigmoid"), {"sigmoid": {"name": "sigmoid"}}),
    pair("tanhshrink", nn.Tanhshrink, f("tanh_shrink"), {"tanh": {"name": "tanh"}}),
    pair("softshrink, 0.5", nn.Softshrink, f("soft_shrink", threshold=0.5), {"0.3": {"threshold": 0.3}}),
    pair("hardshrink, 0.5", nn.Hardshrink, f("hard_shrink", threshold=0.5), {"0.3": {"threshold": 0.3}}),
    pair("threshold 0.1, value 2", partial(nn.Threshold, 0.1, 2.0), f("threshold", threshold=0.1, default_value=2.0),
         {"value 0": {"default_value": 0.0}, "exchanged": {"threshold": 2.0, "default_value": 0.1}}),
    pair("softmax over the last axis", partial(nn.Softmax, -1), partial(layers.Softmax, axis=-1),
         {"the first": {"axis": 0}}),
    pair("log_softmax", partial(nn.LogSoftmax, -1), f("log_softmax", axis=-1), {"the first axis": {"axis": 0}}),
    Pair("softmax over channels", "activation", partial(nn.Softmax, 1), partial(layers.Softmax, axis=-1), IMAGE,
         {"PyTorch's axis 1": {"axis": 1}}, LAST[2]),
    Pair("glu over channels", "activation", partial(nn.GLU, 1), f("glu", axis=-1), IMAGE,
         {"PyTorch's axis 1, here the rows": {"axis": 2}}, LAST[2]),
    Pair("dropout: none in inference", "dropout", partial(nn.Dropout, 0.5), partial(Drop, rate=0.5), X,
         {"dropout as in training": {"training": True}}, code=("training",)),
)  # fmt: skip
