"""Functions that Keras lacks, in terms of ``keras.ops``. The interpreter calls them; the writer copies into a port the
source of those that it uses."""

# mypy: allow-untyped-defs

import math

import keras
from keras import ops


def check_sizes(as_traced):
    """Raise an error for sizes with which the PyTorch code takes another way."""
    if not as_traced:
        raise ValueError("the PyTorch code takes another way for inputs of these sizes")


def attention_weights(query, key, mask=None, causal=False, scale=None):
    """Weights of scaled dot-product attention of (..., time, features); zeros for a query that sees nothing."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ ops.swapaxes(key, -1, -2)
    if causal:
        scores = ops.where(ops.tril(ops.ones_like(scores, dtype="bool")), scores, -math.inf)
    if mask is None:
        return ops.softmax(scores, axis=-1)
    visible = ops.where(mask, 0.0, -math.inf) if str(mask.dtype).endswith("bool") else mask
    scores = scores + visible
    hidden = ops.max(scores, axis=-1, keepdims=True) == -math.inf
    return ops.where(hidden, 0.0, ops.softmax(ops.where(hidden, 0.0, scores), axis=-1))


def attention_heads(tokens, kernel, bias, heads):
    """Tokens of (batch, time, features) times PyTorch's ``kernel``, as (batch, heads, time, features)."""
    projected = tokens @ ops.transpose(kernel)
    projected = projected if bias is None else projected + bias
    batch, time = ops.shape(tokens)[:2]
    return ops.transpose(ops.reshape(projected, (batch, time, heads, -1)), (0, 2, 1, 3))


def resize_linear(x, size, align_corners=False, scale=None):
    """Linear interpolation of an image with channels last to ``size`` along its spatial axes, as in PyTorch."""
    for index, length in enumerate(size):
        axis, old = index + 1, ops.shape(x)[index + 1]
        places = ops.arange(length, dtype=keras.backend.result_type(x.dtype, "float32"))
        if align_corners:
            places = places * ((old - 1) / max(length - 1, 1))
        else:
            ratio = old / length if scale is None else 1 / scale[index]
            places = ops.maximum((places + 0.5) * ratio - 0.5, 0.0)
        low = ops.minimum(ops.cast(ops.floor(places), "int32"), old - 1)
        high = ops.minimum(low + 1, old - 1)
        share = ops.cast(places - ops.cast(low, places.dtype), x.dtype)
        share = ops.reshape(share, [-1 if i == axis else 1 for i in range(len(x.shape))])
        x = ops.take(x, low, axis=axis) * (1 - share) + ops.take(x, high, axis=axis) * share
    return x


def resize_cubic(x, size, align_corners=False, scale=None):
    """Cubic interpolation of an image with channels last, with PyTorch's kernel (a = -0.75)."""
    for index, length in enumerate(size):
        axis, old = index + 1, ops.shape(x)[index + 1]
        places = ops.arange(length, dtype=keras.backend.result_type(x.dtype, "float32"))
        if align_corners:
            places = places * ((old - 1) / max(length - 1, 1))
        else:
            places = (places + 0.5) * (old / length if scale is None else 1 / scale[index]) - 0.5
        first = ops.floor(places)
        total = 0.0
        for offset in (-1, 0, 1, 2):
            distance = ops.abs(places - first - offset)
            near = (1.25 * distance - 2.25) * distance**2 + 1
            far = ((-0.75 * distance + 3.75) * distance - 6.0) * distance + 3.0
            weight = ops.where(distance <= 1, near, far)
            rows = ops.clip(ops.cast(first, "int32") + offset, 0, old - 1)
            shape = [-1 if i == axis else 1 for i in range(len(x.shape))]
            total = total + ops.take(x, rows, axis=axis) * ops.reshape(ops.cast(weight, x.dtype), shape)
        x = total
    return x


def resize_nearest(x, size, scale=None):
    """Nearest neighbours of an image with channels last along its spatial axes, as in PyTorch."""
    for index, length in enumerate(size):
        old = ops.shape(x)[index + 1]
        ratio = old / length if scale is None else 1 / scale[index]
        wide = keras.backend.result_type(x.dtype, "float32")
        places = ops.cast(ops.floor(ops.arange(length, dtype=wide) * ratio), "int32")
        x = ops.take(x, ops.minimum(places, old - 1), axis=index + 1)
    return x


