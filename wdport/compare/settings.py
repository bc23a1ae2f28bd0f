"""Compare hyper-parameters of aligned layers, which are not part of the weights, and the positions of windows that
follow from them.

They are compared before anything is computed, and never decide the verdict: a layer is right or wrong by what it
computes. A setting that one side does not state, or that only its code determines, is not compared.

PyTorch pads both sides equally and may round the count up; Keras's ``same`` pads as much as needed, with the smaller
half first. Layers with different settings may therefore agree on one size and not on another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from wdport.compare.activations import applied, unlike
from wdport.compare.pairs import Pair, computes_as_torch, is_keras, is_torch
from wdport.compare.setting_checks import ALIKE, EXPECTED, UNKNOWN, every
from wdport.compare.setting_values import Setting, equal, named, plain, setting, text, told
from wdport.mapping.kinds import CATALOGUE, KINDS, kinds_of_module
from wdport.mapping.kinds.kind import Compared
from wdport.mapping.kinds.windows import Axis, LayerWindows
from wdport.models.interface import KerasLayer

if TYPE_CHECKING:
    import torch

_MISSING = object()


def differences(
    kind: str, module: torch.nn.Module, layer: KerasLayer, port_input: Sequence[int] = (), output: Sequence[int] = ()
) -> list[str]:
    """Hyper-parameters that change the computation and differ between a PyTorch module and a Keras layer of this kind,
    such as "epsilon 0.001 where the reference has 1e-05".

    ``port_input`` is the input shape of the port's layer, on which different paddings may be equivalent. ``output`` is
    the reference's output shape for it.
    """
    pair = Pair(kind, module, layer, input_shape=tuple(port_input), output_shape=tuple(output))
    return [difference.text for difference in compare_pair(pair)[1] if difference.level == "differs"]


def compare_pair(pair: Pair) -> tuple[int, list[Setting]]:
    """The number of compared hyper-parameters of two layers, and those that differ."""
    pair = replace(pair, kind=pair.kind or kind_of(pair.module))
    settled, settings = _windows(pair)
    counted = 0
    for check, theirs, ours in _stated(pair):
        if (check.keras, check.how) in settled:
            continue
        counted += 1
        settings += _differing(check, theirs, ours, pair)
    functions = applied(pair)
    settings += unlike(*functions, pair) if functions else []
    return counted + bool(functions) + len(settled), [*settings, *_untrained(pair)]


def near_differences(kind: str, module: torch.nn.Module, layer: KerasLayer) -> dict[str, tuple[float, str]]:
    """Numbers that differ but that :func:`differences` treats as equal: by the layer's attribute, the reference's value
    and a sentence."""
    numbers = {}
    for check, theirs, ours in _stated(Pair(kind, module, layer)):
        near = check.how in ("equal", "epsilon") and check.level == "differs"
        if near and isinstance(theirs, float) and theirs != ours and equal(theirs, ours):
            numbers[check.keras] = (theirs, told(check, repr(theirs), repr(ours)))
    return numbers


def kind_of(module: torch.nn.Module) -> str:
    """The kind of a module by its class, for rows that state none; "" if its ``forward`` is not PyTorch's own."""
    return next(iter(kinds_of_module(module)), "") if computes_as_torch(module) else ""


def has_windows(kind: str) -> bool:
    """Whether a layer of this kind has windows, so that its settings determine an output size."""
    return kind in KINDS and any(check.keras == "padding" for check in KINDS[kind].compared)


def _windows(pair: Pair) -> tuple[tuple[tuple[str, str], ...], list[Setting]]:
    """The settings that the comparison of the windows' positions covers, and the differences in these positions."""
    module, layer = pair.module, pair.layer
    if not has_windows(pair.kind):
        return (), []
    if (ends := cuts(module, layer)) is not None:
        unequal = [axis_cuts for axis_cuts in zip(*ends, strict=True) if axis_cuts[0] != axis_cuts[1]]
        # If the port's output has another size than the reference's, a following layer must crop it.
        if pair.output_shape and tuple(layer.compute_output_shape(pair.input_shape)) != pair.output_shape:
            unequal = [axis_cuts for axis_cuts in unequal if not _croppable(*axis_cuts)]
        return (("padding", "padding"), ("output_padding", "tuple")), _cut(pair, *unequal[0]) if unequal else []
    words = differing(module, layer, pair.input_shape, pair.output_shape) if pair.input_shape else None
    if words is None:
        return (), []
    settings = [Setting("padding", plain(module.padding), layer.padding, "differs", words)] if words else []
    return (("padding", "padding"), ("padding", "ceil")), settings


def _croppable(theirs: Cut, ours: Cut) -> bool:
    """Whether a following layer can crop what the port's layer does not: it crops no more than the reference's at
    either end. It may also add the zeros that ``output_padding`` adds after the windows."""
    return ours.before <= theirs.before and ours.behind <= max(theirs.behind, 0)


