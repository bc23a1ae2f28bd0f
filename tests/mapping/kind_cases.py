"""One case for every layer kind: a PyTorch module, the Keras layer, and a table row that joins them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import layers
from torch import nn

from .kind_layers import Flattened, KerasCell, Packed, PairOf, Projections, Scale, Separate, new_norm, old_norm

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """How to make both layers, what the row says beside their names, and the inputs' shapes as PyTorch has them."""

    kind: str
    torch: Callable[[], nn.Module]
    keras: Callable[[], Any]
    shapes: Shapes
    row: str = ""
    integers: int = 0
    first: bool = False
    whole: bool = False


SEQ, IMAGE, VIDEO = ((2, 4, 9),), ((2, 4, 9, 8),), ((2, 4, 5, 6, 7),)
TOKENS = ((2, 5, 8),) * 3
EPS, EPSILON = {"eps": 1e-3}, {"epsilon": 1e-3}


def rnn(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(nn, name)(3, 4, batch_first=True, **options)  # type: ignore[no-any-return]


def keras_rnn(name: str, both: bool = False, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        layer = getattr(layers, name)(4, return_sequences=True, **options)
        return layers.Bidirectional(layer) if both else layer

    return make


def stack(name: str, count: int, both: bool) -> Callable[[], Any]:
    """A Keras model whose attributes rnn_0, rnn_1 are the layers of one PyTorch module."""

    class Stack(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            for at in range(count):
                setattr(self, f"rnn_{at}", keras_rnn(name, both)())

        def call(self, x: Any) -> Any:
            for at in range(count):
                x = getattr(self, f"rnn_{at}")(x)
            return x

    return Stack


CASES: dict[str, Case] = {
    "linear": Case("linear", lambda: nn.Linear(3, 5), lambda: layers.Dense(5), ((2, 3),)),
    "linear without bias": Case(
        "linear", lambda: nn.Linear(3, 5, bias=False), lambda: layers.Dense(5, use_bias=False), ((2, 7, 3),)
    ),
    "linear, flattened": Case(
        "linear",
        Flattened,
        lambda: keras.Sequential([layers.Flatten(), layers.Dense(5)]),
        ((2, 2, 3, 4),),
        'sub, flatten: "c h w -> h w c", sizes: {h: 3, w: 4}',
    ),
    "linear, permuted and flattened": Case(
        "linear",
        lambda: Flattened((0, 3, 2, 1)),
        lambda: keras.Sequential([layers.Flatten(), layers.Dense(5)]),
        ((2, 2, 3, 4),),
        'sub, flatten: "w h c -> h w c", sizes: {h: 3, w: 4}',
    ),
    "embedding": Case(
        "embedding", lambda: nn.Embedding(7, 3, padding_idx=0), lambda: layers.Embedding(7, 3), ((2, 5),), integers=7
    ),
    "conv1d": Case("conv1d", lambda: nn.Conv1d(4, 5, 3, 2), lambda: layers.Conv1D(5, 3, 2), SEQ),
    "conv1d, grouped and dilated": Case(
        "conv1d",
        lambda: nn.Conv1d(4, 6, 3, dilation=2, groups=2),
        lambda: layers.Conv1D(6, 3, dilation_rate=2, groups=2),
        SEQ,
    ),
    "conv2d": Case("conv2d", lambda: nn.Conv2d(4, 5, (3, 2), 2), lambda: layers.Conv2D(5, (3, 2), 2), IMAGE),
    "conv2d, grouped": Case(
        "conv2d", lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: layers.Conv2D(6, 3, groups=2), IMAGE
    ),
    "conv2d, channels first": Case(
        "conv2d",
        lambda: nn.Conv2d(4, 5, 3),
        lambda: layers.Conv2D(5, 3, data_format="channels_first"),
        IMAGE,
        first=True,
    ),
    "conv3d": Case("conv3d", lambda: nn.Conv3d(4, 5, (2, 3, 2)), lambda: layers.Conv3D(5, (2, 3, 2)), VIDEO),
    "depthwise_conv1d": Case(
        "depthwise_conv1d",
        lambda: nn.Conv1d(4, 8, 3, groups=4),
        lambda: layers.DepthwiseConv1D(3, depth_multiplier=2),
        SEQ,
    ),
    "depthwise_conv2d": Case(
        "depthwise_conv2d",
        lambda: nn.Conv2d(4, 8, (3, 2), groups=4),
        lambda: layers.DepthwiseConv2D((3, 2), depth_multiplier=2),
        IMAGE,
    ),
    "conv_transpose1d": Case(
        "conv_transpose1d", lambda: nn.ConvTranspose1d(4, 5, 3, 2), lambda: layers.Conv1DTranspose(5, 3, 2), SEQ
    ),
    "conv_transpose2d": Case(
        "conv_transpose2d",
        lambda: nn.ConvTranspose2d(4, 5, (3, 4), 2),
        lambda: layers.Conv2DTranspose(5, (3, 4), 2),
        IMAGE,
    ),
    "conv_transpose2d, channels first": Case(
        "conv_transpose2d",
        lambda: nn.ConvTranspose2d(4, 5, 3, 2),
        lambda: layers.Conv2DTranspose(5, 3, 2, data_format="channels_first"),
        IMAGE,
        first=True,
    ),
    "conv_transpose3d": Case(
        "conv_transpose3d", lambda: nn.ConvTranspose3d(4, 5, 2), lambda: layers.Conv3DTranspose(5, 2), VIDEO
    ),
    "layer_norm": Case(
        "layer_norm", lambda: nn.LayerNorm(8, **EPS), lambda: layers.LayerNormalization(**EPSILON), ((2, 5, 8),)
    ),
    "layer_norm over two axes": Case(
        "layer_norm",
        lambda: nn.LayerNorm((5, 8), **EPS),
        lambda: layers.LayerNormalization(axis=(-2, -1), **EPSILON),
        ((2, 5, 8),),
    ),
    "group_norm": Case(
        "group_norm", lambda: nn.GroupNorm(2, 4, **EPS), lambda: layers.GroupNormalization(2, **EPSILON), IMAGE
    ),
    "group_norm, channels first": Case(
        "group_norm",
        lambda: nn.GroupNorm(2, 4, **EPS),
        lambda: layers.GroupNormalization(2, axis=1, **EPSILON),
        IMAGE,
        first=True,
    ),
    "batch_norm of vectors": Case(
        "batch_norm", lambda: nn.BatchNorm1d(4, **EPS), lambda: layers.BatchNormalization(**EPSILON), ((6, 4),)
    ),
    "batch_norm of sequences": Case(
        "batch_norm", lambda: nn.BatchNorm1d(4, **EPS), lambda: layers.BatchNormalization(**EPSILON), SEQ
    ),
    "batch_norm of images": Case(
        "batch_norm", lambda: nn.BatchNorm2d(4, **EPS), lambda: layers.BatchNormalization(**EPSILON), IMAGE
    ),
    "batch_norm of volumes": Case(
        "batch_norm", lambda: nn.BatchNorm3d(4, **EPS), lambda: layers.BatchNormalization(**EPSILON), VIDEO
    ),
    "batch_norm, channels first": Case(
        "batch_norm",
        lambda: nn.BatchNorm2d(4, **EPS),
        lambda: layers.BatchNormalization(axis=1, **EPSILON),
        IMAGE,
        first=True,
    ),
    "rms_norm": Case(
        "rms_norm", lambda: nn.RMSNorm(8, **EPS), lambda: layers.RMSNormalization(**EPSILON), ((2, 5, 8),)
    ),
    "rms_norm with another name and shape": Case(
        "rms_norm",
        Scale,
        lambda: layers.RMSNormalization(epsilon=1e-6),
        IMAGE,
        'names: {weight: gamma}, axes: "b c h w -> b h w c"',
    ),
    "prelu of vectors": Case("prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(), ((6, 4),)),
    "prelu of sequences": Case("prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(shared_axes=[1]), SEQ),
    "prelu of images": Case("prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(shared_axes=[1, 2]), IMAGE),
    "prelu of volumes": Case("prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(shared_axes=[1, 2, 3]), VIDEO),
    "prelu with one number": Case("prelu", nn.PReLU, lambda: layers.PReLU(shared_axes=[1, 2, 3]), IMAGE),
    "prelu of sequences, channels first": Case(
        "prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(shared_axes=[2]), SEQ, first=True
    ),
    "prelu of images, channels first": Case(
        "prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(shared_axes=[2, 3]), IMAGE, first=True
    ),
    "prelu of volumes, channels first": Case(
        "prelu", lambda: nn.PReLU(4), lambda: layers.PReLU(shared_axes=[2, 3, 4]), VIDEO, first=True
    ),
    "attention_packed": Case(
        "attention_packed", lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: Projections(8, 2), TOKENS
    ),
    "attention_packed without bias": Case(
        "attention_packed",
        lambda: nn.MultiheadAttention(8, 2, bias=False, batch_first=True),
        lambda: Projections(8, 2, bias=False),
        TOKENS,
    ),
    "attention_packed with dense projections": Case(
        "attention_packed",
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: Projections(8, 2, dense=True),
        TOKENS,
    ),
    "attention_packed with kdim and vdim": Case(
        "attention_packed",
        lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True),
        lambda: Projections(8, 2),
        ((2, 5, 8), (2, 7, 6), (2, 7, 4)),
    ),
    "attention_packed to keras.layers.MultiHeadAttention": Case(
        "attention_packed",
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: layers.MultiHeadAttention(2, 4),
        TOKENS,
        whole=True,
    ),
    "attention_packed under other names": Case(
        "attention_packed",
        lambda: Packed(8, 2),
        lambda: Projections(8, 2),
        TOKENS,
        "names: {packed_weight: qkv.weight, packed_bias: qkv.bias, out: proj}",
    ),
    "attention": Case(
        "attention",
        lambda: Separate(8, 2, ("q_proj", "k_proj", "v_proj", "out_proj")),
        lambda: Projections(8, 2),
        TOKENS,
    ),
    "attention under other names, to keras.layers.MultiHeadAttention": Case(
        "attention",
        lambda: Separate(8, 2, ("to_q", "to_k", "to_v", "to_out")),
        lambda: layers.MultiHeadAttention(2, 4),
        TOKENS,
        "names: {query: to_q, key: to_k, value: to_v, out: to_out}",
        whole=True,
    ),
    "lstm": Case("lstm", rnn("LSTM"), keras_rnn("LSTM"), ((2, 5, 3),)),
    "lstm without bias": Case("lstm", rnn("LSTM", bias=False), keras_rnn("LSTM", use_bias=False), ((2, 5, 3),)),
    "lstm, three layers": Case("lstm", rnn("LSTM", num_layers=3), stack("LSTM", 3, False), ((2, 5, 3),), "layers"),
    "gru": Case("gru", rnn("GRU"), keras_rnn("GRU"), ((2, 5, 3),)),
    "gru, two layers": Case("gru", rnn("GRU", num_layers=2), stack("GRU", 2, False), ((2, 5, 3),), "layers"),
    "rnn": Case("rnn", rnn("RNN"), keras_rnn("SimpleRNN"), ((2, 5, 3),)),
    "bidirectional_lstm": Case(
        "bidirectional_lstm", rnn("LSTM", bidirectional=True), keras_rnn("LSTM", True), ((2, 5, 3),)
    ),
    "bidirectional_gru": Case(
        "bidirectional_gru", rnn("GRU", bidirectional=True), keras_rnn("GRU", True), ((2, 5, 3),)
    ),
    "bidirectional_rnn": Case(
        "bidirectional_rnn", rnn("RNN", bidirectional=True), keras_rnn("SimpleRNN", True), ((2, 5, 3),)
    ),
    "bidirectional_lstm, two layers": Case(
        "bidirectional_lstm",
        rnn("LSTM", bidirectional=True, num_layers=2),
        stack("LSTM", 2, True),
        ((2, 5, 3),),
        "layers",
    ),
    "lstm_cell": Case(
        "lstm_cell", lambda: PairOf(nn.LSTMCell(3, 4), 2), lambda: KerasCell(layers.LSTMCell(4), 2), ((2, 3),), "cell"
    ),
    "gru_cell": Case(
        "gru_cell", lambda: PairOf(nn.GRUCell(3, 4), 1), lambda: KerasCell(layers.GRUCell(4), 1), ((2, 3),), "cell"
    ),
    "rnn_cell": Case(
        "rnn_cell",
        lambda: PairOf(nn.RNNCell(3, 4), 1),
        lambda: KerasCell(layers.SimpleRNNCell(4), 1),
        ((2, 3),),
        "cell",
    ),
}

OTHER_RANKS: dict[str, Case] = {
    "linear as a convolution of 1": Case("linear", lambda: nn.Linear(4, 5), lambda: layers.Conv1D(5, 1), ((2, 9, 4),)),
    "linear as a convolution of 1 x 1": Case(
        "linear", lambda: nn.Linear(4, 5), lambda: layers.Conv2D(5, 1), ((2, 9, 8, 4),)
    ),
    "linear as a convolution of 1 x 1 x 1": Case(
        "linear", lambda: nn.Linear(4, 5), lambda: layers.Conv3D(5, 1), ((2, 3, 9, 8, 4),)
    ),
    "conv1d of 1 as dense": Case("conv1d", lambda: nn.Conv1d(4, 5, 1), lambda: layers.Dense(5), SEQ),
    "conv2d of 1 x 1 as dense": Case("conv2d", lambda: nn.Conv2d(4, 5, 1), lambda: layers.Dense(5), IMAGE),
    "conv3d of 1 x 1 x 1 as dense": Case("conv3d", lambda: nn.Conv3d(4, 5, 1), lambda: layers.Dense(5), VIDEO),
    "conv2d of (k, 1) as conv1d": Case(
        "conv2d",
        lambda: nn.Conv2d(4, 5, (3, 1)),
        lambda: layers.Conv1D(5, 3),
        ((2, 4, 9, 1),),
        'axes: "b c l 1 -> b l c"',
    ),
    "conv2d of (1, k) as conv1d": Case(
        "conv2d",
        lambda: nn.Conv2d(4, 5, (1, 3)),
        lambda: layers.Conv1D(5, 3),
        ((2, 4, 1, 9),),
        'axes: "b c 1 l -> b l c"',
    ),
    "conv1d as conv2d of (k, 1)": Case(
        "conv1d", lambda: nn.Conv1d(4, 5, 3), lambda: layers.Conv2D(5, (3, 1)), SEQ, 'axes: "b c l -> b l 1 c"'
    ),
    "conv1d as conv2d of (1, k)": Case(
        "conv1d", lambda: nn.Conv1d(4, 5, 3), lambda: layers.Conv2D(5, (1, 3)), SEQ, 'axes: "b c l -> b 1 l c"'
    ),
    "conv3d of (1, h, w) as conv2d": Case(
        "conv3d",
        lambda: nn.Conv3d(4, 5, (1, 3, 2)),
        lambda: layers.Conv2D(5, (3, 2)),
        ((2, 4, 1, 6, 7),),
        'axes: "b c 1 h w -> b h w c"',
    ),
    "conv3d of (k, 1, 1) as conv1d": Case(
        "conv3d",
        lambda: nn.Conv3d(4, 5, (3, 1, 1)),
        lambda: layers.Conv1D(5, 3),
        ((2, 4, 6, 1, 1),),
        'axes: "b c l 1 1 -> b l c"',
    ),
    "depthwise_conv1d as depthwise_conv2d": Case(
        "depthwise_conv1d",
        lambda: nn.Conv1d(4, 8, 3, groups=4),
        lambda: layers.DepthwiseConv2D((3, 1), depth_multiplier=2),
        SEQ,
        'axes: "b c l -> b l 1 c"',
    ),
    "depthwise_conv2d of (k, 1) as depthwise_conv1d": Case(
        "depthwise_conv2d",
        lambda: nn.Conv2d(4, 8, (3, 1), groups=4),
        lambda: layers.DepthwiseConv1D(3, depth_multiplier=2),
        ((2, 4, 9, 1),),
        'axes: "b c l 1 -> b l c"',
    ),
    "depthwise_conv2d of (1, k) as depthwise_conv1d": Case(
        "depthwise_conv2d",
        lambda: nn.Conv2d(4, 8, (1, 3), groups=4),
        lambda: layers.DepthwiseConv1D(3, depth_multiplier=2),
        ((2, 4, 1, 9),),
        'axes: "b c 1 l -> b l c"',
    ),
}

NORMED: dict[str, Case] = {
    f"{title}, {era}": Case(kind, lambda norm=norm, make=make, dim=dim: norm(make(), dim=dim), port, shapes)
    for era, norm in (("old keys", old_norm), ("new keys", new_norm))
    for title, kind, make, dim, port, shapes in (
        ("linear", "linear", lambda: nn.Linear(3, 5), 0, lambda: layers.Dense(5), ((2, 3),)),
        ("linear over the inputs", "linear", lambda: nn.Linear(3, 5), 1, lambda: layers.Dense(5), ((2, 3),)),
        ("linear as a whole", "linear", lambda: nn.Linear(3, 5), None, lambda: layers.Dense(5), ((2, 3),)),
        ("one output", "linear", lambda: nn.Linear(3, 1), 0, lambda: layers.Dense(1), ((2, 3),)),
        ("conv1d", "conv1d", lambda: nn.Conv1d(4, 5, 3), 0, lambda: layers.Conv1D(5, 3), SEQ),
        ("conv2d", "conv2d", lambda: nn.Conv2d(4, 5, 3), 0, lambda: layers.Conv2D(5, 3), IMAGE),
        (
            "depthwise",
            "depthwise_conv1d",
            lambda: nn.Conv1d(4, 8, 3, groups=4),
            0,
            lambda: layers.DepthwiseConv1D(3, depth_multiplier=2),
            SEQ,
        ),
        (
            "transposed",
            "conv_transpose1d",
            lambda: nn.ConvTranspose1d(4, 5, 3, 2),
            1,
            lambda: layers.Conv1DTranspose(5, 3, 2),
            SEQ,
        ),
    )
}
NORMED |= {
    "lstm, old keys": Case("lstm", lambda: old_norm(rnn("LSTM")(), "weight_hh_l0"), keras_rnn("LSTM"), ((2, 5, 3),)),
    "gru, new keys": Case("gru", lambda: new_norm(rnn("GRU")(), "weight_ih_l0"), keras_rnn("GRU"), ((2, 5, 3),)),
}
