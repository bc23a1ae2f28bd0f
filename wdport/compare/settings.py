"""Compare hyper-parameters of aligned layers, which are not part of the weights.

They are compared before anything is computed, and never decide the verdict: a layer is right or wrong by what it
computes. A setting that one side does not state, or that only its code determines, is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from wdport.compare.applied import applied, unlike
from wdport.compare.pairs import Pair, computes_as_torch, is_keras, is_torch
from wdport.compare.setting import Setting, named, plain, setting, text, told
from wdport.compare.setting_checks import ALIKE, EXPECTED, UNKNOWN, equal, every
from wdport.compare.windows import Cut, cuts, differing
from wdport.mapping.kinds import CATALOGUE, KINDS, Compared, kinds_of_module
from wdport.model import KerasLayer

if TYPE_CHECKING:
    import torch

_MISSING = object()


def differences(
    kind: str, module: torch.nn.Module, layer: KerasLayer, given: Sequence[int] = (), made: Sequence[int] = ()
) -> list[str]:
    """Hyper-parameters that change the computation and differ between a PyTorch module and a Keras layer of this kind,
    such as "epsilon 0.001 where the reference has 1e-05".

    ``given`` is the input shape of the port's layer, on which different paddings may be equivalent. ``made`` is the
    reference's output shape for it.
    """
    pair = Pair(kind, module, layer, given=tuple(given), made=tuple(made))
    return [each.text for each in compare_pair(pair)[1] if each.level == "differs"]


def compare_pair(pair: Pair) -> tuple[int, list[Setting]]:
    """The number of compared hyper-parameters of two layers, and those that differ."""
    pair = replace(pair, kind=pair.kind or kind_of(pair.module))
    settled, found = _windows(pair)
    counted = 0
    for each, theirs, ours in _stated(pair):
        if (each.keras, each.how) in settled:
            continue
        counted += 1
        found += _differing(each, theirs, ours, pair)
    functions = applied(pair)
    found += unlike(*functions, pair) if functions else []
    return counted + bool(functions) + len(settled), [*found, *_untrained(pair)]


def near_differences(kind: str, module: torch.nn.Module, layer: KerasLayer) -> dict[str, tuple[float, str]]:
    """Numbers that differ but that :func:`differences` treats as equal: by the layer's attribute, the reference's value
    and a sentence."""
    found = {}
    for each, theirs, ours in _stated(Pair(kind, module, layer)):
        near = each.how in ("equal", "epsilon") and each.level == "differs"
        if near and isinstance(theirs, float) and theirs != ours and equal(theirs, ours):
            found[each.keras] = (theirs, told(each, repr(theirs), repr(ours)))
    return found


def kind_of(module: torch.nn.Module) -> str:
    """The kind of a module by its class, for rows that state none; "" if its ``forward`` is not PyTorch's own."""
    return next(iter(kinds_of_module(module)), "") if computes_as_torch(module) else ""


def has_windows(kind: str) -> bool:
    """Whether a layer of this kind has windows, so that its settings determine an output size."""
    return kind in KINDS and any(each.keras == "padding" for each in KINDS[kind].compared)


def _windows(pair: Pair) -> tuple[tuple[tuple[str, str], ...], list[Setting]]:
    """The settings that the comparison of the windows' positions covers, and the differences in these positions."""
    module, layer = pair.module, pair.layer
    if not has_windows(pair.kind):
        return (), []
    if (ends := cuts(module, layer)) is not None:
        off = [each for each in zip(*ends, strict=True) if each[0] != each[1]]
        off = [each for each in off if not _croppable(*each)] if _cut_behind(pair) else off
        return (("padding", "padding"), ("output_padding", "tuple")), _cut(pair, *off[0]) if off else []
    words = differing(module, layer, pair.given, pair.made) if pair.given else None
    if words is None:
        return (), []
    found = [Setting("padding", plain(module.padding), layer.padding, "differs", words)] if words else []
    return (("padding", "padding"), ("padding", "ceil")), found


def _cut_behind(pair: Pair) -> bool:
    """Whether the port's output has another size than the reference's, so that a following layer must crop it."""
    return bool(pair.made) and tuple(pair.layer.compute_output_shape(pair.given)) != pair.made


def _croppable(theirs: Cut, ours: Cut) -> bool:
    """Whether a following layer can crop what the port's layer does not: it crops no more than the reference's at
    either end. It may also add the zeros that ``output_padding`` adds behind the windows."""
    return ours.before <= theirs.before and ours.behind <= max(theirs.behind, 0)


