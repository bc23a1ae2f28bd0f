"""The user's model, built in float64 and in float32 with the weights of a checkpoint."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Collection, Mapping

from .bias_shifts import bias_shifts, named_tensors
from .cases import MakeInputs
from .checkpoint_file import CheckpointFile, before_loading, digest_of, settle_tables
from .errors import Refusal, one_line
from .float64 import default_dtype, lifted
from .nested import to_array
from .user_code import find_factory, takes_path

if TYPE_CHECKING:
    from torch.nn import Module

    from .shared_types import Array, Factory, Fresh


@dataclass(frozen=True)
class Tensors:
    """One tensor of the state_dict: its shape, its stored dtype, and the SHA-256 of its float32 (or integer) values in
    C order; ``None`` if it was recomputed because it was stored in 16 bits."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str | None


@dataclass
class Subject:
    """A model in float64 and in float32, in evaluation mode, with the same weights; ``notes`` describe changes to its
    tables, and ``shifts`` are those of its random biases."""

    modules: dict[str, Module]
    make_inputs: MakeInputs | None
    tensors: dict[str, Tensors]
    notes: list[str] = field(default_factory=list)
    shifts: Mapping[str, Array] = field(default_factory=dict)

    @property
    def evaluating(self) -> bool:
        """Whether all modules are in evaluation mode."""
        return not any(part.training for module in self.modules.values() for part in module.modules())


def build(
    target: str, checkpoint: str, key: str | None = None, tensors: Mapping[str, Array] | None = None,
    arguments: Mapping[str, object] | None = None, spare: Collection[str] = (),
    carried: Mapping[str, str] = MappingProxyType({}),
) -> Subject:  # fmt: skip
    """Build the model of ``module:factory`` with the checkpoint's weights, in float32 and in float64.

    ``tensors`` are those of the checkpoint, if they were read before; the model need not have the ``spare`` ones.
    ``carried`` are those that the port holds as they are, which are not recomputed: for each name the tensor that the
    port gets, which is another one for a tied tensor. ``arguments`` are the factory's, by name.
    """
    factory = find_factory(target)
    import torch

    if arguments:
        factory = functools.partial(factory, **arguments)
    state = None if takes_path(factory, target) else CheckpointFile(checkpoint, key, tensors, spare)
    single: Fresh = {}
    double: Fresh = {}
    with default_dtype(torch.float32), before_loading(single):
        narrow, make_inputs = _make(factory, target, checkpoint, state)
    with lifted(), before_loading(double):
        wide, _ = _make(factory, target, checkpoint, state)
    # One without tensors, such as an activation, may be shared by all models.
    own_parts = {id(part) for part in narrow.modules() if part is narrow or named_tensors(part)}
    if not own_parts.isdisjoint(map(id, wide.modules())):
        raise Refusal(4, target, "returns the same module at every call", "build a new module in it")
    # Before the module becomes float32; "torch.float16" without its first six characters.
    stored = {name: str(tensor.dtype)[6:] for name, tensor in (state.tensors if state else narrow.state_dict()).items()}
    narrow.float()
    notes: list[str] = []
    recomputed = settle_tables(target, narrow, wide, single, double, notes, carried)
    summaries = {
        name: Tensors(tuple(t.shape), stored.get(name, ""), None if name in recomputed else digest_of(to_array(t)))
        for name, t in narrow.state_dict().items()
    }
    return Subject({"float64": wide, "float32": narrow}, make_inputs, summaries, notes, bias_shifts(narrow, carried))


def build_alone(
    target: str, checkpoint: str | None = None, arguments: Mapping[str, object] | None = None
) -> tuple[Module, MakeInputs | None]:
    """Build the model of ``module:factory`` in float64 and in evaluation mode, with the factory's own weights; also
    returns ``make_inputs`` if the factory does. ``checkpoint`` is for a factory that takes a path."""
    factory = find_factory(target)
    if arguments:
        factory = functools.partial(factory, **arguments)
    takes = takes_path(factory, target)
    if takes and checkpoint is None:
        raise Refusal(2, target, "takes the path of a checkpoint", "give the checkpoint as well")
    with lifted():
        module, make_inputs = _make(factory if takes else lambda _: factory(), target, checkpoint or "", None)
    return module.double(), make_inputs


def _make(
    factory: Factory, target: str, checkpoint: str, state: CheckpointFile | None
) -> tuple[Module, MakeInputs | None]:
    """Call the factory, and load the state_dict if the factory does not do so."""
    from torch import nn

    try:
        returned = factory() if state else factory(checkpoint)
    except Refusal:
        raise
    except (Exception, SystemExit) as error:
        raise Refusal(4, target, f"raises {one_line(error)}", "correct your factory") from error
    module, make_inputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    module = unwrapped(module)
    if not isinstance(module, nn.Module):
        what = f"gives a {type(module).__name__}, not a torch.nn.Module"
        raise Refusal(4, target, what, "return the module, or the module and make_inputs")
    module = module.to("cpu")
    if state:
        state.load_into(module)
    return module.eval(), make_inputs


def unwrapped(module: Any) -> Any:
    """The module, and those inside it, without the wrappers of torch.compile, of activation checkpointing and of
    training on several devices, which compute the same."""
    inner = getattr(module, "_modules", {})
    parallel = ("module",) if type(module).__name__ in ("DataParallel", "DistributedDataParallel") else ()
    wrapper = next((name for name in ("_orig_mod", "_checkpoint_wrapped_module", *parallel) if name in inner), None)
    if wrapper is not None:
        return unwrapped(inner[wrapper])
    if isinstance(inner, dict):  # that of a module of TorchScript cannot be changed
        inner.update({name: unwrapped(child) for name, child in inner.items()})
    return module
