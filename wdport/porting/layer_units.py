"""Units of a PyTorch model that may become one Keras layer: a module, a part of one, or a chunk of its features."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from wdport.mapping.kinds import KINDS, kinds_of_layer, kinds_of_module
from wdport.models.interface import Array
from wdport.porting.fingerprints import NEAR, Print
from wdport.porting.torch_run import TorchRun, joined_bits
from wdport.recording.calls import Call, layer_of
from wdport.recording.inner_calls import ATTENTION
from wdport.recording.nested import leaves, to_array

if TYPE_CHECKING:
    import torch

_FUNCTIONS = {
    function.name: function
    for kind in KINDS.values()
    for function in kind.functions
    if (kind.name == "activation" or (kind.evident and not kind.parts)) and len(function.parameters) > 1
}
"""Poolings, and activations with settings."""


def module_of(function: str, arguments: Mapping[str, object]) -> torch.nn.Module | None:
    """A module with a function's settings; ``None`` for a function without one."""
    from torch import nn

    if function not in _FUNCTIONS:
        return None
    order = _FUNCTIONS[function].parameters
    settings = {order[int(position)]: value for position, value in arguments.items()
                if position.isdigit() and 0 < int(position) < len(order)}  # fmt: skip
    settings |= {key: value for key, value in arguments.items() if key in order}
    # A pooling function may be called with a stride of None, for that of its kernel.
    if settings.get("stride") is None:
        settings.pop("stride", None)
    try:
        module: torch.nn.Module = getattr(nn, _FUNCTIONS[function].module)(**settings)
    except (TypeError, ValueError):
        return None
    return module


@lru_cache(maxsize=65536)
def likeness(torch: str, keras: str) -> float:
    """Similarity of two paths, from 0 to 1.5: that of the whole paths, and half that of their last names."""
    first, second = (re.sub(r"[./_]+", " ", path.lower()) for path in (torch, keras))
    path_ratio = SequenceMatcher(None, first, second, autojunk=False).ratio()
    last = SequenceMatcher(None, first.rpartition(" ")[2], second.rpartition(" ")[2], autojunk=False).ratio()
    return path_ratio + last / 2


MOST_CHUNKS = 4
"""Numbers of equal parts into which Keras may split a linear layer of PyTorch: query, key and value, or two gates."""


@dataclass(frozen=True)
class Unit:
    """A module or a part of one.

    Attributes:
        path: path of the module, or of a part, such as ``attn.query``, ``rnn.layer_1`` or ``qkv.chunk_0_of_3``.
        kinds: its possible kinds; empty for a user's own class.
        tensors: float64 values by name below ``path``.
        module_path: the module that this is a part of, or the module itself.
        part: the part's name; "" for a whole module.
        calls: its calls, in order.
        order: position of its first call among all units.
        members: the units that this one joins side by side, if any.
        transposed: whether the weight of a linear layer is stored as (in, out), in the user's own class.
        bits: the bits of its parameters; see :class:`wdport.porting.torch_run.TorchRun`.
    """

    path: str
    kinds: tuple[str, ...]
    tensors: Mapping[str, Array] = field(repr=False)
    module_path: str
    part: str
    calls: tuple[Call, ...] = field(repr=False)
    order: int
    bits: int
    module: torch.nn.Module | None = field(default=None, repr=False, compare=False)
    prints: tuple[tuple[Print, ...], ...] = field(default=(), repr=False, compare=False)
    members: tuple[str, ...] = ()
    transposed: bool = False

    def first_input(self, call_index: int = 0) -> Array:
        return np.asarray(leaves(list(self.calls[call_index].inputs))[0])

    @property
    def names(self) -> dict[str, Array]:
        """The tensors by their full names, as if the part were a module."""
        return {f"{self.path}.{name}": array for name, array in self.tensors.items()}

    def call_with(self, input_prints: list[Print]) -> int | None:
        """The first of its calls with a Keras layer's input; inputs other than the first may differ."""
        informative = [fingerprint for fingerprint in input_prints if not fingerprint.empty]
        for index, prints in enumerate(self.prints):
            if not informative:
                return index if all(fingerprint.empty for fingerprint in prints) else None
            if any(informative[0].same(fingerprint) for fingerprint in prints):
                return index
        return None