def _cut(pair: Pair, theirs: Cut, ours: Cut) -> list[Setting]:
    """The difference in what two transposed convolutions crop."""
    module, layer = pair.module, pair.layer
    if theirs.before == ours.before:
        each = Compared("output_padding", "output_padding", "tuple")
        return [setting(each, module.output_padding, layer.output_padding)]
    own = f"padding {text(module.padding)}, output_padding {text(module.output_padding)}"
    words = f"padding {layer.padding} cuts {ours} off the ends where the reference ({own}) cuts {theirs}"
    return [Setting("padding", plain(module.padding), layer.padding, "differs", words)]


def _stated(pair: Pair) -> Iterator[tuple[Compared, object, object]]:
    """The hyper-parameters that both sides have, with their values."""
    seen = set()
    for each in _compared(pair):
        theirs = _value(pair.module, each.torch) if each.torch else None
        ours = _value(pair.layer, each.keras) if each.keras else None
        kept = hasattr(ours, "shape") or (hasattr(theirs, "shape") and each.how not in ("present", "none"))
        if theirs is _MISSING or ours is _MISSING or kept:  # a tensor is no setting
            continue
        if not each.keras and each.how == "is" and theirs is not None and _value(pair.layer, each.torch) == theirs:
            continue  # the port's own layer has what Keras's has not
        if each.torch and each.how not in ("present", "none") and not _is_plain(theirs):
            continue
        if each.keras and not (_is_plain(ours) or each.how == "margins" or _is_function(each, ours)):
            continue
        if (each.keras, each.how, each.torch) not in seen:
            seen.add((each.keras, each.how, each.torch))
            yield each, theirs, ours


def _compared(pair: Pair) -> tuple[Compared, ...]:
    if pair.kind in KINDS:
        known = pair.kind == "activation" and applied(pair)
        return () if known else KINDS[pair.kind].compared
    for kind in CATALOGUE:
        names = [each.short for each in kind.torch]
        if not kind.evident and is_torch(pair.module, *names) and is_keras(pair.layer, *kind.keras):
            return kind.compared
    return ()


def _value(side: object, path: str) -> object:
    try:
        found = attrgetter(path)(side)
    except Exception:  # a property of the user's own may raise anything
        return _MISSING
    if is_torch(found, "Dropout"):
        return getattr(found, "p", _MISSING)
    return getattr(found, "rate", _MISSING) if is_keras(found, "Dropout") else found


def _is_plain(value: object) -> bool:
    """Whether this is a number, a string, or a list of them."""
    if isinstance(value, (tuple, list)):
        return not any(isinstance(each, (tuple, list)) for each in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _is_function(each: Compared, value: object) -> bool:
    return each.how in ("is", "names") and callable(value)


def _differing(each: Compared, theirs: object, ours: object, pair: Pair) -> list[Setting]:
    if each.how in EXPECTED:
        wanted = EXPECTED[each.how](theirs, ours, pair)
        if wanted is UNKNOWN or equal(wanted, ours) or (each.how == "shared" and _same_axes(wanted, ours, pair)):
            return []
        words = told(each, wanted, ours)
        if each.how == "complement":
            words = f"{told(each, theirs, ours)}, which is {text(wanted)} in Keras"
        return [Setting(each.keras, plain(wanted), plain(ours), each.level, words)]
    if each.how in ("is", "not"):
        stated = named(ours if each.keras else theirs)
        if (stated == each.value) == (each.how == "is") or stated == "<lambda>":
            return []
        return [setting(each, *((each.value, stated) if each.keras else (stated, None)))]
    if ALIKE[each.how](theirs, ours, pair):
        return []
    return [setting(each, theirs, ours)]


def _same_axes(wanted: object, ours: object, pair: Pair) -> bool:
    """Whether a PReLU shares its slope along the right axes; axes of size one do not matter."""
    free = {axis for axis in range(1, pair.rank) if pair.given[axis] == 1}
    return set(every(wanted)) - free == set(every(ours or [])) - free


def _untrained(pair: Pair) -> list[Setting]:
    """A layer that is trained in the reference but not in the port."""
    if getattr(pair.layer, "trainable", True) or not any(each.requires_grad for each in pair.module.parameters()):
        return []
    words = "trainable False where the reference's parameters are trained"
    return [Setting("trainable", True, False, "training", words)]