def average_pool(x, window, strides, padding, ceil=False, counted=True, divisor=None):
    """Average pooling of an image with channels last, as in PyTorch."""
    sizes, pads = ops.shape(x)[1:-1], [(0, 0)]
    for size, width, stride, pad in zip(sizes, window, strides, padding, strict=True):
        count = -((size + 2 * pad - width) // -stride) if ceil else (size + 2 * pad - width) // stride
        # The last window begins within the input or its padding before it.
        count -= ceil and count * stride >= size + pad
        pads.append((pad, max(count * stride + width - size - pad, 0)))
    pads.append((0, 0))
    ones = ops.ones_like(x[:1, ..., :1])
    if counted:
        inner = [(pad, pad) for pad in padding]
        ones = ops.pad(ones, [(0, 0), *inner, (0, 0)], constant_values=1.0)
        more = [(0, after - pad) for (_, after), pad in zip(pads[1:-1], padding, strict=True)]
        ones = ops.pad(ones, [(0, 0), *[(0, max(after, 0)) for _, after in more], (0, 0)])
    else:
        ones = ops.pad(ones, pads)
    total = ops.average_pool(ops.pad(x, pads), window, strides)
    if divisor is not None:
        return total * (math.prod(window) / divisor)
    return total / ops.average_pool(ones, window, strides)


def grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    """Samples of an image (batch, height, width, channels) at places (batch, rows, columns, 2) between -1 and 1."""
    batch, height, width, channels = ops.shape(x)
    rows, columns = ops.shape(grid)[1:3]
    places = []
    for index, size in ((0, width), (1, height)):
        place = grid[..., index]
        place = (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2
        places.append(ops.clip(place, 0, size - 1) if padding_mode == "border" else place)
    flat = ops.reshape(x, (batch, height * width, channels))
    left, top = ops.floor(places[0]), ops.floor(places[1])
    total = 0.0
    for right in (0, 1):
        for down in (0, 1):
            column, row = left + right, top + down
            weight = (1 - ops.abs(places[0] - column)) * (1 - ops.abs(places[1] - row))
            inside = ops.logical_and(
                ops.logical_and(column >= 0, column <= width - 1), ops.logical_and(row >= 0, row <= height - 1)
            )
            index = ops.cast(ops.clip(row, 0, height - 1) * width + ops.clip(column, 0, width - 1), "int32")
            index = ops.reshape(index, (batch, rows * columns, 1))
            values = ops.reshape(ops.take_along_axis(flat, index, axis=1), (batch, rows, columns, channels))
            total = total + values * ops.expand_dims(ops.where(inside, weight, 0.0), -1)
    return total


def scatter_along(x, index, values, axis):
    """``x`` with ``values`` at the places that ``index`` names along an axis; an index occurs once in a row."""
    size = ops.shape(x)[axis]
    chosen = ops.one_hot(index, size, axis=-1, dtype="bool")
    values = ops.broadcast_to(ops.cast(values, x.dtype), ops.shape(index))
    moved = ops.where(ops.moveaxis(chosen, axis, -2), ops.expand_dims(ops.moveaxis(values, axis, -1), -1), 0.0)
    placed = ops.moveaxis(ops.sum(moved, axis=-2), -1, axis)
    hit = ops.moveaxis(ops.any(ops.moveaxis(chosen, axis, -2), axis=-2), -1, axis)
    return ops.where(hit, ops.cast(placed, x.dtype), x)


def put_every(x, values, axis, start, step, stop=None):
    """``x`` with ``values`` at every ``step``-th place along an axis."""
    size = ops.shape(x)[axis]
    stop = size if stop is None else stop
    shape = [length if index != axis else -((start - stop) // step) for index, length in enumerate(ops.shape(x))]
    values = ops.broadcast_to(ops.cast(values, x.dtype), shape)
    places = ops.arange(size) - start
    hit = ops.logical_and(ops.logical_and(places >= 0, places < stop - start), places % step == 0)
    index = ops.clip(places // step, 0, shape[axis] - 1)
    hit = ops.reshape(hit, [-1 if index == axis else 1 for index in range(len(x.shape))])
    return ops.where(hit, ops.take(values, index, axis=axis), x)


def nll_loss(x, target, weight=None, ignored=-100, reduction="mean"):
    """The loss of logarithms of probabilities (batch, classes, ...) for classes (batch, ...), each with its weight."""
    counted = target != ignored
    index = ops.where(counted, target, 0)
    factor = ops.cast(counted, x.dtype) if weight is None else ops.where(counted, ops.take(weight, index), 0.0)
    losses = -ops.squeeze(ops.take_along_axis(x, ops.expand_dims(index, 1), axis=1), 1)
    losses = ops.where(counted, losses * factor, 0.0)
    if reduction == "none":
        return losses
    total = ops.sum(losses)
    return total if reduction == "sum" else total / ops.sum(factor)


def binary_cross_entropy(x, target):
    """The loss of probabilities for targets from 0 to 1; a logarithm is at least -100."""
    log = ops.where(x > 0, ops.log(ops.where(x > 0, x, 1.0)), -100.0)
    log_of_rest = ops.where(x < 1, ops.log1p(-ops.where(x < 1, x, 0.0)), -100.0)
    return (target - 1) * ops.maximum(log_of_rest, -100.0) - target * ops.maximum(log, -100.0)


def grouped_conv_transpose(x, kernel, bias, strides, padding, extra, dilation, groups):
    """A transposed convolution in groups of an image with channels last, with PyTorch's kernel."""
    rank = len(strides)
    kernel = ops.transpose(kernel, (*range(2, rank + 2), 1, 0))
    parts = []
    for part, weights in zip(ops.split(x, groups, axis=-1), ops.split(kernel, groups, axis=-1), strict=True):
        parts.append(ops.conv_transpose(part, weights, strides, dilation_rate=dilation))
    y = ops.concatenate(parts, axis=-1)
    for index in range(rank):
        width = dilation[index] * (kernel.shape[index] - 1) + 1
        before, end = padding[index], (ops.shape(x)[index + 1] - 1) * strides[index] + width + extra[index]
        missing = end - padding[index] - ops.shape(y)[index + 1]
        y = ops.pad(y, [(0, max(missing, 0) if axis == index + 1 else 0) for axis in range(rank + 2)])
        y = ops.take(y, ops.arange(before, end - before), axis=index + 1)
    return y if bias is None else y + bias


def add_rows(x, index, values):
    """``x`` with every row of ``values`` added to the row that ``index`` names."""
    index = ops.where(index < 0, index + ops.shape(x)[0], index)
    return x + ops.segment_sum(values, index, num_segments=ops.shape(x)[0])


def windows(x, axis, size, step):
    """Sliding windows along an axis, with their places as a new last axis."""
    count = (ops.shape(x)[axis] - size) // step + 1
    index = ops.expand_dims(ops.arange(count) * step, 1) + ops.expand_dims(ops.arange(size), 0)
    return ops.moveaxis(ops.take(x, index, axis=axis), axis + 1, -1)


def complex_product(first, second):
    """The product of complex numbers, each a real and an imaginary part."""
    return first[0] * second[0] - first[1] * second[1], first[0] * second[1] + first[1] * second[0]


def conjugate(x):
    """The conjugate of complex numbers, a real and an imaginary part."""
    return x[0], -x[1]


def pad(x, widths, mode):
    """``x`` with its borders (``edge``) or its other end (``wrap``) repeated before and after every axis."""
    for axis, (before, after) in enumerate(widths):
        if before or after:
            size = ops.shape(x)[axis]
            places = ops.arange(-before, size + after)
            x = ops.take(x, ops.clip(places, 0, size - 1) if mode == "edge" else places % size, axis=axis)
    return x


def max_pool(x, window, strides, padding, ceil=False):
    """Maximum pooling of an image with channels last, as in PyTorch."""
    pads = [(0, 0)]
    for size, width, stride, pad in zip(ops.shape(x)[1:-1], window, strides, padding, strict=True):
        count = -((size + 2 * pad - width) // -stride) if ceil else (size + 2 * pad - width) // stride
        # The last window begins within the input or its padding before it.
        count -= ceil and count * stride >= size + pad
        pads.append((pad, max(count * stride + width - size - pad, 0)))
    return ops.max_pool(ops.pad(x, [*pads, (0, 0)], constant_values=-math.inf), window, strides)


def float_limit(name, dtype):
    """A limit of a floating-point type, as in ``torch.finfo``: ``min``, ``max``, ``tiny`` or ``eps``."""
    largest, tiny, eps = {
        "float16": (65504.0, 2.0**-14, 2.0**-10),
        "bfloat16": (3.3895313892515355e38, 2.0**-126, 2.0**-7),
        "float32": (3.4028234663852886e38, 2.0**-126, 2.0**-23),
        "float64": (1.7976931348623157e308, 2.0**-1022, 2.0**-52),
    }[keras.backend.standardize_dtype(dtype)]
    return {"min": -largest, "max": largest, "tiny": tiny, "eps": eps}[name]