def _cut(pair: Pair, theirs: Cut, ours: Cut) -> list[Setting]:
    """The difference in what two transposed convolutions crop."""
    module, layer = pair.module, pair.layer
    if theirs.before == ours.before:
        check = Compared("output_padding", "output_padding", "tuple")
        return [setting(check, module.output_padding, layer.output_padding)]
    reference_text = f"padding {text(module.padding)}, output_padding {text(module.output_padding)}"
    words = f"padding {layer.padding!r} cuts {ours} off the ends; the reference ({reference_text}) cuts {theirs}"
    return [Setting("padding", plain(module.padding), layer.padding, "differs", words)]


def _stated(pair: Pair) -> Iterator[tuple[Compared, object, object]]:
    """The hyper-parameters that both sides have, with their values."""
    visited = set()
    for check in _compared(pair):
        theirs = _value(pair.module, check.torch) if check.torch else None
        ours = _value(pair.layer, check.keras) if check.keras else None
        is_tensor = hasattr(ours, "shape") or (hasattr(theirs, "shape") and check.how not in ("present", "none"))
        if theirs is _MISSING or ours is _MISSING or is_tensor:  # a tensor is no setting
            continue
        if not check.keras and check.how == "is" and theirs is not None and _value(pair.layer, check.torch) == theirs:
            continue  # the port's own layer has what Keras's has not
        if check.torch and check.how not in ("present", "none") and not _is_plain(theirs):
            continue
        is_function = check.how in ("is", "names") and callable(ours)
        if check.keras and not (_is_plain(ours) or check.how == "margins" or is_function):
            continue
        if (check.keras, check.how, check.torch) not in visited:
            visited.add((check.keras, check.how, check.torch))
            yield check, theirs, ours


def _compared(pair: Pair) -> tuple[Compared, ...]:
    if pair.kind in KINDS:
        has_functions = pair.kind == "activation" and applied(pair)
        return () if has_functions else KINDS[pair.kind].compared
    for kind in CATALOGUE:
        names = [torch_class.short for torch_class in kind.torch]
        if not kind.evident and is_torch(pair.module, *names) and is_keras(pair.layer, *kind.keras):
            return kind.compared
    return ()