def units_of(run: TorchRun) -> list[Unit]:
    """Every called module with its own tensors, or of a kind without tensors, and their parts."""
    # Reversed, so that the first call of a module determines its order.
    order = {layer_of(name): position for position, name in reversed(list(enumerate(run.calls)))}
    by_layer: dict[str, list[Call]] = {}
    for name, call in run.calls.items():
        by_layer.setdefault(layer_of(name), []).append(call)
    state = {name: to_array(tensor) for name, tensor in run.module.state_dict().items()}
    units = []
    for path, module in run.module.named_modules():
        calls = by_layer.get(path)
        kinds = torch_kinds(module)
        below = {name.removeprefix(f"{path}."): value for name, value in state.items() if name.startswith(f"{path}.")}
        tensor_names = [*module._parameters, *module._buffers, *getattr(module, "parametrizations", {})]
        if not path or calls is None or not (kinds or tensor_names):
            continue
        if not kinds:
            # A user's own class: only its own tensors, since its submodules are units themselves.
            below = {name: value for name, value in below.items() if "." not in name or "parametrizations" in name}
        bits = joined_bits(run.bits.get(f"{path}.{name}", 0) for name in below)
        transposed = not kinds and _is_transposed(below, calls[0])
        if transposed:
            kinds, below = ("linear",), {name: array.T for name, array in below.items()}
        unit = replace(_unit(path, kinds, below, path, "", calls, order[path], bits, module), transposed=transposed)
        units.append(unit)
        units += (replace(part, transposed=transposed) for part in _parts(unit, by_layer, order))
    return units


def _is_transposed(tensors: Mapping[str, Array], call: Call) -> bool:
    """Whether a user's own module is a linear layer whose weight is (in, out)."""
    arrays = leaves(list(call.inputs)), leaves(list(call.outputs))
    weight = tensors.get("weight")
    if set(tensors) - {"weight", "bias"} or weight is None or weight.ndim != 2 or tuple(map(len, arrays)) != (1, 1):
        return False
    tokens, output = (np.asarray(side[0]) for side in arrays)
    shape = (*tokens.shape[:-1], weight.shape[1])
    if tokens.dtype.kind != "f" or tokens.shape[-1:] != weight.shape[:1] or output.shape != shape:
        return False
    return bool(np.allclose(tokens @ weight + tensors.get("bias", 0.0), output, rtol=NEAR))


def torch_kinds(module: torch.nn.Module) -> tuple[str, ...]:
    """The possible kinds of a module of ``torch.nn``; none for a user's own class, and for a pooling that also returns
    indices, which no Keras layer does."""
    return () if getattr(module, "return_indices", False) else kinds_of_module(module)


def possible(unit: Unit, layer: object) -> tuple[str, ...]:
    """The kinds that are possible for both a unit and a Keras layer."""
    layer_kinds = kinds_of_layer(layer)
    if not unit.kinds or layer_kinds is None:
        return unit.kinds or layer_kinds or ()
    # In the layer's kinds too: a Dense layer may take a convolution with a window of one, and the reverse.
    return tuple(kind for kind in unit.kinds if kind in layer_kinds)


def joined(units: Sequence[Unit], call_index: int) -> Unit:
    """Linear layers with the same input, joined side by side; ``call_index`` is the call."""
    output = np.concatenate([np.asarray(unit.calls[call_index].outputs[0]) for unit in units], axis=-1)
    call = Call(units[0].calls[call_index].inputs, (output,), units[0].calls[call_index].caller)
    bits = joined_bits(unit.bits for unit in units)
    path = " + ".join(unit.path for unit in units)
    order = min(unit.order for unit in units)
    return replace(_unit(path, ("linear",), {}, path, "", [call], order, bits), members=tuple(u.path for u in units))


