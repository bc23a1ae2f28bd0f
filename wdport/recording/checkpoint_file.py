"""The weights of a checkpoint, and which tables of a model computed in float64 replace those that it stores."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator, Mapping
from unittest.mock import patch

import numpy as np

from .bias_shifts import memories, memory_of, named_tensors
from .errors import Refusal, one_line

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch import Tensor
    from torch.nn import Module

    from .shared_types import Array, Fresh


class CheckpointFile:
    """A checkpoint file read by torch without running any code in it."""

    def __init__(
        self, path: str, key: str | None, tensors: Mapping[str, Array] | None = None, spare: Collection[str] = ()
    ) -> None:
        import torch

        self.path = path
        self._spare: set[int] = set()
        self.tensors: dict[str, Tensor] = {}
        if tensors is not None:
            self._state: dict[str, Tensor] = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
            self._spare = {id(tensor) for name, tensor in self._state.items() if name in spare}
            return
        fix = "save a plain state_dict, or give a factory that takes the path and loads the file itself"
        try:
            tree: Any = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise Refusal(3, path, f"cannot be read ({error.strerror or error})", "check the path") from None
        except Exception as error:  # for a damaged file, its unpickler raises errors of any kind
            reason = str(error).rpartition("WeightsUnpickler error: ")[2]
            what = f"torch does not load it with weights_only ({type(error).__name__}: {one_line(reason)})"
            raise Refusal(3, path, what, fix) from None
        for part in key.split(".") if key else ():
            tree = tree.get(part) if isinstance(tree, dict) else None
        if not key and not _is_state(tree) and isinstance(tree, dict):
            places = ("state_dict", "model_state_dict", "model")
            tree = next((tree[place] for place in places if _is_state(tree.get(place))), None)
        if not _is_state(tree):
            raise Refusal(3, path, f"has no state_dict{f' under {key}' if key else ''}", fix)
        self._state = dict(tree)

    def load_into(self, module: Module) -> None:
        """Load every tensor; without the wrappers' prefixes, all names except the spare ones must match. Of a tensor
        that the module has under several names, the file may have one."""
        import torch

        places: dict[object, list[str]] = {}
        for name, tensor in module.state_dict(keep_vars=True).items():
            places.setdefault(id(tensor) if isinstance(tensor, torch.Tensor) else name, []).append(name)
        expected = {name for names in places.values() for name in names}
        stripped = _stripped(self._state, expected)
        tensors = {name: t for name, t in stripped.items() if name in expected or id(t) not in self._spare}
        for tied in places.values():
            present = [name for name in tied if name in tensors]
            for name in present[1:]:
                if not _same_values(tensors[present[0]], tensors[name]):
                    what = f"{name} differs from {present[0]}, and the module has one tensor for both"
                    raise Refusal(4, self.path, what, "give the factory of this checkpoint")
            tensors.update({name: tensors[present[0]] for name in tied if present and name not in tensors})
        self.tensors = tensors
        missing, unexpected = sorted(expected - set(tensors)), sorted(set(tensors) - expected)
        fix = "give the factory of this checkpoint"
        if missing and unexpected:
            fix += ", or state the file's older names under `formerly` in the table"
        for names, what in ((missing, "lacks"), (unexpected, "has")):
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                rest = "which the module has" if what == "lacks" else "which the module does not have"
                raise Refusal(4, self.path, f"{what} {names[0]}{more}, {rest}", fix)
        try:
            module.load_state_dict(tensors)
        except RuntimeError as error:
            what = one_line(str(error).partition("\n\t")[2] or error)
            raise Refusal(4, self.path, what, "give the factory of this checkpoint") from None


def _same_values(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())  # NaN differs from itself


def _is_state(value: object) -> TypeGuard[dict[str, Tensor]]:
    import torch

    return isinstance(value, dict) and bool(value) and all(isinstance(t, torch.Tensor) for t in value.values())


def _stripped(state: Mapping[str, Tensor], expected: Collection[str]) -> dict[str, Tensor]:
    """The tensors by the module's own names, without the prefixes that wrappers add to all of them."""
    tensors = dict(state)
    while not set(tensors) & set(expected):
        # torch.optim.swa_utils.AveragedModel adds a counter, n_averaged, whose name has no prefix.
        if all(name.startswith("module.") for name in tensors if name != "n_averaged"):
            tensors.pop("n_averaged", None)
        prefixes = ("module.", "model.", *(f"{component}." for component in COMPONENTS))
        prefix = next((p for p in prefixes if all(n.startswith(p) for n in tensors)), None)
        if prefix is None or not tensors:
            break
        tensors = {name[len(prefix) :]: tensor for name, tensor in tensors.items()}
    return {_plain(name): tensor for name, tensor in tensors.items()}


COMPONENTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_fpw_module")
"""Attributes in which torch.compile, FullyShardedDataParallel and activation checkpointing keep the module that they
wrap: components of the names of its tensors, at any depth."""


def _plain(name: str) -> str:
    *path, last = name.split(".")
    return ".".join([*(part for part in path if part not in COMPONENTS), last])


@contextmanager
def before_loading(fresh: Fresh) -> Iterator[None]:
    """Keep a copy of every module's buffers from before a state_dict is first loaded into it."""
    from torch import nn

    load: Callable[..., object] = nn.Module.load_state_dict

    def loading(self: Module, *args: object, **kwargs: object) -> object:
        for part in self.modules():
            for name, buffer in part.named_buffers(recurse=False):
                fresh.setdefault((part, name), buffer.detach().clone())
        return load(self, *args, **kwargs)

    with patch.object(nn.Module, "load_state_dict", loading):
        yield


def settle_tables(
    target: str, narrow: Module, wide: Module, single: Fresh, double: Fresh, notes: list[str],
    carried: Collection[str],
) -> Collection[str]:  # fmt: skip
    """Copy the float32 module's parameters to the float64 module, which keeps its computed tables if the checkpoint's
    equal them up to rounding and they are not ``carried``. Returns the tables that were stored in 16 bits; both modules
    then have them recomputed."""
    import torch

    parameters, wide_parameters = dict(narrow.named_parameters()), dict(wide.named_parameters())
    if set(parameters) != set(wide_parameters):
        raise Refusal(4, target, "builds different parameters in float64", "make its size independent of the dtype")
    for name, parameter in wide_parameters.items():
        parameter.data = parameters[name].data.double() if parameter.is_floating_point() else parameters[name].data
    recomputed = []
    held = memories(named_tensors(narrow), carried)
    parts = dict(narrow.named_modules())
    for path, part in wide.named_modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            stored, where = parts[path].get_buffer(name), f"{path}.{name}".lstrip(".")
            exact, rounded = double.get((part, name)), single.get((parts[path], name))
            if not (buffer.is_floating_point() or buffer.is_complex()):
                part._buffers[name] = stored.clone()
            elif memory_of(stored) in held:
                part._buffers[name] = _widened(stored)
            elif exact is None or rounded is None:
                part._buffers[name] = _widened(buffer)
                if buffer.dtype not in (torch.float64, torch.complex128):
                    notes.append(f"{where} was not computed in float64: it is the checkpoint's, rounded to float32")
            elif _is_rounding(*(_parts(_widened(values)) for values in (stored, exact, rounded))):
                part._buffers[name] = _widened(exact)
                if not buffer.is_complex() and _unit(stored) > 2.0**-24 and not torch.equal(stored, rounded.float()):
                    parts[path]._buffers[name] = rounded.float()
                    recomputed.append(where)
                    notes.append(f"{where} is stored in 16 bits and was recomputed")
            else:
                part._buffers[name] = _widened(stored)
                if not getattr(part, "track_running_stats", False):  # statistics are learned, as weights are
                    notes.append(f"{where} is the checkpoint's: the code computes other values")
    return recomputed


def _widened(values: Tensor) -> Tensor:
    import torch

    return values.to(torch.complex128) if values.is_complex() else values.double()


def _parts(values: Tensor) -> Tensor:
    """The real and imaginary parts of complex values, on a further axis."""
    import torch

    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def _is_rounding(stored: Tensor, exact: Tensor, rounded: Tensor) -> bool:
    """Whether a stored table equals the one computed in float64 up to rounding: of its values, of intermediate integers
    up to its length (an angle p * w in float32 is off by p * 2^-24), or of the code's own float32 result."""
    if stored.shape != exact.shape or exact.shape != rounded.shape:
        return False
    rows, size = max(exact.shape, default=1), float(exact.abs().max()) if exact.numel() else 0.0
    error = float((rounded - exact).abs().nan_to_num(posinf=0.0).max()) if exact.numel() else 0.0
    slack = 8.0 * error + 4.0 * 2.0**-24 * rows * size + 4.0 * _unit(stored) * exact.abs()
    # The difference of equal infinities is NaN, so they are compared by ==.
    return bool(((stored == exact) | ((stored - exact).abs() <= slack)).all())


def _unit(values: Tensor) -> float:
    """Unit roundoff of the narrowest dtype that holds these values."""
    import torch

    for dtype, unit in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        if torch.equal(values.to(dtype).double(), values.double()):
            return unit
    return 2.0**-24


def digest_of(array: Array) -> str:
    """The SHA-256 of the values of an array, as float32 or integers, in C order."""
    values = array.astype(np.float32) if array.dtype.kind == "f" else array
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
