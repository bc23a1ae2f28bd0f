"""Names of a PyTorch model's own attributes that mislead or say nothing, while its forward stays as it is.

Only modules of the user's own classes are renamed: their submodules, bare parameters and buffers, and the order of
their ``ModuleList``. What PyTorch names itself (``weight``, ``in_proj_bias``, the places in a ``Sequential``) stays.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Literal, get_args
from zlib import crc32

from torch import nn

How = Literal["honest", "misleading", "meaningless"]
HOW: tuple[How, ...] = get_args(How)
Build = Callable[[], nn.Module]
_LETTERS = "bcdfghjklmnpqrstvwxz"


class View:
    """A renamed module as its own forward sees it: under the names that it was written with."""

    def __init__(self, module: Any) -> None:
        object.__setattr__(self, "_module", module)

    def __getattr__(self, name: str) -> Any:
        module = self._module
        held = module.__dict__["_written"]
        if name in held.lists:
            return tuple(map(_seen, held.lists[name]))
        if name in held.names:
            new = held.names[name]
            kept = next(kept for kept in (module._modules, module._parameters, module._buffers) if new in kept)
            return _seen(kept[new])
        own = inspect.getattr_static(held.own, name, None)
        if inspect.isfunction(own):
            return MethodType(own, self)
        if isinstance(own, property) and own.fget is not None:
            return own.fget(self)
        return getattr(module, name)

    @property
    def __class__(self) -> Any:  # type: ignore[override,misc]
        return self._module.__dict__["_written"].own  # super() asks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)

    def get_submodule(self, target: str) -> Any:
        """By the names that the module was written with."""
        return functools.reduce(getattr, target.split("."), self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a forward that sets {name} cannot be renamed")


def _seen(value: Any) -> Any:
    """A renamed module as a forward sees it that reaches into it; anything else as it is."""
    return View(value) if "_written" in getattr(value, "__dict__", {}) else value


def _is_own(module: nn.Module) -> bool:
    """Whether a class of the user's own, and not of a layer of PyTorch's, made all attributes."""
    return all(kind in (nn.Module, object) or not kind.__module__.startswith("torch.") for kind in type(module).__mro__)


class Written:
    """What a module was written with: its class, new names by old, and its lists in their own order."""

    def __init__(self, own: type, names: dict[str, str], lists: dict[str, tuple[nn.Module, ...]]) -> None:
        self.own, self.names, self.lists = own, names, lists


def renamed(module: nn.Module, how: How) -> dict[str, str]:
    """Rename everything in place; the honest name of every tensor of the new ``state_dict``, by its new name."""
    paths: dict[str, str] = {}
    _rename(module, how, "", "", paths)
    return {new: _translated(new, paths) for new in module.state_dict()}


def honest_names(build: Build, how: How) -> dict[str, str]:
    """The honest name of every tensor and of every module, by the name that it has under ``how``."""
    module = build()
    paths: dict[str, str] = {}
    if how != "honest":
        _rename(module, how, "", "", paths)
    found = [*module.state_dict(), *(name for name, _ in module.named_modules(remove_duplicate=False) if name)]
    return {new: _translated(new, paths) for new in found}


def renaming(build: Build, how: How) -> Build:
    """A builder of the model with these names: permuted among siblings of one class, or random letters, with the
    attributes registered in another order."""

    def build_renamed() -> nn.Module:
        module = build()
        renamed(module, how)
        return module

    build_renamed.__module__ = build.__module__
    build_renamed.__name__ = build_renamed.__qualname__ = f"build_{how}"
    return build_renamed


def _rename(module: nn.Module, how: How, old: str, new: str, paths: dict[str, str]) -> None:
    """Depth first, so that a list is permuted when what is in it is renamed."""
    if "_written" in module.__dict__:
        raise ValueError(f"{old}: a module at two places cannot be renamed")
    names: dict[str, str] = {}
    orders: dict[str, list[int]] = {}
    if _is_own(module):
        names, orders = _new_names(module, how, random.Random(crc32(f"{how} {old}".encode())))
    for name, child in list(module._modules.items()):
        if child is None:
            continue
        to = names.get(name, name)
        paths[f"{new}{to}"] = f"{old}{name}"
        if name not in orders:
            _rename(child, how, f"{old}{name}.", f"{new}{to}.", paths)
            continue
        held = list(child.children())
        for at, place in enumerate(orders[name]):
            paths[f"{new}{to}.{at}"] = f"{old}{name}.{place}"
            _rename(held[place], how, f"{old}{name}.{place}.", f"{new}{to}.{at}.", paths)
    for own in (*module._parameters, *module._buffers):
        paths[f"{new}{names.get(own, own)}"] = f"{old}{own}"
    if names:
        _carry_out(module, how, names, orders)


def _new_names(module: nn.Module, how: How, rng: random.Random) -> tuple[dict[str, str], dict[str, list[int]]]:
    """New names by old; and of every list, the old place of what is at each new one."""
    groups: dict[Any, list[str]] = {}
    for name, child in module._modules.items():
        if child is not None:
            groups.setdefault(type(child), []).append(name)
    for kept in (module._parameters, module._buffers):
        for name, value in kept.items():
            if value is not None:
                groups.setdefault((tuple(value.shape), value.dtype), []).append(name)
    names: dict[str, str] = {}
    for group in groups.values():
        if how == "misleading":
            names |= dict(zip(group, group[1:] + group[:1], strict=True))
        else:
            names |= {name: "".join(rng.choices(_LETTERS, k=6)) for name in group}
    lists = {}
    for name, child in module._modules.items():
        if isinstance(child, nn.ModuleList):
            order = list(range(len(child)))
            lists[name] = order[1:] + order[:1] if how == "misleading" else rng.sample(order, len(order))
    return names, lists


def _carry_out(module: nn.Module, how: How, names: Mapping[str, str], orders: Mapping[str, list[int]]) -> None:
    written: dict[str, tuple[nn.Module, ...]] = {}
    for name, order in orders.items():
        held = module._modules[name]
        assert isinstance(held, nn.ModuleList)
        written[name] = tuple(held)
        module._modules[name] = nn.ModuleList([written[name][place] for place in order])
    kinds: tuple[Any, ...] = (module._modules, module._parameters, module._buffers)
    for kept in kinds:
        items = [(names.get(name, name), value) for name, value in kept.items()]
        if how == "meaningless":
            items.sort(key=lambda item: item[0])
        kept.clear()
        kept.update(items)
    module._non_persistent_buffers_set = {names.get(name, name) for name in module._non_persistent_buffers_set}
    module.__dict__["_written"] = Written(type(module), dict(names), written)
    module.__class__ = _subclass(type(module))


@functools.cache
def _subclass(own: type[nn.Module]) -> type[nn.Module]:
    """The class of renamed modules of this class: one, as the modules of one class have."""

    @functools.wraps(own.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        view: Any = View(self)
        return own.forward(view, *args, **kwargs)

    return type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__})


def _translated(name: str, paths: Mapping[str, str]) -> str:
    """The honest name of a path, by the longest beginning that is known."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        known = paths.get(".".join(parts[:count]))
        if known is not None:
            return ".".join([known, *parts[count:]])
    return name
