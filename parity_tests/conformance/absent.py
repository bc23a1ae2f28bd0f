"""What PyTorch has and Keras does not, so that a table cannot say it: each with the reason and what Keras does."""

from __future__ import annotations

from functools import partial
from typing import Any

from keras import layers
from torch import nn

from . import norms
from .attention import torch_rnn
from .layers import AfterStep, Function
from .pair import IMAGE, LAST, SEQ, Absent, Pair

NOT_AN_ARGUMENT = "Unrecognized keyword arguments"


def refused(
    name: str,
    reason: str,
    kind: str,
    torch: Any,
    keras: Any,
    says: str,
    axes: str = "",
    input: Any = IMAGE,
    **more: Any,
) -> Absent:
    return Absent(name, reason, Pair(name, kind, torch, keras, input, {}, axes, **more), "refuses", says)


def differs(
    name: str, reason: str, kind: str, torch: Any, keras: Any, axes: str = "", input: Any = IMAGE, **more: Any
) -> Absent:
    return Absent(name, reason, Pair(name, kind, torch, keras, input, {}, axes, **more), "differs")


ABSENT = (
    *(refused(f"conv{rank}d with stride 2 and dilation 2",
              "Keras allows only one of them to be above 1; keep the dilation, and slice the output", f"conv{rank}d",
              partial(getattr(nn, f"Conv{rank}d"), 4, 5, 2, stride=2, dilation=2),
              partial(getattr(layers, f"Conv{rank}D"), 5, 2, strides=2, dilation_rate=2), "strides > 1", LAST[rank],
              ((2, 4, *(9, 8, 7)[:rank]),)) for rank in (1, 2, 3)),
    refused("conv_transpose2d with stride 2 and dilation 2", "as for convolutions", "conv_transpose2d",
            partial(nn.ConvTranspose2d, 4, 5, 2, stride=2, dilation=2),
            partial(layers.Conv2DTranspose, 5, 2, strides=2, dilation_rate=2), "strides > 1", LAST[2]),
    refused("conv_transpose1d with groups", "Keras has one group; split the channels over several layers",
            "conv_transpose1d", partial(nn.ConvTranspose1d, 4, 6, 3, groups=2),
            partial(layers.Conv1DTranspose, 6, 3, groups=2), NOT_AN_ARGUMENT, LAST[1], SEQ),
    refused("conv_transpose2d with groups", "Keras has one group; split the channels over several layers",
            "conv_transpose2d", partial(nn.ConvTranspose2d, 4, 6, 3, groups=2),
            partial(layers.Conv2DTranspose, 6, 3, groups=2), NOT_AN_ARGUMENT, LAST[2]),
    refused("conv2d with padding_mode reflect", "Keras pads with zeros; pad with ops.pad before the layer", "conv2d",
            partial(nn.Conv2d, 4, 5, 3, padding=1, padding_mode="reflect"),
            partial(layers.Conv2D, 5, 3, padding="reflect"), "padding", LAST[2]),
    refused("max_pool2d with dilation", "Keras's windows have no gaps; use ops.max of slices", "max_pool2d",
            partial(nn.MaxPool2d, 2, 1, dilation=2), partial(layers.MaxPooling2D, 2, 1, dilation_rate=2),
            NOT_AN_ARGUMENT, LAST[2]),
    refused("max_pool2d with return_indices", "Keras's layer returns only values", "max_pool2d",
            partial(nn.MaxPool2d, 2, return_indices=True), partial(layers.MaxPooling2D, 2, return_indices=True),
            NOT_AN_ARGUMENT, LAST[2]),
    refused("avg_pool2d with divisor_override", "Keras divides by the window size; multiply after the layer",
            "avg_pool2d", partial(nn.AvgPool2d, 2, divisor_override=3),
            partial(layers.AveragePooling2D, 2, divisor_override=3), NOT_AN_ARGUMENT, LAST[2]),
    refused("embedding with max_norm", "Keras does not renormalize rows; renormalize the table", "embedding",
            partial(nn.Embedding, 7, 4, max_norm=1.0), partial(layers.Embedding, 7, 4, max_norm=1.0), NOT_AN_ARGUMENT,
            input=((2, 5),), below=7),
    refused("lstm with proj_size", "in Keras, the output is the state itself", "lstm", torch_rnn("LSTM", proj_size=2),
            partial(layers.LSTM, 4, proj_size=2), NOT_AN_ARGUMENT, input=((2, 5, 3),)),
    refused("attention_packed with add_bias_kv", "Keras appends no learned key and value", "attention_packed",
            partial(nn.MultiheadAttention, 8, 2, add_bias_kv=True),
            partial(layers.MultiHeadAttention, 2, 4, add_bias_kv=True), NOT_AN_ARGUMENT, input=((2, 5, 8),) * 3),
    refused("attention_packed with add_zero_attn", "Keras appends no zero key and value", "attention_packed",
            partial(nn.MultiheadAttention, 8, 2, add_zero_attn=True),
            partial(layers.MultiHeadAttention, 2, 4, add_zero_attn=True), NOT_AN_ARGUMENT, input=((2, 5, 8),) * 3),
    refused("bilinear upsampling with align_corners", "Keras's grid is that of align_corners=False", "",
            partial(nn.Upsample, scale_factor=2, mode="bilinear", align_corners=True),
            partial(layers.UpSampling2D, 2, interpolation="bilinear", align_corners=True), NOT_AN_ARGUMENT, LAST[2]),
    differs("bilinear upsampling with align_corners, by a layer without it",
            "Keras's grid is that of align_corners=False", "",
            partial(nn.Upsample, scale_factor=2, mode="bilinear", align_corners=True),
            partial(layers.UpSampling2D, 2, interpolation="bilinear"), LAST[2]),
    differs("bicubic upsampling", "Keras's kernel has a = -0.5, PyTorch's a = -0.75", "",
            partial(nn.Upsample, scale_factor=2, mode="bicubic"), partial(layers.UpSampling2D, 2,
            interpolation="bicubic"), LAST[2]),
    differs("avg_pool2d whose padding counts, as padding same",
            "Keras never counts the padding of padding same; pad before the layer", "avg_pool2d",
            partial(nn.AvgPool2d, 3, 1, padding=1), partial(layers.AveragePooling2D, 3, 1, padding="same"), LAST[2]),
    differs("5 x 5 conv2d with padding 1, as padding same", "Keras accepts no padding widths; pad before the layer",
            "conv2d",
            partial(nn.Conv2d, 4, 5, 5, padding=1), partial(layers.Conv2D, 5, 5, padding="same"), LAST[2]),
    differs("conv2d with stride 2 and padding 1, as padding same",
            "on an even size, same pads only at the end; pad before the layer", "conv2d",
            partial(nn.Conv2d, 4, 5, 3, stride=2, padding=1), partial(layers.Conv2D, 5, 3, strides=2, padding="same"),
            LAST[2], ((2, 4, 8, 6),)),
    differs("conv_transpose2d with padding 1 and output padding 1, as padding same",
            "Keras's same crops only at the end; use valid and slice",
            "conv_transpose2d", partial(nn.ConvTranspose2d, 4, 5, 3, stride=2, padding=1, output_padding=1),
            partial(layers.Conv2DTranspose, 5, 3, strides=2, padding="same", output_padding=1), LAST[2]),
    differs("softplus with its threshold of 20",
            "PyTorch's softplus is linear above the threshold, which adds an error of at most 2.1e-9", "activation",
            nn.Softplus, partial(Function, name="softplus"), input=((4, 50),), scale=30.0),
    differs("running variance after one training step", "PyTorch divides by n - 1, Keras by n", "batch_norm",
            partial(norms.Trained, "running_var", 0.1),
            partial(AfterStep, "moving_variance", momentum=0.9, epsilon=1e-5), LAST[2], out="...",
            at=(".bn", "/inner")),
    Absent("spectral_norm as it is stored",
           "Keras divides the weight only in training, and stores the result; remove the parametrization in PyTorch "
           "first (torch.nn.utils.parametrize.remove_parametrizations)",
           Pair("spectral_norm as it is stored", "linear",
                lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 5)),
                lambda: layers.SpectralNormalization(layers.Dense(5)), ((6, 3),), {}, at=("", "/layer")), "unplanned"),
    Absent("gru with reset_after=False",
           "PyTorch applies the reset gate after the product; Keras's layer then has one bias instead of two",
           Pair("gru with reset_after=False", "gru", torch_rnn("GRU"),
                partial(layers.GRU, 4, return_sequences=True, reset_after=False), ((2, 5, 3),), {}), "unplanned"),
)  # fmt: skip