def stack(tensors: Mapping[str, Array], bits: int) -> Unit:
    """Tensors of several modules, by their full names, that are one variable in Keras."""
    path = " + ".join(tensors)
    return Unit(path, (), {}, path, "", (), -1, bits, members=tuple(tensors))


def _unit(
    path: str, kinds: tuple[str, ...], tensors: Mapping[str, Array], module_path: str, part: str, calls: list[Call],
    order: int, bits: int, module: torch.nn.Module | None = None,
) -> Unit:  # fmt: skip
    prints = tuple(tuple(Print(np.asarray(leaf)) for leaf in leaves(list(call.inputs))
                         if np.asarray(leaf).dtype.kind != "b") for call in calls)  # fmt: skip
    return Unit(path, kinds, dict(tensors), module_path, part, tuple(calls), order, bits, module, prints)


def _parts(unit: Unit, calls: Mapping[str, list[Call]], order: Mapping[str, int]) -> Iterator[Unit]:
    """The parts of a module that corresponds to several Keras layers."""
    if unit.kinds == ("attention_packed",):
        yield from _attention(unit, calls, order)
    elif "layer_1" in {name.rpartition(".")[2] for name in calls if name.startswith(f"{unit.path}.layer_")}:
        yield from _recurrent(unit, calls, order)
    elif unit.kinds == ("linear",) and "weight" in unit.tensors:
        yield from _chunks(unit)


def _attention(unit: Unit, calls: Mapping[str, list[Call]], order: Mapping[str, int]) -> Iterator[Unit]:
    """The projections of ``torch.nn.MultiheadAttention``, as linear layers."""
    tensors = unit.tensors
    width = tensors["out_proj.weight"].shape[0]
    for index, step in enumerate(ATTENTION):
        path, rows = f"{unit.path}.{step}", slice(index * width, (index + 1) * width)
        if path not in calls:
            continue
        if step == "out":
            part_tensors = {name[9:]: value for name, value in tensors.items() if name[:9] == "out_proj."}
        else:
            # Packed only if keys and values have the width of the queries.
            packed = tensors.get("in_proj_weight")
            part_tensors = {"weight": tensors[f"{step[0]}_proj_weight"] if packed is None else packed[rows]}
            if "in_proj_bias" in tensors:
                part_tensors["bias"] = tensors["in_proj_bias"][rows]
        yield _unit(path, ("linear",), part_tensors, unit.path, step, calls[path], order[path], unit.bits)


def _recurrent(unit: Unit, calls: Mapping[str, list[Call]], order: Mapping[str, int]) -> Iterator[Unit]:
    """The layers of ``torch.nn.LSTM`` and other RNNs, each as a module of one layer."""
    layer = 0
    while (path := f"{unit.path}.layer_{layer}") in calls:
        part_tensors = {name.replace(f"_l{layer}", "_l0"): value for name, value in unit.tensors.items()
                        if f"_l{layer}" in name.removesuffix("_reverse")[-len(f"_l{layer}"):]}  # fmt: skip
        yield _unit(path, unit.kinds, part_tensors, unit.path, f"layer_{layer}", calls[path], order[path], unit.bits)
        layer += 1


def _chunks(unit: Unit) -> Iterator[Unit]:
    """Equal parts of a linear layer's features."""
    width = unit.tensors["weight"].shape[0]
    for count in range(2, MOST_CHUNKS + 1):
        # Parts of one feature each are not layers.
        if width % count or width == count:
            continue
        size = width // count
        for index in range(count):
            part_tensors = {name: value[index * size : (index + 1) * size] for name, value in unit.tensors.items()}
            part_calls = [Call(call.inputs, (call.outputs[0][..., index * size : (index + 1) * size],), call.caller,
                               call.names) for call in unit.calls]  # fmt: skip
            part = f"chunk_{index}_of_{count}"
            yield _unit(
                f"{unit.path}.{part}", ("linear",), part_tensors, unit.path, part, part_calls, unit.order, unit.bits
            )