def _value(side: object, path: str) -> object:
    try:
        value = attrgetter(path)(side)
    except Exception:  # a user's own property may raise anything
        return _MISSING
    if is_torch(value, "Dropout"):
        return getattr(value, "p", _MISSING)
    return getattr(value, "rate", _MISSING) if is_keras(value, "Dropout") else value


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return not any(isinstance(element, (tuple, list)) for element in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _differing(check: Compared, theirs: object, ours: object, pair: Pair) -> list[Setting]:
    if check.how in EXPECTED:
        expected = EXPECTED[check.how](theirs, ours, pair)
        if expected is UNKNOWN or equal(expected, ours) or (check.how == "shared" and _same_axes(expected, ours, pair)):
            return []
        words = told(check, expected, ours)
        if check.how == "complement":
            words = f"{told(check, theirs, ours)}, which is {text(expected)} in Keras"
        return [Setting(check.keras, plain(expected), plain(ours), check.level, words)]
    if check.how in ("is", "not"):
        stated = named(ours if check.keras else theirs)
        # A lambda has no name that could be compared; what it computes is compared by its values.
        if (stated == check.value) == (check.how == "is") or stated == "<lambda>":
            return []
        return [setting(check, *((check.value, stated) if check.keras else (stated, None)))]
    if ALIKE[check.how](theirs, ours, pair):
        return []
    return [setting(check, theirs, ours)]


def _same_axes(expected: object, ours: object, pair: Pair) -> bool:
    """Whether a PReLU shares its slope along the right axes; axes of size one do not matter."""
    free = {axis for axis in range(1, pair.rank) if pair.input_shape[axis] == 1}
    return set(every(expected)) - free == set(every(ours or [])) - free


def _untrained(pair: Pair) -> list[Setting]:
    """A layer that is trained in the reference but not in the port."""
    if getattr(pair.layer, "trainable", True) or not any(weight.requires_grad for weight in pair.module.parameters()):
        return []
    words = "trainable False where the reference's parameters are trained"
    return [Setting("trainable", True, False, "training", words)]


Numbers = int | tuple[int, ...] | list[int]
"""A size along every axis, or one for all."""


def differing(
    module: torch.nn.Module, layer: KerasLayer, port_input: Sequence[int], output: Sequence[int] = ()
) -> str | None:
    """How the windows of the two layers differ on an input of the port of shape ``port_input``: a sentence, "" if they
    do not, ``None`` if it cannot be determined.

    If PyTorch's layer cannot produce ``output`` from that shape, the port's input is different, for example padded, and
    the result is "".
    """
    spatial = slice(2, None) if getattr(layer, "data_format", "") == "channels_first" else slice(1, -1)
    sizes, left = port_input[spatial], output[spatial]
    window = getattr(layer, "kernel_size", None) or getattr(layer, "pool_size", None)
    if not window or not hasattr(module, "kernel_size") or getattr(module, "transposed", False):
        return None
    ours = _axes(len(sizes), window, layer.strides, getattr(layer, "dilation_rate", 1))
    stride, dilation = getattr(module, "stride"), getattr(module, "dilation", 1)
    theirs = _axes(len(sizes), getattr(module, "kernel_size"), stride, dilation)
    if ours is None or theirs is None:
        return None
    expected = [_torch(theirs[index], module, index, size) for index, size in enumerate(sizes)]
    # The reference's layer sees another input than the port's, so the windows cannot be compared on this size.
    if left and [windows.count for windows in expected] != list(left):
        return ""
    for axis, first, size in zip(ours, expected, sizes, strict=True):
        second = _keras(axis, layer.padding, size)
        if second is None:
            return None
        if first != second:
            names = [name for name in ("padding", "ceil_mode") if hasattr(module, name)]
            settings = ", ".join(f"{name} {getattr(module, name)}" for name in names)
            ours_at, theirs_at = ("" if first.start == second.start else f", starting at {windows.start}"
                                  for windows in (second, first))  # fmt: skip
            return (f"padding {layer.padding!r} gives {second.count} windows over {size} positions{ours_at}; "
                    f"the reference ({settings}) gives {first.count}{theirs_at}")  # fmt: skip
    return ""


@dataclass(frozen=True)
class Cut:
    """How much a transposed convolution crops from the extent of its windows at both ends; negative means added
    zeros."""

    before: int
    behind: int

    def __str__(self) -> str:
        return f"{self.before} and {self.behind}"


def cuts(module: torch.nn.Module, layer: KerasLayer) -> tuple[list[Cut], list[Cut]] | None:
    """What the reference's transposed convolution and the port's crop along every axis; ``None`` for other layers, and
    if windows, strides or the number of axes differ.

    PyTorch crops ``padding`` from both ends and adds ``output_padding`` at the end; Keras derives both from ``same`` or
    ``valid`` and its own ``output_padding``.
    """
    words = ("kernel_size", "strides", "dilation_rate", "output_padding")
    if not getattr(module, "transposed", False) or not all(hasattr(layer, word) for word in words):
        return None
    count = len(layer.kernel_size)
    ours = _axes(count, layer.kernel_size, layer.strides, layer.dilation_rate)
    theirs = _axes(count, *(getattr(module, word) for word in ("kernel_size", "stride", "dilation")))
    widths = [_several(getattr(module, word), count) for word in ("padding", "output_padding")]
    if ours is None or ours != theirs or any(len(numbers) != count for numbers in widths):
        return None
    more = [None] * count if layer.output_padding is None else _several(layer.output_padding, count)
    their_cuts = [Cut(before, before - behind) for before, behind in zip(*widths, strict=True)]
    return their_cuts, [_keras_cut(axis, layer.padding, extra) for axis, extra in zip(ours, more, strict=True)]


def _keras_cut(axis: Axis, padding: str, more: int | None) -> Cut:
    """As Keras computes it for JAX, in ``compute_conv_transpose_padding_args_for_jax``."""
    if padding == "valid":
        return Cut(0, -(max(axis.stride - axis.reach, 0) if more is None else more))
    room = axis.stride + axis.reach - 2 if more is None else axis.reach + axis.reach % 2 - 2 + more
    before = min(room // 2 + room % 2, axis.reach - 1)
    return Cut(axis.reach - 1 - before, axis.reach - 1 - (room - before))


def _axes(count: int, window: Numbers, stride: Numbers, dilation: Numbers) -> list[Axis] | None:
    columns = [_several(numbers, count) for numbers in (window, stride, dilation)]
    if any(len(column) != count for column in columns):
        return None
    return [Axis(d * (k - 1) + 1, s) for k, s, d in zip(*columns, strict=True)]


def _several(value: Numbers, count: int) -> list[int]:
    return [int(number) for number in value] if isinstance(value, (tuple, list)) else [int(value)] * count


def _torch(axis: Axis, module: torch.nn.Module, index: int, size: int) -> LayerWindows:
    padding: Numbers | str = getattr(module, "padding")
    if padding == "same":
        # Of an odd number of steps, PyTorch pads one more at the end.
        return axis.padded(size, (axis.reach - 1) // 2, axis.reach // 2)
    width = 0 if isinstance(padding, str) else _several(padding, index + 1)[index]  # "valid"
    return axis.padded(size, width, width, bool(getattr(module, "ceil_mode", False)))


def _keras(axis: Axis, padding: str, size: int) -> LayerWindows | None:
    if padding == "causal":
        return axis.padded(size, axis.reach - 1, 0)
    return {"same": axis.same(size), "valid": axis.padded(size, 0, 0)}.get(padding)
