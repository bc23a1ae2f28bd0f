"""Collect the storages that a pickle declares by persistent ids, with one meaning per key.

torch takes the type and length of a storage from the first id that names it and ignores those of later ones. Ids that
contradict each other are refused here, so that no two readers see different tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wdport.checkpoint.faults import NOT_WRITTEN_BY_TORCH, Fault
from wdport.checkpoint.inert import UnloadedObject
from wdport.checkpoint.tensor import StorageClass, StorageRef

_KEY_DIGITS = 20


@dataclass
class Storages:
    """The storages that one pickle declares. ``legacy`` ids have a sixth element and may also denote a module's
    class."""

    legacy: bool = False
    roots: dict[str, StorageRef] = field(default_factory=dict)
    """The whole storage by key, as first declared."""
    views: dict[str, StorageRef] = field(default_factory=dict)
    """The part of a storage by the key of a view (torch before 0.4)."""

    def persistent(self, persistent_id: object) -> object:
        """Resolve ``("storage", class, key, location, numel[, view])`` or ``("module", class, ...)``.

        The location, such as ``"cuda:0"``, says where the storage was; it is not used.
        """
        if type(persistent_id) is tuple and not any(type(part) is bool for part in persistent_id):
            match persistent_id:
                case ("storage", StorageClass() as cls, str(key), str(), int(numel)) if not self.legacy:
                    return self._root(cls, key, numel)
                case ("storage", StorageClass() as cls, str(key), str(), int(numel), view) if self.legacy:
                    root = self._root(cls, key, numel)
                    return root if view is None else self._view(root, view)
                case ("module", UnloadedObject(form="name") as cls, (None | str()), (None | str())) if self.legacy:
                    return cls
        raise Fault("a persistent id is not that of a tensor's storage", NOT_WRITTEN_BY_TORCH)

    def _root(self, cls: StorageClass, key: str, numel: int) -> StorageRef:
        _check_key(key)
        if numel < 0:
            raise Fault(f"storage {key} of {numel} elements")
        storage = StorageRef(key, cls.dtype, numel)
        declared = self.roots.setdefault(key, storage)
        if (declared != storage and (declared.numel or numel)) or key in self.views:
            what = f"storage {key} is declared as {numel} {cls.dtype} and as {declared.numel} {declared.dtype}"
            raise Fault(what, NOT_WRITTEN_BY_TORCH)
        return storage

    def _view(self, root: StorageRef, view: object) -> StorageRef:
        match view:
            case (str(key), int(first), int(count)) if type(view) is tuple and {type(first), type(count)} == {int}:
                _check_key(key)
                if first < 0 or count < 0 or first + count > root.numel:
                    raise Fault(f"a view of elements {first} to {first + count} of a storage that has {root.numel}")
                storage = replace(root, first=first, numel=count)
                if self.views.setdefault(key, storage) != storage or key in self.roots:
                    raise Fault(f"storage view {key} is declared in two ways", NOT_WRITTEN_BY_TORCH)
                return storage
        raise Fault("a storage view is not a key, an offset and a length", NOT_WRITTEN_BY_TORCH)


def _check_key(key: str) -> None:
    """Check a key, which is looked up as ``data/<key>``: torch numbers them, and digits cannot form a path."""
    if len(key) > _KEY_DIGITS or not (key.isascii() and key.isdigit()):
        raise Fault(f"storage key {key[:40]!r} is not a number")
