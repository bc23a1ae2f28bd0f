"""Extract the tensors of a whole pickled module, an inert leaf, under the names of ``module.state_dict()``.

A module's attributes are plain data. Of those of ``torch.nn.Module`` only the tables ``_parameters``, ``_buffers``
(less ``_non_persistent_buffers_set``) and ``_modules`` are read; of a TorchScript module, whose attributes are in one
flat table, the tensors and the modules among them. Its class is never imported and its code is never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from wdport.base.limits import MAX_DEPTH, MAX_MODULE_ENTRIES
from wdport.checkpoint.faults import DEQUANTIZE, LOAD_TRUSTED, NOT_WRITTEN_BY_TORCH, Fault
from wdport.checkpoint.tensor import TensorRef
from wdport.checkpoint.unloaded_object import GRAPH_MODULE, UnloadedObject

MAX_TENSOR_NAME: Final = 1000
"""The longest real tensor name seen has 76 characters; prefixes are searched component by component."""

_TABLES: Final = ("_parameters", "_buffers", "_modules")
_NON_PERSISTENT: Final = "_non_persistent_buffers_set"
_HOOKS: Final = ("_state_dict_hooks", "_state_dict_pre_hooks")
_SCRIPT: Final = "__torch__"
_TRAINING: Final = "training"
"""The first attribute of a TorchScript module that is neither a parameter nor a buffer."""

Items = Iterator[tuple[object, object]]


@dataclass
class ModuleTensors:
    """Leaves by dotted name, which are tensors in a valid file, and the parts that were left out."""

    leaves: dict[str, object] = field(default_factory=dict)
    not_read: list[str] = field(default_factory=list)


def is_module(value: object) -> bool:
    """Return whether ``value`` is a module whose tables of tensors are plain data."""
    return _attributes(value) is not None and (is_script(value) or _is_python(value))


def is_script(value: object) -> bool:
    """Return whether ``value`` is an object of a TorchScript archive."""
    return isinstance(value, UnloadedObject) and value.form == "object" and f"{value.module}.".startswith(f"{_SCRIPT}.")


def walk_module(root: UnloadedObject) -> ModuleTensors:
    """Return every tensor of ``root`` and of the modules below it, in the order of ``state_dict()``."""
    walk = _ModuleWalk(is_script(root))
    walk.enter(root, "", 0)
    return walk.contents


def _attributes(value: object) -> Mapping[object, object] | None:
    """Return the attributes of an object that was built only from them, otherwise None."""
    if not isinstance(value, UnloadedObject) or value.altered or value.form == "name":
        return None
    if value.full_name == GRAPH_MODULE:
        first = value.arguments[0] if value.arguments and value.state is None else None
        return first if isinstance(first, dict) else None
    return value.state if isinstance(value.state, dict) else None


def _is_python(value: object) -> bool:
    attributes = _attributes(value) or {}
    return all(isinstance(attributes.get(name), dict) for name in _TABLES)


class _ModuleWalk:
    def __init__(self, script: bool) -> None:
        self.script = script
        self.contents = ModuleTensors()
        self.open: set[int] = set()
        self.entries = 0

    def enter(self, node: UnloadedObject, prefix: str, depth: int) -> None:
        """Collect the tensors of ``node``, then those of its children."""
        if depth > MAX_DEPTH:
            raise Fault(f"modules nested more than {MAX_DEPTH} deep", NOT_WRITTEN_BY_TORCH)
        # A shared module is legal and is entered again under its other name; only a module inside itself has no end.
        if id(node) in self.open:
            raise Fault("a module of the pickle contains itself", LOAD_TRUSTED)
        if ".quantized." in f".{node.module}.":
            raise Fault("is a quantized layer of torch, which is not read", DEQUANTIZE, prefix.removesuffix("."))
        self.open.add(id(node))
        tensors, children = self._script(node, prefix) if self.script else self._python(node, prefix)
        for name, leaf in tensors:
            full = self._name(prefix, name)
            if full in self.contents.leaves:
                raise Fault("two tensors of the module have this name", NOT_WRITTEN_BY_TORCH, full)
            self.contents.leaves[full] = leaf
        for name, child in children:
            full = self._name(prefix, name)
            if not isinstance(child, UnloadedObject) or (
                _attributes(child) is None if self.script else not _is_python(child)
            ):
                what = child.described if isinstance(child, UnloadedObject) else f"a {type(child).__name__}"
                raise Fault(f"is {what}, not a module that can be read", LOAD_TRUSTED, full)
            self.enter(child, f"{full}.", depth + 1)
        self.open.remove(id(node))

    def _name(self, prefix: str, name: object) -> str:
        if not isinstance(name, str) or len(prefix) + len(name) > MAX_TENSOR_NAME:
            raise Fault("a name in the module is not a short text", NOT_WRITTEN_BY_TORCH, prefix)
        return f"{prefix}{name}"

    def _count(self, *tables: Mapping[object, object]) -> None:
        self.entries += 1 + sum(map(len, tables))
        if self.entries > MAX_MODULE_ENTRIES:
            what = f"a module of more than {MAX_MODULE_ENTRIES} parameters, buffers and submodules"
            raise Fault(what, LOAD_TRUSTED)

    def _python(self, node: UnloadedObject, prefix: str) -> tuple[Items, Items]:
        attributes = _attributes(node) or {}
        parameters, buffers, modules = (_table(attributes, name) for name in _TABLES)
        self._count(parameters, buffers, modules)
        left_out = attributes.get(_NON_PERSISTENT, frozenset())  # absent before torch 1.6
        if not isinstance(left_out, frozenset):
            raise Fault(f"its {_NON_PERSISTENT} is not a set of names", LOAD_TRUSTED, prefix)
        for hook in _HOOKS:
            # A hook may rename or drop tensors when torch makes the state_dict. Its code is not run here, so the hook
            # is reported.
            if attributes.get(hook):
                self.contents.not_read.append(f"{prefix}{hook} (code that may change the state_dict)")
        persistent = {name: leaf for name, leaf in buffers.items() if name not in left_out}
        leaves = ((name, leaf) for table in (parameters, persistent) for name, leaf in table.items())
        return _present(leaves), _present(iter(modules.items()))

    def _script(self, node: UnloadedObject, prefix: str) -> tuple[Items, Items]:
        """Split a TorchScript module's attributes: torch writes parameters and buffers first, then ``training``, then
        others."""
        attributes = _attributes(node) or {}
        self._count(attributes)
        names = list(attributes)
        end = names.index(_TRAINING) if _TRAINING in attributes else len(names)
        for name in names[end:]:
            value = attributes[name]
            if isinstance(value, TensorRef):
                self.contents.not_read.append(f"{prefix}{name} (a tensor, but neither parameter nor buffer)")
            elif isinstance(value, UnloadedObject) and not _is_script_module(value):
                self.contents.not_read.append(f"{prefix}{name} ({value.described})")
        tensors = ((name, attributes[name]) for name in names[:end] if _is_tensor(attributes[name]))
        children = ((name, value) for name, value in attributes.items() if _is_script_module(value))
        return tensors, children


def _table(attributes: Mapping[object, object], name: str) -> Mapping[object, object]:
    table = attributes.get(name)
    return table if isinstance(table, dict) else {}


def _present(items: Items) -> Items:
    return ((name, value) for name, value in items if value is not None)


def _is_tensor(value: object) -> bool:
    return isinstance(value, TensorRef) or (isinstance(value, UnloadedObject) and bool(value.reason))


def _is_script_module(value: object) -> bool:
    """Return whether it is a module: only modules have the attribute ``training``.

    An object with a custom state also counts as a module: it may contain tensors that cannot be found.
    """
    if not isinstance(value, UnloadedObject) or value.form != "object":
        return False
    attributes = _attributes(value)
    return attributes is None or _TRAINING in attributes
