"""Seeded faults: what a porter gets wrong, as edits of a twin's source; and edits that are no faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One edit of a Keras twin.

    Attributes:
        name: unique, and says what is wrong.
        pair: whose twin.
        before: a text that stands in its source once.
        after: what replaces it.
        at: path of the Keras layer that computes something else, or is fed something else by the model's own code.
        words: what a cause must contain, all of them, each with alternatives after ``|``; empty where no
            hyper-parameter is wrong, so that none can be named.
        scale: of the inputs that show it.
        harmless: the two models still compute the same, with weights that a table can move.
        either: a table could undo it, such as another order of what a kernel reads; then no layer is unlike.
    """

    name: str
    pair: str
    before: str
    after: str
    at: str = ""
    words: tuple[str, ...] = ()
    scale: float = 1.0
    harmless: bool = False
    either: bool = False


EPS = ("eps",)
PADDING = ("padding|padded|pads",)

FAULTS: tuple[Fault, ...] = (
    Fault("a pooling that does not round up, and leaves another size", "onet", '(8, 3, "same")', '(8, 3, "valid")',
          "pool1", ("padding|ceil|round",)),
    Fault("a pooling that rounds up where it need not", "onet", '(12, 3, "valid")', '(12, 3, "same")',
          "pool2", ("padding|ceil|round",)),
    Fault("a pooling with stride 1", "onet", "layers.MaxPooling2D(pool, 2, padding=padding",
          "layers.MaxPooling2D(pool, 2 if n < 3 else 1, padding=padding", "pool3", ("stride",)),
    Fault("one slope per pixel", "onet", 'layers.PReLU(shared_axes=[1, 2], name="prelu4")',
          'layers.PReLU(name="prelu4")', "prelu4", ("shared_axes|shared axes",)),
    Fault("softmax over the batch", "onet", 'layers.Softmax(name="softmax6_1")',
          'layers.Softmax(axis=0, name="softmax6_1")', "softmax6_1", ("axis|dim",)),
    Fault("an even window padded the other way", "crepe", "(7, 8) if n", "(8, 7) if n", "conv1d_1", PADDING),
    Fault("the norm before the activation", "crepe",
          'activation="relu")(x)\n        x = layers.BatchNormalization(epsilon=0.0010000000474974513)(x)',
          ")(x)\n        x = layers.ReLU()(layers.BatchNormalization(epsilon=0.0010000000474974513)(x))",
          "conv1d", ("relu",)),
    Fault("length one over the batch", "resemblyzer", "axis=-1, keepdims=True", "axis=0, keepdims=True",
          "unit", ("axis|dim",)),
    Fault("an LSTM without tanh after the cell", "resemblyzer",
          'layers.LSTM(20, return_sequences=n < 2, name', 'layers.LSTM(20, "relu", return_sequences=n < 2, name',
          "lstm_0", ("activation|tanh",)),
    Fault("dilations exchanged", "attacut", "(5, 3), (9, 2)", "(5, 2), (9, 3)", "conv2/conv", ("dilation",)),
    Fault("the mean of branches for their maximum", "attacut", "layers.Maximum()", "layers.Average()",
          "average", ("max",)),
    Fault("no activation between two layers", "attacut", 'layers.Dense(16, activation="relu", name="linear1")',
          'layers.Dense(16, name="linear1")', "linear1", ("relu",)),
    Fault("symmetric padding for reflect", "silero", 'mode="reflect"', 'mode="symmetric"',
          "transform", ("reflect|symmetric|padding",)),
    Fault("no activation after the cell", "silero", "self.decoder(ops.relu(h))", "self.decoder(h)",
          "decoder", ("relu",)),
    Fault("max pooling that pads at the end alone", "resnet", "layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))",
          'layers.MaxPooling2D(3, 2, padding="same")(x)', "max_pooling2d", PADDING),
    Fault("strided convolutions padded as Keras's same does", "resnet", "layers.ZeroPadding2D(size // 2)(x)",
          "layers.ZeroPadding2D(size // 2 if stride == 1 else ((size // 2 - 1, size // 2),) * 2)(x)",
          "conv2d", PADDING),
    Fault("Keras's own epsilon in batch norms", "resnet", "epsilon=1e-5, momentum", "momentum",
          "batch_normalization", EPS),
    Fault("no activation after a sum", "resnet", "return layers.ReLU()(layers.Add()([x, same]))",
          "return layers.Add()([x, same])", "add", ("relu",)),
    Fault("no shortcut", "resnet", "layers.Add()([x, same])", "x", "batch_normalization_2",
          ("residual|shortcut|skip|add|sum",)),
    Fault("the stride at the second convolution", "resnet",
          "x = layers.ReLU()(conv(x, width, 3, stride))\n    x = conv(x, width, 3)",
          "x = layers.ReLU()(conv(x, width, 3))\n    x = conv(x, width, 3, stride)", "conv2d_6", ("stride",)),
    Fault("ReLU for ReLU6", "mobilenet", "ops.relu6, 1)", "ops.relu, 1)", "blocks/0/depthwise",
          ("relu6|6",), scale=50.0),
    Fault("SiLU for hard swish", "mobilenet", "keras.activations.hard_swish", "keras.activations.silu",
          "stem", ("hard",)),
    Fault("depthwise convolutions with same padding", "mobilenet",
          "layers.DepthwiseConv2D(3, strides=stride, use_bias=False), ops.relu6, 1)",
          'layers.DepthwiseConv2D(3, strides=stride, padding="same" if stride > 1 else "valid", use_bias=False),'
          " ops.relu6, 2 - stride)",
          "blocks/1/depthwise/inner", PADDING),
    Fault("no residual", "mobilenet", "self.residual = stride == 1 and before == width", "self.residual = False",
          "blocks/0/project/norm", ("residual|shortcut|skip|add|sum",)),
    Fault("a squeeze without its sigmoid", "mobilenet", 'layers.Dense(2 * before, activation="hard_sigmoid")',
          "layers.Dense(2 * before)", "blocks/0/squeeze/1", ("sigmoid",)),
    Fault("a skip connection after what it joins", "unet", '(name="skip2")([b, x])', '(name="skip2")([x, b])',
          "skip2", ("order|concat|swap|exchang",), either=True),
    Fault("twice as many groups", "unet", "layers.GroupNormalization(2", "layers.GroupNormalization(4",
          "inc/norm_a", ("group",)),
    Fault("bilinear upsampling for nearest", "unet", 'interpolation="nearest"', 'interpolation="bilinear"',
          "nearest1", ("nearest|bilinear|interpolation",)),
    Fault("a transposed convolution cropped at the end alone", "unet",
          'layers.Conv2DTranspose(8, 4, strides=2, padding="same", name="up2")(x)',
          'layers.Cropping2D(((0, 2), (0, 2)))(layers.Conv2DTranspose(8, 4, strides=2, name="up2")(x))',
          "up2", ("padding|crop",)),
    Fault("ReLU for SiLU", "unet", 'layers.Activation("silu"', 'layers.Activation("relu"', "inc/act_a", ("silu",)),
    Fault("a strided convolution with same padding", "unet",
          "layers.Conv2D(8, 3, strides=2, name=name)(layers.ZeroPadding2D(1)(x))",
          'layers.Conv2D(8, 3, strides=2, padding="same", name=name)(x)', "down1", PADDING),
    Fault("GELU by tanh", "encdec", "approximate=False", "approximate=True", "encoder/0/mlp/dense",
          ("gelu|approximat|tanh",)),
    Fault("Keras's own epsilon in layer norms", "encdec", "LayerNormalization(epsilon=1e-5)", "LayerNormalization()",
          "encoder/0/norm1", EPS),
    Fault("twice as many heads, half as wide", "encdec", "(HEADS, WIDTH // HEADS)", "(2 * HEADS, WIDTH // HEADS // 2)",
          "encoder/0/attention", ("head",)),
    Fault("a mask the wrong way round", "encdec",
          "self.attention(h, h, attention_mask=keep[:, None, :])",
          "self.attention(h, h, attention_mask=ops.logical_not(keep)[:, None, :])", "encoder/0/attention", ("mask",)),
    Fault("no causal mask", "encdec", "self.attention(h, h, use_causal_mask=True)", "self.attention(h, h)",
          "decoder/0/attention", ("mask|causal",)),
    Fault("softmax over queries", "square", "-1e30), axis=-1)", "-1e30), axis=-2)", "blocks/0/dense/3",
          ("axis|softmax",)),
    Fault("no scale in attention", "square", " / (WIDTH // HEADS) ** 0.5", "", "blocks/0/dense/3",
          ("scale|sqrt|root",)),
    Fault("a larger epsilon in root mean square norms", "square",
          "self.norms = [layers.RMSNormalization(epsilon=1e-6)", "self.norms = [layers.RMSNormalization(epsilon=1e-3)",
          "blocks/0/norms/0", EPS),
    Fault("a gate without SiLU", "square", "ops.silu(gate(h))", "gate(h)", "blocks/0/dense/0", ("silu",)),
    Fault("a mask of what came before", "square", "ops.arange(length)[:, None] >=", "ops.arange(length)[:, None] <=",
          "blocks/0/dense/3", ("mask|causal",)),
    Fault("heads flattened without a transpose", "square",
          "ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, length, WIDTH))",
          "ops.reshape(ops.matmul(weights, v), (-1, length, WIDTH))", "blocks/0/dense/3",
          ("order|transpos|flatten|axes",)),
    Fault("half as many heads", "vit", "WIDTH, HEADS = 16, 4", "WIDTH, HEADS = 16, 2", "blocks/0/attention/out",
          ("head",)),
    Fault("another epsilon in a block's norms", "vit", "norm2 = layers.LayerNormalization(epsilon=1e-6), layers.L",
          "norm2 = layers.LayerNormalization(epsilon=1e-3), layers.L", "blocks/0/norm1", EPS),
    Fault("the last token read for the first", "vit", "self.norm(x)[:, 0]", "self.norm(x)[:, -1]", "head"),
    Fault("images subtracted without the absolute value", "twice", "ops.abs(encode(a) - encode(b))",
          "encode(a) - encode(b)", "step", ("abs",)),
    Fault("a leaky ReLU with another slope", "vocoder", "x = layers.LeakyReLU(0.1)(x)", "x = layers.LeakyReLU(0.2)(x)",
          "leaky_re_lu", ("slope|alpha",)),
    Fault("another dilation", "vocoder", "(1, 1, 3, 1)", "(1, 1, 2, 1)", "residual/convs/2", ("dilation",)),
    Fault("no tanh at the end", "vocoder", ', activation="tanh")(x))', ")(x))", "conv1d_5", ("tanh",)),
    Fault("ReLU for softplus", "whole", 'activation="softplus"', 'activation="relu"', "left", ("softplus",)),
    Fault("a class smoothed otherwise", "whole", "* 0.9 + 0.02", "* 0.9", "of_class"),
    Fault("Keras's own slope of a leaky ReLU", "vae", "negative_slope=0.2", "negative_slope=0.3", "leaky1",
          ("slope|alpha",)),
    Fault("GELU exact where PyTorch's is by tanh", "tagger", "approximate=True", "approximate=False", "dense",
          ("gelu|approximat|tanh",)),
    Fault("a GRU of the older kind", "speech", "self.gru_1 = layers.GRU(8,",
          "self.gru_1 = layers.GRU(8, reset_after=False,", "gru_1", ("reset_after|reset",)),
    Fault("a simple RNN with ReLU", "speech", "layers.SimpleRNN(8, return", 'layers.SimpleRNN(8, "relu", return',
          "plain", ("activation|tanh|nonlinearity",)),
    Fault("maximum for mean in a pooling", "norms", 'layers.AveragePooling2D(2, name="pool")',
          'layers.MaxPooling2D(2, name="pool")', "pool", ("avg|average|mean|max",)),
    Fault("no dilation", "norms",
          'layers.ZeroPadding2D(2)(x)\n    x = layers.Conv2D(8, 3, groups=4, dilation_rate=2',
          'layers.ZeroPadding2D(1)(x)\n    x = layers.Conv2D(8, 3, groups=4', "conv2", ("dilation",)),
    Fault("Keras's own epsilon in group norms", "norms", "layers.GroupNormalization(4, epsilon=1e-4",
          "layers.GroupNormalization(4", "group1", EPS),
    Fault("a reshape for a transpose", "pointwise", "y = ops.transpose(self.norm_a(x), (0, 2, 1))",
          "y = ops.reshape(self.norm_a(x), (-1, 12, 12))", "mixers/0/tokens/0", ("transpos|order|axes",)),
    Fault("a sum for a difference", "subtract", "layers.Subtract(", "layers.Add(", "joined",
          ("subtract|minus|difference|sign|add",)),
    Fault("a norm along the wrong axis", "first", "layers.BatchNormalization(axis=1, epsilon=1e-5)",
          "layers.BatchNormalization(epsilon=1e-5)", "stages/0/batch_normalization", ("axis",)),
    Fault("a pooling that takes the mean", "first", "layers.MaxPooling2D(2, **where)",
          "layers.AveragePooling2D(2, **where)", "stages/0/average_pooling2d", ("max",)),
    Fault("a scale without its one", "fused", "(1 + self.scale(c))", "self.scale(c)", "blocks/0/query"),
    Fault("a maximum for a mean over words", "tower", 'layers.GlobalAveragePooling1D(name="mean")(y)',
          'layers.GlobalMaxPooling1D(name="mean")(y)', "mean", ("mean|average|max",)),
    Fault("a norm before the sum", "stack",
          "x = layers.LayerNormalization(epsilon=1e-5)(x + layers.MultiHeadAttention(3, 4)(x, x))",
          "x = x + layers.LayerNormalization(epsilon=1e-5)(layers.MultiHeadAttention(3, 4)(x, x))",
          "layer_normalization"),
    Fault("another number of heads", "stack", "layers.MultiHeadAttention(3, 4)", "layers.MultiHeadAttention(2, 6)",
          "multi_head_attention", ("head",)),
    Fault("a scale that is not stored less one", "gpt", "* (1 + self.scale)", "* self.scale",
          "blocks/0/norms/attention"),
    Fault("another epsilon in a norm by hand", "gpt", "keepdims=True) + 1e-5)", "keepdims=True) + 1e-3)",
          "blocks/0/norms/attention", EPS),
    Fault("zeros where PyTorch reflects", "style", "out = ops.relu(self.norm_a(self.conv_a(reflect(x, 1))))",
          "out = ops.relu(self.norm_a(self.conv_a(ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]))))",
          "residuals/0/conv_a", ("reflect|padding|zeros",)),
    Fault("a group norm for an instance norm", "style", "self.norm_a = layers.GroupNormalization(8",
          "self.norm_a = layers.GroupNormalization(4", "residuals/0/norm_a", ("group|instance",)),
    Fault("nearest upsampling for bilinear", "style", 'interpolation="bilinear"', 'interpolation="nearest"', "up",
          ("nearest|bilinear|interpolation",)),
)  # fmt: skip

HARMLESS: tuple[Fault, ...] = (
    Fault("another dropout", "tagger", "layers.Dropout(0.1)", "layers.Dropout(0.5)", harmless=True),
    Fault("no dropout", "tagger", "            layers.Dropout(0.1),\n", "", harmless=True),
    Fault("another momentum", "resnet", "momentum=0.9", "momentum=0.5", harmless=True),
    Fault("an activation as a layer of its own", "crepe", 'activation="relu")(x)', ")(x)\n        x = layers.ReLU()(x)",
          harmless=True),
    Fault("another order of the flatten", "onet", "layers.Flatten()(x)",
          "layers.Flatten()(layers.Permute((3, 1, 2))(x))", harmless=True),
    Fault("gates exchanged in a list without names", "square", "ops.silu(gate(h)) * up(h)", "ops.silu(up(h)) * gate(h)",
          harmless=True),
    Fault("another order of the pixel shuffle", "style", "(0, 1, 3, 2, 4, 5)", "(0, 1, 4, 2, 3, 5)", harmless=True),
    Fault("both branches exchanged", "subtract", '(name="joined")(made)', '(name="joined")(made[::-1])', harmless=True),
)  # fmt: skip
