"""Modules that several others hold: the innermost instance of the port around the holders makes them, and gives them to
the holders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wdport.porting.lowering.keras_graph import unused
from wdport.porting.source.classes import Instance
from wdport.porting.source.instances import Instances
from wdport.porting.source.names import allowed

SharedAttributes = Mapping[tuple[str, str], str]
"""The attributes of modules in holders that do not make them, by the paths of the holder and of the module."""


def share(instances: Instances) -> SharedAttributes:
    """Make the modules that several instances call parts of the innermost instance around all of these.

    One that is in a list or a Sequential stays where it is: the writer then says that it is called outside of its
    module."""
    attributes: dict[tuple[str, str], str] = {}
    for path, names in _holders(instances).items():
        first = instances.owner_of(path)
        holders = [first, *(instances.by_path[holder] for holder in names)]
        chains = [_around(instances, holder) for holder in holders]
        attribute = first.parts[path]
        if attribute.index is not None or any(one.scope.is_sequential for chain in chains for one in chain):
            continue
        common = next(one for one in chains[0] if all(one in chain for chain in chains))
        if common is not first:
            del first.parts[path]
            attributes[first.path, path] = attribute.name
            name = unused(names.get(common.path, attribute.name), _used(instances, common))
            common.parts[path] = replace(attribute, name=name)
        for holder, name in names.items():
            if holder != common.path:
                attributes[holder, path] = unused(name, _used(instances, instances.by_path[holder]))
    return attributes


def _holders(instances: Instances) -> dict[str, dict[str, str]]:
    """The instances that call a layer or an instance which they do not own, by its first path, each with its name for
    it."""
    modules = instances.scopes.graph.modules
    placed = {path for instance in instances.by_path.values() for path in instance.parts}
    holders: dict[str, dict[str, str]] = {}
    for alias, module in modules.items():
        # What is inside a shared module is shared with it.
        if module.same_as not in placed or modules[alias.rpartition(".")[0]].same_as:
            continue
        path, holder = module.same_as, instances.owner(alias)
        if holder is not instances.owner_of(path) and _calls(instances, holder, path):
            name = alias.removeprefix(f"{holder.path}." if holder.path else "").replace(".", "_")
            holders.setdefault(path, {}).setdefault(holder.path, allowed(name, instances.reserved))
    return holders


def _calls(instances: Instances, holder: Instance, path: str) -> bool:
    """Whether the code of an instance calls a module."""
    scopes = (scope for scope in instances.scopes.root.walk() if scope.path == holder.path)
    return any(instances.scopes.path(item) == path for scope in scopes for item in scope.items)


def _around(instances: Instances, instance: Instance) -> list[Instance]:
    """An instance and those that it is in, the innermost first."""
    listed = [instance]
    while listed[-1].path:
        listed.append(instances.owner_of(listed[-1].path))
    return listed


def _used(instances: Instances, instance: Instance) -> set[str]:
    return {attribute.name for attribute in instance.parts.values()} | instances.reserved
